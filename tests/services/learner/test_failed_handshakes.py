"""Who knocks and is no vedette: counted at once, told once it is certain."""

from vedette_services.learner.gateway_sockets import SETTLED_S, FailedHandshakes


def told(strangers: FailedHandshakes, begin: float, end: float) -> int:
    """What was told between two moments, looked at five times a second."""
    found, now = 0, begin
    while now < end:
        found += strangers.count_new(now)
        now += 0.2
    return found


def test_a_connection_that_only_takes_its_time_is_no_stranger() -> None:
    strangers = FailedHandshakes(0.0)
    strangers.accepted += 3
    assert strangers.count == 3
    assert told(strangers, 0.2, 1.0) == 0
    strangers.completed += 3
    assert told(strangers, 1.0, 30.0) == 0


def test_a_stranger_is_told_once_and_only_when_that_is_certain() -> None:
    strangers = FailedHandshakes(0.0)
    strangers.accepted += 2
    assert told(strangers, 0.2, SETTLED_S) == 0
    assert told(strangers, SETTLED_S, 10.0) == 2
    assert told(strangers, 10.0, 20.0) == 0
    strangers.accepted += 1
    assert told(strangers, 20.0, 30.0) == 1


def test_strangers_are_told_although_others_come_meanwhile() -> None:
    strangers = FailedHandshakes(0.0)
    strangers.accepted += 5
    told(strangers, 0.2, 3.0)
    strangers.accepted += 5
    strangers.completed += 5
    assert told(strangers, 3.0, 20.0) == 5


def test_what_peers_gave_up_while_we_stood_still_is_forgiven() -> None:
    strangers = FailedHandshakes(0.0)
    assert told(strangers, 0.2, 5.0) == 0
    strangers.accepted += 25  # all at once, after ten seconds of standing still
    strangers.completed += 7
    assert told(strangers, 15.0, 40.0) == 0
    strangers.accepted += 1
    assert told(strangers, 40.0, 50.0) == 1


def test_who_cannot_even_be_accepted_is_told_at_once() -> None:
    strangers = FailedHandshakes(0.0)
    strangers.failed += 4
    assert strangers.count_new(0.2) == 4
    assert strangers.count == 4

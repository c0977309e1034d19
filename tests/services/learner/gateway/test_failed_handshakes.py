"""Connections without a handshake: counted and reported once it is certain."""

from vedette_services.learner.gateway.sockets import SETTLED_S, FailedHandshakes


def count_reported(handshakes: FailedHandshakes, begin: float, end: float) -> int:
    """What was told between two moments, looked at five times a second."""
    found = 0
    now = begin
    while now < end:
        found += handshakes.count_new(now)
        now += 0.2
    return found


def test_a_connection_that_only_takes_its_time_has_not_failed() -> None:
    handshakes = FailedHandshakes(0.0)
    handshakes.accepted += 3
    assert count_reported(handshakes, 0.2, 1.0) == 0
    assert handshakes.count == 0, "the end of a run may show this number"
    handshakes.completed += 3
    assert count_reported(handshakes, 1.0, 30.0) == 0
    assert handshakes.count == 0


def test_a_failed_handshake_is_reported_once_and_only_when_that_is_certain() -> None:
    handshakes = FailedHandshakes(0.0)
    handshakes.accepted += 2
    assert count_reported(handshakes, 0.2, SETTLED_S) == 0
    assert count_reported(handshakes, SETTLED_S, 10.0) == 2
    assert count_reported(handshakes, 10.0, 20.0) == 0
    handshakes.accepted += 1
    assert count_reported(handshakes, 20.0, 30.0) == 1


def test_failed_handshakes_are_reported_although_others_come_meanwhile() -> None:
    handshakes = FailedHandshakes(0.0)
    handshakes.accepted += 5
    count_reported(handshakes, 0.2, 3.0)
    handshakes.accepted += 5
    handshakes.completed += 5
    assert count_reported(handshakes, 3.0, 20.0) == 5


def test_what_peers_gave_up_while_we_stood_still_is_forgiven() -> None:
    handshakes = FailedHandshakes(0.0)
    assert count_reported(handshakes, 0.2, 5.0) == 0
    handshakes.accepted += 25  # all at once, after ten seconds of standing still
    handshakes.completed += 7
    assert count_reported(handshakes, 15.0, 40.0) == 0
    handshakes.accepted += 1
    assert count_reported(handshakes, 40.0, 50.0) == 1


def test_who_cannot_even_be_accepted_is_told_at_once() -> None:
    handshakes = FailedHandshakes(0.0)
    handshakes.failed += 4
    assert handshakes.count_new(0.2) == 4
    assert handshakes.count == 4

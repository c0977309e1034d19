"""How soon a manager hears what is new."""

from vedette_services.learner.gateway.flow_control import (
    ANYWAY_S,
    CHANGED_S,
    AckScheduler,
    FlightLimits,
)

MANY = [f"m{number}" for number in range(50)]
MIB = 1 << 20


def pace(batch_bytes: int, share: int = 80) -> AckScheduler:
    """At 0 s everybody was told everything."""
    made = AckScheduler(FlightLimits(1024, 64 * MIB), batch_bytes)
    made.on_sent(MANY, share, 0.0)
    return made


def test_who_has_used_a_quarter_of_its_credit_hears_at_once_however_many_there_are() -> None:
    waits = pace(3_000)
    for _ in range(20):
        waits.on_batch("m1")
    waits.on_batch("m2")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m1"]
    assert {"m1", "m2"} <= set(waits.due_acks(MANY, ANYWAY_S))


def test_who_may_have_few_batches_open_hears_after_few() -> None:
    waits = pace(480_000, 10)
    for _ in range(3):
        waits.on_batch("m1")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m1"]


def test_news_that_cannot_wait_does_not() -> None:
    waits = pace(3_000)
    waits.expedite("m3")
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m3"]


def test_what_nobody_is_there_to_hear_is_no_news() -> None:
    waits = pace(3_000)
    waits.on_batch("gone")
    assert waits.unacked
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert not waits.unacked


def test_all_are_sent_an_ack_at_least_so_often_and_who_is_gone_is_not() -> None:
    waits = pace(3_000)
    assert waits.due_acks(MANY[:2], 0.9 * ANYWAY_S) == []
    assert waits.due_acks(MANY[:2], ANYWAY_S) == MANY[:2]
    waits.on_sent(MANY[:1], 80, ANYWAY_S)
    assert waits.due_acks(MANY[:2], 1.1 * ANYWAY_S) == MANY[1:2]


def test_thousands_are_sent_acks_without_news_less_often() -> None:
    waits = AckScheduler(None, 3_000)
    many = [f"m{number}" for number in range(1000)]
    waits.on_sent(many, 80, 0.0)
    assert waits.due_acks(many, 0.49) == []
    assert waits.due_acks(many, 0.51) == many


def test_managers_of_the_gateway_before_hear_at_the_first_poll() -> None:
    assert AckScheduler(None, 3_000, ["a", "b"]).due_acks(["a", "b", "c"], 0.0) == ["a", "b"]


def test_a_joiner_hears_at_the_first_poll_though_it_was_sent_an_ack_a_moment_ago() -> None:
    waits = pace(3_000)
    waits.expedite_joiner("m3")
    assert waits.due_acks(MANY, 0.1 * CHANGED_S) == ["m3"]


def test_a_manager_alone_hears_soon_enough_that_its_window_does_not_bound_it() -> None:
    waits = pace(3_000)
    alone = MANY[:1]
    for _ in range(20):
        waits.on_batch("m0")
    assert waits.due_acks(alone, 0.2 * CHANGED_S) == []
    assert waits.due_acks(alone, 0.3 * CHANGED_S) == alone

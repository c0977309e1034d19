"""How soon a manager hears what is new."""

from vedette_protocol.credit import Credit
from vedette_services.learner.flow_control import ANYWAY_S, CHANGED_S, AckScheduler, FlightLimits

MANY = [(f"m{number}", 1) for number in range(50)]
MIB = 1 << 20


def pace(batch_bytes: int, credit: Credit) -> AckScheduler:
    """At 0 s everybody was told everything."""
    made = AckScheduler(FlightLimits(1024, 64 * MIB), batch_bytes)
    made.on_sent([manager for manager, _ in MANY], credit, 0.0)
    return made


def test_who_has_used_a_quarter_of_its_credit_hears_at_once_however_many_there_are() -> None:
    waits = pace(3_000, Credit(80, 5 * MIB))
    for _ in range(20):
        waits.on_batch("m1")
    waits.on_batch("m2")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == [("m1", 1)]
    assert {"m1", "m2"} <= {manager for manager, _ in waits.due_acks(MANY, ANYWAY_S)}


def test_large_batches_use_credit_up_by_their_bytes() -> None:
    waits = pace(480_000, Credit(80, 5 * MIB))  # ten of them are all that may be under way
    for _ in range(3):
        waits.on_batch("m1")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == [("m1", 1)]


def test_news_that_cannot_wait_does_not() -> None:
    waits = pace(3_000, Credit(80, 5 * MIB))
    waits.expedite("m3")
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == [("m3", 1)]


def test_what_nobody_is_there_to_hear_is_no_news() -> None:
    waits = pace(3_000, Credit(80, 5 * MIB))
    waits.on_batch("gone")
    assert waits.has_unacked
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert not waits.has_unacked

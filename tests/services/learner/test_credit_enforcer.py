"""Who keeps to its credit and who does not."""

from vedette_services.learner.flow_control import REMEMBERED_S, CreditEnforcer

M = ("m", 1)


def sends(watch: CreditEnforcer, batches: int) -> int:
    """How many of so many new batches are taken."""
    taken = 0
    for _ in range(batches):
        if not watch.is_exhausted(*M):
            watch.on_batch(*M)
            taken += 1
    return taken


def test_what_is_within_the_credit_is_taken_from_ack_to_ack() -> None:
    watch = CreditEnforcer(at_first=64)
    assert sends(watch, 1000) == 1000  # nothing is known of it yet
    for second in range(100):
        watch.on_ack(*M, 8, float(second))
        assert sends(watch, 8) == 8


def test_what_is_beyond_it_is_not() -> None:
    watch = CreditEnforcer(at_first=64)
    watch.on_ack(*M, 8, 0.0)
    assert sends(watch, 100) == 64  # of the learner before this one, it may have heard so much
    for second in range(int(REMEMBERED_S) + 2):
        watch.on_ack(*M, 8, float(second))
    assert sends(watch, 100) == 8


def test_credit_that_was_cut_counts_for_a_while() -> None:
    watch = CreditEnforcer(at_first=1)
    watch.on_ack(*M, 32, 0.0)
    watch.on_ack(*M, 0, 1.0)
    assert sends(watch, 32) == 32  # they were under way
    watch.on_ack(*M, 0, REMEMBERED_S - 1.0)
    assert sends(watch, 32) == 32
    watch.on_ack(*M, 0, REMEMBERED_S + 2.0)
    assert sends(watch, 32) == 0


def test_one_that_was_given_nothing_new_for_long_may_use_what_it_was_given_last() -> None:
    watch = CreditEnforcer(at_first=1)
    watch.on_ack(*M, 32, 0.0)
    watch.on_ack(*M, 16, 1.0)
    watch.on_ack(*M, 16, 1000.0)
    assert sends(watch, 100) == 16


def test_who_is_gone_is_forgotten() -> None:
    watch = CreditEnforcer(at_first=1)
    watch.on_ack(*M, 1, 0.0)
    watch.retain([("other", 2)])
    assert sends(watch, 10) == 10

"""A run whose samples are nearly all rejected ends; one that still gains some goes on."""

from __future__ import annotations

from vedette_services.learner.gateway.rejection_watch import RejectionWatch

WHY = "column 'obs' has a value that is not finite"


def rejecting(watch: RejectionWatch, manager: str, began: float, seconds: float) -> None:
    """Two batches of 8 rows a second are rejected."""
    for half in range(round(2 * seconds) + 1):
        watch.on_rejected(manager, 8, WHY, began + half / 2)


def test_ten_seconds_of_rejected_batches_end_a_run_with_the_reason() -> None:
    watch = RejectionWatch()
    rejecting(watch, "a", 100.0, 9.5)
    assert watch.judge(["a"]) == ""
    watch.on_rejected("a", 8, WHY, 110.0)
    assert watch.judge(["a"]) == f"168 of the 168 samples of 10 s were rejected: {WHY}"


def test_one_bad_manager_of_several_ends_no_run() -> None:
    watch = RejectionWatch()
    for second in range(100):
        rejecting(watch, "bad", float(second), 1.0)
        watch.on_inserted("good", 4)  # fewer than are rejected
        assert watch.judge(["bad", "good"]) == ""


def test_a_manager_that_sends_nothing_meanwhile_may_be_a_good_one() -> None:
    watch = RejectionWatch()
    rejecting(watch, "bad", 0.0, 10.0)
    assert watch.judge(["bad", "robot"]) == ""
    rejecting(watch, "bad", 20.0, 10.0)
    assert watch.judge(["bad"])  # the other one has left


def test_a_bad_manager_that_has_left_ends_nothing() -> None:
    watch = RejectionWatch()
    rejecting(watch, "bad", 0.0, 10.0)
    assert watch.judge([]) == ""


def test_one_bad_actor_of_several_of_a_manager_ends_no_run() -> None:
    watch = RejectionWatch()
    for second in range(100):
        rejecting(watch, "a", float(second), 1.0)
        watch.on_inserted("a", 32)
        assert watch.judge(["a"]) == ""


def test_what_was_inserted_long_before_does_not_outweigh_what_is_rejected_now() -> None:
    watch = RejectionWatch()
    watch.on_rejected("a", 8, WHY, 0.0)
    for _ in range(1000):
        watch.on_inserted("a", 800)
        assert watch.judge(["a"]) == ""
    rejecting(watch, "a", 900.0, 4.5)
    assert watch.judge(["a"]) == ""  # the exception of before: it is counted anew from here
    rejecting(watch, "a", 905.0, 10.0)
    assert watch.judge(["a"])


def test_a_robot_that_sends_a_batch_a_minute_is_given_time() -> None:
    watch = RejectionWatch()
    for minute in range(9):
        watch.on_rejected("robot", 8, WHY, 60.0 * minute)
        assert watch.judge(["robot"]) == ""
    watch.on_rejected("robot", 8, WHY, 60.0 * 9)
    assert watch.judge(["robot"])

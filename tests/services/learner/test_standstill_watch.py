"""What the supervisor does about a process that stands still."""

import logging

from vedette_services.learner.standstill_watch import StandstillWatch, Verdict
from vedette_services.status.heartbeats import Standstill


def still(seconds: float, overdue: float) -> Standstill:
    return Standstill("trainer", seconds, "it is at x.py:3 f", overdue)


def lines(verdict: Verdict) -> list[tuple[int, str]]:
    assert not verdict.restart
    return [(line.level, line.text) for line in verdict.lines]


def test_a_process_that_stands_still_is_said_once_then_louder_then_started_again() -> None:
    watch = StandstillWatch("trainer")
    assert lines(watch.judge(None, 0)) == []
    said = "the trainer has stood still for 10 s: it is at x.py:3 f"
    assert lines(watch.judge(still(10.0, 0.3), 0)) == [(logging.WARNING, said)]
    assert lines(watch.judge(still(11.0, 0.4), 0)) == []
    said = (
        "the trainer has stood still for 30 s: it is at x.py:3 f; unless it goes on, it is started "
        "again in 30 s"
    )
    assert lines(watch.judge(still(30.0, 1.0), 0)) == [(logging.ERROR, said)]
    assert lines(watch.judge(still(59.0, 1.9), 0)) == []
    verdict = watch.judge(still(60.0, 2.0), 0)
    assert verdict.restart == "the trainer has stood still for 60 s: it is at x.py:3 f"
    assert lines(watch.judge(None, 1)) == []  # another process now


def test_one_that_goes_on_is_said_to_work_again() -> None:
    watch = StandstillWatch("gateway")
    watch.judge(still(40.0, 1.3), 0)
    (line,) = watch.judge(None, 0).lines
    assert line.text == "the gateway works again; it stood still for 40 s"
    assert lines(watch.judge(None, 0)) == []


def test_after_restarts_that_brought_nothing_it_has_longer() -> None:
    watch = StandstillWatch("trainer")
    (line,) = watch.judge(still(60.0, 2.0), 1).lines
    assert line.text.endswith("it is started again in 60 s")
    assert not watch.judge(still(119.0, 3.9), 1).restart
    assert watch.judge(still(120.0, 4.0), 1).restart


def test_what_may_take_as_long_as_it_likes_is_no_warning_and_never_restarted() -> None:
    watch = StandstillWatch("trainer")
    (line,) = watch.judge(still(10.0, 0.0), 0).lines
    assert line.level == logging.INFO
    assert watch.judge(still(1e7, 0.0), 0) == Verdict()

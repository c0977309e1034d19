"""What successive statuses of a run show together."""

from pathlib import Path

import pytest
from fleets import fleet  # beside this file

from vedette.live.progress import (
    PaceTracker,
    ProgressTracker,
    Series,
    TimeSplit,
    TimeSplitTracker,
    describe_trend,
    sparkline,
)
from vedette_rl.recording.registry import BUILT_IN as RECORDERS
from vedette_services.status.status import Eval, Status, StopStatus, Time


def test_a_curve_goes_from_the_least_to_the_greatest() -> None:
    assert sparkline([0.0, 1.0, 7.0], 3) == ["▁▂█"]
    assert sparkline([3.0, 3.0], 2) == ["▄▄"]
    assert sparkline([], 5) == [""]
    assert sparkline([0.0, 15.0], 2, 2) == [" █", "▁█"]


def test_a_curve_is_as_wide_as_its_place() -> None:
    assert len(sparkline([float(n) for n in range(1000)], 37)[0]) == 37
    assert sparkline([0.0, 0.0, 7.0, 7.0], 2) == ["▁█"]
    assert sparkline([0.0, 7.0], 100) == ["▁▁▁▁████"]


def test_the_trend_says_no_more_than_the_scatter_allows() -> None:
    assert describe_trend([1.0, 2.0, 3.0]) == ""
    assert describe_trend([0.0, 1.0, 2.0, 3.0]) == "rising +3.0 over the last 4"
    assert describe_trend([3.0, 2.0, 1.0, 0.0], short=True) == "falling -3.0"
    assert describe_trend([5.0, 5.0, 5.0, 5.0], short=True) == "level"
    assert describe_trend([0.0, 9.0, 1.0, 8.0, 2.0, 9.0, 0.0, 8.0], short=True) == "level"


def test_the_trend_is_that_of_the_last_evaluations() -> None:
    assert describe_trend([*range(50, 0, -1), *range(10)]) == "rising +9.0 over the last 10"


def test_a_full_series_keeps_its_shape_at_half_the_resolution() -> None:
    series = Series(capacity=4)
    series.extend([float(n) for n in range(9)])
    assert series.values == (1.5, 5.5)
    series.extend([9.0, 10.0, 11.0])
    assert series.values == (1.5, 5.5, 9.5)


def test_the_time_left_follows_the_pace_of_the_last_minute() -> None:
    pace = PaceTracker()
    stop = StopStatus(max_opts=1000, max_seconds=400.0, max_env_steps=10_000)
    assert pace.update(Status(epoch=1, seconds=100.0, opt_steps=0, env_steps=500, stop=stop)) == {}
    found = pace.update(Status(epoch=1, seconds=110.0, opt_steps=50, env_steps=500, stop=stop))
    assert found == {"optimization steps": pytest.approx(190.0), "seconds": pytest.approx(290.0)}
    for seconds in range(120, 300, 10):
        found = pace.update(
            Status(epoch=1, seconds=seconds, opt_steps=50, env_steps=500, stop=stop)
        )
    assert list(found) == ["seconds"]


def test_the_pace_is_measured_anew_after_a_restart() -> None:
    pace = PaceTracker()
    stop = StopStatus(max_opts=1000)
    pace.update(Status(epoch=1, seconds=100.0, opt_steps=500, stop=stop))
    assert pace.update(Status(epoch=2, seconds=101.0, opt_steps=400, stop=stop)) == {}


def test_an_evaluation_is_new_once_and_not_where_the_first_status_has_it() -> None:
    tracker = ProgressTracker()
    evaluated = [
        fleet([], eval={"version": version, "return_mean": float(version)})
        for version in (100, 100, 200, 200)
    ]
    assert [tracker.update(status)[1] for status in evaluated] == [False, False, True, False]
    assert tracker.update(evaluated[-1])[0].evaluations == (100.0, 200.0)
    fresh = ProgressTracker()
    assert not fresh.update(Status())[1]
    assert fresh.update(Status(eval=Eval(version=1, return_mean=2.0)))[1]


def first_return_after(*evaluations: Eval) -> float | None:
    tracker = ProgressTracker()
    return [tracker.update(Status(eval=found))[0].first_return for found in evaluations][-1]


def test_the_way_to_the_target_begins_at_the_first_evaluation_if_that_was_seen() -> None:
    first = Eval(version=1, return_mean=20.0, best_return_mean=20.0, best_version=1)
    late = Eval(version=9, return_mean=190.0, best_return_mean=190.0, best_version=9)
    assert first_return_after(Eval(), first, late) == 20.0
    assert first_return_after(late) is None  # attached later
    resumed = Eval(best_return_mean=150.0, best_version=8)
    assert first_return_after(resumed, late) is None
    missed = Eval(version=2, return_mean=10.0, best_return_mean=20.0, best_version=1)
    assert first_return_after(Eval(), missed, late) is None


def test_time_is_split_over_the_last_seconds() -> None:
    watch = TimeSplitTracker(window_s=10.0)
    spent = Time(optimizing_s=10.0, sampling_s=5.0, waiting_s=80.0)
    first = watch.update(Status(epoch=1, seconds=100.0, time=spent))
    assert first == TimeSplit(
        waiting=pytest.approx(0.8),
        sampling=pytest.approx(0.05),
        optimizing=pytest.approx(0.1),
        other=pytest.approx(0.05),
    )
    later = Time(optimizing_s=17.0, sampling_s=7.0, waiting_s=80.0)
    assert watch.update(Status(epoch=1, seconds=110.0, time=later)) == TimeSplit(
        waiting=0.0,
        sampling=pytest.approx(0.2),
        optimizing=pytest.approx(0.7),
        other=pytest.approx(0.1),
    )


def test_the_time_split_starts_again_with_a_new_epoch() -> None:
    watch = TimeSplitTracker()
    spent = Time(optimizing_s=10.0, sampling_s=0.0, waiting_s=0.0)
    watch.update(Status(epoch=1, seconds=100.0, time=spent))
    found = watch.update(Status(epoch=2, seconds=20.0, time=spent))
    assert found is not None
    assert found.optimizing == pytest.approx(0.5)
    assert watch.update(Status(epoch=2)) is None


@pytest.mark.parametrize("name", RECORDERS)
def test_the_curves_begin_with_what_is_recorded_of_the_run(tmp_path: Path, name: str) -> None:
    recorder = RECORDERS[name](tmp_path)
    for step in range(1, 5):
        recorder.write({"rollout/ep_rew_mean": float(step)}, 100 * step)
        evaluated = {"eval/mean_reward": float(step), "eval/version": 10.0 * step}
        recorder.write(evaluated, 100 * step)
    recorder.close()
    tracker = ProgressTracker(tmp_path)
    assert tracker.update(fleet([], eval={"version": 40, "return_mean": 4.0}))[0].evaluations == (
        1.0,
        2.0,
        3.0,
        4.0,
    )
    status = fleet([], eval={"version": 90, "return_mean": 9.0, "best_return_mean": 9.0})
    progress, _ = tracker.update(status)
    assert progress.evaluations == (1.0, 2.0, 3.0, 4.0, 9.0)
    assert progress.first_return == 1.0
    assert progress.rollouts[:4] == (1.0, 2.0, 3.0, 4.0)


def test_the_shares_that_the_learner_has_measured_are_shown() -> None:
    measured = Time(
        optimizing_s=1.0,
        sampling_s=0.0,
        waiting_s=9.0,
        optimizing_share=0.5,
        sampling_share=0.1,
        waiting_share=0.3,
    )
    found = TimeSplitTracker().update(Status(phase="training", seconds=10.0, time=measured))
    assert found == TimeSplit(0.3, 0.1, 0.5, pytest.approx(0.1))

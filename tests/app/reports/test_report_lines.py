import numpy as np
import pytest

from vedette.reports.chart import step_axis, value_axis
from vedette.reports.lines import (
    ChartLine,
    curve_line,
    evaluation_line,
    mean_line,
    spread_line,
    step_at,
)
from vedette_rl.recording.reading import Curve


def curve(*values: float, every: int = 10) -> Curve:
    steps = np.arange(len(values), dtype=np.int64) * every
    return Curve(steps, steps.astype(np.float64), np.array(values))


def line(*y: float) -> ChartLine:
    return ChartLine("", np.arange(len(y), dtype=np.float64), np.array(y))


def test_a_short_curve_is_drawn_as_it_is() -> None:
    drawn = curve_line(curve(1.0, 2.0), "loss")
    assert (drawn.x.tolist(), drawn.y.tolist(), drawn.bands) == ([0.0, 10.0], [1.0, 2.0], ())


def test_a_long_curve_keeps_its_means_and_its_peaks() -> None:
    values = np.zeros(10_000)
    values[5000] = 160.0
    drawn = curve_line(curve(*values), "loss", points=100)
    assert drawn.x.size == 100
    assert drawn.y.max() == pytest.approx(1.6)
    assert drawn.bands[0].high.max() == 160.0
    assert drawn.bands[0].low.max() == 0.0


def test_values_that_are_not_finite_are_left_out() -> None:
    drawn = curve_line(curve(1.0, np.nan, np.inf, 4.0), "loss")
    assert drawn.y.tolist() == [1.0, 4.0]
    assert curve_line(curve(np.nan), "loss").x.size == 0


def test_an_evaluation_has_its_interval_and_the_spread_of_its_episodes() -> None:
    parts = {"std": curve(2.0, 2.0), "min": curve(5.0, 6.0), "max": curve(15.0, 16.0)}
    drawn = evaluation_line(curve(10.0, 11.0), parts, episodes=5)
    spread, interval = drawn.bands
    assert (spread.low.tolist(), spread.high.tolist()) == ([5.0, 6.0], [15.0, 16.0])
    # Student's t with 4 degrees of freedom; the recorded deviation divides by n, not by n - 1
    half = 2.7764 * 2.0 * np.sqrt(5 / 4) / np.sqrt(5)
    np.testing.assert_allclose(interval.high - drawn.y, half)
    np.testing.assert_allclose(drawn.y - interval.low, half)


def test_an_evaluation_of_one_episode_or_of_an_older_version_has_no_interval() -> None:
    assert evaluation_line(curve(10.0), {"std": curve(0.0)}, episodes=1).bands == ()
    assert evaluation_line(curve(10.0), {}, episodes=20).bands == ()


def test_seeds_become_a_mean_with_an_interval_as_far_as_all_have_come() -> None:
    mean = mean_line([line(1.0, 1.0, 1.0), line(3.0, 3.0)], "both", colour=2)
    assert (mean.x[0], mean.x[-1], mean.colour) == (0.0, 1.0, 2)
    np.testing.assert_allclose(mean.y, 2.0)
    np.testing.assert_allclose(mean.bands[0].high - 2.0, 12.7062 * np.sqrt(2) / np.sqrt(2))


def test_one_seed_is_its_own_mean() -> None:
    mean = mean_line([line(1.0, 5.0)], "one", colour=1)
    assert (mean.y.tolist(), mean.bands, mean.label) == ([1.0, 5.0], (), "one")


def test_actors_are_drawn_between_the_least_and_the_best() -> None:
    drawn = spread_line(curve(2.0, 3.0), curve(1.0, 1.0), curve(4.0, 9.0), "mean", "between")
    assert (drawn.bands[0].low.tolist(), drawn.bands[0].high.tolist()) == ([1.0, 1.0], [4.0, 9.0])
    assert spread_line(curve(2.0), None, None, "mean", "between").bands == ()


def test_a_time_becomes_a_step() -> None:
    assert step_at(curve(1.0, 1.0, 1.0), 15.0) == 20.0
    assert step_at(curve(1.0, 1.0), -1.0) is None
    assert step_at(curve(1.0, 1.0), 1e9) is None


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.0, 500.0], (0, 100, 200, 300, 400, 500)),
        ([100.0, 500.0], (0, 100, 200, 300, 400, 500)),
        ([400.0, 500.0], (400, 420, 440, 460, 480, 500)),
        ([-3.0, 7.0], (-4, -2, 0, 2, 4, 6, 8)),
        ([1.0, 1.0], (0, 0.5, 1, 1.5)),
        ([0.0], (-1, -0.5, 0, 0.5, 1)),
        ([], (0, 0.2, 0.4, 0.6, 0.8, 1)),
    ],
)
def test_an_axis_has_round_ticks(values: list[float], ticks: tuple[float, ...]) -> None:
    axis = value_axis([np.array(values)], [], 100.0, 0.0)
    assert axis.ticks == pytest.approx(ticks)
    assert len(set(axis.labels())) == len(ticks)


def test_a_very_wide_interval_does_not_flatten_the_lines() -> None:
    axis = value_axis([np.array([100.0, 500.0])], [np.array([-1e6, 1e6])], 100.0, 0.0)
    assert axis.low == 0.0
    assert axis.high <= 800.0


def test_axes_of_steps_end_together() -> None:
    first = step_axis([np.array([200.0, 900.0])], 1000.0, 0.0, 100.0)
    assert (first.low, first.high) == (0.0, 1000.0)
    assert float(first.at(500.0)) == 50.0

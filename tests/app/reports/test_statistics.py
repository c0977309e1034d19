"""Statistics over seeds: interquartile means, bootstrap intervals, curves that end apart."""

from dataclasses import replace

import numpy as np
import pytest

from vedette.reports.statistics import (
    SeedCurve,
    aggregate_curves,
    average_seeds,
    bootstrap_interval,
    interquartile_mean,
    mean,
)


def curve(seed: int, *points: tuple[float, float]) -> SeedCurve:
    x, y = zip(*points, strict=True)
    return SeedCurve(str(seed), np.array(x), np.array(y))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three is no whole value
        ([100.0, 2.0, 1.0, 4.0], 3.0),
        ([0.0, 1.0, 2.0, 3.0, 1000.0], 2.0),
        ([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -90.0], 3.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(
    scores: list[float], expected: float
) -> None:
    assert interquartile_mean(np.array(scores), 0) == expected


def test_the_statistics_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for size in range(1, 14):
        scores = rng.normal(size=size)
        assert interquartile_mean(scores, 0) == pytest.approx(stats.trim_mean(scores, 0.25))
    scores = rng.normal(10.0, 3.0, size=12)
    theirs = stats.bootstrap(
        (scores,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), method="percentile", rng=1
    ).confidence_interval
    assert bootstrap_interval(scores, resamples=20_000) == pytest.approx(tuple(theirs), abs=0.1)


def test_the_interval_of_three_values_goes_from_the_least_to_the_most() -> None:
    # of 27 equally likely resamples one is (0, 0, 0) and one is (1, 1, 1): 3.7 % each
    assert bootstrap_interval(np.array([0.0, 0.5, 1.0])) == (0.0, 1.0)


def test_equal_scores_have_an_interval_without_width_and_two_scores_have_none() -> None:
    assert bootstrap_interval(np.full(5, 3.0)) == (3.0, 3.0)
    for few in ([3.0], [3.0, 4.0]):
        assert np.isnan(bootstrap_interval(np.array(few))).all()
        assert np.isnan(bootstrap_interval(np.arange(5.0), np.array(few))).all()
        assert np.isnan(bootstrap_interval(np.arange(5.0), divisors=[np.array(few)])).all()


def test_what_divides_is_as_uncertain_as_what_is_divided() -> None:
    scores = np.full(3, 6.0)
    divisor = np.array([1.0, 2.0, 3.0])
    assert bootstrap_interval(scores, divisors=[divisor]) == (2.0, 6.0)  # 6 / 3, 6 / 1
    assert scores.tolist() == [6.0, 6.0, 6.0]


def test_the_interval_of_many_values_is_that_of_the_normal_distribution() -> None:
    scores = np.random.default_rng(3).normal(5.0, 2.0, size=400)
    low, high = bootstrap_interval(scores, statistic=mean)
    half = 1.96 * scores.std() / 20
    assert (low, high) == pytest.approx((scores.mean() - half, scores.mean() + half), abs=0.02)


def test_each_stratum_is_resampled_on_its_own() -> None:
    # Within a task all seeds agree: no resample can differ, although the tasks are far apart.
    easy = np.full(4, 100.0)
    hard = np.full(4, 0.0)
    assert bootstrap_interval(easy, hard) == (50.0, 50.0)
    assert bootstrap_interval(np.concatenate([easy, hard])) != (50.0, 50.0)


def test_runs_of_one_seed_are_one_score() -> None:
    assert average_seeds(["3", "1", "3"], np.array([2.0, 9.0, 4.0])).tolist() == [3.0, 9.0]


def test_a_seed_that_stopped_at_its_target_keeps_its_last_value() -> None:
    lucky = replace(curve(0, (0, 0.0), (10, 9.0)), solved=True)
    slow = curve(1, (0, 0.0), (20, 0.0), (40, 30.0))
    flat = curve(2, (0, 0.0), (40, 0.0))
    found = aggregate_curves([lucky, slow, flat], 5)
    assert found.x.tolist() == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert found.y.tolist() == [0.0, 3.0, 3.0, 8.0, 13.0]  # (9 + 30 + 0) / 3 at the end
    assert found.live.tolist() == [3, 3, 2, 2, 2]
    assert found.counted.tolist() == [3] * 5
    assert (found.low.tolist(), found.high.tolist()) == ([0.0] * 5, [0.0, 9.0, 9.0, 15.0, 30.0])


def test_a_seed_that_ended_otherwise_is_no_part_of_the_mean_any_more() -> None:
    crashed = curve(0, (0, 9.0), (10, 9.0))
    others = [curve(seed, (0, 3.0), (40, 3.0)) for seed in (1, 2)]
    found = aggregate_curves([crashed, *others], 5)
    assert found.y.tolist() == [5.0, 5.0, 3.0, 3.0, 3.0]
    assert found.counted.tolist() == [3, 3, 2, 2, 2]
    assert np.isnan(found.low[2:]).all()  # two seeds have no interval


def test_a_mean_ends_where_fewer_than_half_of_the_seeds_go_on() -> None:
    curves = [curve(k, (0, 1.0 + k), (end, 1.0 + k)) for k, end in enumerate((10, 20, 30, 40))]
    found = aggregate_curves(curves, 5)
    assert found.x.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert found.y.tolist() == [2.5, 2.5, 3.0, 3.5]
    assert found.counted.tolist() == [4, 4, 3, 2]


def test_an_end_between_two_places_of_the_grid_is_a_place_of_its_own() -> None:
    found = aggregate_curves([curve(0, (0, 1.0), (7, 1.0)), curve(1, (0, 3.0), (20, 3.0))], 3)
    assert found.x.tolist() == [0.0, 7.0, 10.0, 20.0]
    assert found.y.tolist() == [2.0, 2.0, 3.0, 3.0]


def test_a_seed_of_one_evaluation_is_part_of_the_aggregate() -> None:
    """A run that reached its target at once, beside one that needed long."""
    at_once = replace(curve(0, (4, 500.0)), solved=True)
    found = aggregate_curves([at_once, curve(1, (4, 100.0), (34, 300.0))], 4)
    assert found.x.tolist() == [4.0, 14.0, 24.0, 34.0]
    assert found.y.tolist() == pytest.approx([300.0, 333.333, 366.667, 400.0], rel=1e-5)


def test_a_seed_that_ran_twice_does_not_narrow_the_interval() -> None:
    one, other = curve(0, (0, 0.0), (1, 0.0)), curve(1, (0, 8.0), (1, 8.0))
    third = curve(2, (0, 1.0), (1, 1.0))
    once = aggregate_curves([one, other, third], 3)
    twice = aggregate_curves([one, other, third, one, other], 3)
    assert (once.low.tolist(), once.high.tolist()) == (twice.low.tolist(), twice.high.tolist())
    assert (twice.seeds, twice.counted.tolist()) == (3, [3, 3, 3])
    assert np.isfinite(once.low).all()


def test_seeds_that_never_ran_side_by_side_have_no_interval() -> None:
    early = curve(0, (0, 1.0), (5, 1.0))
    late = curve(1, (9, 3.0))
    found = aggregate_curves([early, late, curve(2, (9, 2.0))], 3)
    assert (found.x.tolist(), found.y.tolist()) == ([9.0], [2.5])
    assert found.counted.tolist() == [2]
    assert np.isnan(found.low).all()


def test_scores_divided_by_their_own_mean_have_its_uncertainty_once() -> None:
    """Divided by the means of other draws they had a wide one, as the second has it."""
    scores = np.array([1.0, 2.0, 1.0, 2.0, 1.0])
    assert bootstrap_interval(scores, statistic=mean, divisors=[scores]) == pytest.approx((1, 1))
    low, high = bootstrap_interval(scores, statistic=mean, divisors=[scores + 1e-9])
    assert low < 0.8 < 1.2 < high


def test_many_scores_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(5.0, 2.0, size=60)
    whole = bootstrap_interval(scores, statistic=mean)
    monkeypatch.setattr("vedette.reports.statistics._DRAWN_AT_ONCE", 500)
    assert bootstrap_interval(scores, statistic=mean) == whole

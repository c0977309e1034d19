"""Interquartile means with bootstrap intervals over seeds (Agarwal et al., arXiv:2108.13264)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats, int], Floats]
"""A statistic of an array along an axis."""

RESAMPLES = 2000
SEED_RESAMPLES = 20_000
"""For the few seeds of a comparison, of which 2,000 leave the ends of an interval to chance."""
_LEAST_SCORES = 3  # of fewer an interval is not known
_DRAWN_AT_ONCE = 4_000_000  # scores: 32 MB, and as much for their places
_SEED = 2108  # of the resampling, so that a report can be written again


@dataclass(frozen=True, slots=True)
class SeedCurve:
    """A curve of one run.

    Args:
        seed: runs of one seed are averaged: they are not independent.
        x, y: finite, in the order of x, with at least one point.
    """

    seed: str
    x: Floats
    y: Floats


def interquartile_mean(scores: Floats, axis: int) -> Floats:
    """Return the mean without the lowest and the highest quarter, each rounded down to a count."""
    cut = scores.shape[axis] // 4
    kept = np.arange(cut, scores.shape[axis] - cut)
    return np.asarray(np.sort(scores, axis).take(kept, axis).mean(axis), np.float64)


def mean(scores: Floats, axis: int) -> Floats:
    """Return the mean."""
    return np.asarray(scores.mean(axis), np.float64)


def bootstrap_interval(
    *strata: Floats,
    statistic: Statistic = interquartile_mean,
    resamples: int = RESAMPLES,
    divisors: Sequence[Floats] = (),
) -> tuple[Floats, Floats]:
    """Return the 95 % percentile interval of a statistic.

    It is NaN if a stratum or a divisor has less than three scores: of two it would only be the two.

    Args:
        strata: scores ``(seeds, ...)`` of each task. Each is resampled on its own, along its first
            axis; the statistic is that of all together.
        divisors: scores by whose mean those of the same task are divided. They are as uncertain,
            so they are resampled, too; scores that are their own divisor by the same draws.
    """
    if min(len(scores) for scores in (*strata, *divisors)) < _LEAST_SCORES:
        nothing = np.full(strata[0].shape[1:], np.nan)
        return nothing, nothing
    rng = np.random.default_rng(_SEED)

    def resample(scores: Floats, count: int) -> Floats:
        return scores[rng.integers(len(scores), size=(count, len(scores)))]

    def statistics(count: int) -> Floats:
        drawn = [resample(scores, count) for scores in strata]
        for task, divisor in enumerate(divisors):
            is_own = np.array_equal(divisor, strata[task])
            by = drawn[task] if is_own else resample(divisor, count)
            drawn[task] = drawn[task] / by.mean(1, keepdims=True)
        return statistic(np.concatenate(drawn, axis=1), 1)

    at_once = max(1, _DRAWN_AT_ONCE // sum(scores.size for scores in strata))
    counts = [min(at_once, resamples - first) for first in range(0, resamples, at_once)]
    resampled = np.concatenate([statistics(count) for count in counts])
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return low, high


def average_seeds(seeds: Sequence[str], scores: Floats) -> Floats:
    """Return one row for each distinct seed: the mean of its rows."""
    rows = {seed: [i for i, other in enumerate(seeds) if other == seed] for seed in seeds}
    return np.array([scores[of_seed].mean(0) for of_seed in rows.values()])


def carry(curves: Sequence[SeedCurve], grid: Floats) -> Floats:
    """Interpolate curves ``(runs, G)``; after its end a curve keeps its last value."""
    return np.array([np.interp(grid, curve.x, curve.y) for curve in curves])


def aggregate_curves(curves: Sequence[SeedCurve], points: int) -> tuple[Floats, ...]:
    """Return the interquartile mean of curves: ``(grid, mean, low, high)``.

    It goes from where all have begun to where the last ends; a seed that has ended keeps its last
    value. The 95 % interval is NaN where a run has ended, and for less than three seeds.
    """
    first = max(curve.x[0] for curve in curves)
    grid = np.linspace(first, max(first, *(curve.x[-1] for curve in curves)), points)
    scores = average_seeds([curve.seed for curve in curves], carry(curves, grid))
    unknown = grid > min(curve.x[-1] for curve in curves)
    sides = bootstrap_interval(scores, resamples=RESAMPLES // 4)
    return grid, interquartile_mean(scores, 0), *(np.where(unknown, np.nan, side) for side in sides)

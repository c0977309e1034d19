"""Interquartile means with bootstrap intervals over seeds (Agarwal et al., arXiv:2108.13264)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats, int], Floats]
"""A statistic of an array along an axis."""

RESAMPLES = 2000
SEED_RESAMPLES = 20_000
"""For the few seeds of a comparison, of which 2,000 leave the ends of an interval to chance."""
QUARTERED_LEAST = 4
"""Of fewer scores a quarter is none, so that their interquartile mean is their mean."""
_LEAST_SCORES = 3  # of fewer an interval is not known
_DRAWN_AT_ONCE = 4_000_000  # scores: 32 MB, and as much for their places
_SEED = 2108  # of the resampling, so that a report can be written again


@dataclass(frozen=True, slots=True)
class SeedCurve:
    """A curve of one run.

    Args:
        seed: runs of one seed are averaged: they are not independent.
        x, y: finite, in the order of x, with at least one point.
        solved: these are the evaluations of a run that stopped at its target: from its end on the
            last value stands for what was learned. Of any other curve nothing is known there.
    """

    seed: str
    x: Floats
    y: Floats
    solved: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The mean of the seeds' curves at each place of a grid.

    Args:
        x, y: the grid, and the interquartile mean.
        low, high: the 95 % interval; NaN for fewer than three seeds.
        live: number of seeds whose curves reach each place.
        counted: number of seeds in the mean: the live ones and those that are solved.
        seeds: number of all seeds.
        live_runs, counted_runs, runs: the same of runs, of which a seed may have several.
    """

    x: Floats
    y: Floats
    low: Floats
    high: Floats
    live: NDArray[np.int64]
    counted: NDArray[np.int64]
    seeds: int
    live_runs: NDArray[np.int64]
    counted_runs: NDArray[np.int64]
    runs: int


def interquartile_mean(scores: Floats, axis: int) -> Floats:
    """Return the mean without the lowest and the highest quarter, each rounded down to a count."""
    cut = scores.shape[axis] // QUARTERED_LEAST
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


def resample_curves(curves: Sequence[SeedCurve], grid: Floats) -> Floats:
    """Interpolate curves ``(runs, G)``; NaN outside of a curve, but for the end of a `solved` one,
    which keeps its last value."""
    return np.array(
        [
            np.interp(
                grid, curve.x, curve.y, left=np.nan, right=curve.y[-1] if curve.solved else np.nan
            )
            for curve in curves
        ]
    )


def aggregate_curves(
    curves: Sequence[SeedCurve], points: int, without: Sequence[str] = ()
) -> Aggregate:
    """Return the interquartile mean of curves, from where all have begun.

    A run that has ended is not part of it any more; one that is `solved` is, with its last value.
    A seed is part of it while half of its runs are. The mean ends where fewer than half of the
    seeds are part of it, or none goes on.

    Args:
        without: the seed of each run that has no such curve: it is one of those that are counted.
    """
    first = max(curve.x[0] for curve in curves)
    ends = [curve.x[-1] for curve in curves if curve.x[-1] >= first]
    even = np.linspace(first, max(first, *ends), points)
    grid = np.unique(np.concatenate([even, ends]))
    seeds = [curve.seed for curve in curves]
    runs = Counter([*seeds, *without])
    by_run = resample_curves(curves, grid)
    scores = _average_known(seeds, by_run, runs)
    reaching = np.array([np.where(grid <= curve.x[-1], 1.0, np.nan) for curve in curves])
    live = np.isfinite(_average_known(seeds, reaching, runs)).sum(0)
    known = np.isfinite(scores)
    counted = known.sum(0)
    of_counted = known[[list(dict.fromkeys(seeds)).index(seed) for seed in seeds]]
    known_runs = np.isfinite(by_run) & of_counted
    live_runs = (np.isfinite(reaching) & of_counted).sum(0)
    shown = (2 * counted >= len(runs)) & (live_runs > 0)
    cut = int(np.argmin(shown)) if not shown.all() else grid.size
    middle, low, high = (np.full(cut, np.nan) for _ in range(3))
    for begin, end in _stretches(known[:, :cut]):
        part = scores[known[:, begin], begin:end]
        middle[begin:end] = interquartile_mean(part, 0)
        low[begin:end], high[begin:end] = bootstrap_interval(part, resamples=RESAMPLES // 4)
    return Aggregate(
        grid[:cut],
        middle,
        low,
        high,
        live[:cut],
        counted[:cut],
        len(runs),
        live_runs[:cut],
        known_runs.sum(0)[:cut],
        runs.total(),
    )


def _average_known(seeds: Sequence[str], scores: Floats, runs: Mapping[str, int]) -> Floats:
    """Return one row for each distinct seed: the mean of its rows where half of them are known.

    Args:
        runs: how many rows each seed has, with those that are not there.
    """
    rows = {seed: [i for i, other in enumerate(seeds) if other == seed] for seed in seeds}
    averages = []
    for seed, of_seed in rows.items():
        part = scores[of_seed]
        known = np.isfinite(part)
        sums = np.where(known, part, 0.0).sum(0)
        count = known.sum(0)
        is_known = 2 * count >= runs[seed]
        averages.append(np.where(is_known, sums / np.maximum(count, 1), np.nan))
    return np.array(averages)


def _stretches(known: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the stretches in which the same seeds are known; none of nothing."""
    if not known.shape[1]:
        return
    changes = np.flatnonzero((known[:, 1:] != known[:, :-1]).any(0)) + 1
    edges = [0, *changes.tolist(), known.shape[1]]
    yield from itertools.pairwise(edges)

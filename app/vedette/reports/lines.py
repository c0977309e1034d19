"""The lines of charts, made from curves: thinned, or the mean of several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vedette_rl.evaluation.evaluator import t_quantile
from vedette_rl.recording.reading import Curve

POINTS = 160
"""The most points of a line. A chart is 400 units wide, so that more could not be seen."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Band:
    """An area around a line.

    Args:
        label: its label in the legend.
        low, high: as long as the line; NaN where there is no band.
        strong: drawn darker than others.
        loose: the plot need not hold it: an interval of two seeds is about ten times as wide as
            their difference.
    """

    label: str
    low: Floats
    high: Floats
    strong: bool = False
    loose: bool = False


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart.

    Args:
        label: its label in the legend; "" for none.
        x, y: finite, in the order of x.
        bands: around the line.
        colour: index of one of the page's eight colours.
        faint: drawn thin, behind the others.
    """

    label: str
    x: Floats
    y: Floats
    bands: tuple[Band, ...] = ()
    colour: int = 0
    faint: bool = False


def curve_line(curve: Curve, label: str, *, colour: int = 0, points: int = POINTS) -> ChartLine:
    """Make the line of a curve.

    A long curve becomes the means of equal intervals, with a band from the least to the greatest
    value of each, so that no peak is lost.
    """
    finite = np.isfinite(curve.values)
    x, y = curve.steps[finite].astype(np.float64), curve.values[finite]
    if x.size <= points:
        return ChartLine(label, x, y, colour=colour)
    width = (x[-1] - x[0]) or 1.0
    where = ((x - x[0]) / width * points).astype(np.int64).clip(max=points - 1)
    counts = np.bincount(where, minlength=points)
    held = counts > 0
    means = np.bincount(where, y, points)[held] / counts[held]
    middles = np.bincount(where, x, points)[held] / counts[held]
    low, high = np.full(points, np.inf), np.full(points, -np.inf)
    np.minimum.at(low, where, y)
    np.maximum.at(high, where, y)
    band = Band("from least to greatest", low[held], high[held])
    return ChartLine(label, middles, means, (band,), colour)


def evaluation_line(mean: Curve, others: Mapping[str, Curve | None], episodes: int) -> ChartLine:
    """Make the line of the evaluations, with intervals of the means and ranges of the episodes.

    Args:
        mean: of the returns.
        others: ``std``, ``min`` and ``max`` of the returns, and ``episodes``, as far as recorded.
        episodes: of an evaluation that did not record their number.
    """
    step, value = mean.steps.astype(np.float64), mean.values
    finite = np.isfinite(value)
    bands: list[Band] = []
    low, high = (_aligned(mean, others.get(name)) for name in ("min", "max"))
    if np.isfinite(low).any():
        bands.append(Band("its episodes, worst to best", low[finite], high[finite]))
    half = _half_interval(
        _aligned(mean, others.get("std")), _aligned(mean, others.get("episodes")), episodes
    )
    if np.isfinite(half).any():
        bands.append(
            Band("95 % of the mean", (value - half)[finite], (value + half)[finite], strong=True)
        )
    return ChartLine("mean return", step[finite], value[finite], tuple(bands))


def spread_line(
    mean: Curve, low: Curve | None, high: Curve | None, label: str, what: str
) -> ChartLine:
    """Make the line of a mean, with a band from the least to the greatest of its parts."""
    line = curve_line(mean, label)
    if low is None or high is None or not line.x.size:
        return line
    below, above = curve_line(low, ""), curve_line(high, "")
    band = Band(what, _at(below, line.x, 0), _at(above, line.x, 1))
    return replace(line, bands=(band,))


def mean_line(lines: Sequence[ChartLine], label: str, *, colour: int) -> ChartLine:
    """Make the line of the mean of seeds with its 95 % interval, where all seeds have values.

    Args:
        lines: one for each seed, each with at least one point.
    """
    first, last = max(line.x[0] for line in lines), min(line.x[-1] for line in lines)
    if len(lines) == 1 or last <= first:
        longest = max(lines, key=lambda line: line.x[-1])
        return replace(longest, label=label, bands=(), colour=colour)
    x = np.linspace(first, last, POINTS)
    seeds = np.array([np.interp(x, line.x, line.y) for line in lines])
    mean = seeds.mean(0)
    half = t_quantile(len(lines) - 1) * seeds.std(0, ddof=1) / np.sqrt(len(lines))
    what = f"95 % of the mean of {len(lines)} seeds"
    band = Band(what, mean - half, mean + half, loose=True)
    return ChartLine(label, x, mean, (band,), colour)


def step_at(curve: Curve, time_s: float) -> float | None:
    """Return the step of a curve at a time; None before its first point and after its last."""
    index = int(np.searchsorted(curve.times, time_s))
    return float(curve.steps[index]) if 0 < index < curve.steps.size else None


def _aligned(to: Curve, curve: Curve | None) -> Floats:
    """The values recorded at the times of `to`; NaN where there are none."""
    values = np.full(to.values.size, np.nan)
    if curve is not None:
        by_time = dict(zip(curve.times.tolist(), curve.values.tolist(), strict=True))
        values[:] = [by_time.get(time_s, np.nan) for time_s in to.times.tolist()]
    return values


def _half_interval(std: Floats, episodes: Floats, otherwise: int) -> Floats:
    """Half the 95 % interval of each mean, by Student's t."""
    counts = np.where(np.isfinite(episodes), episodes, otherwise).astype(np.int64)
    return np.array(
        [
            t_quantile(n - 1) * s * np.sqrt(n / (n - 1)) / np.sqrt(n) if n > 1 else np.nan
            for n, s in zip(counts.tolist(), std.tolist(), strict=True)
        ]
    )


def _at(line: ChartLine, x: Floats, side: int) -> Floats:
    """The line's least (side 0) or greatest (side 1) values, interpolated at `x`."""
    if not line.x.size:
        return np.full(x.size, np.nan)
    extreme = (line.bands[0].low, line.bands[0].high)[side] if line.bands else line.y
    return np.interp(x, line.x, extreme)

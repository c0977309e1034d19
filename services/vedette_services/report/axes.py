"""An axis: its range, its ticks, and where a value lies on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vedette_services.report.figures import short
from vedette_services.report.lines import Floats


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to a drawing's units.

    Args:
        low, high: the range of values.
        begin, end: where those are drawn.
        ticks: values that are written at it.
    """

    low: float
    high: float
    begin: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: Floats | float) -> Floats:
        """Where a value is drawn."""
        share = (np.asarray(value, np.float64) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def labels(self) -> list[str]:
        """What is written at the ticks; no two are the same."""
        return [short(tick) for tick in self.ticks]


def value_axis(parts: Iterable[Floats], others: Iterable[Floats], begin: float, end: float) -> Axis:
    """An axis that begins and ends at a tick, and at 0 where the values are near it.

    Args:
        parts: what it must hold.
        others: what it makes a little room for, no more than a quarter of its length.
        begin, end: where it is drawn.
    """
    low, high = _range(parts)
    room = _range([*others, np.array([low, high])])
    quarter = (high - low) / 4
    least = max(room[0], low - quarter)
    low, high = least if low < 0 else max(0.0, least), min(room[1], high + quarter)
    if 0 < low < 0.35 * high:
        low = 0.0
    elif 0.35 * low < high < 0:
        high = 0.0
    step = _step(high - low, 5)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    count = round((high - low) / step)
    ticks = tuple(_round(low + i * step, step) for i in range(count + 1))
    return Axis(low, high, begin, end, ticks)


def step_axis(parts: Iterable[Floats], least_end: float, begin: float, end: float) -> Axis:
    """An axis of steps, from the first to the last, or from 0 where the first is near it.

    Args:
        least_end: it goes as far as this in any case.
        begin, end: where it is drawn.
    """
    low, high = _range([*parts, np.array([least_end])] if least_end else parts)
    if 0 < low < 0.5 * high:
        low = 0.0
    step = _step(high - low, 4)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(_round(i * step, step) for i in range(first, last + 1))
    return Axis(low, high, begin, end, ticks)


def _range(parts: Iterable[Floats]) -> tuple[float, float]:
    """From the least to the greatest; never empty."""
    finite = [part[np.isfinite(part)] for part in parts]
    values = np.concatenate(finite) if finite else np.zeros(0)
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    if low > 0:
        return 0.0, 1.25 * low  # as with a count that never changes
    room = abs(low) / 10 or 1.0
    return low - room, high + room


def _step(width: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, such that about `count` steps make the width."""
    rough = width / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * rough)


def _round(value: float, step: float) -> float:
    """Without what adding up has left behind the last digit."""
    return round(value, max(0, 2 - math.floor(math.log10(step))))

"""Values from successive statuses of a run: curves, trend, time left, the learner's time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, linear_regression

from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import elapsed_seconds, stop_progress

SPLIT_S = 10.0
"""Seconds over which the learner's time is split."""
PACE_S = 60.0
"""Seconds over which the pace towards the stop conditions is measured."""
TREND = 10
"""Evaluations, the last ones, of which the trend is computed."""

_READ_BYTES = 8 << 20
"""Of the records of a long run, so much is read, at even distances: within about a second."""

_TREND_LEAST = 4
_COLUMNS_EACH = 4
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of the time; `other` is publishing, checkpoints, records and starting."""

    waiting: float
    sampling: float
    optimizing: float
    other: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The curves, trend and rates of the statuses so far.

    Args:
        split: shares of the learner's time.
        first_return: the first evaluation, from which the way to the target is drawn; None if it
            came before the first status.
        evaluations: mean returns of the evaluations, the oldest first.
        rollouts: mean returns of the actors, at even distances.
        left_s: estimated seconds to each stop condition, by its unit.
    """

    split: TimeSplit | None = None
    first_return: float | None = None
    evaluations: Sequence[float] = ()
    rollouts: Sequence[float] = ()
    left_s: dict[str, float] = field(default_factory=dict)


class ProgressTracker:
    """Computes the progress of a run from its successive statuses.

    Args:
        run: its directory: the curves begin with what is recorded there; None: with the first
            status.
    """

    def __init__(self, run: Path | None = None) -> None:
        self._split = TimeSplitTracker()
        self._pace = PaceTracker()
        self._evaluations: deque[float] = deque(maxlen=4096)
        self._rollouts = Series()
        self._first_return: float | None = None
        self._version: int | None = None
        self._seen = self._is_unevaluated = False  # of the statuses so far, of the last one
        if run is not None:
            self._read_records(run)

    def _read_records(self, run: Path) -> None:
        """Begin with what is recorded of a run."""
        recorded = ("tensorboard", "records.jsonl", "records.csv")
        if not any((run / name).exists() for name in recorded):
            return
        from vedette_rl.recording.reading import read_curves  # slow to load

        curves = read_curves(run, bytes_max=_READ_BYTES).curves
        if evaluated := curves.get("eval/mean_reward"):
            self._evaluations.extend(map(float, evaluated.values))
            self._first_return = float(evaluated.values[0])
        if versions := curves.get("eval/version"):
            self._version = int(versions.values[-1])
        if rollouts := curves.get("rollout/ep_rew_mean"):
            self._rollouts.extend([*map(float, rollouts.values)])

    def update(self, status: Status) -> tuple[Progress, bool]:
        """Add a status. Return the progress, and True if it has an evaluation that is new and was
        not there when the first status came."""
        evaluation = status.eval
        fresh = False
        if evaluation.version is not None and evaluation.version != self._version:
            if self._is_unevaluated and evaluation.version == evaluation.best_version:
                self._first_return = evaluation.best_return_mean
            fresh = self._seen
            self._version = evaluation.version
            self._evaluations.extend(_finite(evaluation.return_mean))
        self._seen = True
        self._is_unevaluated = evaluation.version is None and evaluation.best_return_mean is None
        self._rollouts.extend(_finite(status.rollout.return_mean))
        progress = Progress(
            self._split.update(status),
            self._first_return,
            tuple(self._evaluations),
            self._rollouts.values,
            self._pace.update(status),
        )
        return progress, fresh


class Series:
    """Values at even distances; when it is full, every two of them become one.

    Args:
        capacity: the most values; even.
    """

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._stride = 1
        self._values: list[float] = []
        self._held: list[float] = []

    @property
    def values(self) -> tuple[float, ...]:
        """The values, the oldest first."""
        return tuple(self._values)

    def extend(self, values: Sequence[float]) -> None:
        """Add values."""
        for value in values:
            self._held.append(value)
            if len(self._held) == self._stride:
                self._values.append(fmean(self._held))
                self._held.clear()
            if len(self._values) == self._capacity:
                pairs = zip(self._values[::2], self._values[1::2], strict=True)
                self._values = [fmean(pair) for pair in pairs]
                self._stride = 2 * self._stride


def sparkline(values: Sequence[float], width: int, height: int = 1) -> list[str]:
    """Draw values as bars from the least to the greatest, in `height` lines of at most `width`
    columns. Few values have several columns each; a column of many is the mean of its share."""
    if not values or width < 1:
        return [""] * height
    each = min(_COLUMNS_EACH, max(1, width // len(values)))
    shown = [value for value in _resample(values, width) for _ in range(each)]
    low, high = min(shown), max(shown)
    steps = 8 * height - 1
    levels = [
        1 + round((value - low) / (high - low) * steps) if high > low else 4 * height
        for value in shown
    ]
    return [
        "".join(_BLOCKS[min(max(level - 8 * below, 0), 8)] for level in levels)
        for below in reversed(range(height))
    ]


def _resample(values: Sequence[float], count: int) -> list[float]:
    if len(values) <= count:
        return list(values)
    edges = [number * len(values) // count for number in range(count + 1)]
    return [fmean(values[edges[n] : edges[n + 1]]) for n in range(count)]


def describe_trend(values: Sequence[float], *, short: bool = False) -> str:
    """Describe how the last values change along the line through them: "level" if the change is
    less than twice its standard error; "" for fewer than four values.

    Args:
        short: without the number of values.
    """
    last = list(values)[-TREND:]
    count = len(last)
    if count < _TREND_LEAST:
        return ""
    slope, intercept = linear_regression(range(count), last)
    change = slope * (count - 1)
    left = sum((y - slope * x - intercept) ** 2 for x, y in enumerate(last))
    error = math.sqrt(left / (count - 2) * 12 / (count * (count**2 - 1))) * (count - 1)
    over = "" if short else f" over the last {count}"
    if abs(change) <= 2 * error or math.isclose(change, 0.0, abs_tol=1e-9):
        return f"level{over}"
    return f"{'rising' if change > 0 else 'falling'} {change:+,.1f}{over}"


class PaceTracker:
    """Estimates the time left to each stop condition from the pace of the last minute."""

    def __init__(self) -> None:
        self._recent = _Recent(PACE_S)

    def update(self, status: Status) -> dict[str, float]:
        """Add a status. Return the seconds left by unit, only of conditions that come nearer."""
        rows, elapsed_s = stop_progress(status), elapsed_seconds(status)
        if elapsed_s is None:
            return {}
        now = (elapsed_s, *(value for _, value, _ in rows))
        before = self._recent.add(status.epoch, now)
        if before is None or elapsed_s <= before[0]:
            return {}
        left = {}
        for (unit, value, goal), past in zip(rows, before[1:], strict=True):
            if value > past:
                left[unit] = max(0.0, goal - value) * (elapsed_s - before[0]) / (value - past)
        return left


class TimeSplitTracker:
    """Computes the shares of the last seconds from the times of successive statuses.

    Args:
        window_s: seconds over which the shares are taken.
    """

    def __init__(self, window_s: float = SPLIT_S) -> None:
        self._recent = _Recent(window_s)

    def update(self, status: Status) -> TimeSplit | None:
        """Add a status. Return the shares of the last seconds; None if it has no times.

        The learner's own are taken where it has measured them: then all views show the same.
        """
        if (own := _measured(status)) is not None:
            return own
        now = _times(status)
        if now is None:
            return None
        before = self._recent.add(status.epoch, now) or (0.0,) * len(now)
        return _split([late - early for late, early in zip(now, before, strict=True)])


class _Recent:
    """Tuples of the last seconds, each with its time as the first value.

    It starts again with another epoch, with time that goes back and with tuples of another length.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._epoch: int | None = None
        self._seen: deque[tuple[float, ...]] = deque()

    def add(self, epoch: int | None, now: tuple[float, ...]) -> tuple[float, ...] | None:
        """Add a tuple. Return the oldest of the window; None if there is no other."""
        seen = self._seen
        if epoch != self._epoch or (seen and (now[0] < seen[-1][0] or len(now) != len(seen[-1]))):
            self._epoch = epoch
            seen.clear()
        if not seen or now[0] > seen[-1][0]:
            seen.append(now)
        while len(seen) > 2 and now[0] - seen[1][0] >= self._window_s:
            seen.popleft()
        return seen[0] if len(seen) > 1 else None


def _measured(status: Status) -> TimeSplit | None:
    """The shares of the last seconds that the trainer has measured itself."""
    time = status.time
    if time.waiting_share is None or status.phase == "done":
        return None
    sampling, optimizing = time.sampling_share or 0.0, time.optimizing_share or 0.0
    rest = max(0.0, 1 - time.waiting_share - sampling - optimizing)
    return TimeSplit(time.waiting_share, sampling, optimizing, rest)


def _times(status: Status) -> tuple[float, ...] | None:
    """Seconds: of the epoch, waiting, sampling, optimizing; None if one is not known."""
    time = status.time
    elapsed_s = elapsed_seconds(status)
    seconds_by_use = (elapsed_s, time.waiting_s, time.sampling_s, time.optimizing_s)
    known = tuple(seconds for seconds in seconds_by_use if seconds is not None)
    return known if len(known) == len(seconds_by_use) else None


def _split(spent: list[float]) -> TimeSplit | None:
    whole = max(spent[0], sum(spent[1:]))
    if whole <= 0.0:
        return None
    waiting, sampling, optimizing = (max(0.0, part) / whole for part in spent[1:])
    return TimeSplit(waiting, sampling, optimizing, max(0.0, 1 - waiting - sampling - optimizing))


def _finite(value: float | None) -> list[float]:
    return [] if value is None or not math.isfinite(value) else [value]

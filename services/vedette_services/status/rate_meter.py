"""Rates over the last seconds."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

SAMPLES_S = 5.0
"""Rates of samples are of the last so many seconds."""

OPT_STEPS_S = 10.0
"""Rates of optimization steps: a slow step may take a second."""


T = TypeVar("T")


class RecentValues(Generic[T]):
    """What a growing value was at the begin of a sliding window.

    Args:
        window_s: its length.
        every_s: values that come sooner after the last one that was kept are not kept.
    """

    def __init__(self, window_s: float, every_s: float = 0.0) -> None:
        self._window_s = window_s
        self._every_s = every_s
        self._seen: deque[tuple[float, T]] = deque()

    def add(self, value: T, now: float) -> tuple[float, T]:
        """Add the value of now, which stays as it is; return the window's seconds, and the value
        that it begins with."""
        seen = self._seen
        if not seen or now - seen[-1][0] >= self._every_s:
            seen.append((now, value))
        while len(seen) > 2 and now - seen[1][0] >= self._window_s:
            seen.popleft()
        then, before = seen[0]
        return now - then, before


class RateMeter:
    """Measures the growth of a count per second over a sliding window.

    Args:
        window_s: its length.
    """

    def __init__(self, window_s: float = SAMPLES_S) -> None:
        self._seen = RecentValues[int](window_s)

    def update(self, total: int, now: float) -> float:
        """Add the current total; returns its growth per second over the window (0.0 at first)."""
        seconds, before = self._seen.add(total, now)
        return (total - before) / seconds if seconds > 0 else 0.0

"""Rates over the last seconds."""

from __future__ import annotations

from collections import deque

SAMPLES_S = 5.0
"""Rates of samples are of the last so many seconds."""

OPT_STEPS_S = 10.0
"""Rates of optimization steps: a slow step may take a second."""


class RateMeter:
    """Measures the growth of a count per second over a sliding window.

    Args:
        window_s: its length.
    """

    def __init__(self, window_s: float = SAMPLES_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, total: int, now: float) -> float:
        """Add the current total; returns its growth per second over the window (0.0 at first)."""
        seen = self._seen
        seen.append((now, total))
        while len(seen) > 2 and now - seen[1][0] >= self._window_s:
            seen.popleft()
        then, before = seen[0]
        return (total - before) / (now - then) if now > then else 0.0

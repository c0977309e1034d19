"""Rates over the last seconds."""

from __future__ import annotations

from collections import deque

_RATE_WINDOW_S = 5.0


class RateMeter:
    """Measures the growth of a count per second over a sliding window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, total: int, now: float) -> float:
        """Add the current total; returns its growth per second over the window (0.0 at first)."""
        seen = self._seen
        seen.append((now, total))
        while len(seen) > 2 and now - seen[1][0] >= _RATE_WINDOW_S:
            seen.popleft()
        then, before = seen[0]
        return (total - before) / (now - then) if now > then else 0.0

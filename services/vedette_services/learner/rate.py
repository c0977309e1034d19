"""A rate over the last seconds of a number that only grows."""

from __future__ import annotations

from collections import deque


class Rate:
    """Growth per second over a sliding window, forgetting what is older."""

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, total: int, now: float) -> float:
        """Tell today's total; returns its growth per second over the window (0.0 at first)."""
        seen = self._seen
        seen.append((now, total))
        while len(seen) > 2 and now - seen[1][0] >= self._window_s:
            seen.popleft()
        then, before = seen[0]
        return (total - before) / (now - then) if now > then else 0.0

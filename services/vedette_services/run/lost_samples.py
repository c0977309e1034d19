"""Says that samples are lost, a line a minute at most."""

from __future__ import annotations

import math

_EVERY_S = 60.0


class LostSamples:
    """Compares successive counts of the samples that no process holds any more.

    The first count is that of earlier starts. A count may fall: a manager that was gone comes back
    with what it holds.
    """

    def __init__(self) -> None:
        self._said: int | None = None
        self._due = -math.inf

    def line(self, lost: int, now: float) -> str:
        """Return the line to log now; "" where no more are lost, or one was logged a moment ago."""
        if self._said is None:
            self._said = lost
        more = lost - self._said
        if more <= 0 or now < self._due:
            return ""
        self._said = lost
        self._due = now + _EVERY_S
        return (
            f"{more:,} more samples are lost, {lost:,} in all: their managers have ended with "
            "them, or another learner of this run has taken them: its directory was copied or put "
            "back"
        )

"""Says that samples are lost, a line a minute at most."""

from __future__ import annotations

import math

_EVERY_S = 60.0
_LASTS_S = 5.0  # a learner that starts has a count before managers have told it what they hold


class LostSamples:
    """Compares successive counts of the samples that no process holds any more.

    The first count is that of earlier starts. A count may fall: a manager that was gone comes back
    with what it holds.
    """

    def __init__(self) -> None:
        self._said: int | None = None
        self._due = -math.inf
        self._since: float | None = None  # more than was said are lost; None: no more are

    def line(self, lost: int, now: float, *, starting: bool = False) -> str:
        """Return the line to log now; "" where no more are lost, or were not for long, or one was
        logged a moment ago.

        Args:
            starting: the learner has not announced its run to managers yet.
        """
        if self._said is None:
            self._said = lost
        more = lost - self._said
        if more <= 0 or starting:
            self._since = None
            return ""
        self._since = now if self._since is None else self._since
        if now < max(self._due, self._since + _LASTS_S):
            return ""
        self._said = lost
        self._due = now + _EVERY_S
        return (
            f"{more:,} more samples are lost, {lost:,} in all: their managers have ended with "
            "them, or another learner of this run has taken them: its directory was copied or put "
            "back"
        )

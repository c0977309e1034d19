"""The learner's heartbeat as a manager feels it, and when to give its sockets up."""

from __future__ import annotations

from collections.abc import Callable

SILENCE_S = 3.0
"""No control message for so long, and every socket is made anew: libzmq may have given up on one
for good, and after a cut it comes back much later than a new socket does."""

JITTER_S = 0.5
"""Managers that lost the same learner do not all come back at the same moment."""


class Beat:
    """Hears control messages; says when the silence has lasted too long.

    Args:
        jitter: a random number in [0, 1).
        now: seconds, monotonic.
    """

    def __init__(self, jitter: Callable[[], float], now: float) -> None:
        self._jitter = jitter
        self._remake_at = now + SILENCE_S
        self.ever_heard = False
        self.silent = True

    def heard(self, now: float) -> bool:
        """A control message came; True if it ended a silence."""
        ended = self.silent
        self.ever_heard, self.silent = True, False
        self._remake_at = now + SILENCE_S
        return ended

    def overdue(self, now: float) -> float | None:
        """None while there is nothing to do, else the seconds to wait before new sockets."""
        if now < self._remake_at:
            return None
        delay_s = JITTER_S * self._jitter()
        self._remake_at = now + delay_s + SILENCE_S
        self.silent = True
        return delay_s

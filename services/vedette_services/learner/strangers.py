"""Connections that became none of a vedette's, told from those that only take their time."""

from __future__ import annotations

from collections import deque

SETTLED_S = 4.0
"""A handshake that takes longer is ended by libzmq (HANDSHAKE_IVL, 3 s): so much later, whoever was
not welcomed is a stranger."""

STALL_S = 2.0
"""After so long without a look, peers have given up on connections that nobody answered."""


class Strangers:
    """Counts who came, who was welcomed, and who is a stranger for certain.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, now: float) -> None:
        self.accepted = self.welcomed = self.turned_away = 0
        self._past: deque[tuple[float, int]] = deque([(now, 0)])  # when, and accepted by then
        self._looked_at = now
        self._forgiven = 0
        self._forgiving_since: float | None = None
        self._told = 0

    @property
    def count(self) -> int:
        """Connections that are not, or not yet, those of a vedette."""
        return max(0, self.accepted - self.welcomed) + self.turned_away

    def new(self, now: float) -> int:
        """Strangers for certain that were not told before. Call several times a second.

        While others come and are welcomed it may be too low, and catches up.
        """
        if now - self._looked_at > STALL_S and self._forgiving_since is None:
            self._forgiving_since = now
        self._looked_at = now
        self._past.append((now, self.accepted))
        while len(self._past) > 1 and self._past[1][0] <= now - SETTLED_S:
            self._past.popleft()
        settled = self._past[0][1] if self._past[0][0] <= now - SETTLED_S else 0
        certain = max(0, settled - self.welcomed - self._forgiven)
        if self._forgiving_since is not None:
            # We stood still: what came meanwhile was given up by those who came.
            if now - self._forgiving_since > SETTLED_S:
                self._forgiving_since = None
                unwelcomed = max(0, self.accepted - self.welcomed)
                self._forgiven = max(0, unwelcomed + self.turned_away - self._told)
            return 0
        found = max(0, certain + self.turned_away - self._told)
        self._told += found
        return found

"""Says that the snapshot cannot be written, and that it can again: two lines a minute at most."""

from __future__ import annotations

import math

from vedette_services.status.status import SnapshotStatus

_EVERY_S = 60.0


class SnapshotOutages:
    """Compares successive statuses of the snapshot."""

    def __init__(self) -> None:
        self._since: float | None = None  # an outage that was said; None: it is over, or none was
        self._due = -math.inf

    def line(self, snapshot: SnapshotStatus, now: float) -> str:
        """Return the line to log now; "" where nothing has changed, or one was a moment ago."""
        if not snapshot.failing:
            if self._since is None:
                return ""
            lasted_s = now - self._since
            self._since = None
            return f"written again, after {lasted_s:,.0f} s: generation {snapshot.generation}"
        if self._since is not None or now < self._due:
            return ""
        self._since = now
        self._due = now + _EVERY_S
        return f"cannot be written: {snapshot.failing}"

"""Judges whether a run still gains samples, where batches are rejected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ENOUGH_S = 10.0
"""From the first rejected batch to the last one, before it is judged."""

_BATCHES_LEAST = 10
"""Rejected batches: a robot that sends one a minute is given time, too."""


@dataclass(slots=True)
class _Count:
    inserted: int = 0  # rows
    rejected: int = 0


class RejectionWatch:
    """Counts rows from a rejected batch on, until it is clear whether that was an exception.

    The samples of a run are of no use where most rows of every manager that plays were rejected. A
    manager of which some are inserted, or which has sent nothing meanwhile, keeps the run going.

    ::

        watch.on_rejected("host-a", 16, "column 'obs': not finite", now)
        watch.on_inserted("host-b", 16)
        if why := watch.judge(fleet.present): ...       # why the run is to end
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Forget what was counted: the next rejected batch begins anew."""
        self._since: float | None = None
        self._last = 0.0
        self._batches = 0
        self._counts: dict[str, _Count] = {}
        self._why = ""

    def on_inserted(self, manager: str, rows: int) -> None:
        """Rows of a manager were inserted."""
        if self._since is not None:
            self._counts.setdefault(manager, _Count()).inserted += rows

    def on_rejected(self, manager: str, rows: int, why: str, now: float) -> None:
        """A batch of a manager was rejected."""
        if self._since is None:
            self._since = now
        self._last = now
        self._batches += 1
        self._why = why
        self._counts.setdefault(manager, _Count()).rejected += rows

    def judge(self, present: Collection[str]) -> str:
        """Return why the run has no use of its samples; "" while it has, or that is not clear.

        Args:
            present: the managers that play.
        """
        if self._since is None or self._batches < _BATCHES_LEAST:
            return ""
        seconds = self._last - self._since
        if seconds < ENOUGH_S:
            return ""
        counts = self._counts
        none = _Count()
        is_useless = bool(present) and all(
            count.rejected > count.inserted
            for count in (counts.get(manager, none) for manager in present)
        )
        rejected = sum(count.rejected for count in counts.values())
        rows = rejected + sum(count.inserted for count in counts.values())
        why = self._why
        self._begin()
        if not is_useless:
            return ""
        return f"{rejected:,} of the {rows:,} samples of {seconds:.0f} s were rejected: {why}"

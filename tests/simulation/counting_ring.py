"""A replay that keeps only the numbers of its rows, and checks that none comes twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

OWN = 1 << 40
"""Rows with numbers from here on are hostile peers' own: they are only counted."""

_MISSING, _COMMITTED, _EXCUSED = 0, 1, 2


class InvariantError(AssertionError):
    """An invariant does not hold."""


class Batch(NamedTuple):
    """Rows with successive numbers, of the manager with this number."""

    first: int
    rows: int
    manager: int


class Disk:
    """What the learner has committed, and how much of it a loss of power would leave.

    The fate of every row that was made is kept: missing, committed, or excused, which means that
    a kill or a loss of power took it, as the fault matrix allows.
    """

    def __init__(self) -> None:
        self.stamp = b""
        self.batches: list[Batch] = []
        self.inserted = 0
        self.made = 0  # rows
        self.excused = 0  # rows
        self.unsound: set[int] = set()  # first rows of invalid batches
        self._fate = bytearray()
        self._synced: tuple[int, int, bytes] = (0, 0, b"")  # batches, inserted, stamp

    def number_rows(self, rows: int) -> int:
        """Number new rows; return the first."""
        self.made += rows
        self._fate += bytes(rows)
        return self.made - rows

    def is_missing(self, first: int) -> bool:
        """Return True if the batch with this first row is neither committed nor excused."""
        return self._fate[first] == _MISSING

    def excuse(self, first: int, rows: int) -> None:
        """Note that these rows may be lost."""
        if self._fate[first] == _MISSING:
            self._fate[first : first + rows] = bytes([_EXCUSED]) * rows
            self.excused += rows

    def commit(self, batches: list[Batch], stamp: bytes) -> None:
        """Make rows and stamp durable against the end of a process."""
        fate = self._fate
        for first, rows, _ in batches:
            self.inserted += rows
            if first >= OWN:
                continue
            if first + rows > self.made:
                raise InvariantError(f"rows {first} to {first + rows} were never made")
            if first in self.unsound:
                raise InvariantError(f"rows {first} to {first + rows} are invalid, and inserted")
            if any(x == _COMMITTED for x in fate[first : first + rows]):
                raise InvariantError(f"rows {first} to {first + rows} are inserted twice")
            fate[first : first + rows] = bytes([_COMMITTED]) * rows
        self.batches += batches
        self.stamp = bytes(stamp)

    def sync(self) -> None:
        """Make everything durable against a loss of power."""
        self._synced = (len(self.batches), self.inserted, self.stamp)

    def lose_power(self) -> int:
        """Go back to the last sync; return the number of rows lost, which are excused."""
        kept, inserted, stamp = self._synced
        lost = self.batches[kept:]
        self.batches = self.batches[:kept]
        rows_lost = self.inserted - inserted
        self.inserted = inserted
        self.stamp = stamp
        for first, rows, _ in lost:
            if first < OWN:
                self._fate[first : first + rows] = bytes(rows)
                self.excuse(first, rows)
        return rows_lost


class CountingRing:
    """Takes blocks as a `RowAppender` does.

    Args:
        guard: rows that may be appended before a commit.
        commit: makes the call that it is given, and may take its time.
    """

    total_bytes = 0

    def __init__(
        self,
        disk: Disk,
        guard: int,
        commit: Callable[[Callable[[], None]], None],
        *,
        capacity: int = 1 << 60,
    ) -> None:
        self.capacity = capacity
        self._kept: int | None = None
        self._disk = disk
        self._guard = guard
        self._commit = commit
        self._pending: list[Batch] = []
        self.pending = 0

    @property
    def inserted(self) -> int:
        """Rows committed."""
        return self._disk.inserted

    size = inserted

    @property
    def stamp(self) -> bytes:
        """The stamp of the last commit."""
        return self._disk.stamp

    @property
    def room(self) -> int:
        """Rows that may still be appended before a commit."""
        if self._kept is None:
            return self._guard - self.pending
        bound = self._kept + self.capacity
        return max(0, min(self._guard, bound - self.inserted) - self.pending)

    def keep_from(self, number: int) -> None:
        """Have no row from this one on be overwritten."""
        self._kept = number

    def append(self, columns: Mapping[str, Any], rows: int) -> None:
        """Take a batch."""
        self._append(columns["number"].tolist(), int(columns["manager"]))

    def append_batches(self, columns: Mapping[str, Any], batches: int, rows: int) -> None:
        """Take batches of equal size."""
        for numbers, manager in zip(
            columns["number"].tolist(), columns["manager"].tolist(), strict=True
        ):
            self._append(numbers, manager)

    def commit(self, stamp: bytes) -> None:
        """Commit what was appended, together with the stamp."""
        pending = self._pending
        self._pending = []
        self.pending = 0
        self._commit(lambda: self._disk.commit(pending, stamp))

    def _append(self, numbers: list[int], manager: int) -> None:
        first = numbers[0]
        rows = len(numbers)
        if numbers[-1] != first + rows - 1:
            raise InvariantError(f"rows {numbers} are not those of one batch")
        if rows > self.room:
            raise InvariantError(f"{rows} rows are appended where {self.room} fit before a commit")
        self._pending.append(Batch(first, rows, manager))
        self.pending += rows

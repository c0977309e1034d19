"""Rows in a ring of columns: their slots, and how they are written.

Rows are numbered from the beginning of the run. Row ``i`` lies at place ``i % physical_rows``, and
``physical_rows = capacity + guard``. The live rows, those that may be drawn, are the last
`capacity` of the rows inserted, but for those that a recovery found gone. At most ``guard - keep``
rows are appended between two commits, so they overwrite none that is live, and none of the `keep`
rows before them. A replay may be made with room for more of these than its guard has. A reader that
reads `inserted` again after it has copied rows knows which of them the writer may have begun to
overwrite (`Rows.doubtful_below`): with some rows kept, none was live a short while before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, empty_columns

GUARD_ROWS_MIN = 4096
GUARD_ROWS_MAX = 65536
GUARD_BYTES = 64 << 20

_ARRAY = np.ndarray


class Rows:
    """The rows that are drawn from: the columns as stored, and the number inserted.

    Attributes:
        columns: each ``(physical_rows, *shape)``: row ``i`` at place ``i % physical_rows``.
        capacity: rows that are live once that many have been inserted.
        floor: rows below are gone, of a replay that was recovered after a power failure.
        keep: rows before the live ones that the writer leaves alone, too.
        branch: differs from that of rows of which another has the same number; "" where that is not
            known.
        branch_before, branch_begin: the branch before, whose rows below that number are these.
    """

    columns: Columns
    capacity: int
    floor = 0
    keep = 0
    branch = ""
    branch_before = ""
    branch_begin = 0

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began; never less than at the call before."""
        raise NotImplementedError

    @property
    def drawn_dtype(self) -> np.dtype[Any]:
        """A row as it is drawn, which a subclass may store in another form."""
        columns = self.columns.items()
        return np.dtype([(name, column.dtype, column.shape[1:]) for name, column in columns])

    def live(self) -> tuple[int, int]:
        """The rows that may be drawn: [oldest, inserted)."""
        inserted = self.inserted
        oldest = inserted - self.capacity
        return (oldest if oldest > self.floor else self.floor), inserted  # `max` takes longer

    def look(self) -> tuple[int, int]:
        """The rows that a draw is to see: `live`, once a copy has followed its ring."""
        return self.live()

    def hurry(self) -> None:
        """Have the next look see all rows that there are by then; a copy may else wait."""

    def doubtful_below(self, seen: int) -> int:
        """Rows below this number may have been overwritten by now, of those that a look saw.

        Args:
            seen: the rows inserted that it saw.
        """
        return self.inserted - self.capacity - self.keep

    def has_rows_of(self, branch: str, seen: int) -> bool:
        """True if the first `seen` rows of a branch are these; those that are there, at least."""
        if branch == self.branch_before != "" and seen <= self.branch_begin:
            return True
        return branch == self.branch != "" and seen <= self.inserted

    @property
    def original(self) -> Rows:
        """The rows that these are a copy of; these, where they are none."""
        return self

    @property
    def size(self) -> int:
        """Rows that may be drawn now."""
        oldest, inserted = self.live()
        return inserted - oldest

    def gather(self, places: NDArray[np.int64], out: Columns) -> None:
        """Copy the rows at `places` into `out`, every column that is in `out`."""
        columns = self.columns
        for name, to in out.items():
            # clip: numpy would otherwise gather into a buffer of its own first, to check the places
            columns[name].take(places, 0, to, "clip")


def default_guard(capacity: int, row_bytes: int) -> int:
    """Rows of guard by default: an eighth of the capacity, between bounds."""
    return max(GUARD_ROWS_MIN, min(GUARD_ROWS_MAX, capacity // 8, GUARD_BYTES // max(1, row_bytes)))


def kept_of_guard(guard: int, batch: int | None) -> int:
    """Of the entries of a guard, those that the writer leaves alone while others are appended: a
    quarter, as far as the largest batch fits before a commit; none where that is not known.

    Writer and readers have to know the same batch.
    """
    return 0 if batch is None else max(0, min(guard // 4, guard - batch))


class RowAppender(Rows):
    """Writes rows beyond those inserted, and counts them.

    Args:
        columns: each ``(capacity + guard + keep, *shape)``, written in place.
        capacity: rows that stay live.
        inserted: rows inserted so far.
        batch_rows: the most rows that are appended at once, for `kept_of_guard`.
        keep: of the columns' entries, those that are there for rows that are left alone.
    """

    def __init__(
        self,
        columns: Columns,
        capacity: int,
        inserted: int = 0,
        batch_rows: int | None = None,
        keep: int = 0,
    ) -> None:
        self.columns = columns
        self.capacity = capacity
        self._physical_rows = len(next(iter(columns.values())))
        guard = self._physical_rows - capacity - keep
        kept = kept_of_guard(guard, batch_rows)
        self.keep = keep + kept
        self._allowed = self._allowed_at_once = guard - kept
        self._kept_from: int | None = None
        self._shape(0)
        self._inserted = inserted
        self._pending = 0

    @property
    def inserted(self) -> int:
        """Rows inserted, that is committed, since the run began."""
        return self._inserted

    @property
    def pending(self) -> int:
        """Rows appended and not yet committed."""
        return self._pending

    @property
    def room(self) -> int:
        """Rows that may still be appended before a commit."""
        if self._kept_from is None:
            return self._allowed - self._pending
        bound = max(self._kept_from, self.live()[0]) + self.capacity
        return max(0, min(self._allowed, bound - self._inserted) - self._pending)

    def keep_from(self, number: int) -> None:
        """Have no row from this one on be overwritten (a queue's, of those that wait); rows without
        room are refused from now on."""
        self._kept_from = number

    def append(self, columns: Mapping[str, Any], rows: int) -> None:
        """Write rows behind those appended before. No reader sees them until the commit.

        Args:
            columns: every column: an array ``(rows, *shape)`` of its dtype, or one number for all.
            rows: the number of rows.

        Raises:
            ValueError: more rows than `room`, or columns of other names, dtypes or shapes; then
                none is appended.
        """
        if rows != self._shaped_rows:  # batches mostly have one size
            self._shape(rows)
        begin = (self._inserted + self._pending) % self._physical_rows
        end = begin + rows
        if rows > self._allowed - self._pending or (
            self._kept_from is not None and rows > self.room
        ):
            raise ValueError(f"{rows} rows are appended where {self.room} fit before a commit")
        if len(columns) != len(self._targets):
            self._refuse(columns)
        if end > self._physical_rows:
            self._append_around(columns, begin, rows)
            return
        at = slice(begin, end)
        try:
            for name, to, dtype, shape, size in self._targets:
                column = columns[name]
                # These questions are a good part of what a small batch costs. Most arrays share one
                # object as dtype; and of the right size, another shape than ours does not fit.
                if isinstance(column, _ARRAY) and (
                    column.dtype is not dtype or column.size != size
                ):
                    _check(name, column, dtype, shape)
                to[at] = column
        except KeyError:
            self._refuse(columns)
        except ValueError:
            for name, _, dtype, shape, _ in self._targets:
                if isinstance(columns[name], _ARRAY):
                    _check(name, columns[name], dtype, shape)
            raise
        self._pending += rows

    def append_batches(self, columns: Mapping[str, NDArray[Any]], batches: int, rows: int) -> None:
        """Write `batches` times `rows` rows, as one `append` for each would, all at once.

        Args:
            columns: every column: ``(batches, rows, *shape)``, or ``(batches,)`` where it is the
                same in all rows of a batch. Of its dtype.
            batches: the number of batches.
            rows: the rows of each.

        Raises:
            ValueError: as `append`.
        """
        if batches * rows > self.room:
            raise ValueError(
                f"{batches * rows} rows are appended where {self.room} fit before a commit"
            )
        self._check_stacked(columns, batches, rows)
        done = 0
        while done < batches:
            begin = (self._inserted + self._pending) % self._physical_rows
            count = min(batches - done, (self._physical_rows - begin) // rows)
            if not count:  # this one lies across the end
                self.append({name: column[done] for name, column in columns.items()}, rows)
                done += 1
                continue
            at = slice(begin, begin + count * rows)
            for name, to in self.columns.items():
                given = columns[name][done : done + count]
                target = to[at].reshape(count, rows, *to.shape[1:])
                target[...] = given if given.ndim > 1 else given[:, None]
            self._pending += count * rows
            done += count

    def _check_stacked(self, columns: Mapping[str, NDArray[Any]], batches: int, rows: int) -> None:
        if columns.keys() != self.columns.keys():
            self._refuse(columns)
        for name, to in self.columns.items():
            column = columns[name]
            shape = (batches, rows, *to.shape[1:])
            if column.dtype != to.dtype or column.shape not in ((batches,), shape):
                raise ValueError(
                    f"column {name!r} is {column.dtype} {column.shape}, not {to.dtype} {shape}"
                )

    def _append_around(self, columns: Mapping[str, Any], begin: int, rows: int) -> None:
        """The same from `begin` to the end, and what is left from the beginning on."""
        before = self._physical_rows - begin
        for name, to, dtype, shape, _ in self._targets:
            if name not in columns:
                self._refuse(columns)
            column = columns[name]
            if isinstance(column, _ARRAY):
                _check(name, column, dtype, shape)
            column = np.broadcast_to(column, shape)
            to[begin:] = column[:before]
            to[: rows - before] = column[before:]
        self._pending += rows

    def _shape(self, rows: int) -> None:
        """Every column: its name, where it goes, and what an array of `rows` rows must be."""
        self._shaped_rows = rows
        self._targets = [
            (name, to, to.dtype, (rows, *to.shape[1:]), rows * math.prod(to.shape[1:]))
            for name, to in self.columns.items()
        ]

    def _refuse(self, columns: Mapping[str, Any]) -> NoReturn:
        raise ValueError(
            f"columns {sorted(columns)} are appended where {sorted(self.columns)} belong"
        )

    def _committed(self) -> None:
        self._inserted = self._inserted + self._pending
        self._pending = 0


def _check(name: str, column: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if column.dtype != dtype or column.shape != shape:
        raise ValueError(f"column {name!r} is {column.dtype} {column.shape}, not {dtype} {shape}")


class MemoryRing(RowAppender):
    """The ring on one process's own memory: its writing and its reading end in one.

    One thread may append and commit while another draws.

    Args:
        row_dtype: the columns, as a structured dtype.
        capacity: rows that can be drawn.
        guard: rows that may be appended before a commit; None: `default_guard`.
        batch_rows: the most rows that are appended at once, for `kept_of_guard`.
    """

    def __init__(
        self,
        row_dtype: np.dtype[Any],
        capacity: int,
        *,
        guard: int | None = None,
        batch_rows: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a capacity of {capacity} rows: at least 1")
        guard = default_guard(capacity, row_dtype.itemsize) if guard is None else guard
        columns = empty_columns(row_dtype, capacity + guard)
        for column in columns.values():
            column.fill(0)  # the pages are taken now, not at some insert in the middle of a run
        super().__init__(columns, capacity, batch_rows=batch_rows)
        self.stamp = b""

    @property
    def total_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    def commit(self, stamp: bytes = b"") -> None:
        """Make the rows appended, and the stamp, visible."""
        self.stamp = bytes(stamp)
        self._committed()

    def close(self) -> None:
        """Nothing to close."""


def live_places(inserted: int, capacity: int, physical_rows: int) -> list[slice]:
    """The slots of the live rows, oldest first: one slice, or two where they wrap around."""
    oldest = (inserted - min(inserted, capacity)) % physical_rows
    newest = oldest + min(inserted, capacity)
    if newest <= physical_rows:
        return [slice(oldest, newest)]
    return [slice(oldest, physical_rows), slice(0, newest - physical_rows)]


def ring_places(
    numbers: NDArray[np.int64], count: int, out: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """``numbers % count``: numpy divides by one number quickly, but takes no such remainder."""
    places = np.floor_divide(numbers, count, out=out)
    places *= -count
    places += numbers
    return places

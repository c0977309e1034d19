"""Reading a replay at rest: its live rows, oldest first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay import ring_files
from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.frame_ring import FrameRows
from vedette_rl.replay.manifest import Manifest, read_manifest
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.syncing import find_recovery, find_recovery_at_rest

PIECE_BYTES = 16 << 20


class StoredRows(Protocol):
    """Rows at rest: `LiveRows`, or those of a file."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row: the columns, in order."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        ...

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """Copies of parts of one column, oldest first, of some megabytes each."""
        ...

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some rows of one column ``(len(rows), *shape)``, counted from the oldest."""
        ...

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column, oldest row first: ``(len(self), *shape)``."""
        ...


class LiveRows:
    """The live rows of a replay that no process writes; it keeps a writer from starting.

    ::

        with LiveRows(directory) as rows:
            for name in rows.names:
                save(name, rows.column(name))        # a copy of one column: (len(rows), *shape)

    Observations that are stored once come whole.

    Args:
        directory: the replay's.
        locked: False: neither wait for a writer nor keep one away. It may then overwrite the
            oldest rows: `overwritten` says how many.

    Raises:
        ReplayFormatError: there is no replay, or a torn one.
        OneWriterError: a process writes it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, locked: bool = True) -> None:
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        self._lock: int | None = None
        try:
            if locked:
                self._lock = ring_files.lock_directory(self.directory, shared=True)
        except OSError as e:
            raise ReplayFormatError(f"{self.directory} cannot be read: {e.strerror}") from e
        try:
            look = find_recovery if locked else find_recovery_at_rest
            torn = look(self.directory, self.manifest)
            last = torn.commit if torn else last_commit(self.directory)
            self.inserted = last.inserted
            self.stamp = last.stamp
            self._rows = _rows(self.directory, self.manifest, self.inserted)
            floor = torn.floor if torn else ring_files.read_floor(self.directory)
            self._rows.floor = floor
        except BaseException:
            self.close()
            raise
        self._oldest, _ = self._rows.live()

    def __len__(self) -> int:
        return self.inserted - self._oldest

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row: the columns, in order."""
        return self._rows.drawn_dtype

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return self.dtype.names or ()

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """Copies of parts of one column's live rows, oldest first, of some megabytes each."""
        column = self.dtype[name]
        size = max(1, PIECE_BYTES // max(1, column.itemsize))
        for begin in range(self._oldest, self.inserted, size):
            numbers = np.arange(begin, min(begin + size, self.inserted))
            yield self.take(name, numbers - self._oldest)

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some of one column's live rows ``(len(rows), *shape)``, counted from the
        oldest."""
        column = self.dtype[name]
        taken = np.empty((len(rows), *column.shape), column.base)
        self._rows.gather((self._oldest + rows) % self.manifest.physical_rows, {name: taken})
        return taken

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column's live rows, oldest first: ``(len(self), *shape)``."""
        column = self.dtype[name]
        return np.concatenate([np.empty((0, *column.shape), column.base), *self.pieces(name)])

    @property
    def overwritten(self) -> int:
        """Rows, from the oldest on, that a writer may have overwritten since they were found."""
        self._rows.set_inserted(max(self.inserted, last_commit(self.directory).inserted))
        return max(0, self._rows.live()[0] - self._oldest)

    def close(self) -> None:
        """Let a writer start again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _RowsAtRest(Rows):
    """Rows as the last commit left them; a killed writer's cursor may be behind that."""

    def __init__(self, columns: Columns, capacity: int, inserted: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self._inserted = inserted

    @property
    def inserted(self) -> int:
        return self._inserted

    def set_inserted(self, inserted: int) -> None:
        """A writer has gone on."""
        self._inserted = inserted


class _FrameRowsAtRest(FrameRows, _RowsAtRest):
    """The same, of observations that are stored once."""


def _rows(directory: Path, manifest: Manifest, inserted: int) -> _RowsAtRest:
    mapped = ring_files.map_columns(directory, manifest, writable=False)
    if manifest.shared is None:
        return _RowsAtRest(mapped.columns, manifest.capacity, inserted)
    rows = _FrameRowsAtRest(mapped.columns, manifest.capacity, inserted)
    rows.use_frames(mapped.shared, manifest.shared)
    return rows

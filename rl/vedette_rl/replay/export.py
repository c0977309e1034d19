"""Reading a replay at rest: its live rows, oldest first."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay import ring_files
from vedette_rl.replay.ring import read_commit
from vedette_rl.replay.rows import live_places


class LiveRows:
    """The live rows of a replay that no process writes; it keeps a writer from starting.

    ::

        with LiveRows(directory) as rows:
            for name in rows.names:
                save(name, rows.column(name))        # a copy of one column: (len(rows), *shape)

    Raises:
        ReplayFormatError: there is no replay, or a torn one.
        OneWriterError: a process writes it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.manifest = ring_files.read_manifest(self.directory)
        try:
            self._lock = ring_files.lock(self.directory, shared=True)
        except OSError as e:
            raise ReplayFormatError(f"{self.directory} cannot be read: {e.strerror}") from e
        try:
            self.inserted, self.stamp = read_commit(self.directory)
            mapped = ring_files.map_columns(self.directory, self.manifest, writable=False)
        except BaseException:
            os.close(self._lock)
            raise
        self._columns = mapped.columns
        self._pieces = live_places(
            self.inserted, self.manifest.capacity, self.manifest.physical_rows
        )

    def __len__(self) -> int:
        return min(self.inserted, self.manifest.capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self._columns)

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column's live rows, oldest first: ``(len(self), *shape)``."""
        return np.concatenate([self._columns[name][piece] for piece in self._pieces])

    def close(self) -> None:
        """Let a writer start again."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def live_columns(directory: str | os.PathLike[str]) -> Columns:
    """Copies of all columns' live rows, oldest first, of a replay that no process writes.

    Raises:
        ReplayFormatError: there is no replay, or a torn one.
        OneWriterError: a process writes it.
    """
    with LiveRows(directory) as rows:
        return {name: rows.column(name) for name in rows.names}

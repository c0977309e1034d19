"""The part that recorders into a file share: means of stored scalars, and errors of the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vedette_rl.core import Record
from vedette_rl.errors import RecordingError


class Means:
    """The mean of every value stored under a name: none is dropped between two flushes."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def store(self, record: Record) -> None:
        """Add a value to each of its names."""
        for name, value in record.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
            self._counts[name] = self._counts.get(name, 0) + 1

    def pop_means(self) -> dict[str, float]:
        """Return the means, and start again."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class FileRecorder:
    """A `Recorder` into one file; a subclass writes scalars and texts.

    Args:
        path: its folder is made if it is not there.
        mode: of opening the file.
        clock: seconds since 1970.

    Raises:
        RecordingError: the file cannot be opened or written (full disk, read-only directory).
    """

    def __init__(
        self, path: Path, mode: str, clock: Callable[[], float] = time.time, **options: Any
    ) -> None:
        self.path, self._clock, self._means = path, clock, Means()
        with self._recording():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[Any] = path.open(mode, **options)

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        raise NotImplementedError

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        self.write(self._means.pop_means(), step)
        self._push()

    def close(self) -> None:
        """Flush and close; scalars that were stored and not flushed are dropped: they have no
        step."""
        with self._recording():
            self._file.close()

    def _push(self) -> None:
        with self._recording():
            self._file.flush()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise RecordingError(self.path, e) from e

"""Recorders into a file: their common part, and those that write CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vedette_rl.core import Record, Total
from vedette_rl.errors import RecordingError
from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.regular_files import find_torn_line
from vedette_rl.storage.write_errors import describe_write_error

log = logging.getLogger("vedette.recording")


class Means:
    """The mean of every value stored under a name: none is dropped between two flushes. Of a
    `Total` it is the last."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._totals: dict[str, float] = {}

    def store(self, record: Record) -> None:
        """Add each value under its name."""
        for name, value in record.items():
            if isinstance(value, Total):
                self._totals[name] = float(value)
                continue
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
            self._counts[name] = self._counts.get(name, 0) + 1

    def pop_means(self) -> dict[str, float]:
        """Return the means and the last totals, and start again."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        means |= self._totals
        self._totals = {}
        self._sums = {}
        self._counts = {}
        return means


class FileRecorder:
    """A `Recorder` into one file; a subclass writes scalars and texts.

    Args:
        path: the file; its folder is made if it is missing.
        mode: the mode in which the file is opened.
        clock: seconds since 1970.
        home: a folder that may be moved with all that is in it: the file is written on there. None:
            the file's own folder.

    Raises:
        RecordingError: the file cannot be opened or written (full disk, read-only directory), or
            was removed.
    """

    def __init__(
        self,
        path: Path,
        mode: str,
        clock: Callable[[], float] = time.time,
        *,
        home: Path | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self._clock = clock
        self._means = Means()
        with self._recording():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[Any] = path.open(mode, **options)
            self._home = home or path.parent
            self._home_then = self._home.stat()

    def write(self, record: Record, step: int) -> None:
        raise NotImplementedError

    def store(self, record: Record) -> None:
        self._means.store(record)

    def flush(self, step: int) -> None:
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
            removed = self._was_removed()
        if removed:  # what is written to it further nobody could read
            raise RecordingError(self.path, "it was removed")

    def _was_removed(self) -> bool:
        """Return True if the file is no more where it was made, and its home was not moved."""
        try:
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                return False
        except FileNotFoundError:
            pass
        try:
            return os.path.samestat(self._home.stat(), self._home_then)
        except FileNotFoundError:
            return False

    @contextmanager
    def _recording(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise RecordingError(self.path, describe_write_error(e, self.path)) from e


class _LineRecorder(FileRecorder):
    """A recorder of lines, which goes on in the file of an earlier start.

    A line that this has not finished is removed: the first record would be glued to it, and half a
    number is a number.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = user_path(path)
        with self._recording():
            if (begin := find_torn_line(self.path)) is not None:
                os.truncate(self.path, begin)
                log.warning("%s: its last record was half written, and is removed", path)
        super().__init__(self.path, "a", clock, encoding="utf-8", newline="")

    def _write_line(self, line: str) -> None:
        with self._recording():
            self._file.write(line + "\n")


class CsvRecorder(_LineRecorder):
    """Appends ``time_s,step,name,value``, one line a scalar, so that names may come and go.

    Texts are left out.

    Raises:
        RecordingError: the file cannot be opened or written.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(path, clock=clock)
        if self._file.tell() == 0:
            self._write_line("time_s,step,name,value")

    def write(self, record: Record, step: int) -> None:
        now = f"{self._clock():.3f}"
        for name, value in record.items():
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow([now, step, name, repr(float(value))])
            self._write_line(line.getvalue())

    def write_text(self, name: str, text: str) -> None:
        """Write nothing: a text is no value."""


class JsonlRecorder(_LineRecorder):
    """Appends ``{"time_s", "step", NAME: value, ...}``, and ``{"time_s", "name", "text"}`` for a
    text. A value that is not finite becomes null, since JSON has no such numbers.

    Raises:
        RecordingError: the file cannot be opened or written.
    """

    def write(self, record: Record, step: int) -> None:
        if not record:
            return
        values = {name: float(value) for name, value in record.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._write_object({"step": step, **finite})

    def write_text(self, name: str, text: str) -> None:
        self._write_object({"name": name, "text": text})

    def _write_object(self, values: dict[str, object]) -> None:
        self._write_line(json.dumps({"time_s": round(self._clock(), 3), **values}))

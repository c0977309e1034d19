"""A file of lines that several runs of a program may add to."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from vedette_rl.core import Record
from vedette_rl.errors import RecordingError
from vedette_rl.recording.tee import Means


class LineFile:
    """Appends lines.

    Raises:
        RecordingError: it cannot be opened or written (full disk, read-only directory).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", newline="")
        except OSError as e:
            raise RecordingError(path, e) from e

    @property
    def empty(self) -> bool:
        """Whether nothing stands in it yet."""
        return self._file.tell() == 0

    def write(self, line: str) -> None:
        """Append a line."""
        try:
            self._file.write(line + "\n")
        except OSError as e:
            raise RecordingError(self.path, e) from e

    def flush(self) -> None:
        """Push what was written out."""
        try:
            self._file.flush()
        except OSError as e:
            raise RecordingError(self.path, e) from e

    def close(self) -> None:
        """Flush and close."""
        try:
            self._file.close()
        except OSError as e:
            raise RecordingError(self.path, e) from e


class CsvRecorder:
    """Appends ``time_s,step,name,value``, one line a scalar, so that names may come and go.

    Texts are left out.

    Raises:
        RecordingError: the file cannot be opened or written.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file, self._means, self._clock = LineFile(Path(path)), Means(), clock
        if self._file.empty:
            self._file.write("time_s,step,name,value")

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        now = f"{self._clock():.3f}"
        for name, value in record.items():
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow([now, step, name, repr(float(value))])
            self._file.write(line.getvalue())

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        self.write(self._means.pop_means(), step)
        self._file.flush()

    def write_text(self, name: str, text: str) -> None:
        """Nothing: a text is no value."""

    def close(self) -> None:
        """Flush and let go; what was stored and not flushed is left out, for want of a step."""
        self._file.close()


class JsonlRecorder:
    """Appends ``{"time_s", "step", NAME: value, ...}``, and ``{"time_s", "name", "text"}`` for a
    text. What is not finite is null, since JSON has no such numbers.

    Raises:
        RecordingError: the file cannot be opened or written.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file, self._means, self._clock = LineFile(Path(path)), Means(), clock

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        if not record:
            return
        values = {name: float(value) for name, value in record.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._line({"step": step, **finite})

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        self.write(self._means.pop_means(), step)
        self._file.flush()

    def write_text(self, name: str, text: str) -> None:
        """Write a text."""
        self._line({"name": name, "text": text})

    def close(self) -> None:
        """Flush and let go; what was stored and not flushed is left out, for want of a step."""
        self._file.close()

    def _line(self, values: dict[str, object]) -> None:
        self._file.write(json.dumps({"time_s": round(self._clock(), 3), **values}))

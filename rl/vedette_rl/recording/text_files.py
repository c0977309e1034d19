"""Records as lines of text, in files that several runs of a program may append to."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import FileRecorder


class _LineRecorder(FileRecorder):
    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(Path(path), "a", clock, encoding="utf-8", newline="")

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
        """Write scalars now."""
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
        """Write scalars now."""
        if not record:
            return
        values = {name: float(value) for name, value in record.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._write_object({"step": step, **finite})

    def write_text(self, name: str, text: str) -> None:
        """Write a text."""
        self._write_object({"name": name, "text": text})

    def _write_object(self, values: dict[str, object]) -> None:
        self._write_line(json.dumps({"time_s": round(self._clock(), 3), **values}))

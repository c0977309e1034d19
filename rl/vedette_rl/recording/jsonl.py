"""Records as JSON, one object a line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from vedette_rl.core import Record
from vedette_rl.recording.lines import LineFile
from vedette_rl.recording.means import Means


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

"""Records as comma-separated values."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path

from vedette_rl.core import Record
from vedette_rl.recording.lines import LineFile
from vedette_rl.recording.means import Means


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

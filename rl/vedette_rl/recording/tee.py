"""One recorder in front of several."""

from __future__ import annotations

from collections.abc import Sequence

from vedette_rl.core import Record, Recorder


class TeeRecorder:
    """Gives everything to each of several recorders, which it closes; without one, drops it."""

    def __init__(self, recorders: Sequence[Recorder] = ()) -> None:
        self._recorders = tuple(recorders)

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        for recorder in self._recorders:
            recorder.write(record, step)

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        for recorder in self._recorders:
            recorder.store(record)

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        for recorder in self._recorders:
            recorder.flush(step)

    def write_text(self, name: str, text: str) -> None:
        """Write a text."""
        for recorder in self._recorders:
            recorder.write_text(name, text)

    def close(self) -> None:
        """Flush and close."""
        for recorder in self._recorders:
            recorder.close()

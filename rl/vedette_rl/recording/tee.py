"""One recorder in front of several."""

from __future__ import annotations

from collections.abc import Sequence

from vedette_rl.core import Record, Recorder


class TeeRecorder:
    """Gives everything to each of several recorders, which it closes."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
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
        """Flush and let go."""
        for recorder in self._recorders:
            recorder.close()


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
        """The means, and begin anew."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class NullRecorder:
    """Takes everything and writes nothing."""

    def write(self, record: Record, step: int) -> None:
        """Nothing is written."""

    def store(self, record: Record) -> None:
        """Nothing is kept."""

    def flush(self, step: int) -> None:
        """There is nothing to write."""

    def write_text(self, name: str, text: str) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """There is nothing to close."""

"""What was stored since the last flush, as means."""

from __future__ import annotations

from vedette_rl.core import Record


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

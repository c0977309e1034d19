"""A recorder that keeps nothing."""

from __future__ import annotations

from vedette_rl.core import Record


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

"""A file of lines that several runs of a program may add to."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.errors import RecordingError


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

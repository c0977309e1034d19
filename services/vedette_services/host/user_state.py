"""The folder in which Vedette remembers things about this user, outside of all runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vedette_rl.storage.atomic_files import replace_file

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UserState:
    """A folder of small files that this user alone has written.

    Args:
        name: of the folder, below ``vedette`` in ``XDG_STATE_HOME`` (``~/.local/state``).
    """

    def __init__(self, name: str) -> None:
        home = _state_home()
        self.folder: Path | None = None
        """None where there is no home folder, or it is another user's."""
        if home is not None and _is_own(_nearest(home)):
            self.folder = home / "vedette" / name

    def read(self, name: str) -> str | None:
        """Return a file's text; None if there is none that this user has written."""
        if self.folder is None or not _is_private(self.folder):
            return None
        path = self.folder / name
        try:
            return path.read_text("utf-8") if _is_own(path) else None
        except (OSError, ValueError):
            return None

    def names(self, pattern: str) -> list[str]:
        """List the files whose names match a pattern."""
        if self.folder is None or not _is_private(self.folder):
            return []
        return sorted(path.name for path in self.folder.glob(pattern))

    def write(self, name: str, text: str) -> None:
        """Write a file.

        Raises:
            OSError: there is no folder of this user's, or it cannot be written.
        """
        if self.folder is None:
            raise FileNotFoundError("this user has no home folder")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(self.folder):
            raise PermissionError(f"{self.folder} is open to others")
        replace_file(self.folder / name, text)


def _state_home() -> Path | None:
    """The folder of this user's state; None where none is known. A relative one is ignored."""
    places = (("XDG_STATE_HOME", ""), ("LOCALAPPDATA", ""), ("HOME", ".local/state"))
    for variable, below in places:
        named = os.environ.get(variable, "")
        if named and Path(named).is_absolute():
            return Path(named) / below
    return None


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _is_own(path: Path) -> bool:
    """True if a file or folder is this user's."""
    if not hasattr(os, "geteuid"):  # Windows: a profile's folder is closed to others
        return True
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    """True if a folder is this user's, and nobody else can write into it."""
    if not hasattr(os, "geteuid"):
        return folder.is_dir()
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE

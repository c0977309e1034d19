"""A directory of one daemon's own, for the maps it shares with its children."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from vedette_rl.storage.system import lock_file

_PREFIX = "vedette-actors-"
_SETTLED_S = 60.0  # a directory younger than this may not be locked yet


class PrivateDirectory:
    """A temporary directory (0700), removed at the end.

    One that a killed daemon left behind is removed by the next: the lock on it says whether its
    owner lives.
    """

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY)
        lock_file(self._lock)

    def remove(self) -> None:
        """Remove it and all it holds; may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove our directories whose owner is dead."""
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            status = path.stat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _SETTLED_S:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone already, or not ours to look into
        try:
            lock_file(lock)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue  # its owner lives
        finally:
            os.close(lock)

"""The runs that a sweep will start or go on with: named in a file that it holds locked.

Whoever looks at such a run sees that it waits, and not only how it ended before. Nobody holds the
lock of a sweep that was killed: its runs wait for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vedette_rl.storage.regular_files import is_regular, read_json
from vedette_rl.storage.system import lock_file, open_file

_FILE = Path("sweep", "queue")
_DEPTH_MAX = 2
"""Folders from a sweep's directory to a run in it: its settings, its seed."""


class QueuedRuns:
    """The runs that wait in a sweep. Made by `open_queue`.

    Args:
        file: open, to name them.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._is_ours = False

    def write(self, names: Iterable[str]) -> None:
        """Have these runs wait, and no others.

        Args:
            names: their folders in the sweep's directory.
        """
        self._is_ours = self._is_ours or _takes_lock(self._file)
        if not self._is_ours:  # it would not be seen when this queue is over
            return
        with suppress(OSError):  # a full disk: the list is older than it could be
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(list(names)).encode(), 0)


@contextmanager
def open_queue(sweep: Path) -> Iterator[QueuedRuns]:
    """Keep the queue of a sweep; nothing is kept where another process works on the sweep, or where
    there are no locks.

    Args:
        sweep: the sweep's directory.
    """
    path = sweep / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    file = open_file(path, writable=True)
    try:
        yield QueuedRuns(file)
    finally:
        os.close(file)


def is_queued(run: Path) -> bool:
    """Return True if a sweep that runs will start this run, or go on with it."""
    place = run.absolute()
    return any(
        place.relative_to(sweep).as_posix() in _read_queue(sweep)
        for sweep in place.parents[:_DEPTH_MAX]
    )


def _read_queue(sweep: Path) -> list[str]:
    path = sweep / _FILE
    if not is_regular(path):
        return []
    try:
        file = open_file(path, writable=True)  # NFS locks no file that is open for reading only
    except OSError:
        return []
    try:
        if _takes_lock(file):
            return []
        found = read_json(path)
    except (OSError, ValueError):  # it is being written
        return []
    finally:
        os.close(file)
    return found if isinstance(found, list) else []


def _takes_lock(file: int) -> bool:
    """Take the lock of a file; False where another process has it, or where there are none."""
    try:
        return lock_file(file)
    except BlockingIOError:
        return False

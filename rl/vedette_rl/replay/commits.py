"""The last commit of a ring on disk: the number of rows, and the stamp that belongs to them.

It is one value of `vedette_rl.storage.latest_value`, so that rows and stamp are there both or
neither, whichever process was killed. After a power failure, and where ``commits`` is gone or
damaged, a replay is recovered: `vedette_rl.replay.syncing`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vedette_rl.errors import LatestValueFormatError, ReplayTornError
from vedette_rl.storage.latest_value import LatestValueWriter, read_latest_value
from vedette_rl.storage.system import boot_id as boot_id

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMMITS = "commits"
STAMP_MAX_BYTES = 4 << 20
COMMIT_SLOTS = 3

_RECORD = struct.Struct("<Q?7x16s")  # rows inserted, all on the disk, which start of the machine
COMMIT_MAX_BYTES = _RECORD.size + STAMP_MAX_BYTES
_TORN = "is torn, and only it says which rows are whole"
_MISSING = "is missing, and only it says which rows are whole"


class Commit(NamedTuple):
    """The last commit.

    Args:
        inserted: rows since the run began.
        stamp: the opaque bytes that go with them.
        synced: the disk has all of it.
        boot: the id of the machine's start in which it was made.
    """

    inserted: int
    stamp: bytes
    synced: bool
    boot: bytes


NO_COMMIT = Commit(0, b"", True, b"")
"""The commit of a replay that was made and never written."""


class CommitWriter:
    """The one writer of ``commits``, behind the ring's lock.

    Args:
        directory: the directory of a replay that is whole but for this file.

    Raises:
        ReplayTornError: it is missing, cut short or damaged.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / COMMITS
        if not path.exists():  # a new one would mean that nothing was ever inserted
            raise ReplayTornError(path, _MISSING)
        with _torn_commits(path):
            self._map = LatestValueWriter(path, COMMIT_MAX_BYTES, COMMIT_SLOTS, durable=True)
        try:
            self.last = _unpacked(self._map.value(), path)
        except ReplayTornError:
            self._map.close()
            raise
        self._boot = boot_id()

    @staticmethod
    def make(directory: Path) -> None:
        """Make the file of an empty replay."""
        path = directory / COMMITS
        LatestValueWriter(path, COMMIT_MAX_BYTES, COMMIT_SLOTS, durable=True).close()

    def write(self, inserted: int, stamp: Buffer, *, synced: bool) -> None:
        """Make this the last commit."""
        self._map.write(_RECORD.pack(inserted, synced, self._boot), stamp)

    def sync(self) -> None:
        """Wait until the disk has it."""
        self._map.sync()

    def close(self) -> None:
        """Close the file."""
        self._map.close()


def last_commit(directory: Path) -> Commit:
    """The last commit, where no writer runs; nothing is changed.

    Raises:
        ReplayTornError: the file is missing, cut short or damaged.
    """
    path = directory / COMMITS
    with _torn_commits(path):
        newest = read_latest_value(path)
    return _unpacked(newest[1] if newest else None, path)


@contextmanager
def _torn_commits(path: Path) -> Iterator[None]:
    """Raise what is wrong with the file as an error of the replay."""
    try:
        yield
    except FileNotFoundError as e:
        raise ReplayTornError(path, _MISSING) from e
    except LatestValueFormatError as e:
        raise ReplayTornError(path, _TORN) from e


def _unpacked(record: bytes | None, path: Path) -> Commit:
    if record is None:
        return NO_COMMIT
    if len(record) < _RECORD.size:
        raise ReplayTornError(path, "is no part of this replay")
    inserted, synced, boot = _RECORD.unpack_from(record)
    return Commit(inserted, record[_RECORD.size :], synced, boot)

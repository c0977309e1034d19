"""A file of records that is only appended to: synced beside its writer, found by a 64-bit key.

::

    records = RecordFile(path, length)          # cut to the length that somebody has committed
    if records.append([(key, content), ...]):   # in the file, perhaps not on the disk
        end = records.end
    while records.synced < end: ...             # a thread of its own syncs; nobody waits
    save(records.end)                           # only now: a power failure takes none of it
    newest = next(records.find(key), None)

A record is its content's length, a checksum, the key, the content. Records of one key are all kept.
The index has 16 bytes a record.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import threading
import zlib
from array import array
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from vedette_rl.errors import ReplayTornError, RlError
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.regular_files import open_regular
from vedette_rl.storage.system import sync_file
from vedette_rl.storage.write_errors import describe_write_error

_HEAD: Final = struct.Struct("<IIQ")  # bytes of the content, checksum of key and content, key
_KEY: Final = struct.Struct("<Q")
_RECENT_MAX: Final = 1 << 16  # records that are indexed one by one, until all are sorted again
_BETWEEN_S: Final = 0.5  # from one sync to the next
_JOIN_S: Final = 60.0


class RecordFile:
    """The one writer of a file of records.

    Args:
        path: of the file. It is made with the first record.
        length: bytes that count: what lies behind is cut off, as nobody has committed it.

    Raises:
        ReplayTornError: the file is shorter, or damaged.

    Attributes:
        end: bytes of the records.
        synced: those of them that the disk has.
        failing: why the last records could not be appended; "" if they were.
    """

    def __init__(self, path: Path, length: int) -> None:
        self._path = path
        self.end = self.synced = length
        self.failing = ""
        self._index = _Index(path, length)
        self._file: FileIO | None = None
        self._is_listed = True  # its name is on the disk
        if path.exists():
            self._file = FileIO(path, "r+")
            self._file.truncate(length)
        self._failure: OSError | None = None
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def append(self, records: Sequence[tuple[int, bytes]]) -> bool:
        """Append records, and have them synced soon; False: the disk refuses, and has none of them.

        Raises:
            RlError: an earlier sync has failed: nobody knows what the disk has.
        """
        if self._failure is not None:
            why = self._failure.strerror or self._failure
            raise RlError(
                f"{self._path} cannot be synced: {why}: check the disk"
            ) from self._failure
        data = b"".join(_packed(key, content) for key, content in records)
        try:
            self._write(data)
        except OSError as error:
            self.failing = describe_write_error(error, self._path)
            return False
        self.failing = ""
        for key, content in records:
            self._index.add(key, self.end)
            self.end += _HEAD.size + len(content)
        if self._thread is None:
            self._thread = threading.Thread(target=self._sync_often, name="records", daemon=True)
            self._thread.start()
        self._due.set()
        return True

    def find(self, key: int, below: int | None = None) -> Iterator[bytes]:
        """Yield the contents of a key's records, the newest first.

        Args:
            below: those that begin here or behind are left out; None: none is.

        Raises:
            ReplayTornError: one is damaged.
        """
        limit = self.end if below is None else below
        for at in self._index.find(key):
            if at < limit:
                yield self._read(at)

    def close(self) -> None:
        """End the thread and close the file."""
        self._stopped.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._is_listed = False
            self._file = FileIO(self._path, "x+")
        left = memoryview(data)
        try:
            self._file.seek(self.end)
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):  # a reader goes by the committed length
                self._file.truncate(self.end)
            raise

    def _read(self, at: int) -> bytes:
        assert self._file is not None, "it has records"
        self._file.seek(at)
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            size, crc, key = _HEAD.unpack(head)
            content = self._file.read(size)
            if _checksum(key, content) == crc:
                return content
        raise ReplayTornError(self._path, f"is damaged at byte {at}")

    def _sync_often(self) -> None:
        while not self._stopped.is_set():
            self._due.wait()
            self._due.clear()
            end = self.end
            assert self._file is not None, "there are records"
            try:
                sync_file(self._file.fileno())
                if not self._is_listed:
                    sync_directory(self._path.parent)
                    self._is_listed = True
            except OSError as error:
                self._failure = error
                return
            self.synced = end
            self._stopped.wait(_BETWEEN_S)


class _Index:
    """Where the records of each key begin.

    Args:
        path, length: as `RecordFile` has them; all records are verified.
    """

    def __init__(self, path: Path, length: int) -> None:
        keys, places = _read_places(path, length)
        self._sort(np.frombuffer(keys, np.uint64), np.frombuffer(places, np.uint64))

    def add(self, key: int, at: int) -> None:
        """Add a record behind all others."""
        self._recent.setdefault(key, []).append(at)
        self._count += 1
        if self._count > _RECENT_MAX:
            added = [(key, at) for key, places in self._recent.items() for at in places]
            keys, places = np.array(added, np.uint64).T
            self._sort(np.concatenate([self._keys, keys]), np.concatenate([self._places, places]))

    def find(self, key: int) -> Iterator[int]:
        """Yield where the records of a key begin, the last first."""
        yield from reversed(self._recent.get(key, ()))
        place = int(np.searchsorted(self._keys, np.uint64(key), "right")) - 1
        while place >= 0 and int(self._keys[place]) == key:
            yield int(self._places[place])
            place -= 1

    def _sort(self, keys: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
        order = np.argsort(keys, kind="stable")  # so that those of a key stay in order
        self._keys = keys[order]
        self._places = places[order]
        self._recent: dict[int, list[int]] = {}
        self._count = 0


def _read_places(path: Path, length: int) -> tuple[array[int], array[int]]:
    """Verify the records of a file; returns their keys, and where they begin.

    Raises:
        ReplayTornError: as `RecordFile`.
    """
    keys, places = array("Q"), array("Q")
    if not length:
        return keys, places
    check_length(path, length)
    with (
        open_regular(path) as file,
        mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data,
    ):
        at = 0
        while at < length:
            begin = at + _HEAD.size
            if begin > length:
                raise ReplayTornError(path, f"is damaged at byte {at}")
            size, crc, key = _HEAD.unpack_from(data, at)
            end = begin + size
            # The checksum of key and content, which lie one behind the other.
            if end > length or zlib.crc32(data[begin - _KEY.size : end]) != crc:
                raise ReplayTornError(path, f"is damaged at byte {at}")
            keys.append(key)
            places.append(at)
            at = end
    return keys, places


def check_length(path: Path, length: int) -> None:
    """Check that a file has the bytes that somebody has committed.

    Raises:
        ReplayTornError: it is shorter.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < length:
        raise ReplayTornError(path, f"has {size:,} bytes, and {length:,} belong to the last commit")


def _packed(key: int, content: bytes) -> bytes:
    return _HEAD.pack(len(content), _checksum(key, content), key) + content


def _checksum(key: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(_KEY.pack(key)))

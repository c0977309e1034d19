"""Latest-value map: a file that one process writes values to and others read the newest from.

::

    writer = LatestValueWriter(path, max_bytes=1 << 20)
    writer.write(head, body)                     # the parts, one after the other: value number 1

    reader = LatestValueReader(path)                  # may be made before the file
    if reader.seq > seen:                        # cheap: ask at every step
        value = reader.read(after=seen)          # (number, bytes), or None

The file is a header and a few slots. A value goes into the slot after the newest one's: the slot is
marked empty, filled, checksummed, numbered, and only then does the header point at it. So a writer
killed at any instruction leaves the last whole value, and a reader has the time of ``slots - 1``
further writes to copy one out before it must try again.

A checksum detects a value that a power cut has torn. Values that are large, and need not outlive a
power cut, can do without: a kill leaves them whole too, and a reader sees by the number if it was
overtaken.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vedette_rl.errors import LatestValueFormatError, MapSpaceError, OneWriterError
from vedette_rl.number_format import format_bytes
from vedette_rl.storage.atomic_files import allocate_file
from vedette_rl.storage.buffer_pool import BufferPool
from vedette_rl.storage.system import file_size_limit, lock_file, open_file, sync_mapped_file
from vedette_rl.storage.write_errors import describe_write_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"vdtnews1"
MAGIC_UNSUMMED = b"vdtnews2"
"""Begins a file whose values have no checksum."""

SLOTS = 3
HEADER_BYTES = 128
SLOT_HEAD_BYTES = 64
READ_TRIES = 64
SMALL_BYTES = 64 << 10

_GEOMETRY = struct.Struct("<8sQQ")  # magic, slots, max_bytes
_CURSOR = 64 // 8  # the newest number, in 8-byte words: its own cache line
_CHECKED = struct.Struct("<QQ")  # what the checksum covers besides the data: number, length


class MemoryFence:
    """Keeps stores (and loads) before it from being seen after those behind it.

    Some processors (ARM) reorder what Python does not. Releasing and taking a lock is the one
    full barrier that the standard library has. One fence belongs to one thread at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        self._lock.release()
        self._lock.acquire()


class _Slots:
    """The file's layout: a header, then slots of a head (number, length, checksum) and data."""

    def __init__(self, file: int, path: Path, *, writable: bool) -> None:
        size = os.fstat(file).st_size
        head = os.read(file, _GEOMETRY.size)  # it has just been opened
        magic, slots, max_bytes = _GEOMETRY.unpack(head.ljust(_GEOMETRY.size, b"\0"))
        if (
            magic not in (MAGIC, MAGIC_UNSUMMED)
            or slots < 2
            or size != latest_value_file_bytes(max_bytes, slots)
        ):
            raise LatestValueFormatError(
                f"{path} is no map of newest values, or cut short: delete it"
            )
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self.map = mmap.mmap(file, size, access=access)
        self.path = path
        self.summed: bool = magic == MAGIC
        self.slots: int = slots
        self.max_bytes: int = max_bytes
        self.words = memoryview(self.map).cast("Q")
        self.bytes = np.frombuffer(self.map, np.uint8)
        self._recycler = BufferPool()
        self._step: int = (size - HEADER_BYTES) // slots

    def word(self, seq: int) -> int:
        """The offset of the head of `seq`'s slot, in words: number, length, checksum."""
        return (HEADER_BYTES + (seq % self.slots) * self._step) // 8

    def value(self, seq: int) -> bytes | None:
        """The data of `seq`, or None where its slot does not hold it whole."""
        data = self.array(seq)
        return None if data is None else data.tobytes()

    def array(self, seq: int) -> NDArray[np.uint8] | None:
        """The same as an array, in memory that is used again where it is large."""
        at = self.word(seq)
        fence = MemoryFence()  # of this thread: several may read
        if self.words[at] != seq:
            return None
        fence()
        length = self.words[at + 1]
        checksum = self.words[at + 2]
        if length > self.max_bytes:
            return None
        begin = at * 8 + SLOT_HEAD_BYTES
        data = self._recycler.allocate(length)
        data[...] = self.bytes[begin : begin + length]
        fence()
        if self.words[at] != seq:  # the writer came round to this slot meanwhile
            return None
        whole = not self.summed or _checksum(seq, length, [data.data]) == checksum
        return data if whole else None

    def newest(self, *, torn: bool = False) -> int:
        """The highest number whose slot is whole; 0: none is.

        It may be one beyond the one pointed at: of a writer killed between its last two stores.

        Args:
            torn: the one pointed at need not be whole.
        """
        pointed = self.words[_CURSOR]
        seqs = {self.words[self.word(slot)] for slot in range(self.slots)}
        newest = max((seq for seq in seqs if seq and self._is_whole(seq)), default=0)
        if newest < pointed and not torn:
            raise LatestValueFormatError(
                f"{self.path} is torn: value {pointed} is not whole: delete the file"
            )
        return newest

    def _is_whole(self, seq: int) -> bool:
        """True if the slot is whole; of a value without a checksum only its head is checked."""
        if self.summed:
            return self.array(seq) is not None
        at = self.word(seq)
        return bool(self.words[at] == seq and self.words[at + 1] <= self.max_bytes)

    def close(self) -> None:
        self.words.release()
        del self.bytes
        self.map.close()


class LatestValueWriter:
    """Writes values for readers of other processes. One at a time may write a file.

    Args:
        path: the file; made if it is not there, continued if it is.
        max_bytes: no value may be larger.
        slots: values kept; a reader slower than ``slots - 1`` writes has to try again.
        durable: the file must outlive a power cut; making it then waits for the disk, which may
            take seconds where others write much.
        summed: values have a checksum, where this makes the file; without, a power cut may leave a
            torn value undetected.
        torn: each value is synced before the next is written, so where the newest is torn, the one
            before is whole and takes its place.

    Raises:
        LatestValueFormatError: the file is something else, or made for smaller values.
        MapSpaceError: the disk has no room for it.
        OneWriterError: another process writes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_bytes: int,
        slots: int = SLOTS,
        *,
        durable: bool = False,
        summed: bool = True,
        torn: bool = False,
    ) -> None:
        self.path = Path(path)
        if not self.path.exists():
            magic = MAGIC if summed else MAGIC_UNSUMMED
            _make_file(self.path, max_bytes, slots, magic, durable=durable)
        self._file = open_file(self.path, writable=True)
        try:
            _lock(self._file, self.path)
            self._slots = _Slots(self._file, self.path, writable=True)
            if self._slots.max_bytes < max_bytes:
                raise LatestValueFormatError(
                    f"{self.path} takes values of {self._slots.max_bytes} bytes, and {max_bytes} "
                    "are asked: delete it"
                )
            self._seq = self._slots.newest(torn=torn)
            self._slots.words[_CURSOR] = self._seq
        except BaseException:
            os.close(self._file)
            raise
        self._fence = MemoryFence()

    @property
    def seq(self) -> int:
        """Number of the newest value; 0: nothing yet."""
        return self._seq

    def value(self) -> bytes | None:
        """The newest value, as a reader would get it; None: nothing yet."""
        return self._slots.value(self._seq) if self._seq else None

    def write(self, *parts: Buffer) -> int:
        """Make the parts, one after the other, the newest value; returns its number.

        Raises:
            ValueError: they are larger than `max_bytes`; the value before stays.
        """
        length = sum(memoryview(part).nbytes for part in parts)
        if length > self._slots.max_bytes:
            raise ValueError(
                f"a value of {length} bytes for {self.path}, which takes {self._slots.max_bytes}"
            )
        seq = self._seq + 1
        words = self._slots.words
        fence = self._fence
        at = self._slots.word(seq)
        words[at] = 0
        fence()
        checksum = self._fill(at * 8 + SLOT_HEAD_BYTES, seq, length, parts)
        words[at + 1] = length
        words[at + 2] = checksum
        fence()
        words[at] = seq
        fence()
        words[_CURSOR] = seq
        self._seq = seq
        return seq

    def _fill(self, to: int, seq: int, length: int, parts: Sequence[Buffer]) -> int:
        """Copy the parts to where the slot's data begins; the checksum."""
        if length <= SMALL_BYTES:
            value = b"".join(parts)
            self._slots.map[to : to + length] = value
            return _checksum(seq, length, [value])
        data = [memoryview(part).cast("B") for part in parts]
        for piece in data:
            # numpy's copy lets other threads run, a memoryview's does not
            self._slots.bytes[to : to + piece.nbytes] = np.frombuffer(piece, np.uint8)
            to += piece.nbytes
        return _checksum(seq, length, data) if self._slots.summed else 0

    def rewrite(self) -> None:
        """Write the newest value once more, as it is, so that the next sync has to write it.

        A value whose write has failed counts as written.
        """
        slots = self._slots
        at = slots.word(self._seq) * 8
        length = SLOT_HEAD_BYTES + min(slots.words[at // 8 + 1], slots.max_bytes)
        os.pwrite(self._file, slots.map[at : at + length], at)
        os.pwrite(self._file, slots.map[:HEADER_BYTES], 0)

    def sync(self) -> None:
        """Wait until the disk has what was written: needed against a power cut, not a kill."""
        sync_mapped_file(self._file)

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._slots.close()
        os.close(self._file)


class LatestValueReader:
    """Reads the newest value of a file that a `LatestValueWriter` of another process writes.

    The file may come later: until then nothing is there.

    Raises:
        LatestValueFormatError: (any method) the file is something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._slots: _Slots | None = None
        self._open()

    @property
    def seq(self) -> int:
        """Number of the newest value; 0: nothing yet."""
        if self._slots is None and not self._open():
            return 0
        assert self._slots is not None, "just opened"
        return self._slots.words[_CURSOR]

    def read(self, after: int = 0) -> tuple[int, bytes] | None:
        """The newest value and its number.

        None where no newer one than `after` is there, or where the writer was faster than every
        attempt to copy one: ask again.
        """
        newest = self.read_array(after)
        return None if newest is None else (newest[0], newest[1].tobytes())

    def read_array(self, after: int = 0) -> tuple[int, NDArray[np.uint8]] | None:
        """Read as `read` does, but as an array: a large value takes half the time."""
        for _ in range(READ_TRIES):
            seq = self.seq
            if seq <= after or self._slots is None:
                return None
            data = self._slots.array(seq)
            if data is not None:
                return seq, data
        return None

    def close(self) -> None:
        """Close the file."""
        if self._slots is not None:
            self._slots.close()
            self._slots = None

    def _open(self) -> bool:
        try:
            file = open_file(self.path)
        except FileNotFoundError:
            return False
        try:
            self._slots = _Slots(file, self.path, writable=False)
        finally:
            os.close(file)
        return True


def read_latest_value(
    path: str | os.PathLike[str], *, torn: bool = False
) -> tuple[int, bytes] | None:
    """The newest whole value of a file without a writer, and its number; None: nothing yet.

    Args:
        torn: as `LatestValueWriter` has it.

    Raises:
        LatestValueFormatError: the file is something else, or its newest value is torn.
    """
    path = Path(path)
    file = open_file(path)
    try:
        slots = _Slots(file, path, writable=False)
    finally:
        os.close(file)
    seq = slots.newest(torn=torn)
    data = slots.value(seq) if seq else None
    slots.close()
    return None if data is None else (seq, data)


def latest_value_file_bytes(max_bytes: int, slots: int) -> int:
    """Bytes of a file for values of `max_bytes`."""
    return HEADER_BYTES + slots * (SLOT_HEAD_BYTES + -(-max_bytes // 64) * 64)


def _make_file(path: Path, max_bytes: int, slots: int, magic: bytes, *, durable: bool) -> None:
    if max_bytes < 1 or slots < 2:
        raise ValueError(f"a map of {slots} slots of {max_bytes} bytes: at least 2 of 1")
    need = latest_value_file_bytes(max_bytes, slots)
    head = _GEOMETRY.pack(magic, slots, max_bytes)
    try:
        allocate_file(path, need, head, durable=durable)
    except FileNotFoundError as e:
        why = f"the folder {path.parent} is gone"
        raise MapSpaceError(path, format_bytes(need), why, "make it again") from e
    except OSError as e:
        is_limited = e.errno == errno.EFBIG and file_size_limit() is not None
        fix = "raise that limit" if is_limited else ""
        raise MapSpaceError(path, format_bytes(need), describe_write_error(e, path), fix) from e


def _lock(file: int, path: Path) -> None:
    try:
        lock_file(file)
    except BlockingIOError as e:
        raise OneWriterError(path) from e
    if not os.path.samestat(os.fstat(file), path.stat()):
        raise OneWriterError(path)  # it made its own file while we opened ours


def _checksum(seq: int, length: int, data: Sequence[Buffer]) -> int:
    checksum = zlib.crc32(_CHECKED.pack(seq, length))
    for piece in data:
        checksum = zlib.crc32(piece, checksum)
    return checksum

"""The files of a replay on disk: names, contents and checks.

::

    DIR/ring.json           what the rows are; written last, so that it is there or nothing is
    DIR/000-obs.bin ...     a column each: a page of identity, then the rows
    DIR/004-frames.bin      what rows share, if they do, likewise
    DIR/cursor.bin          rows inserted, the first that is not gone, and the branch, for readers
    DIR/commits             rows inserted and the stamp, as one latest value
    DIR/synced              the last commit that is on the disk: what a power failure leaves
    DIR/checksums.bin       of the rows: the evidence that those committed since are whole
    DIR/priorities.bin      of a loop of one's own, where replay is prioritized
    DIR/archive             closed sessions of managers with an outbox, behind the stamp's
    DIR/starts.json         of a replay with a snapshot: who wrote it, and from which row on
    DIR/lock                held by the writer
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import os
import re
import secrets
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.errors import (
    OneWriterError,
    ReplayBudgetError,
    ReplayFormatError,
    ReplayTornError,
)
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.manifest import MANIFEST, Manifest
from vedette_rl.storage.atomic_files import NO_ROOM, allocate_file
from vedette_rl.storage.system import (
    file_size_limit,
    lacks_inodes,
    lock_file,
    open_file,
    sync_file,
)
from vedette_rl.storage.write_errors import NO_INODE

PAGE_BYTES = 4096
CURSOR = "cursor.bin"
ARCHIVE = "archive"
CURSOR_DTYPE = np.dtype("<u8")

_MAGIC = b"vdtrepl1"
_OURS = re.compile(
    r"\d{3}-[\w-]*\.bin|cursor\.bin|checksums\.bin|priorities\.bin|commits|synced|lock|sources|.*\.new"
    r"|starts\.json|archive"
)


def column_path(directory: Path, index: int, name: str) -> Path:
    """The path of a column. Its name comes from an environment: only its letters are used."""
    return directory / f"{index:03d}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40]}.bin"


def is_replay_file(name: str) -> bool:
    """Return True for a name that a file of a replay has."""
    is_part = _OURS.fullmatch(name) is not None
    return name == MANIFEST or (is_part and name != "sources" and not name.endswith(".new"))


def check_directory(directory: Path) -> None:
    """Refuse a directory that holds something else than a replay, or a part of one.

    Raises:
        ReplayFormatError: names what was found and the fix.
    """
    if (directory / MANIFEST).exists():
        return
    for entry in directory.iterdir():
        if not _OURS.fullmatch(entry.name):
            raise ReplayFormatError(
                f"{directory} holds {entry.name!r}, which is no part of a replay: "
                "name an empty directory as replay.directory"
            )


class ArrayFile(NamedTuple):
    """A file of a replay, and the array that belongs into it."""

    name: str
    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def column_files(directory: Path, manifest: Manifest) -> Iterator[ArrayFile]:
    """The files of the columns, in order; what the rows share, if they do, at the end."""
    shared = manifest.shared
    columns = [(spec, manifest.physical_rows) for spec in manifest.columns]
    columns += [(spec, shared.all_entries) for spec in shared.columns] if shared else []
    for index, (spec, rows) in enumerate(columns):
        path = column_path(directory, index, spec.name)
        yield ArrayFile(spec.name, path, np.dtype(spec.dtype), (rows, *spec.shape))


def array_files(directory: Path, manifest: Manifest) -> Iterator[ArrayFile]:
    """The files of all arrays: those of the columns, and the cursor's."""
    yield from column_files(directory, manifest)
    yield ArrayFile(CURSOR, directory / CURSOR, CURSOR_DTYPE, (1,))


def check_files(directory: Path, manifest: Manifest) -> None:
    """Check that every array's file is there, whole and of this replay; no row is read.

    Raises:
        ReplayTornError: a file is missing, cut short, or another replay's.
    """
    for _, path, dtype, shape in array_files(directory, manifest):
        os.close(_open_array(path, manifest.uid, dtype, shape, writable=False))


def map_columns(directory: Path, manifest: Manifest, *, writable: bool) -> MappedColumns:
    """Map every column's file.

    Raises:
        ReplayTornError: a file is missing, cut short, or another replay's.
    """
    mapped = MappedColumns({}, [], {})
    shared = {spec.name for spec in manifest.shared.columns} if manifest.shared else set()
    for name, path, dtype, shape in column_files(directory, manifest):
        array, file_map = map_array(path, manifest.uid, dtype, shape, writable=writable)
        mapped.maps.append(file_map)
        (mapped.shared if name in shared else mapped.columns)[name] = array
    return mapped


def map_cursor(directory: Path, manifest: Manifest, *, writable: bool) -> memoryview:
    """The one number of ``cursor.bin``: rows inserted.

    Raises:
        ReplayTornError: the file is missing, cut short, or another replay's.
    """
    path = directory / CURSOR
    _, file_map = map_array(path, manifest.uid, CURSOR_DTYPE, (1,), writable=writable)
    return memoryview(file_map)[PAGE_BYTES:].cast("Q")


_FLOOR_AT = 64  # in the page of identity: rows below this number are gone
_BRANCH_AT = 72
_BRANCH = struct.Struct("<8sQ8s")
"""Behind it: the branch, the number at which it began, and the branch before it."""
_NUMBER = struct.Struct("<Q")


def read_floor(directory: Path) -> int:
    """The first row that a recovery has left; 0 where there was none."""
    with (directory / CURSOR).open("rb") as file:
        file.seek(_FLOOR_AT)
        floor: int = _NUMBER.unpack(file.read(_NUMBER.size))[0]
        return floor


def read_inserted(directory: Path) -> int:
    """The rows inserted, as readers see them."""
    with (directory / CURSOR).open("rb") as file:
        file.seek(PAGE_BYTES)
        inserted: int = _NUMBER.unpack(file.read(_NUMBER.size))[0]
        return inserted


class Branch(NamedTuple):
    """What tells rows from others of the same number.

    Args:
        id: bytes that differ from those before once row numbers may be used again for other rows.
        begin: rows below this number are of the branch before, too.
        before: its bytes.
    """

    id: bytes
    begin: int
    before: bytes


def read_branch(directory: Path) -> Branch:
    """The branch of a ring's rows."""
    with (directory / CURSOR).open("rb") as file:
        file.seek(_BRANCH_AT)
        return Branch(*_BRANCH.unpack(file.read(_BRANCH.size)))


def write_branch(directory: Path, branch: Branch) -> None:
    """Give a ring without a writer the branch of another one, of which it is a copy."""
    with (directory / CURSOR).open("r+b") as file:
        os.pwrite(file.fileno(), _BRANCH.pack(*branch), _BRANCH_AT)


def write_cursor(directory: Path, inserted: int, floor: int, *, new_branch: bool) -> None:
    """Write the numbers of ``cursor.bin``, where no writer runs. The disk has them then.

    Args:
        directory: the ring's.
        inserted: rows inserted.
        floor: the first that is not gone.
        new_branch: row numbers will be used again. The branch is drawn and never counted: a disk
            that is put back to an earlier state would count the same again.
    """
    with (directory / CURSOR).open("r+b") as file:
        if new_branch:
            before = read_branch(directory).id
            branch = _BRANCH.pack(secrets.token_bytes(len(before)), inserted, before)
            os.pwrite(file.fileno(), branch, _BRANCH_AT)
        os.pwrite(file.fileno(), _NUMBER.pack(floor), _FLOOR_AT)
        os.pwrite(file.fileno(), _NUMBER.pack(inserted), PAGE_BYTES)
        sync_file(file.fileno())


@dataclass(slots=True)
class MappedColumns:
    """Columns and the maps under them; those that rows share apart."""

    columns: Columns
    maps: list[mmap.mmap]
    shared: Columns


def array_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of an array's file."""
    return PAGE_BYTES + dtype.itemsize * math.prod(shape)


def make_array(path: Path, uid: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Make an array's file, filled with zeros.

    Raises:
        ReplayBudgetError: the disk has no room for it.
    """
    need = array_bytes(dtype, shape)
    try:
        allocate_file(path, need, _identity(uid, path.name, dtype, shape), durable=True)
    except (OSError, OverflowError) as e:
        if isinstance(e, OSError) and e.errno not in NO_ROOM:
            raise
        have = format_bytes(shutil.disk_usage(path.parent).free)
        fix = "lower replay.capacity"
        limit = file_size_limit()
        if lacks_inodes(path.parent):
            have = f"{have} and {NO_INODE}"
            fix = "remove files there"
        elif limit is not None and limit < need:
            have = f"{format_bytes(limit)} a file (ulimit -f)"
            fix = f"raise that limit, or {fix}"
        raise ReplayBudgetError(f"disk in {path.parent}", format_bytes(need), have, fix) from e


def map_array(
    path: Path, uid: str, dtype: np.dtype[Any], shape: tuple[int, ...], *, writable: bool
) -> tuple[NDArray[Any], mmap.mmap]:
    """Map an array's file; the array is a view of the map.

    Raises:
        ReplayTornError: the file is missing, cut short, or another replay's.
    """
    file = _open_array(path, uid, dtype, shape, writable=writable)
    try:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        file_map = mmap.mmap(file, array_bytes(dtype, shape), access=access)
    finally:
        os.close(file)
    return np.frombuffer(file_map, dtype, offset=PAGE_BYTES).reshape(shape), file_map


ALIGNED_ROWS = max(PAGE_BYTES, mmap.PAGESIZE)
"""Rows of any size whose bytes are whole pages of the system."""

_MAP_FIXED = 0x10  # of Linux and macOS; the mmap module has no name for it


def lay_behind(lengths: Iterable[int], gap: int, aligned: int) -> list[int]:
    """Return where pieces of these lengths begin: multiples of `aligned`, `gap` or more apart."""
    begins = []
    end = 0
    for length in lengths:
        begins.append(end)
        end = -(-(end + length + gap) // aligned) * aligned
    return begins


def map_joined(
    files: Sequence[tuple[str, ArrayFile]], begins: Sequence[int], *, writable: bool = False
) -> NDArray[Any]:
    """Map the same column of several rings as one array, so that one call gathers from all.

    Args:
        files: each ring's uid, and its file of the column; all of one dtype and shape of a row.
        begins: the row of the array at which each begins, such that all before are whole pages,
            each a page or more beyond the end of the one before.

    Returns:
        an array ``(rows, *shape)``; rows between the rings are not to be read.
    """
    last = files[-1][1]
    row_bytes = last.dtype.itemsize * math.prod(last.shape[1:])
    rows = begins[-1] + last.shape[0]
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    # Address space alone; its end unmaps what is mapped into it.
    whole = mmap.mmap(
        -1, PAGE_BYTES + rows * row_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, access
    )
    at = np.frombuffer(whole, np.uint8).ctypes.data
    system_map = ctypes.CDLL(None, use_errno=True).mmap
    system_map.restype = ctypes.c_void_p
    for (uid, (_, path, dtype, shape)), begin in zip(files, begins, strict=True):
        file = _open_array(path, uid, dtype, shape, writable=writable)
        try:
            mapped_at = system_map(
                ctypes.c_void_p(at + begin * row_bytes),
                ctypes.c_size_t(array_bytes(dtype, shape)),
                access,
                mmap.MAP_SHARED | _MAP_FIXED,
                file,
                ctypes.c_long(0),
            )
        finally:
            os.close(file)
        if mapped_at != at + begin * row_bytes:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    shape = (rows, *last.shape[1:])
    return np.frombuffer(whole, last.dtype, math.prod(shape), PAGE_BYTES).reshape(shape)


def _open_array(
    path: Path, uid: str, dtype: np.dtype[Any], shape: tuple[int, ...], *, writable: bool
) -> int:
    """Open an array's file, once its size and its first page are what they must be."""
    try:
        file = open_file(path, writable=writable)
    except FileNotFoundError as e:
        raise ReplayTornError(path, "is missing") from e
    try:
        size = os.fstat(file).st_size
        need = array_bytes(dtype, shape)
        if size != need:
            raise ReplayTornError(path, f"is torn: {size} bytes, where {need} belong")
        identity = _identity(uid, path.name, dtype, shape)
        if os.read(file, len(identity)) != identity:
            raise ReplayTornError(path, "is no part of this replay")
    except BaseException:
        os.close(file)
        raise
    return file


def lock_directory(directory: Path, *, shared: bool) -> int:
    """Take the directory's lock; closing the descriptor returned lets it go.

    Raises:
        OneWriterError: another process has it.
    """
    # A reader may be of a directory that it cannot write.
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    file = os.open(directory / "lock", flags, 0o644)
    try:
        lock_file(file, shared=shared)
    except BlockingIOError as e:
        os.close(file)
        raise OneWriterError(directory) from e
    return file


def _identity(uid: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    what = f"{name} {dtype.str} {shape}".encode()
    return _MAGIC + bytes.fromhex(uid) + hashlib.blake2b(what, digest_size=16).digest()

"""Copies of a ring's entries in files that are only appended to, on another disk.

A ring overwrites its slots; a copy of it that is consistent at every moment must not. So entries
are appended, in blocks, to *parts*: files of one writer each, that begin at an entry and are never
changed. Whoever lists a part says up to which entry and byte: what was appended later, or was being
appended when its writer was killed, is no part of that list. A part whose entries are all gone from
the ring is dropped from the next list, and then it may be removed.

::

    copy = PartsCopy(folder, "rows-1f", ColumnEntries(columns))  # or with parts that are there
    copy.follow(end, oldest, doubtful_below, pause)              # what is not there yet
    copy.sync()                                                  # the disk has `copy.parts`

    ring = RingRestore(directory, folder)                        # a replay that a writer opens
    ring.make(RingState(...))
    ring.copy_rows()
    ring.finish()

What a block has is verified when it is read: it has a checksum.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from vedette_rl.core.columns import Columns
from vedette_rl.errors import ReplayTornError
from vedette_rl.replay import ring_files
from vedette_rl.replay.commits import COMMITS, CommitWriter
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.manifest import Manifest, write_manifest
from vedette_rl.replay.ring_files import Branch
from vedette_rl.replay.syncing import first_row_with
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.regular_files import open_new_to_append, open_regular
from vedette_rl.storage.system import open_file, sync_file, sync_mapped_file

PART_BYTES = 64 << 20
"""A part takes no further block from this size on."""

BLOCK_BYTES = 4 << 20

PART_MAX_BYTES = PART_BYTES + BLOCK_BYTES + (64 << 10)
"""A part takes less, where an entry is no larger than a block. So much of its parts may be of
entries that the ring has no more: a part goes once all of its entries are gone."""

_BLOCK = struct.Struct("<8sQQQI4x")  # magic, first entry, entries, bytes, checksum of these
_MAGIC = b"vdtpart1"

Pause = Callable[[int], None]
"""Called with the bytes of a block once it is written: lets others have the disk."""


class Part(NamedTuple):
    """A file of entries, as far as it counts.

    Args:
        name: of the file.
        first, end: its entries are those from `first` to `end`.
        size: its bytes up to there.
    """

    name: str
    first: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class RingState:
    """A ring at one commit, whose entries lie in parts.

    Args:
        manifest: of the ring.
        inserted, shared: rows and shared entries since the run began.
        floor: rows below are gone.
        branch: of its rows.
        rows, frames: the parts with its rows, and with what they share; in order, without a gap.
        archive: the parts with the bytes of the archive that belong to the stamp.
        stamp: of the commit.
    """

    manifest: Manifest
    inserted: int
    shared: int
    floor: int
    branch: Branch
    rows: tuple[Part, ...]
    frames: tuple[Part, ...]
    archive: tuple[Part, ...]
    stamp: bytes

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts."""
        return self.rows + self.frames + self.archive

    @property
    def archive_end(self) -> int:
        """Bytes of the archive."""
        return self.archive[-1].end if self.archive else 0


class Entries(Protocol):
    """Entries in a number of slots: entry `i` lies in slot ``i % slots``."""

    @property
    def slots(self) -> int:
        """How many are kept."""
        ...

    @property
    def entry_bytes(self) -> int:
        """Of each."""
        ...

    def read(self, slot: int, count: int) -> list[bytes]:
        """Return the bytes of successive slots, in pieces."""
        ...


class ColumnEntries:
    """The entries of a ring.

    Args:
        columns: in the order of its manifest, as they are mapped.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = list(columns.values())
        self.slots = len(self._columns[0])
        self.entry_bytes = sum(column[:1].nbytes for column in self._columns)

    def read(self, slot: int, count: int) -> list[bytes]:
        """Return the bytes of successive slots, column by column."""
        return [column[slot : slot + count].tobytes() for column in self._columns]


class FileEntries:
    """The bytes of a file that is only appended to: an entry each.

    Args:
        path: of the file. It may come later.
    """

    slots = 1 << 62
    entry_bytes = 1

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, slot: int, count: int) -> list[bytes]:
        """Return bytes of the file."""
        with open_regular(self._path) as file:
            file.seek(slot)
            return [file.read(count)]


class PartsCopy:
    """Copies the entries of one ring, or the bytes of one file, into parts.

    Args:
        folder: of the parts.
        prefix: begins the names of the parts that this makes; nobody else's do.
        entries: those that are copied.
        parts: those that are there already, in order.

    Attributes:
        parts: those with the entries up to `end`, as far as they are still needed.
        end: the first entry that is to be copied.
    """

    def __init__(
        self, folder: Path, prefix: str, entries: Entries, parts: Sequence[Part] = ()
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._entries = entries
        self._block = max(1, BLOCK_BYTES // max(1, entries.entry_bytes))
        self._made = 0
        self._file: BinaryIO | None = None
        self.parts = list(parts)
        self.end = parts[-1].end if parts else 0

    def follow(
        self, end: int, oldest: int, doubtful_below: Callable[[], int], pause: Pause
    ) -> None:
        """Copy what is not in the parts yet, and drop the parts that are not needed any more.

        Where the ring overwrites entries before they are copied, the parts begin behind these.

        Args:
            end: entries of the ring that are to be there.
            oldest: the first one that is needed.
            doubtful_below: entries below the number that it returns may be overwritten by now.

        Raises:
            OSError: a part cannot be written. Call `give_up` before the next call.
        """
        while self.end < end:
            begin = max(self.end, min(oldest, end))
            slots = self._entries.slots
            place = begin % slots
            count = min(end - begin, slots - place, self._block)
            data = self._entries.read(place, count)
            if count and (doubtful := doubtful_below()) > begin:
                oldest = doubtful
                continue
            if begin > self.end:  # those in between are gone
                self._end_part()
                self.parts = []
                self.end = begin
            if count:
                self._append(count, data)
                pause(sum(map(len, data)))
        while len(self.parts) > 1 and self.parts[0].end <= oldest:
            del self.parts[0]

    def sync(self) -> None:
        """Wait until the disk has the parts that this has made.

        Raises:
            OSError: it cannot be told what of the last part is there. Call `give_up`.
        """
        if self._file is not None:
            self._file.flush()
            sync_file(self._file.fileno())

    def give_up(self, parts: Sequence[Part]) -> None:
        """Go back to parts that are on the disk. Nothing more is appended to the last one: what a
        failed sync has not written counts as written."""
        self.close()
        self.parts = list(parts)
        self.end = parts[-1].end if parts else 0

    def close(self) -> None:
        """Close the last part, as it is."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is not written is in no list
                self._file.close()
            self._file = None

    def _append(self, count: int, data: list[bytes]) -> None:
        if self._file is None or self.parts[-1].size >= PART_BYTES:
            self._end_part()
            self._begin_part()
        assert self._file is not None, "a part was begun"
        size = sum(map(len, data))
        self._file.write(_BLOCK.pack(_MAGIC, self.end, count, size, _checksum(data)))
        self._file.writelines(data)
        self.end += count
        last = self.parts[-1]
        self.parts[-1] = last._replace(end=self.end, size=last.size + _BLOCK.size + size)

    def _begin_part(self) -> None:
        self._made += 1
        name = f"{self._prefix}-{self._made}"
        self._file = open_new_to_append(self._folder / name)
        self.parts.append(Part(name, self.end, self.end, 0))

    def _end_part(self) -> None:
        self.sync()
        self.close()


def read_blocks(folder: Path, part: Part, begin: int = 0) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the blocks of a part: the first entry, how many, and their bytes, column by column.

    Args:
        begin: blocks whose entries are all below it are passed over.

    Raises:
        ReplayTornError: the part is missing, shorter than it should be, damaged, or cannot be read.
        OSError: it cannot be opened.
    """
    path = folder / part.name
    at = 0
    entry = part.first
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise ReplayTornError(path, "is missing") from error
    with file:
        while at < part.size:
            head = _read(file, _BLOCK.size, path)
            if len(head) < _BLOCK.size:
                raise ReplayTornError(path, f"is cut short at byte {at}")
            magic, first, count, size, crc = _BLOCK.unpack(head)
            if magic != _MAGIC or first != entry or at + _BLOCK.size + size > part.size:
                raise ReplayTornError(path, f"is damaged at byte {at}")
            at += _BLOCK.size + size
            entry += count
            if entry <= begin:
                file.seek(at)
                continue
            data = _read(file, size, path)
            if len(data) < size or _checksum([data]) != crc:
                raise ReplayTornError(path, f"is damaged behind byte {at - _BLOCK.size - size}")
            yield first, count, memoryview(data)
    if entry != part.end:
        raise ReplayTornError(path, f"ends at entry {entry}, where {part.end} belongs")


def _read(file: BinaryIO, size: int, path: Path) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise ReplayTornError(path, f"cannot be read: {error.strerror}") from error


def verify_parts(folder: Path, parts: Sequence[Part]) -> None:
    """Check that parts are there, and as they were written.

    Raises:
        ReplayTornError: one is missing, damaged, or cannot be read.
        OSError: one cannot be opened.
    """
    for part in parts:
        for _ in read_blocks(folder, part):
            pass


class RingRestore:
    """Makes the replay again whose entries lie in parts. A writer may open it then.

    `make` may be called again, with a later state of the same ring: then only what is new is
    copied. One of another ring begins anew.

    Its rows are of a new branch: the replay that was copied may have gone on.

    Args:
        directory: of the replay; it is made.
        folder: of the parts.
    """

    def __init__(self, directory: Path, folder: Path) -> None:
        self.begun = 0
        """How often it has begun anew: what others have put into the directory is gone then."""
        self._directory = directory
        self._folder = folder
        self._state: RingState | None = None
        self._columns: Columns = {}
        self._shared: Columns = {}
        self._ends = _Ends()

    def make(self, state: RingState) -> None:
        """Make all of the replay but its rows. What a start checks before it maps them is there.

        Raises:
            ReplayTornError: a part of the archive is missing or damaged.
            ReplayBudgetError: the disk has no room.
            OSError: the disk refuses.
        """
        if self._state is None or not _continues(state, self._state, self._ends):
            self._begin(state.manifest)
        self._state = state
        if state.archive:
            path = self._directory / ring_files.ARCHIVE
            with path.open("r+b" if path.exists() else "wb") as archive:
                for part in state.archive:
                    for first, _, data in read_blocks(self._folder, part, self._ends.archive):
                        archive.seek(first)
                        archive.write(data)
                archive.flush()
                sync_file(archive.fileno())
            self._ends.archive = state.archive_end
        self._commit(max(state.floor, _first(state.rows, state.inserted)))
        write_manifest(self._directory, state.manifest)

    def copy_rows(self) -> None:
        """Copy the rows that are not there yet.

        Raises:
            ReplayTornError: a part is missing or damaged.
            OSError: the disk refuses.
        """
        state = self._made()
        ends = self._ends
        ends.rows = _fill(self._columns, self._folder, state.rows, ends.rows)
        ends.frames = _fill(self._shared, self._folder, state.frames, ends.frames)

    def finish(self) -> int:
        """Wait until the disk has all of it; return the first row that may be drawn.

        Raises:
            OSError: the disk refuses.
        """
        state = self._made()
        manifest = state.manifest
        first = max(state.floor, _first(state.rows, state.inserted))
        if manifest.shared is not None and first < state.inserted:
            spans = self._columns[FRAME_SPANS]
            frames = _first(state.frames, state.shared)
            first = first_row_with(spans, frames, first, state.inserted)
        for _, path, *_ in ring_files.column_files(self._directory, manifest):
            file = open_file(path, writable=True)
            try:
                sync_mapped_file(file)
            finally:
                os.close(file)
        self._commit(first)
        sync_directory(self._directory)
        return max(first, state.inserted - manifest.capacity)

    def _begin(self, manifest: Manifest) -> None:
        self.begun += 1
        directory = self._directory
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for _, path, dtype, shape in ring_files.array_files(directory, manifest):
            ring_files.make_array(path, manifest.uid, dtype, shape)
        mapped = ring_files.map_columns(directory, manifest, writable=True)
        self._columns = mapped.columns
        self._shared = mapped.shared
        self._ends = _Ends()

    def _commit(self, first: int) -> None:
        """Write the commit of the state, of which rows below `first` are gone."""
        state = self._made()
        directory = self._directory
        ring_files.write_branch(directory, state.branch)
        ring_files.write_cursor(directory, state.inserted, first, new_branch=True)
        (directory / COMMITS).unlink(missing_ok=True)
        CommitWriter.make(directory)
        commits = CommitWriter(directory)
        commits.write(state.inserted, state.stamp, synced=True)
        commits.sync()
        commits.close()

    def _made(self) -> RingState:
        assert self._state is not None, "`make` comes first"
        return self._state


@dataclass(slots=True)
class _Ends:
    """Entries below these are copied."""

    rows: int = 0
    frames: int = 0
    archive: int = 0


def _continues(later: RingState, earlier: RingState, ends: _Ends) -> bool:
    """Return True if what was copied of a ring belongs to a later state of it: entries below
    `ends` lie in the same parts."""
    if later.manifest != earlier.manifest or later.inserted < earlier.inserted:
        return False
    known = {(part.name, part.first) for part in earlier.parts}
    pairs = ((later.rows, ends.rows), (later.frames, ends.frames), (later.archive, ends.archive))
    return all(
        (part.name, part.first) in known
        for parts, end in pairs
        for part in parts
        if part.first < end
    )


def _first(parts: Sequence[Part], end: int) -> int:
    """The first entry of parts without a gap; `end` where there is none."""
    return parts[0].first if parts else end


def _fill(columns: Columns, folder: Path, parts: Sequence[Part], begin: int) -> int:
    """Write the entries of parts from `begin` on into their slots; return the end of the last."""
    for part in parts:
        if part.end <= begin:
            continue
        for first, count, data in read_blocks(folder, part, begin):
            at = 0
            for column in columns.values():
                size = count * column[:1].nbytes
                values = np.frombuffer(data[at : at + size], column.dtype)
                place = first % len(column)  # a block never goes around the ring's end
                column[place : place + count] = values.reshape(count, *column.shape[1:])
                at += size
    return max(begin, parts[-1].end) if parts else begin


def _checksum(data: Sequence[bytes]) -> int:
    crc = 0
    for piece in data:
        crc = zlib.crc32(piece, crc)
    return crc

"""Checksums of a ring's rows: the evidence that what was committed since the last sync is there.

Rows that were not synced are on the disk, or in memory alone, or nowhere. No sign beside them says
which: not the machine's start, nor the mount, nor a file that was left unsynced on purpose, because
the kernel writes each page back, or fails to, by itself. So the rows have to say it.

``checksums.bin`` has a CRC-32 for each column of each block of rows. The rows of the last block,
which is not full, belong to a commit, so their checksums lie in a head that names its number of
rows. Two heads are written in turn, each before its commit: a kill at any instruction leaves the
head of the last one. Two more are of the last syncs. Frames that rows share have the same.

::

    sums = RingChecksums.open(directory, manifest)
    sums.begin(maps, inserted, shared)        # the writer: rows behind these are added
    sums.add(inserted, shared)                # before each commit
    sums.rows.lowest_whole(begin, end, count) # after it: entries from there to `end` are whole

The file is synced with the columns. It may be older than they are, or gone: then rows do not fit
it, and count as broken.
"""

from __future__ import annotations

import math
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from vedette_rl.errors import ReplayTornError
from vedette_rl.replay import ring_files
from vedette_rl.replay.manifest import Manifest
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.system import forget_pages, open_file, sync_mapped_file

if TYPE_CHECKING:
    from mmap import mmap

CHECKSUMS = "checksums.bin"
BLOCK_ENTRIES = 1024
"""Entries of a block; fewer where the guard is small: see `block_entries`."""

_DTYPE = np.dtype("<u8")
_NOTHING = (1 << 64) - 1
"""The number of a head that is of no commit; and the end of a gap that has none."""

_COMMIT_HEADS = (0, 1)
_SYNC_HEADS = (2, 3)
_HEADS = 4
_GAP = 2  # words: the entries without checksums
_FIRST = 1  # word of the file behind the mark of a failed sync
_PIECE_BYTES = 4 << 20


class Tail(NamedTuple):
    """Checksums of the entries of a block that is not full.

    Args:
        end: entries since the run began.
        sums: a checksum for each column.
    """

    end: int
    sums: tuple[int, ...]


class Unlike(NamedTuple):
    """A block whose entries are not as they were written, or have no checksum.

    Args:
        begin, end: its entries.
        columns: the numbers of the columns; none: there is no checksum.
    """

    begin: int
    end: int
    columns: tuple[int, ...]


def block_entries(guard: int) -> int:
    """Entries of a block: few beside the guard.

    Entries that are being appended overwrite those before the oldest ones, and where they reach
    the oldest ones' block, that block cannot be verified.
    """
    return max(1, min(BLOCK_ENTRIES, guard // 8))


def checksum_words(entries: int, guard: int, columns: int) -> int:
    """Words of the checksums of a ring with places for `entries`."""
    # Blocks of entries that are kept, or being written, have places of their own.
    blocks = math.ceil((entries + guard) / block_entries(guard)) + 2
    return _GAP + _HEADS * (1 + columns) + blocks * columns


def checksums_file_bytes(rings: Sequence[tuple[int, int, int]]) -> int:
    """Bytes of the file, for rings of so many entries, guard and columns."""
    words = _FIRST + sum(checksum_words(*ring) for ring in rings)
    return ring_files.array_bytes(_DTYPE, (words,))


class BlockChecksums:
    """The checksums of one ring: of a replay's rows, or of what they share.

    Args:
        words: its part of the file.
        files: of each column, an open file and the bytes of an entry.
        entries: places of the ring.
        guard: entries that may be appended before a commit.

    Attributes:
        tail: of the entries that were added last.
    """

    def __init__(
        self, words: memoryview, files: Sequence[tuple[int, int]], entries: int, guard: int
    ) -> None:
        self._words = words
        self.files = files
        self._entries = entries
        self._block = block_entries(guard)
        self._columns = len(files)
        self._first_block = _GAP + _HEADS * (1 + self._columns)
        self._blocks = (len(words) - self._first_block) // self._columns
        self._zeros = (0,) * self._columns
        self._views: list[memoryview] = []
        self.tail = Tail(0, self._zeros)

    # Writing

    def begin(self, maps: Sequence[memoryview], count: int, oldest: int) -> None:
        """Begin to write behind `count` entries, which are whole.

        Args:
            maps: of each column, all entries' bytes.
            count: entries since the run began.
            oldest: the first that is kept.
        """
        self._views = list(maps)
        first = count - count % self._block
        self.tail = Tail(count, self._sums(first, count))
        gap_begin, gap_end = self.gap
        if self.tail.sums not in self._heads(count):  # a release without checksums wrote them
            gap_begin, gap_end = oldest - oldest % self._block, first
        self.set_gap(min(gap_begin, first), min(gap_end, first))
        self._set_head(_COMMIT_HEADS[0], self.tail)
        self._clear_head(_COMMIT_HEADS[1])

    def add(self, count: int) -> None:
        """Add the entries up to `count`, which will be committed next."""
        at, sums = self.tail
        if at == count:
            return
        while at < count:
            end = min(count, at - at % self._block + self._block)
            sums = self._written_sums(at, end, sums)
            if end % self._block == 0:
                self._set_block(end // self._block - 1, sums)
                sums = self._zeros
            at = end
        slot = _COMMIT_HEADS[self._head_count(_COMMIT_HEADS[0]) == self.tail.end]
        self.tail = Tail(count, sums)
        self._set_head(slot, self.tail)

    def set_synced(self, tail: Tail, before: int) -> None:
        """Note the checksums of a commit that is being synced; those of `before` stay."""
        slot = _SYNC_HEADS[self._head_count(_SYNC_HEADS[0]) == before]
        self._set_head(slot, tail)

    def fill_gap(self, below: int) -> int:
        """Calculate what is missing for entries below a number; where the gap begins then."""
        begin, end = self.gap
        while begin < min(below, end):
            self._set_block(begin // self._block, self._sums(begin, begin + self._block))
            begin += self._block
        return begin

    def rewrite(self, begin: int, end: int) -> None:
        """Write entries once more, as they are, so that the next sync has to write them too.

        Pages whose write has failed count as written.
        """
        begin = max(begin, end - self._entries)
        for index, (file, _) in enumerate(self.files):
            for at, data in self._pieces(index, begin, end):
                os.pwrite(file, data, at)

    # Verifying

    def lowest_whole(self, begin: int, end: int, count: int, *, unknown: bool = False) -> int:
        """The lowest number from `begin` on such that entries from there to `end` are whole.

        Args:
            count: entries of the commit that they are of.
            unknown: entries without a checksum count as whole.

        Raises:
            OSError: the disk does not let them be read.
        """
        while end > begin:
            block = (end - 1) // self._block
            if not self._is_whole(block, count, unknown=unknown):
                return end
            end = block * self._block
        return begin

    def verify(self, begin: int, end: int, count: int, overwritten: int) -> Iterator[Unlike]:
        """The blocks of the entries from `begin` to `end` that are not as they were written.

        Args:
            count: entries of the last commit.
            overwritten: the slots of entries below may hold newer ones.

        Raises:
            OSError: the disk does not let them be read.
        """
        for block in range(begin // self._block, math.ceil(end / self._block)):
            first = block * self._block
            last = min(first + self._block, count)
            whole = last - first == self._block
            expected = [self._block_sums(block)] if whole else self._heads(count)
            gap_begin, gap_end = self.gap
            if not expected or first < overwritten or gap_begin <= first < gap_end:
                yield Unlike(first, last, ())
                continue
            found = self._sums(first, last)
            if found not in expected:
                pairs = enumerate(zip(found, expected[0], strict=True))
                yield Unlike(first, last, tuple(i for i, (now, then) in pairs if now != then))

    def block_begin(self, entry: int) -> int:
        """The first entry of the block of this one."""
        return entry - entry % self._block

    def block_end(self, entry: int) -> int:
        """The first entry behind the block of this one."""
        return entry - entry % self._block + self._block

    def _is_whole(self, block: int, count: int, *, unknown: bool) -> bool:
        begin = block * self._block
        end = min(begin + self._block, count)
        gap_begin, gap_end = self.gap
        if gap_begin <= begin < gap_end:
            return unknown
        expected = [self._block_sums(block)] if end - begin == self._block else self._heads(count)
        return self._sums(begin, end) in expected

    # Parts of the file

    @property
    def gap(self) -> tuple[int, int]:
        """The entries that have no checksums: [begin, end), whole blocks."""
        return self._words[0], self._words[1]

    def set_gap(self, begin: int, end: int) -> None:
        """Let these entries be those without checksums."""
        self._words[0] = begin
        self._words[1] = end

    def _head_at(self, slot: int) -> int:
        return _GAP + slot * (1 + self._columns)

    def _head_count(self, slot: int) -> int:
        return self._words[self._head_at(slot)]

    def _heads(self, count: int) -> list[tuple[int, ...]]:
        """The checksums of the heads that are of `count` entries."""
        found = []
        for slot in range(_HEADS):
            at = self._head_at(slot)
            if self._words[at] == count:
                found.append(tuple(self._words[at + 1 : at + 1 + self._columns]))
        return found

    def _set_head(self, slot: int, tail: Tail) -> None:
        at = self._head_at(slot)
        self._words[at] = _NOTHING
        self._words[at + 1 : at + 1 + self._columns] = memoryview(array("Q", tail.sums))
        self._words[at] = tail.end

    def _clear_head(self, slot: int) -> None:
        self._words[self._head_at(slot)] = _NOTHING

    def _block_at(self, block: int) -> int:
        return self._first_block + block % self._blocks * self._columns

    def _block_sums(self, block: int) -> tuple[int, ...]:
        at = self._block_at(block)
        return tuple(self._words[at : at + self._columns])

    def _set_block(self, block: int, sums: tuple[int, ...]) -> None:
        at = self._block_at(block)
        self._words[at : at + self._columns] = memoryview(array("Q", sums))

    # Checksums

    def _written_sums(self, begin: int, end: int, sums: tuple[int, ...]) -> tuple[int, ...]:
        """Checksums continued with entries that this process has written."""
        place = begin % self._entries
        before_wrap = min(end - begin, self._entries - place)
        around = end - begin - before_wrap
        crc32 = zlib.crc32
        found = []
        for view, (_, size), value in zip(self._views, self.files, sums, strict=True):
            value = crc32(view[place * size : (place + before_wrap) * size], value)
            found.append(crc32(view[: around * size], value) if around else value)
        return tuple(found)

    def _sums(self, begin: int, end: int) -> tuple[int, ...]:
        """Checksums of entries, read from the files."""
        found = []
        for index in range(self._columns):
            value = 0
            for _, data in self._pieces(index, begin, end):
                value = zlib.crc32(data, value)
            found.append(value)
        return tuple(found)

    def _pieces(self, index: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The bytes of entries of a column, and where they lie in its file."""
        file, size = self.files[index]
        if not size:
            return
        step = max(1, _PIECE_BYTES // size)
        while begin < end:
            place = begin % self._entries
            count = min(end - begin, self._entries - place, step)
            at = ring_files.PAGE_BYTES + place * size
            yield at, os.pread(file, count * size, at)
            begin += count


class RingChecksums:
    """The checksums of a replay. Made by `open` or `read`.

    Attributes:
        rows: of the rows.
        shared: of what they share; None: nothing.
    """

    def __init__(self, directory: Path, manifest: Manifest, words: memoryview) -> None:
        self._directory = directory
        self._words = words
        self._held = ExitStack()
        files = []
        for _, path, dtype, shape in ring_files.column_files(directory, manifest):
            file = open_file(path, writable=not words.readonly)
            self._held.callback(os.close, file)
            files.append((file, dtype.itemsize * math.prod(shape[1:])))
        of_rows = len(manifest.columns)
        end = _FIRST + checksum_words(manifest.physical_rows, manifest.guard, of_rows)
        self.rows = BlockChecksums(
            words[_FIRST:end], files[:of_rows], manifest.physical_rows, manifest.guard
        )
        self.shared: BlockChecksums | None = None
        if shared := manifest.shared:
            self.shared = BlockChecksums(
                words[end:], files[of_rows:], shared.all_entries, shared.guard
            )

    @classmethod
    def open(cls, directory: Path, manifest: Manifest) -> Self:
        """Open the file to write; it is made where it is missing, or of another replay."""
        path = directory / CHECKSUMS
        shape = _shape(manifest)
        try:
            return cls._mapped(directory, manifest, writable=True)
        except ReplayTornError:
            path.unlink(missing_ok=True)
        ring_files.make_array(path, manifest.uid, _DTYPE, shape)
        sync_directory(directory)
        made = cls._mapped(directory, manifest, writable=True)
        for ring in made._rings:
            ring.set_gap(0, _NOTHING)
        return made

    @classmethod
    def read(cls, directory: Path, manifest: Manifest) -> Self | None:
        """Open the file to verify; None where there is none of this replay."""
        try:
            return cls._mapped(directory, manifest, writable=False)
        except ReplayTornError:
            return None

    @classmethod
    def _mapped(cls, directory: Path, manifest: Manifest, *, writable: bool) -> Self:
        path = directory / CHECKSUMS
        _, file_map = ring_files.map_array(
            path, manifest.uid, _DTYPE, _shape(manifest), writable=writable
        )
        words = memoryview(file_map)[ring_files.PAGE_BYTES :].cast("Q")
        return cls(directory, manifest, words)

    @property
    def sync_failed(self) -> bool:
        """True if a sync has failed since the last one that did not."""
        return bool(self._words[0])

    @sync_failed.setter
    def sync_failed(self, failed: bool) -> None:
        # A store to a map needs no disk, and is gone only with the memory of the pages that failed.
        self._words[0] = failed

    @property
    def tails(self) -> tuple[Tail, ...]:
        """Checksums of the last blocks of rows, and of what they share."""
        return tuple(ring.tail for ring in self._rings)

    def begin(self, maps: Sequence[mmap], counts: tuple[int, int], oldest: tuple[int, int]) -> None:
        """Begin to write, behind so many rows and shared entries.

        Args:
            maps: of all columns, in the order of their files.
            counts: rows and shared entries since the run began.
            oldest: the first of each that are kept.
        """
        views = [memoryview(one)[ring_files.PAGE_BYTES :] for one in maps]
        gaps = [ring.gap for ring in self._rings]
        for ring, count, first in zip(self._rings, counts, oldest, strict=False):
            ring.begin(views[: len(ring.files)], count, first)
            views = views[len(ring.files) :]
        if gaps != [ring.gap for ring in self._rings]:
            self.sync()  # else a lost cache leaves rows that seem to have other checksums

    def add(self, *counts: int) -> None:
        """Add the rows and shared entries up to these numbers, before their commit."""
        for ring, count in zip(self._rings, counts, strict=False):
            ring.add(count)

    def set_synced(self, tails: Sequence[Tail], before: tuple[int, int]) -> None:
        """Note the checksums of a commit that is being synced; those of the one before stay."""
        for ring, tail, count in zip(self._rings, tails, before, strict=False):
            ring.set_synced(tail, count)

    def fill_gaps(self, *below: int) -> None:
        """Calculate what is missing for rows and shared entries that may soon be overwritten.

        It is on the disk when this returns.

        Args:
            below: the numbers below which they are.
        """
        rings = list(zip(self._rings, below, strict=False))
        begins = [ring.fill_gap(number) for ring, number in rings]
        if any(begin != ring.gap[0] for (ring, _), begin in zip(rings, begins, strict=True)):
            self.sync()  # before they count as known
            for (ring, _), begin in zip(rings, begins, strict=True):
                ring.set_gap(begin, ring.gap[1])

    def rewrite(self, begins: tuple[int, int], ends: tuple[int, int]) -> None:
        """Write rows and shared entries once more, so that the next sync has to write them."""
        for ring, begin, end in zip(self._rings, begins, ends, strict=False):
            ring.rewrite(begin, end)

    def forget_pages(self) -> None:
        """Let memory forget what it holds of the columns, so that the disk itself is read."""
        for ring in self._rings:
            for file, _ in ring.files:
                forget_pages(file)

    def sync_all(self) -> None:
        """Wait until the disk has the rows, and their checksums."""
        for ring in self._rings:
            for file, _ in ring.files:
                sync_mapped_file(file)
        self.sync()

    def sync(self) -> None:
        """Wait until the disk has the checksums."""
        with (self._directory / CHECKSUMS).open("r+b") as file:
            sync_mapped_file(file.fileno())

    def close(self) -> None:
        """Close the files."""
        self._held.close()

    @property
    def _rings(self) -> tuple[BlockChecksums, ...]:
        return (self.rows,) if self.shared is None else (self.rows, self.shared)


def _shape(manifest: Manifest) -> tuple[int]:
    words = _FIRST + checksum_words(manifest.physical_rows, manifest.guard, len(manifest.columns))
    if shared := manifest.shared:
        words += checksum_words(shared.all_entries, shared.guard, len(shared.columns))
    return (words,)

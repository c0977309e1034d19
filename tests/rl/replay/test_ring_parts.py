"""A copy of a ring in parts: restored, it has the same rows, whenever it was made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, insert

from vedette_rl.errors import ReplayTornError
from vedette_rl.replay import ring_parts
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.ring_files import read_branch
from vedette_rl.replay.ring_parts import ColumnEntries, PartsCopy, RingRestore, RingState

CAPACITY = 700
GUARD = 200


def no_pause(size: int) -> None:
    """Does not wait."""


@contextlib.contextmanager
def counting_ring(directory: Path) -> Iterator[RingWriter]:
    ring = RingWriter.open(directory, DTYPE, CAPACITY, run_id="counting", guard=GUARD)
    try:
        yield ring
    finally:
        ring.close()


class Copier:
    """Copies a ring that is written."""

    def __init__(self, ring: Path, folder: Path) -> None:
        folder.mkdir()
        self.directory = ring
        self.folder = folder
        self.reader = RingReader(ring)
        self.copy = PartsCopy(folder, "rows", ColumnEntries(self.reader.columns))

    def follow(self, doubtful: int = 0) -> RingState:
        reader = self.reader
        inserted = reader.inserted
        self.copy.follow(inserted, reader.live()[0], lambda: doubtful, no_pause)
        self.copy.sync()
        branch = read_branch(self.directory)
        parts = tuple(self.copy.parts)
        return RingState(
            reader.manifest, inserted, 0, reader.floor, branch, parts, (), (), b"stamp"
        )


@pytest.fixture
def copier(tmp_path: Path) -> Iterator[tuple[RingWriter, Copier]]:
    with counting_ring(tmp_path / "ring") as ring:
        copies = Copier(tmp_path / "ring", tmp_path / "parts")
        yield ring, copies
        copies.copy.close()


def restore(state: RingState, folder: Path, directory: Path) -> int:
    ring = RingRestore(directory, folder)
    ring.make(state)
    ring.copy_rows()
    return ring.finish()


def assert_restored(state: RingState, folder: Path, directory: Path, first: int) -> None:
    assert restore(state, folder, directory) == first
    assert_rows_are(state, directory, first)


def assert_rows_are(state: RingState, directory: Path, first: int) -> None:
    with counting_ring(directory) as ring:
        assert ring.inserted == state.inserted
        assert ring.stamp == state.stamp
        assert ring.live() == (first, state.inserted)
        numbers = np.arange(first, state.inserted)
        columns = {name: column[numbers % len(column)] for name, column in ring.columns.items()}
        assert_rows(columns, numbers)


@pytest.mark.parametrize("block", [1, 37 * DTYPE.itemsize, 1 << 20])
def test_a_copy_that_follows_a_ring_is_restored_with_the_rows_that_it_keeps(
    copier: tuple[RingWriter, Copier], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(ring_parts, "BLOCK_BYTES", block)
    monkeypatch.setattr(ring_parts, "PART_BYTES", 100 * DTYPE.itemsize)
    ring, copies = copier
    copies.copy = PartsCopy(
        copies.folder, "other", ColumnEntries(copies.reader.columns)
    )  # of these sizes
    for number, count in enumerate((150, 0, 420, 190, 600)):
        insert(ring, count)
        state = copies.follow()
        first = max(0, ring.inserted - CAPACITY)
        assert_restored(state, copies.folder, tmp_path / f"restored-{number}", first)
    assert copies.copy.parts[0].first > 0  # what is not needed any more is not listed


def test_a_copy_takes_the_ring_and_less_than_one_part_of_older_rows(
    copier: tuple[RingWriter, Copier], monkeypatch: pytest.MonkeyPatch
) -> None:
    block, part = 10, 100  # rows
    monkeypatch.setattr(ring_parts, "BLOCK_BYTES", block * DTYPE.itemsize)
    monkeypatch.setattr(ring_parts, "PART_BYTES", part * DTYPE.itemsize)
    ring, copies = copier
    most = 0
    for _ in range(300):
        insert(ring, 17)
        state = copies.follow()
        most = max(most, sum(part.end - part.first for part in state.rows))
    assert CAPACITY + part // 2 < most <= CAPACITY + part + block


def test_rows_that_the_ring_has_overwritten_are_not_copied(
    copier: tuple[RingWriter, Copier], tmp_path: Path
) -> None:
    ring, copies = copier
    insert(ring, 300)
    copies.follow()
    insert(ring, 500)
    assert_restored(copies.follow(doubtful=450), copies.folder, tmp_path / "restored", 450)


def test_a_list_is_the_same_while_more_is_appended(
    copier: tuple[RingWriter, Copier], tmp_path: Path
) -> None:
    ring, copies = copier
    insert(ring, 300)
    earlier = copies.follow()
    insert(ring, 300)
    copies.follow()
    assert_restored(earlier, copies.folder, tmp_path / "restored", 0)


def test_what_was_not_synced_is_written_again_to_another_part(
    copier: tuple[RingWriter, Copier], tmp_path: Path
) -> None:
    ring, copies = copier
    insert(ring, 300)
    earlier = copies.follow()
    insert(ring, 300)
    copies.follow()
    copies.copy.give_up(earlier.rows)
    state = copies.follow()
    assert [part.first for part in state.rows] == [0, 300]
    assert_restored(state, copies.folder, tmp_path / "restored", 0)


@pytest.mark.parametrize("harm", ["gone", "short", "changed"])
def test_a_damaged_part_is_noticed(
    copier: tuple[RingWriter, Copier], tmp_path: Path, harm: str
) -> None:
    ring, copies = copier
    insert(ring, 300)
    state = copies.follow()
    path = copies.folder / state.rows[0].name
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    elif harm == "short":
        path.write_bytes(content[:-10])
    else:
        path.write_bytes(content[:-10] + bytes([content[-10] ^ 1]) + content[-9:])
    with pytest.raises(ReplayTornError, match=r"is missing|is damaged"):
        restore(state, copies.folder, tmp_path / "restored")


@pytest.mark.parametrize("more", [0, 1, 350, 900, 2000])
def test_a_restore_goes_on_with_a_later_state_and_copies_only_what_is_new(
    copier: tuple[RingWriter, Copier], tmp_path: Path, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_parts, "PART_BYTES", 100 * DTYPE.itemsize)
    ring, copies = copier
    insert(ring, 300)
    restored = RingRestore(tmp_path / "restored", copies.folder)
    restored.make(copies.follow())
    restored.copy_rows()
    for _ in range(0, more, 50):
        insert(ring, min(more, 50))
        state = copies.follow()
    state = copies.follow()
    copied: list[int] = []
    read = ring_parts.read_blocks

    def counting(*given: Any) -> Iterator[tuple[int, int, memoryview]]:
        for first, count, data in read(*given):
            copied.append(count)
            yield first, count, data

    monkeypatch.setattr(ring_parts, "read_blocks", counting)
    restored.make(state)
    restored.copy_rows()
    first = restored.finish()
    assert first == max(0, ring.inserted - CAPACITY)
    assert sum(copied) <= ring.inserted - 300
    assert_rows_are(state, tmp_path / "restored", first)


def test_a_restore_begins_anew_with_the_parts_of_another_replay(
    copier: tuple[RingWriter, Copier], tmp_path: Path
) -> None:
    ring, copies = copier
    insert(ring, 300)
    restored = RingRestore(tmp_path / "restored", copies.folder)
    other = copies.follow()
    restored.make(other)
    restored.copy_rows()
    copies.copy.close()
    copies.copy = PartsCopy(copies.folder, "again", ColumnEntries(copies.reader.columns))
    insert(ring, 100)
    state = copies.follow()
    damaged = copies.folder / other.rows[0].name
    damaged.write_bytes(b"not read again")
    restored.make(state)
    restored.copy_rows()
    assert_rows_are(state, tmp_path / "restored", restored.finish())

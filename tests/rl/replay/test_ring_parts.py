"""A copy of a ring in parts: restored, it has the same rows, whenever it was made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, insert

from vedette_rl.errors import ReplayTornError
from vedette_rl.replay import ring_parts
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.ring_files import read_branch
from vedette_rl.replay.ring_parts import ColumnEntries, PartsCopy, RingState, restore_ring

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


def assert_restored(state: RingState, folder: Path, directory: Path, first: int) -> None:
    assert restore_ring(directory, state, folder) == first
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
        restore_ring(tmp_path / "restored", state, copies.folder)

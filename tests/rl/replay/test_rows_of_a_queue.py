"""The writer of a queue overwrites no row that a checkpoint needs, nor does a recovery."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, insert, rows

from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.syncing import read_synced

CAPACITY = 100
GUARD = 30


def open_ring(directory: Path, kept: int | None = 0, interval_s: float = 1.0) -> RingWriter:
    return RingWriter.open(
        directory,
        DTYPE,
        CAPACITY,
        run_id="run",
        guard=GUARD,
        sync_interval_s=interval_s,
        kept_from=kept,
    )


def fill(ring: RingWriter) -> None:
    while ring.room:
        insert(ring, min(10, ring.room))


@pytest.mark.parametrize("interval_s", [0.0, 1.0])
def test_rows_are_kept_from_a_number_on(tmp_path: Path, interval_s: float) -> None:
    ring = open_ring(tmp_path, interval_s=interval_s)
    reader = RingReader(tmp_path)
    for kept in (0, 37, 38, 95):
        ring.keep_from(kept)
        while ring.inserted < kept + CAPACITY:
            ring._syncer.extend()
            fill(ring)
        assert ring.inserted == kept + CAPACITY
        assert ring.room == 0
        with pytest.raises(ValueError, match="1 rows are appended where 0 fit"):
            ring.append(rows(ring.inserted, 1), 1)
        at = kept % reader.manifest.physical_rows
        kept_row = {name: column[at : at + 1] for name, column in reader.columns.items()}
        assert_rows(kept_row, np.array([kept]))
    ring.close()


def test_rows_that_wait_to_be_committed_count(tmp_path: Path) -> None:
    ring = MemoryRing(DTYPE, CAPACITY, guard=GUARD)
    ring.keep_from(0)
    for begin in range(0, 90, 30):
        ring.append(rows(begin, 30), 30)
        ring.commit()
    ring.append(rows(90, 8), 8)
    assert ring.room == 2


def test_nothing_is_written_as_long_as_no_place_is_known(tmp_path: Path) -> None:
    ring = open_ring(tmp_path, kept=None)
    fill_to = CAPACITY + 20
    while ring.inserted < fill_to:
        ring._syncer.extend()
        insert(ring, min(20, ring.room))
    ring.close()
    ring = open_ring(tmp_path, kept=0)
    assert ring.room == 0
    ring.close()


def test_a_recovery_finds_the_rows_that_are_kept(tmp_path: Path) -> None:
    """All rows count as written up to the sync's bound, so that it stays below the limit too."""
    ring = open_ring(tmp_path)
    for kept in (0, 50, 75):
        ring.keep_from(kept)
        for _ in range(20):
            ring._syncer.extend()
            fill(ring)
            synced = read_synced(tmp_path)
            assert synced is not None
            assert synced.bound - ring.manifest.physical_rows <= kept
    assert ring.inserted == 75 + CAPACITY
    ring.close()


def test_the_rows_that_the_disk_has_are_known(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 20)
    assert ring.synced_rows == 0
    ring._syncer.sync()
    assert ring.synced_rows == 20
    ring.close()

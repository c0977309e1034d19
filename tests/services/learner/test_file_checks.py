"""Rows and the frames that they share are compared with their checksums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counting_frames import batch, open_ring  # of tests/support

from vedette_rl.replay import ring_files
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_services.learner.file_checks import RowCheck, check_rows

ROW = np.dtype([("obs", "<f4", (3,)), ("reward", "<f4")])
CAPACITY = 100
GUARD = 64


def check(directory: Path, begin: int, end: int) -> list[RowCheck]:
    return list(check_rows({"actors": open_reader(directory)}, {"actors": (begin, end)}))


def write(directory: Path, rows: int) -> RingWriter:
    """Insert rows; the writer is still there, as after a kill."""
    rng = np.random.default_rng(rows)
    ring = RingWriter.open(directory, ROW, CAPACITY, run_id="r", guard=GUARD)
    while rows:
        count = min(rows, int(rng.integers(1, 20)), ring.room or 1)
        if not ring.room:
            ring.commit()
        columns = {
            "obs": rng.random((count, 3), np.float32),
            "reward": rng.random(count, np.float32),
        }
        ring.append(columns, count)
        rows -= count
        if rng.random() < 0.7 or not rows:
            ring.commit()
    return ring


def flip(directory: Path, name: str, place: int, entry_bytes: int) -> None:
    (path,) = directory.glob(f"*-{name}.bin")
    with path.open("r+b") as file:
        file.seek(ring_files.PAGE_BYTES + place * entry_bytes)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("rows", [1, 7, 8, 63, 100, 164, 165, 333, 1000])
def test_rows_that_nobody_has_changed_are_as_they_were_written(rows: int, tmp_path: Path) -> None:
    ring = write(tmp_path, rows)
    oldest = max(0, rows - CAPACITY)
    found = check(tmp_path, oldest, rows)
    assert not [each for each in found if each.columns]
    # of a block that may be overwritten in part, nothing can be said
    assert all(each.begin < oldest for each in found)
    ring.close()
    assert check(tmp_path, oldest, rows) == found


@pytest.mark.parametrize("rows", [100, 333])
def test_each_row_that_was_changed_is_found(rows: int, tmp_path: Path) -> None:
    write(tmp_path, rows).close()
    reader = RingReader(tmp_path)
    places = len(reader.columns["reward"])
    unknown = [range(each.begin, each.end) for each in check(tmp_path, rows - CAPACITY, rows)]
    for row in range(rows - CAPACITY, rows, 13):
        if any(row in each for each in unknown):
            continue
        flip(tmp_path, "reward", row % places, 4)
        found = [each for each in check(tmp_path, rows - CAPACITY, rows) if each.columns]
        (one,) = found
        assert one.begin <= row < one.end
        assert one.columns == ("reward",)
        flip(tmp_path, "reward", row % places, 4)


def test_blocks_behind_each_other_are_one(tmp_path: Path) -> None:
    write(tmp_path, 40).close()
    for row in range(16, 32):
        flip(tmp_path, "obs", row, 12)
    (found,) = check(tmp_path, 0, 40)
    assert found == RowCheck("actors", 16, 32, ("obs",))
    assert found.describe() == (
        "rows 16 to 31 of replay actors are not as they were written: one or more has another obs"
    )


def test_frames_that_rows_share_are_compared(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    ring.append(batch(0, 60), 60)
    ring.commit(b"")
    ring.close()
    reader = open_reader(tmp_path)
    rows = reader.inserted
    assert check(tmp_path, 0, rows) == []
    frames = reader.shared["frames"]
    flip(tmp_path, "frames", 1, frames.nbytes // len(frames))
    (found,) = check(tmp_path, 0, rows)
    assert found.source == "actors"
    assert found.begin <= 1 < found.end
    assert found.columns == ("frames",)
    assert found.describe().startswith("frames 0 to ")


def test_the_first_row_with_a_changed_frame_is_known(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    for first in range(0, 600, 60):
        ring.append(batch(first, 60), 60)
        ring.commit(b"")
    ring.close()
    reader = open_reader(tmp_path)
    frames = reader.shared["frames"]
    for row in (130, 599):
        changed = int(reader.columns[FRAME_SPANS][row, 0]) + 50
        flip(tmp_path, "frames", changed, frames.nbytes // len(frames))
        (found,) = check(tmp_path, 0, reader.inserted)
        assert found.begin <= changed < found.end
        spans = reader.columns[FRAME_SPANS][: reader.inserted]
        assert found.first_row == int(np.flatnonzero(spans[:, 1] > found.begin)[0])
        assert found.first_row <= row
        flip(tmp_path, "frames", changed, frames.nbytes // len(frames))


def test_rows_below_the_floor_of_a_recovery_are_not_compared(tmp_path: Path) -> None:
    """What the writer put there before the power failed may have taken their slots."""
    write(tmp_path, 90).close()
    flip(tmp_path, "reward", 20, 4)
    ring_files.write_cursor(tmp_path, 90, 21, new_branch=True)
    found = check(tmp_path, 21, 90)
    assert [each.columns for each in found] == [()]
    assert found[0].begin <= 20 < found[0].end


def test_frames_of_a_row_with_a_changed_span_are_not_searched_for(tmp_path: Path) -> None:
    """It may be any number."""
    ring = open_ring(tmp_path)
    ring.append(batch(0, 60), 60)
    ring.commit(b"")
    ring.close()
    for byte in range(8):
        flip(tmp_path, FRAME_SPANS, 59 * 16 + byte, 1)
        flip(tmp_path, FRAME_SPANS, 59 * 16 + 8 + byte, 1)
    (found,) = check(tmp_path, 0, 60)
    assert (found.source, found.columns) == ("actors", (FRAME_SPANS,))

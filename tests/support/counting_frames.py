"""Batches of stacks whose every byte follows from the row's number; as a program, it inserts them.

Row ``i`` saw the frames ``i .. i + 3``, then ``i + 1 .. i + 4``. Frame ``f`` is full of
``f % 251``.
``python counting_frames.py DIRECTORY [GUARD]`` inserts at full speed until it is killed.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.replay.frame_ring import FrameRingWriter
from vedette_rl.replay.frame_stacks import (
    FramePart,
    FrameStack,
    make_frame_ring_spec,
    stored_row,
)

STACK = FrameStack(4, (FramePart("", np.dtype(np.uint8), (5, 3)),))
ROW = np.dtype([("obs", "u1", (4, 5, 3)), ("action", "<i8"), ("next_obs", "u1", (4, 5, 3))])
STORED = stored_row(ROW, STACK)
CAPACITY = 1500
GUARD = 400
BATCH = 90
SHARED = make_frame_ring_spec(STACK, CAPACITY, guard=GUARD, extra_frames=4, rows_per_batch=20)


def stacks(firsts: NDArray[Any]) -> NDArray[np.uint8]:
    """Stacks that begin with these frames."""
    numbers = (firsts[:, None] + np.arange(4)) % 251
    return np.broadcast_to(numbers.astype(np.uint8)[..., None, None], (len(firsts), 4, 5, 3))


def batch(first: int, rows: int) -> Columns:
    """The rows from `first` on, which share their frames."""
    places = np.arange(rows, dtype=np.uint32)[:, None] + np.arange(4, dtype=np.uint32)
    frames = (first + np.arange(rows + 4)) % 251
    return {
        "obs": places,
        "action": np.arange(first, first + rows),
        "next_obs": places + np.uint32(1),
        "frames": np.broadcast_to(frames.astype(np.uint8)[:, None, None], (rows + 4, 5, 3)),
    }


def assert_stacks(columns: Columns, numbers: NDArray[Any]) -> None:
    """Every byte is the one of its row's number."""
    np.testing.assert_array_equal(columns["action"], numbers)
    np.testing.assert_array_equal(columns["obs"], stacks(numbers))
    np.testing.assert_array_equal(columns["next_obs"], stacks(numbers + 1))


def stamp(inserted: int) -> bytes:
    """A stamp that says how many rows are committed with it."""
    return f"{inserted} rows".encode() * (1 + inserted % 30)


def open_ring(directory: str | Path, guard: int = GUARD) -> FrameRingWriter:
    """The replay, or an empty one."""
    return FrameRingWriter.open(
        directory,
        STORED,
        CAPACITY,
        run_id="counting",
        guard=guard,
        batch_rows=BATCH,
        shared=replace(SHARED, guard=guard),
    )


def insert_for_ever(directory: str, guard: int) -> None:
    """Append batches of random sizes, several to a commit."""
    ring = open_ring(directory, guard)
    assert ring.stamp == (stamp(ring.inserted) if ring.inserted else b"")
    print(ring.inserted, flush=True)
    chance = random.Random(ring.inserted)
    while True:
        for _ in range(chance.randint(1, 4)):
            rows = min(chance.randint(1, BATCH), ring.room)
            if rows:
                ring.append(batch(ring.inserted + ring.pending, rows), rows)
        ring.commit(stamp(ring.inserted + ring.pending))


if __name__ == "__main__":
    insert_for_ever(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else GUARD)

"""Rows whose every value follows from the row's number; run as a program, it inserts them.

``python counting_rows.py DIRECTORY CAPACITY GUARD`` inserts at full speed until it is killed.
"""

import random
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns

if TYPE_CHECKING:
    from vedette_rl.replay.ring import RingWriter
    from vedette_rl.replay.rows import MemoryRing

BATCH = 90
"""The most rows of a batch that the program inserts."""

StartInserting = Callable[..., "subprocess.Popen[str]"]
"""``(directory, capacity, guard)``: starts a child that inserts."""

DTYPE = np.dtype(
    [
        ("obs/place", "<f4", (3,)),
        ("obs/frame", "u1", (5, 7)),
        ("action", "<i8"),
        ("reward", "<f4"),
        ("terminated", "?"),
        ("version", "<i8"),
    ]
)


def rows_of(numbers: NDArray[Any]) -> Columns:
    """The rows of these numbers."""
    small = (numbers % 1_000_000).astype(np.float32)
    return {
        "obs/place": small[:, None] + np.array([0.0, 0.25, 0.5], np.float32),
        "obs/frame": np.broadcast_to(
            (numbers % 251).astype(np.uint8)[:, None, None], (len(numbers), 5, 7)
        ),
        "action": numbers.astype(np.int64),
        "reward": -small,
        "terminated": numbers % 7 == 0,
        "version": numbers // 64,
    }


def rows(first: int, count: int) -> Columns:
    """`count` rows from number `first` on."""
    return rows_of(np.arange(first, first + count))


def assert_rows(columns: Columns, numbers: NDArray[Any]) -> None:
    """Every value is the one of its row's number."""
    for name, expected in rows_of(numbers).items():
        np.testing.assert_array_equal(columns[name], expected, err_msg=name)


def stamp(inserted: int) -> bytes:
    """A stamp that says how many rows are committed with it, and is of varying length."""
    return f"{inserted} rows".encode() * (1 + inserted % 30)


def insert(ring: "MemoryRing | RingWriter", count: int) -> None:
    """Append the next `count` rows, in as few commits as the ring has room for."""
    while count:
        batch = min(count, ring.room)
        assert batch, "the ring has no room"
        ring.append(rows(ring.inserted + ring.pending, batch), batch)
        ring.commit(stamp(ring.inserted + ring.pending))
        count -= batch


def insert_for_ever(directory: str, capacity: int, guard: int) -> None:
    """Append batches of random sizes, several to a commit."""
    from vedette_rl.replay.ring import RingWriter

    ring = RingWriter.open(
        directory, DTYPE, capacity, run_id="counting", guard=guard, batch_rows=BATCH
    )
    assert ring.stamp == (stamp(ring.inserted) if ring.inserted else b"")
    print(ring.inserted, flush=True)
    chance = random.Random(ring.inserted)
    while True:
        for _ in range(chance.randint(1, 4)):
            count = min(chance.randint(1, BATCH), ring.room)
            ring.append(rows(ring.inserted + ring.pending, count), count)
        ring.commit(stamp(ring.inserted + ring.pending))


if __name__ == "__main__":
    insert_for_ever(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""Rows and the frames they share into a slot: each frame of a batch once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.replay.frames import FRAMES, STACKS
from vedette_rl.steps.frames import FramePool


class FrameWriter:
    """A `RowWriter` of transitions that point into a pool of frames.

    Args:
        pool: what the transitions' places are of, until the next step.
    """

    def __init__(self, pool: FramePool) -> None:
        self._pool = pool
        self.entries = 0
        # Where a frame of the pool is in this batch, and which frame that was.
        self._place = np.zeros(len(pool.numbers), np.uint32)
        self._number = np.full(len(pool.numbers), -1, np.int64)

    def begin(self) -> None:
        """The next row is a slot's first: it has no frames yet."""
        self.entries = 0
        self._number.fill(-1)

    def write(self, columns: Columns, at: int, transitions: Columns, rows: slice) -> int:
        """Copy rows, with places in the pool for stacks, and the frames that the batch lacks."""
        count: int = rows.stop - rows.start
        while not self._add_frames(columns[FRAMES], transitions, rows):
            count //= 2
            if not count:
                return 0
            rows = slice(rows.start, rows.start + count)
        into = slice(at, at + count)
        for name, column in columns.items():
            if name in STACKS:
                column[into] = self._place[transitions[name][rows]]
            elif name != FRAMES:
                column[into] = transitions[name][rows]
        return count

    def _add_frames(self, frames: NDArray[Any], transitions: Columns, rows: slice) -> bool:
        """Copy the frames of these rows that the batch does not have yet; False: too many."""
        needed = np.concatenate([transitions[name][rows].ravel() for name in STACKS])
        new = np.unique(needed[self._number[needed] != self._pool.numbers[needed]])
        end = self.entries + len(new)
        if end > len(frames):
            return False
        self._pool.frames.take(new, 0, frames[self.entries : end], "clip")
        self._place[new] = np.arange(self.entries, end)
        self._number[new] = self._pool.numbers[new]
        self.entries = end
        return True

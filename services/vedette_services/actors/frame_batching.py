"""Rows and the frames they share into batches: each frame of a batch once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.replay.frames import FRAMES, STACKS


class FrameSlots(Protocol):
    """Where batches are written: the handover, or the in-process ring's."""

    @property
    def columns(self) -> Columns:
        """Views of the free slot: ``(n_buffer, *shape)``, and `FRAMES` ``(entries, *frame)``."""
        ...

    def publish(self, rows: int, epoch: int, version: int, entries: int = 0) -> None:
        """The free slot's first `rows` rows and `entries` frames are a batch."""
        ...


class Pool(Protocol):
    """What rows point into before they are in a batch (`vedette_rl.steps.frames.FramePool`)."""

    frames: NDArray[Any]
    numbers: NDArray[np.int64]


class FrameBatching:
    """Fills slots from transitions that point into a pool of frames. As `Batching` does it, a batch
    carries the oldest (epoch, version) that contributed a row.

    Args:
        slots: where batches are written.
        n_buffer: rows of a batch. It is published with fewer where their frames fill the slot.
        wait_for_slot: returns once a slot is free; False if none will ever be.
        pool: what the transitions' places are of, until the next step.
    """

    def __init__(
        self, slots: FrameSlots, n_buffer: int, wait_for_slot: Callable[[], bool], pool: Pool
    ) -> None:
        self._slots, self._n_buffer, self._wait_for_slot = slots, n_buffer, wait_for_slot
        self._pool = pool
        self._rows = self._entries = 0  # in the slot that is being filled
        self._oldest = (0, 0)
        # Where a frame of the pool is in this batch, and which frame that was.
        self._place = np.zeros(len(pool.numbers), np.uint32)
        self._number = np.full(len(pool.numbers), -1, np.int64)

    def push(self, transitions: Columns, made_by: tuple[int, int]) -> None:
        """Write every row of `transitions`, publishing each batch that becomes full.

        Args:
            transitions: with places in the pool for stacks.
            made_by: (epoch, version) of the oldest model behind these rows.
        """
        rows = len(transitions["reward"])
        done = 0
        while done < rows:
            if self._rows == 0:
                if not self._wait_for_slot():
                    return
                self._oldest = made_by
            count = min(rows - done, self._n_buffer - self._rows)
            written = self._write(transitions, done, count)
            if written:
                self._oldest = min(self._oldest, made_by)
                done += written
            if not written or self._rows == self._n_buffer:
                self.flush()

    def flush(self) -> None:
        """Publish the rows of an unfinished batch, if there are any."""
        if self._rows:
            self._slots.publish(self._rows, *self._oldest, self._entries)
            self._rows = self._entries = 0
            self._number.fill(-1)

    def _write(self, transitions: Columns, first: int, count: int) -> int:
        """Write up to `count` rows; how many: fewer, or none, where the slot's frames are full."""
        columns = self._slots.columns
        while not self._add_frames(columns[FRAMES], transitions, slice(first, first + count)):
            count //= 2
            if not count:
                assert self._rows, "a slot has frames for a row"
                return 0
        into = slice(self._rows, self._rows + count)
        for name, column in columns.items():
            if name in STACKS:
                column[into] = self._place[transitions[name][first : first + count]]
            elif name != FRAMES:
                column[into] = transitions[name][first : first + count]
        self._rows += count
        return count

    def _add_frames(self, frames: NDArray[Any], transitions: Columns, rows: slice) -> bool:
        """Copy the frames of these rows that the batch does not have yet; False: too many."""
        needed = np.concatenate([transitions[name][rows].ravel() for name in STACKS])
        new = np.unique(needed[self._number[needed] != self._pool.numbers[needed]])
        end = self._entries + len(new)
        if end > len(frames):
            return False
        self._pool.frames.take(new, 0, frames[self._entries : end], "clip")
        self._place[new] = np.arange(self._entries, end)
        self._number[new] = self._pool.numbers[new]
        self._entries = end
        return True

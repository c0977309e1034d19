"""Rows into batches: transitions of any count a time, `n_buffer` of them a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from vedette_rl.core import Columns


class Slots(Protocol):
    """Where batches are written: the handover, or a list in a test."""

    @property
    def columns(self) -> Columns:
        """Views of the free slot, ``(n_buffer, *shape)``."""
        ...

    def publish(self, rows: int, epoch: int, version: int) -> None:
        """The free slot's first `rows` rows are a batch."""
        ...


class Batching:
    """Fills slots. A step's rows may straddle two batches.

    A batch carries the oldest (epoch, version) that contributed a row, so that its lag is never
    told too small.

    Args:
        wait_for_slot: returns once a slot is free; False if none will ever be.
    """

    def __init__(self, slots: Slots, n_buffer: int, wait_for_slot: Callable[[], bool]) -> None:
        self._slots = slots
        self._n_buffer = n_buffer
        self._wait_for_slot = wait_for_slot
        self._rows = 0  # in the slot that is being filled
        self._oldest = (0, 0)

    def push(self, transitions: Columns, made_by: tuple[int, int]) -> None:
        """Write every row of `transitions`, publishing each batch that becomes full.

        Args:
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
            into = slice(self._rows, self._rows + count)
            for name, column in self._slots.columns.items():
                column[into] = transitions[name][done : done + count]
            self._oldest = min(self._oldest, made_by)
            self._rows += count
            done += count
            if self._rows == self._n_buffer:
                self.flush()

    def flush(self) -> None:
        """Publish the rows of an unfinished batch, if there are any."""
        if self._rows:
            self._slots.publish(self._rows, *self._oldest)
            self._rows = 0

"""Rows into batches: transitions of any count a time, `n_buffer` of them a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from vedette_rl.core import Columns


class Slots(Protocol):
    """Where batches are written: the handover, or the in-process ring's."""

    @property
    def columns(self) -> Columns:
        """Views of the free slot, ``(n_buffer, *shape)``; what rows share ``(entries, *shape)``."""
        ...

    def publish(self, rows: int, epoch: int, version: int, entries: int = 0) -> None:
        """The free slot's first `rows` rows, and the entries they share, are a batch."""
        ...


class RowWriter(Protocol):
    """Copies rows into the free slot."""

    @property
    def entries(self) -> int:
        """How many entries the slot's rows share so far."""
        ...

    def write(self, columns: Columns, at: int, transitions: Columns, rows: slice) -> int:
        """Copy these rows of `transitions` to row `at` of the slot and behind.

        Returns:
            how many, from the first on: fewer, or none, where what they share fills the slot.
        """
        ...

    def begin(self) -> None:
        """The next row is a slot's first."""
        ...


class WholeRows:
    """Rows that share nothing."""

    entries = 0

    def write(self, columns: Columns, at: int, transitions: Columns, rows: slice) -> int:
        """Copy all of these rows: a slot has place for `n_buffer`."""
        count: int = rows.stop - rows.start
        for name, column in columns.items():
            column[at : at + count] = transitions[name][rows]
        return count

    def begin(self) -> None:
        """Nothing is kept from slot to slot."""


class Batching:
    """Fills slots. A step's rows may straddle two batches.

    A batch carries the oldest (epoch, version) that contributed a row, so that its lag is never
    told too small.

    Args:
        slots: where batches are written.
        n_buffer: rows of a batch. It is published with fewer where the writer's slot is full.
        wait_for_slot: returns once a slot is free; False if none will ever be.
        writer: copies the rows.
    """

    def __init__(
        self,
        slots: Slots,
        n_buffer: int,
        wait_for_slot: Callable[[], bool],
        writer: RowWriter,
    ) -> None:
        self._slots = slots
        self._n_buffer = n_buffer
        self._wait_for_slot = wait_for_slot
        self._writer = writer
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
            wanted = slice(done, done + min(rows - done, self._n_buffer - self._rows))
            count = self._writer.write(self._slots.columns, self._rows, transitions, wanted)
            if count:
                self._oldest = min(self._oldest, made_by)
                self._rows += count
                done += count
            assert self._rows, "a slot takes a row"
            if not count or self._rows == self._n_buffer:
                self.flush()

    def flush(self) -> None:
        """Publish the rows of an unfinished batch, if there are any."""
        if self._rows:
            self._slots.publish(self._rows, *self._oldest, self._writer.entries)
            self._rows = 0
            self._writer.begin()

"""Batches that are gathered in copies on a device, at fixed addresses.

Two things fill a batch: the host stages the places of its rows, and the device gathers the rows at
these places. The device's part is ten operations and more, of which each runs no longer than Python
takes to start it; so it is captured where that is possible (`vedette_rl.device.cuda_graphs`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core.columns import BURNED, LEARNED, LENGTH, Columns
from vedette_rl.core.learning import StaticBatch
from vedette_rl.device.cuda_graphs import Capture, CapturedWork, NotCapturableError
from vedette_rl.device.room import Room, columns_of, stage
from vedette_rl.replay.frame_stacks import FRAMES, STACKS, split_name
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.sequences import Windows

log = logging.getLogger("vedette.trainer")

Operation = Callable[[], object]
"""Something that a device does on tensors that stay where they are."""


class _Gather:
    """The operations that gather a batch: captured where they can be, else one after the other.

    Args:
        operations: in their order.
        capture: records them; None: they run as they are.
    """

    def __init__(self, operations: Sequence[Operation], capture: Capture | None) -> None:
        # Nothing here refers to this object, so that a copy that is given up is freed at once.
        self._as_it_is = partial(_run, operations)
        self._captured = CapturedWork(self._as_it_is, capture) if capture is not None else None

    @property
    def is_captured(self) -> bool:
        """True once they are replayed."""
        return self._captured is not None and self._captured.is_captured

    def __call__(self) -> None:
        """Do them."""
        if self._captured is None:
            self._as_it_is()
            return
        full = False
        try:
            self._captured()
        except NotCapturableError as error:
            self._give_up(str(error))
        except torch.OutOfMemoryError as error:
            self._give_up(str(error).partition(". ")[0])
            full = True
        if full:  # again: the batch is drawn already, and needs no memory for a graph
            self._as_it_is()

    def _give_up(self, reason: str) -> None:
        self._captured = None
        log.warning(
            "gathering batches in the copy of the replay is not captured, it runs one operation "
            "after the other: %s",
            reason,
        )


def _run(operations: Sequence[Operation]) -> None:
    for operation in operations:
        operation()


class GatheredRows:
    """A batch of rows.

    Args:
        room: the copies.
        rows: the rows of the batch.
        like: a ring of these columns.
        capture: records how it is gathered, if anything does.

    Attributes:
        batch: overwritten by each `fill`.
    """

    def __init__(self, room: Room, rows: int, like: Rows, capture: Capture | None = None) -> None:
        columns, frame_columns = columns_of(like)
        device = next(iter(room.columns.values())).device
        self.places = torch.empty(rows, dtype=torch.int64, device=device)
        self.batch = StaticBatch()
        picks: list[Operation] = []
        for name, copy in room.columns.items():
            shaped = _typed(_pick(picks, copy, self.places), columns[name])
            if not (room.frames and name in STACKS):
                self.batch[name] = shaped
                continue
            for key, of_part in room.frames.items():
                whole = _typed(_pick(picks, of_part, shaped.view(-1)), frame_columns[key])
                stacked = whole.view(*shaped.shape, *whole.shape[1:])
                self.batch[name + key.removeprefix(FRAMES)] = stacked
        self._gather = _Gather(picks, capture)

    @property
    def is_captured(self) -> bool:
        """True once a graph gathers it."""
        return self._gather.is_captured

    def fill(self, places: NDArray[np.int64]) -> None:
        """Bring the rows at these places to the batch."""
        self.places.copy_(stage(places, self.places.device).view(-1), non_blocking=True)
        self._gather()


class GatheredWindows:
    """A batch of sequences.

    B sequences of L rows have B (L + 1) observations: that behind each sequence's last row is put
    among the others, of frames that rows share its places.

    Args:
        room: the copies.
        windows: of the size of those that are gathered.
        like: a ring of these columns.
        first: the columns of which a sequence has the first row's value alone.
        capture: records how it is gathered, if anything does.

    Attributes:
        batch: overwritten by each `fill`.
    """

    def __init__(
        self,
        room: Room,
        windows: Windows,
        like: Rows,
        first: Collection[str] = (),
        capture: Capture | None = None,
    ) -> None:
        columns, frame_columns = columns_of(like)
        rows, steps = self._shape = windows.numbers.shape
        device = next(iter(room.columns.values())).device
        observations = rows * (steps + 1)
        # What is staged: places with the last one repeated, then of each sequence its last place,
        # where what comes behind it stands, its steps of burn-in and those to learn from.
        self._staged = torch.empty(observations + 4 * rows, dtype=torch.int64, device=device)
        parts = torch.split(self._staged, [observations, rows, rows, rows, rows])
        with_last, lasts, ends, burned, length = parts
        placed = with_last.view(rows, steps + 1)
        places = torch.empty(rows * steps, dtype=torch.int64, device=device)
        firsts = torch.empty(rows, dtype=torch.int64, device=device)
        at = torch.arange(steps, device=device)
        learned = torch.empty((rows, steps), dtype=torch.bool, device=device)
        splits: list[Operation] = [
            partial(places.view(rows, steps).copy_, placed[:, :-1]),
            partial(firsts.copy_, placed[:, 0]),
            partial(_mark_learned, at, burned, length, learned),
        ]
        picks: list[Operation] = []
        puts: list[Operation] = []  # what comes behind a sequence, among its observations
        self._frame_picks: list[Operation] = []
        self.batch = StaticBatch()
        for name, copy in room.columns.items():
            part, suffix = split_name(name)
            column = columns[name]
            if part == STACKS[0]:
                behind = _pick(picks, room.columns[STACKS[1] + suffix], lasts)
                picked = _pick(picks, copy, with_last)
                puts.append(partial(picked.index_copy_, 0, ends, behind))
                self._add_observations(name, picked, column, room, frame_columns)
            elif name in first:
                self._add(name, _pick(picks, copy, firsts), column, (rows,))
            elif part != STACKS[1]:
                self._add(name, _pick(picks, copy, places), column, self._shape)
        self.batch |= {BURNED: burned, LENGTH: length, LEARNED: learned}
        self._gather = _Gather([*splits, *picks, *puts, *self._frame_picks], capture)

    def _add(
        self, name: str, picked: torch.Tensor, column: NDArray[Any], form: tuple[int, ...]
    ) -> None:
        """Add entries of a column to the batch, which are so many."""
        self.batch[name] = _typed(picked, column).view(*form, *column.shape[1:])

    def _add_observations(
        self,
        name: str,
        picked: torch.Tensor,
        column: NDArray[Any],
        room: Room,
        frame_columns: Columns,
    ) -> None:
        rows, steps = self._shape
        form = rows, steps + 1
        if not room.frames:
            self._add(name, picked, column, form)
            return
        at = _typed(picked, column).view(-1)
        for key, of_part in room.frames.items():
            frames = frame_columns[key]
            whole = _typed(_pick(self._frame_picks, of_part, at), frames)
            whole = whole.view(*form, *column.shape[1:], *frames.shape[1:])
            self.batch[name + key.removeprefix(FRAMES)] = whole

    @property
    def is_captured(self) -> bool:
        """True once a graph gathers it."""
        return self._gather.is_captured

    def fits(self, windows: Windows) -> bool:
        """True if windows are of the size that it was made for."""
        return self._shape == windows.numbers.shape

    def fill(self, windows: Windows, places: NDArray[np.int64]) -> None:
        """Bring the sequences to the batch.

        Args:
            windows: their rows.
            places: ``(B, L + 1)``, where these rows lie, with the last one repeated.
        """
        per_sequence = (places[:, -1], windows.ends(), windows.burned, windows.learned)
        staged = np.concatenate([places.reshape(-1), *per_sequence])
        self._staged.copy_(stage(staged, self._staged.device).view(-1), non_blocking=True)
        self._gather()


def _mark_learned(
    at: torch.Tensor, burned: torch.Tensor, length: torch.Tensor, learned: torch.Tensor
) -> None:
    """Set which steps ``(B, L)`` are learned from: those behind the burn-in, up to the end."""
    begins = burned.unsqueeze(1)
    behind = begins + length.unsqueeze(1)
    torch.logical_and(at >= begins, at < behind, out=learned)


def _pick(picks: list[Operation], source: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Room, in words, for the entries of a copy at these places; how it is filled is added to
    `picks`."""
    out = source.new_empty((len(at), source.shape[1]))
    picks.append(partial(torch.index_select, source, 0, at, out=out))
    return out


def _typed(words: torch.Tensor, column: NDArray[Any]) -> torch.Tensor:
    """Entries of words in the form of their column."""
    dtype = torch.from_numpy(np.empty(0, column.dtype)).dtype
    return words.view(dtype).view(len(words), *column.shape[1:])

"""Memory on a device for the rows of rings, and what is staged for it in the host's.

A row of a column lies there as a row of words, whatever its type and form: words are copied, and
gathered, as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.device import host_copy
from vedette_rl.replay.frame_ring import FrameRows
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.rows import Rows

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Types in which rows lie on a device, by bytes: the widest that fits is gathered fastest."""


class Room(NamedTuple):
    """Memory on a device for rows, each as a row of words, and for the frames that they share."""

    columns: dict[str, torch.Tensor]
    frames: dict[str, torch.Tensor]

    @classmethod
    def of(cls, rings: Sequence[Rows], device: torch.device) -> Room:
        """Room for all rows and frames of rings, one ring behind the other."""
        columns, frames = columns_of(rings[0])
        rows_of, frames_of = count_rows(rings), count_frames(rings)
        return cls(
            {name: _empty(column, sum(rows_of), device) for name, column in columns.items()},
            {name: _empty(column, sum(frames_of), device) for name, column in frames.items()},
        )

    def part(self, rows: slice, frames: slice) -> Room:
        """The room of one ring."""
        return Room(
            {name: room[rows] for name, room in self.columns.items()},
            {name: room[frames] for name, room in self.frames.items()},
        )


def columns_of(rows: Rows) -> tuple[Columns, Columns]:
    """The columns and the frames of a ring that are copied."""
    columns = {name: column for name, column in rows.columns.items() if name != FRAME_SPANS}
    return columns, rows.frames if isinstance(rows, FrameRows) else {}


def count_rows(rings: Sequence[Rows]) -> list[int]:
    """Physical rows of each."""
    return [len(next(iter(ring.columns.values()))) for ring in rings]


def count_frames(rings: Sequence[Rows]) -> list[int]:
    """Physical frames of each."""
    return [ring.physical_frames if isinstance(ring, FrameRows) else 0 for ring in rings]


def _empty(column: NDArray[Any], entries: int, device: torch.device) -> torch.Tensor:
    """Room for entries of a column."""
    dtype, words = _words(column)
    return torch.zeros((entries, words), dtype=dtype, device=device)


def stage(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of an array in words, from which a device may copy while the host continues.

    The caller may drop it at once: torch uses pinned memory again only after the copies from it.
    """
    dtype, words = _words(array)
    pins = host_copy.is_asynchronous(device)
    staged = torch.empty((len(array), words), dtype=dtype, pin_memory=pins)
    staged.numpy().view(array.dtype).reshape(array.shape)[...] = array
    return staged


def _words(column: NDArray[Any]) -> tuple[torch.dtype, int]:
    """The type of the words that an entry is made of, and their number."""
    entry_bytes = column.dtype.itemsize * math.prod(column.shape[1:])
    size = next(size for size in _WORDS if entry_bytes % size == 0)
    return _WORDS[size], entry_bytes // size

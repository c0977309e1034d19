"""A copy of a ring on the learner's device, in which batches are gathered.

What crosses to the device is then each row once, and the places of those that are drawn; from the
host's memory it is every row again for each batch that has it. The ring stays the truth: it is what
survives, and a copy begins anew with the trainer.

::

    ring = DeviceRing(reader, device)
    replay.rows = ring                      # draws rows that have arrived
    while training:
        ring.follow()                       # copies what was committed since
        sample = replay.sample(batch_size)  # numbers alone: nothing is gathered in the host
        batch = ring.gather_batch(sample.indices)

Row ``i`` lies at the place that it has in the ring, and so do the frames that rows share, so that
the places in rows are right in the copy too. All work is in the order of one stream: a row is not
overwritten in the copy before the batches that were asked for until then have it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core.columns import VERSION, Columns
from vedette_rl.core.learning import StaticBatch
from vedette_rl.errors import ReplayOverrunError
from vedette_rl.replay.frame_ring import FrameRows
from vedette_rl.replay.frame_stacks import FRAME_SPANS, FRAMES, STACKS
from vedette_rl.replay.rows import Rows, ring_places

FOLLOW_S = 0.005
"""From one copy of new rows to the next: few rows a copy cost more than they are worth."""

_CHUNK_BYTES = 32 << 20
"""Of one copy: as much is pinned at a time."""

_FOLLOWS_MAX = 8

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Types in which rows lie on a device, by bytes: the widest that fits is gathered fastest."""


class DeviceRing(Rows):
    """`Rows` to draw from: those of a ring that a device has.

    Args:
        rows: the ring.
        device: where its copy is.
        clock: seconds, monotonic.

    Raises:
        torch.OutOfMemoryError: the device has no room for it.
    """

    def __init__(
        self,
        rows: Rows,
        device: torch.device,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self.device, self._clock = rows, device, clock
        self.columns, self.capacity = rows.columns, rows.capacity
        self._frames = rows.frames if isinstance(rows, FrameRows) else {}
        own = {name: column for name, column in rows.columns.items() if name != FRAME_SPANS}
        self._copies = {name: _like(column, device) for name, column in own.items()}
        self._frame_copies = {name: _like(frames, device) for name, frames in self._frames.items()}
        self._live = (0, 0)
        self._followed = self._frames_followed = 0
        self._next_follow = -np.inf
        self._gathered: _Gathered | None = None

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, whether the device has them or not."""
        return self._rows.inserted

    def live(self) -> tuple[int, int]:
        """The rows that may be drawn: those that were live when the device was given the last."""
        return self._live

    @property
    def drawn_dtype(self) -> np.dtype[Any]:
        """What a sample has in the host's memory: a row's version, or else one small column."""
        columns = self.columns
        name = VERSION if VERSION in columns else min(columns, key=lambda k: columns[k].nbytes)
        return np.dtype([(name, columns[name].dtype, columns[name].shape[1:])])

    def gather(self, places: NDArray[np.int64], out: Columns) -> None:
        """Copy `drawn_dtype` of the rows at `places`."""
        Rows.gather(self, places, out)

    def follow(self, least: int = 0) -> None:
        """Give the device the rows inserted since the last call, unless that was just now.

        Args:
            least: rows inserted since the run began that it needs to have.

        Raises:
            ReplayOverrunError: rows are overwritten faster than they are copied.
        """
        now = self._clock()
        oldest, inserted = self._live
        if max(oldest + 1, least) <= inserted and now < self._next_follow:
            return
        self._next_follow = now + FOLLOW_S
        for _ in range(_FOLLOWS_MAX):
            oldest, inserted = self._rows.live()
            if inserted == self._followed:
                return
            first, frames_end = max(self._followed, oldest), self._frames_end(inserted)
            for name, copy in self._copies.items():
                _copy_span(self.columns[name], copy, first, inserted)
            for name, copy in self._frame_copies.items():
                _copy_span(self._frames[name], copy, self._frames_followed, frames_end)
            # Rows that the writer may have begun to overwrite meanwhile are no longer live.
            oldest = self._rows.live()[0]
            if oldest < inserted:
                self._live = oldest, inserted
                self._followed, self._frames_followed = inserted, frames_end
                return
        raise ReplayOverrunError(self.capacity, _FOLLOWS_MAX)

    def _frames_end(self, inserted: int) -> int:
        """Frames of the first `inserted` rows, counted over the run."""
        if not self._frames:
            return 0
        spans = self.columns[FRAME_SPANS]
        return int(spans[(inserted - 1) % len(spans), 1])

    def gather_batch(self, numbers: NDArray[np.int64]) -> StaticBatch:
        """The rows of these numbers, drawn of `live`; overwritten by the next call of this size."""
        if self._gathered is None or len(self._gathered.places) != len(numbers):
            copies = self._copies, self._frame_copies
            self._gathered = _Gathered(*copies, len(numbers), self.columns, self._frames)
        physical_rows = len(next(iter(self.columns.values())))
        self._gathered.fill(ring_places(numbers, physical_rows))
        return self._gathered.batch


class _Gathered:
    """A batch at fixed addresses, and how it is filled.

    Args:
        copies: of the columns.
        frames: those that rows have places of.
        rows: of the batch.
        columns, frame_columns: as the host has them.
    """

    def __init__(
        self,
        copies: dict[str, torch.Tensor],
        frames: dict[str, torch.Tensor],
        rows: int,
        columns: Columns,
        frame_columns: Columns,
    ) -> None:
        device = next(iter(copies.values())).device
        self.places = torch.empty(rows, dtype=torch.int64, device=device)
        self._picks: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.batch = StaticBatch()
        for name, copy in copies.items():
            shaped = self._pick(copy, self.places, columns[name])
            if not (frames and name in STACKS):
                self.batch[name] = shaped
                continue
            for key, of_part in frames.items():
                whole = self._pick(of_part, shaped.view(-1), frame_columns[key])
                stacked = whole.view(*shaped.shape, *whole.shape[1:])
                self.batch[name + key.removeprefix(FRAMES)] = stacked

    def _pick(self, source: torch.Tensor, at: torch.Tensor, column: NDArray[Any]) -> torch.Tensor:
        """Room for the entries of a copy at these places, in the form of the column."""
        out = source.new_empty((len(at), source.shape[1]))
        self._picks.append((source, at, out))
        dtype = torch.from_numpy(np.empty(0, column.dtype)).dtype
        return out.view(dtype).view(len(at), *column.shape[1:])

    def fill(self, places: NDArray[np.int64]) -> None:
        """Bring the rows at these places to the batch."""
        self.places.copy_(stage(places, self.places.device).view(-1), non_blocking=True)
        for source, at, out in self._picks:
            torch.index_select(source, 0, at, out=out)


def ring_bytes(rows: Rows) -> int:
    """Bytes of a copy of a ring."""
    frames = rows.frames if isinstance(rows, FrameRows) else {}
    columns = [column for name, column in rows.columns.items() if name != FRAME_SPANS]
    return sum(column.nbytes for column in (*columns, *frames.values()))


def _like(column: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Room for a column, each entry as a row of words."""
    dtype, words = _words(column)
    return torch.zeros((len(column), words), dtype=dtype, device=device)


def _copy_span(column: NDArray[Any], copy: torch.Tensor, first: int, end: int) -> None:
    """Copy the entries [first, end) of a ring to where they lie in it."""
    size = len(column)
    first = max(first, end - size)
    at_once = max(1, _CHUNK_BYTES // max(1, column[:1].nbytes))
    for begin, stop in _pieces(first, end, size, at_once):
        copy[begin:stop].copy_(stage(column[begin:stop], copy.device), non_blocking=True)


def _pieces(first: int, end: int, size: int, at_once: int) -> Iterator[tuple[int, int]]:
    """The places of the entries [first, end) of a ring of this size, in pieces."""
    while first < end:
        begin = first % size
        count = min(end - first, size - begin, at_once)
        yield begin, begin + count
        first += count


def stage(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of an array in words, from which a device may copy while the host goes on."""
    dtype, words = _words(array)
    staged = torch.empty((len(array), words), dtype=dtype, pin_memory=device.type == "cuda")
    staged.numpy().view(array.dtype).reshape(array.shape)[...] = array
    return staged


def _words(column: NDArray[Any]) -> tuple[torch.dtype, int]:
    """The type of the words that an entry is made of, and their number."""
    entry_bytes = column.dtype.itemsize * math.prod(column.shape[1:])
    size = next(size for size in _WORDS if entry_bytes % size == 0)
    return _WORDS[size], entry_bytes // size

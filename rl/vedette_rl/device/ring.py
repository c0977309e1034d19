"""A copy of a ring on the learner's device, in which batches are gathered.

What crosses to the device is then each row once, and the places of those that are drawn; from the
host's memory it is every row again for each batch that has it. The ring stays the truth: it is what
survives, and a new trainer begins with a new copy.

::

    ring = DeviceRing(reader, device)
    replay.use_rows(ring)                   # draws rows that have arrived
    while training:
        replay.look()                       # copies what was committed since
        sample = replay.sample(batch_size)  # numbers alone: nothing is gathered in the host
        batch = ring.gather_batch(sample.indices)

Row ``i`` lies at the place that it has in the ring, and so do the frames that rows share, so that
the places in rows are right in the copy too. Copies of several rings lie one behind the other: a
batch of all of them is gathered by as many operations as one of a single ring. All work is in the
order of one stream: a row is not overwritten in the copy before the batches that were asked for
until then have it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core.columns import SOURCE, VERSION, Columns
from vedette_rl.core.learning import StaticBatch
from vedette_rl.device.cuda_graphs import Capture
from vedette_rl.device.gathered import GatheredRows, GatheredWindows
from vedette_rl.device.room import Room, columns_of, count_frames, count_rows, stage
from vedette_rl.errors import ReplayOverrunError
from vedette_rl.replay.frame_ring import FrameRows
from vedette_rl.replay.frame_stacks import FRAME_SPANS, STACKS
from vedette_rl.replay.mixed import NUMBER_BITS
from vedette_rl.replay.rows import Rows, ring_places
from vedette_rl.replay.sequences import Windows

FOLLOW_S = 0.005
"""From one copy of new rows to the next: few rows a copy cost more than they are worth."""

_CHUNK_BYTES = 32 << 20
"""Of one copy: as much is pinned at a time."""

_FOLLOWS_MAX = 8  # copies in succession that the writer may outrun


class DeviceRing(Rows):
    """`Rows` to draw from: those of a ring that a device has.

    Args:
        rows: the ring.
        device: the device that holds the copy.
        clock: seconds, monotonic.
        capture: records how batches are gathered; None: each operation is started by itself.
        room: memory on the device, if the copy is one of several.
        first_frame: the ring's first place among the frames of all, in that memory.

    Raises:
        torch.OutOfMemoryError: the device has no room for it.
    """

    def __init__(
        self,
        rows: Rows,
        device: torch.device,
        *,
        clock: Callable[[], float] = time.monotonic,
        capture: Capture | None = None,
        room: Room | None = None,
        first_frame: int = 0,
    ) -> None:
        self._rows = rows
        self.device = device
        self._clock = clock
        self._capture = capture
        self.columns = rows.columns
        self.capacity = rows.capacity
        self.floor = rows.floor
        self._frames = rows.frames if isinstance(rows, FrameRows) else {}
        self._room = room or Room.of([rows], device)
        self._first_frame = first_frame
        self._live = (0, 0)
        self._followed = self._frames_followed = 0
        self._torn = 0  # rows below were not copied in time, if ever
        self._next_follow = -np.inf
        self.follow_s = FOLLOW_S
        """Seconds from one copy of new rows to the next."""
        self._gathered: GatheredRows | None = None
        self._windows: GatheredWindows | None = None

    @property
    def original(self) -> Rows:
        """The ring that this is a copy of."""
        return self._rows

    def hurry(self) -> None:
        self._next_follow = -np.inf

    def doubtful_below(self, seen: int) -> int:
        """None: the copy is this process's own."""
        return 0

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, whether the device has them or not."""
        return self._rows.inserted

    def live(self) -> tuple[int, int]:
        """The rows that may be drawn: those that were live when the device was given the last."""
        return self._live

    def look(self) -> tuple[int, int]:
        """`live`, once the device was given what was inserted since, unless that was just now."""
        self.follow()
        return self._live

    @property
    def drawn_dtype(self) -> np.dtype[Any]:
        """Return the columns of a sample in the host's memory: the version, or one small column."""
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
        # A copy without a live row does not wait.
        if max(oldest + 1, least) <= inserted and now < self._next_follow:
            return
        self._next_follow = now + self.follow_s
        for _ in range(_FOLLOWS_MAX):
            oldest, inserted = self._rows.live()
            if inserted == self._followed:
                return
            first = max(self._followed, oldest)
            frames_end = self._frames_end(inserted)
            for name, copy in self._room.columns.items():
                # Places count from the ring's own first frame, and the room has those of others.
                moved = self._first_frame if self._frames and name in STACKS else 0
                _copy_span(self.columns[name], copy, first, inserted, moved)
            for name, copy in self._room.frames.items():
                _copy_span(self._frames[name], copy, self._frames_followed, frames_end)
            # Only of what was copied just now may the writer have begun to overwrite something.
            # What is live follows from `inserted` alone, so it is followed until all of that is
            # whole.
            overwritten = self._rows.doubtful_below(inserted)
            if overwritten >= inserted:  # all of it, the number of frames, too
                continue
            self._followed = inserted
            self._frames_followed = frames_end
            if first < overwritten:
                self._torn = overwritten
            if oldest >= self._torn:
                self._live = oldest, inserted
                return
        raise ReplayOverrunError(self.capacity, _FOLLOWS_MAX)

    def _frames_end(self, inserted: int) -> int:
        """Frames of the first `inserted` rows, counted over the run."""
        if not self._frames:
            return 0
        spans = self.columns[FRAME_SPANS]
        return int(spans[(inserted - 1) % len(spans), 1])

    @property
    def is_captured(self) -> bool:
        """True once batches are gathered by graphs."""
        gathered = self._gathered or self._windows
        return gathered is not None and gathered.is_captured

    def gather_batch(self, numbers: NDArray[np.int64]) -> StaticBatch:
        """The rows of these numbers, drawn of `live`; overwritten by the next call of this size."""
        if self._gathered is None or len(self._gathered.places) != len(numbers):
            self._gathered = GatheredRows(self._room, len(numbers), self._rows, self._capture)
        (physical_rows,) = count_rows([self])
        self._gathered.fill(ring_places(numbers, physical_rows))
        return self._gathered.batch

    def gather_windows(self, windows: Windows, first: Collection[str] = ()) -> StaticBatch:
        """The sequences of these rows, drawn of `live`, as `vedette_rl.replay.drawn_sequences` has
        them; overwritten by the next call of as many.

        Args:
            windows: the rows of the sequences.
            first: the columns of which a sequence has the first row's value alone.
        """
        if self._windows is None or not self._windows.fits(windows):
            self._windows = GatheredWindows(self._room, windows, self._rows, first, self._capture)
        (physical_rows,) = count_rows([self])
        numbers = windows.with_last()
        places = ring_places(numbers.reshape(-1), physical_rows)
        self._windows.fill(windows, places.reshape(numbers.shape))
        return self._windows.batch


class DeviceRings:
    """Copies of the rings of several sources, which have the same columns.

    Args:
        rows: the rings, in the order of their sources.
        device: the device that holds the copies.
        clock: seconds, monotonic.
        capture: records how batches are gathered; None: each operation is started by itself.

    Attributes:
        rings: the copy of each.

    Raises:
        torch.OutOfMemoryError: the device has no room for them.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        device: torch.device,
        *,
        clock: Callable[[], float] = time.monotonic,
        capture: Capture | None = None,
    ) -> None:
        self.device = device
        self._capture = capture
        self._like = rows[0]
        self._room = Room.of(rows, device)
        self._sizes = np.array(count_rows(rows))
        rows_ends, frames_ends = accumulate(count_rows(rows)), accumulate(count_frames(rows))
        self.rings = list[DeviceRing]()
        begin = 0
        first_frame = 0
        for ring, end, frames_end in zip(rows, rows_ends, frames_ends, strict=True):
            part = self._room.part(slice(begin, end), slice(first_frame, frames_end))
            copy = DeviceRing(ring, device, clock=clock, room=part, first_frame=first_frame)
            self.rings.append(copy)
            begin = end
            first_frame = frames_end
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._gathered: GatheredRows | None = None
        self._windows: GatheredWindows | None = None
        self._sources = np.empty(0, np.int64)

    def follow(self) -> None:
        """Give the device the rows inserted since the last call; see `DeviceRing.follow`."""
        for ring in self.rings:
            ring.follow()

    @property
    def is_captured(self) -> bool:
        """True once batches are gathered by graphs."""
        gathered = self._gathered or self._windows
        return gathered is not None and gathered.is_captured

    def gather_batch(self, indices: NDArray[np.int64]) -> StaticBatch:
        """The rows of these indices of a `MixedReplay`, with their sources; overwritten by the next
        call of this size."""
        if self._gathered is None or len(self._gathered.places) != len(indices):
            self._gathered = GatheredRows(self._room, len(indices), self._like, self._capture)
            # Of the right size alone: `_sources` of another size differs, so it is filled below.
            self._gathered.batch[SOURCE] = self._gathered.places.to(torch.uint8)
        self._set_sources(self._gathered.batch, indices >> NUMBER_BITS)
        self._gathered.fill(self._places_of(indices))
        return self._gathered.batch

    def gather_windows(self, windows: Windows, first: Collection[str] = ()) -> StaticBatch:
        """The sequences of these rows of a `MixedSequences`, with their sources ``(B,)``;
        overwritten by the next call of as many.

        Args:
            windows: the rows of the sequences, with their source in the upper bits.
            first: the columns of which a sequence has the first row's value alone.
        """
        if self._windows is None or not self._windows.fits(windows):
            self._windows = GatheredWindows(self._room, windows, self._like, first, self._capture)
            rows = len(windows.numbers)
            self._windows.batch[SOURCE] = torch.empty(rows, dtype=torch.uint8, device=self.device)
        self._set_sources(self._windows.batch, windows.numbers[:, 0] >> NUMBER_BITS)
        self._windows.fill(windows, self._places_of(windows.with_last()))
        return self._windows.batch

    def _places_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the rows of these indices lie in the room."""
        sources = indices >> NUMBER_BITS
        numbers = indices & ((1 << NUMBER_BITS) - 1)
        places: NDArray[np.int64] = numbers % self._sizes[sources] + self._begins[sources]
        return places

    def _set_sources(self, batch: StaticBatch, sources: NDArray[np.int64]) -> None:
        if not np.array_equal(sources, self._sources):  # mostly it is split as the last one was
            staged = stage(sources.astype(np.uint8), self.device).view(-1)
            batch[SOURCE].copy_(staged, non_blocking=True)
            self._sources = sources


def ring_bytes(rows: Rows) -> int:
    """Bytes of a copy of a ring."""
    columns, frames = columns_of(rows)
    return sum(column.nbytes for column in (*columns.values(), *frames.values()))


def are_alike(rows: Sequence[Rows]) -> bool:
    """True if rings have the same columns and frames, so that one batch has rows of all."""
    forms = []
    for ring in rows:
        columns, frames = columns_of(ring)
        both = {**columns, **frames}
        forms.append({name: (column.dtype, column.shape[1:]) for name, column in both.items()})
    return all(form == forms[0] for form in forms)


def _copy_span(
    column: NDArray[Any], copy: torch.Tensor, first: int, end: int, moved: int = 0
) -> None:
    """Copy the entries [first, end) of a ring to where they lie in it, with `moved` added."""
    size = len(column)
    first = max(first, end - size)
    at_once = max(1, _CHUNK_BYTES // max(1, column[:1].nbytes))
    for begin, stop in _pieces(first, end, size, at_once):
        piece = column[begin:stop] + column.dtype.type(moved) if moved else column[begin:stop]
        copy[begin:stop].copy_(stage(piece, copy.device), non_blocking=True)


def _pieces(first: int, end: int, size: int, at_once: int) -> Iterator[tuple[int, int]]:
    """The places of the entries [first, end) of a ring of this size, in pieces."""
    while first < end:
        begin = first % size
        count = min(end - first, size - begin, at_once)
        yield begin, begin + count
        first += count

"""Observations stored once: rings of rows that hold places in a ring of frames.

`vedette_rl.replay.frame_stacks` explains the words.

::

    ring = FrameRingWriter.open(directory, stored_row(row, frames), capacity, run_id=run_id,
                                shared=make_frame_ring_spec(...))
    ring.append({"obs": places, "next_obs": places, "frames": frames}, rows)
    ring.commit(stamp)                               # rows, frames and stamp, all or none

Frames are numbered from the beginning of the run, as rows are; each row keeps the span of its
batch's frames. So the last committed row has the number of frames, and no other record of it
is needed; and a row is live as long as its span begins within the frames that are kept.
"""

from __future__ import annotations

import bisect
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay.checksums import RingChecksums
from vedette_rl.replay.commits import CommitWriter
from vedette_rl.replay.frame_stacks import (
    FRAME_SPANS,
    FRAMES,
    STACKS,
    split_name,
    whole_observations,
)
from vedette_rl.replay.manifest import Manifest, SharedSpec
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing, RowAppender, Rows, kept_of_guard


class FrameRows(Rows):
    """The reading half: rows that give whole observations.

    Attributes:
        frames: by part, ``(frames_capacity + guard, *shape)`` each: frame ``i`` at place
            ``i % physical_frames``.
        physical_frames: how many places there are.
        frames_capacity: frames that are kept.
        frames_keep: frames before those that the writer leaves alone, too.
    """

    frames: Columns
    physical_frames: int
    frames_capacity: int
    frames_keep: int

    def use_frames(
        self, frames: Columns, shared: SharedSpec, batch_rows: int | None = None
    ) -> None:
        """Read from these frames.

        Args:
            frames: them.
            shared: their ring.
            batch_rows: the most rows that are appended at once; None: not known.
        """
        self.frames = frames
        self.frames_capacity = shared.capacity
        self.physical_frames = shared.all_entries
        largest = None if batch_rows is None else batch_rows * self.places_per_row
        self.frames_keep = shared.keep + kept_of_guard(shared.guard, largest)

    @property
    def places_per_row(self) -> int:
        """Places of frames that a row has: no batch has more frames than all of its rows have."""
        return sum(math.prod(self.columns[name].shape[1:]) for name in STACKS)

    @property
    def drawn_dtype(self) -> np.dtype[Any]:
        """A row as it is drawn: observations whole."""
        fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
        for name, column in self.columns.items():
            if name in STACKS:
                stack = column.shape[1:]
                for key, frames in self.frames.items():
                    suffix = key.removeprefix(FRAMES)
                    fields.append((name + suffix, frames.dtype, (*stack, *frames.shape[1:])))
            elif name != FRAME_SPANS:
                fields.append((name, column.dtype, column.shape[1:]))
        return np.dtype(fields)

    def live(self) -> tuple[int, int]:
        """The rows that may be drawn: [oldest, inserted). Fewer than the capacity where their
        batches had more frames than are kept for them."""
        oldest, inserted = super().live()
        return self._with_frames(oldest, inserted, self.frames_capacity), inserted

    def doubtful_below(self, seen: int) -> int:
        """Rows below this number may have been overwritten by now, or their frames."""
        inserted = self.inserted
        if self.keep and inserted - seen > self.keep:
            return inserted  # what the look found of frames was read from rows that are in doubt
        oldest = max(0, inserted - self.capacity - self.keep)
        return self._with_frames(oldest, inserted, self.frames_capacity + self.frames_keep)

    def _with_frames(self, first: int, inserted: int, frames: int) -> int:
        """The first row from `first` on whose frames are among the last `frames`."""
        if not inserted:
            return first
        spans = self.columns[FRAME_SPANS]
        rows = len(spans)
        first_kept = int(spans[(inserted - 1) % rows, 1]) - frames
        if first_kept > spans[first % rows, 0]:
            numbers = range(first, inserted)
            first += bisect.bisect_left(numbers, first_kept, key=lambda i: spans[i % rows, 0])
        return first

    def gather(self, places: NDArray[np.int64], out: Columns) -> None:
        """Copy the rows at `places` into `out`, every column that is in `out`."""
        taken: Columns = {}  # places of frames, which all parts of an observation share
        for name, to in out.items():
            part, suffix = split_name(name)
            if part not in STACKS:
                self.columns[name].take(places, 0, to, "clip")
                continue
            if part not in taken:
                taken[part] = self.columns[part].take(places, 0, mode="clip")
            # clip: as in `Rows.gather`; and a row that is being overwritten may hold any number as
            # a place, until it is drawn again
            self.frames[FRAMES + suffix].take(taken[part], 0, to, "clip")


class FrameAppender(FrameRows, RowAppender):
    """The writing half: batches that bring their frames."""

    frames_inserted: int
    _frames_appended: int
    _frames_at_once: int

    def _use(self, frames: Columns, shared: SharedSpec, batch_rows: int | None) -> None:
        """Begin behind the last committed row's frames."""
        self.use_frames(frames, shared, batch_rows)
        self._frames_at_once = shared.guard + shared.keep - self.frames_keep
        last = self.columns[FRAME_SPANS][(self.inserted - 1) % self._physical_rows, 1]
        self.frames_inserted = self._frames_appended = int(last) if self.inserted else 0

    @property
    def room(self) -> int:
        """Rows that may still be appended before a commit, if each brings as many frames as it has
        places."""
        return min(super().room, self._frames_room // self.places_per_row)

    @property
    def _frames_room(self) -> int:
        room = self._frames_at_once - (self._frames_appended - self.frames_inserted)
        return min(room, self._frames_bound - self._frames_appended)

    @property
    def _frames_bound(self) -> int:
        return sys.maxsize

    def append(self, columns: Mapping[str, Any], rows: int) -> None:
        """Write rows, and the frames that they share, behind those appended before.

        Args:
            columns: as `RowAppender.append` takes them, `STACKS` with places in the columns
                `FRAMES`, which have as many entries as they like.
            rows: the number of rows.

        Raises:
            ValueError: more rows or frames than there is room for, places beyond the frames, or
                columns of other names, dtypes or shapes; then none is appended.
        """
        columns = dict(columns)
        frames = {name: columns.pop(name) for name in self.frames}
        count = self._check(frames, columns)
        begin, end = self._frames_appended, self._frames_appended + count
        for name in STACKS:
            columns[name] = self._stored_places(columns[name], begin)
        columns[FRAME_SPANS] = np.broadcast_to(np.array([begin, end], np.int64), (rows, 2))
        at = begin % self.physical_frames
        before_wrap = min(count, self.physical_frames - at)
        for name, to in self.frames.items():
            to[at : at + before_wrap] = frames[name][:before_wrap]
            to[: count - before_wrap] = frames[name][before_wrap:]
        super().append(columns, rows)
        self._frames_appended = end

    def _check(self, frames: Columns, columns: Mapping[str, Any]) -> int:
        """The number of frames, once all is as it must be."""
        count = len(next(iter(frames.values())))
        if count > self._frames_room:
            raise ValueError(
                f"{count} frames are appended where {self._frames_room} fit before a commit"
            )
        for name, ours in self.frames.items():
            given = frames[name]
            shape = (count, *ours.shape[1:])
            if given.dtype != ours.dtype or given.shape != shape:
                raise ValueError(
                    f"{name} are {given.dtype} {given.shape}, not {ours.dtype} {shape}"
                )
        for name in STACKS:
            places = columns[name]
            if places.size and not 0 <= int(places.min()) <= int(places.max()) < count:
                raise ValueError(f"column {name!r} has places beyond its {count} frames")
        return count

    def _stored_places(self, places: NDArray[Any], begin: int) -> NDArray[np.int32]:
        """Slots in the ring for the frames of a batch."""
        stored = places.astype(np.int64)
        stored += begin
        stored %= self.physical_frames
        return stored.astype(np.int32)

    def _committed(self) -> None:
        super()._committed()
        self.frames_inserted = self._frames_appended


class FrameRingWriter(FrameAppender, RingWriter):
    """The writing end on disk. Made by `open`, with `shared`."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        commits: CommitWriter,
        checksums: RingChecksums,
        batch_rows: int | None = None,
    ) -> None:
        super().__init__(directory, manifest, commits, checksums, batch_rows)
        self._use(*_shared(self.shared, self.manifest), batch_rows)

    @property
    def _frames_bound(self) -> int:
        return self._syncer.shared_bound

    @property
    def _shared_appended(self) -> int:
        return self._frames_appended


class FrameRingReader(FrameRows, RingReader):
    """The reading end on disk.

    Args:
        directory, batch_rows: as `RingReader` takes them.

    Raises:
        ReplayFormatError: there is no replay, a torn one, or one without frames.
    """

    def __init__(self, directory: str | os.PathLike[str], *, batch_rows: int | None = None) -> None:
        super().__init__(directory, batch_rows=batch_rows)
        self.use_frames(*_shared(self.shared, self.manifest), batch_rows)


class MemoryFrameRing(FrameAppender, MemoryRing):
    """The ring on one process's own memory: its writing and its reading end in one.

    Args:
        row_dtype: the dtype of a stored row (`vedette_rl.replay.frame_stacks.stored_row`).
        capacity: rows that can be drawn.
        shared: the frames.
        guard: rows that may be appended before a commit.
        batch_rows: the most rows that are appended at once, for `kept_of_guard`.
    """

    def __init__(
        self,
        row_dtype: np.dtype[Any],
        capacity: int,
        shared: SharedSpec,
        *,
        guard: int | None = None,
        batch_rows: int | None = None,
    ) -> None:
        super().__init__(row_dtype, capacity, guard=guard, batch_rows=batch_rows)
        frames = empty_columns(shared.row_dtype, shared.all_entries)
        for column in frames.values():
            column.fill(0)  # as the columns: the pages are taken now
        self._use(frames, shared, batch_rows)

    @property
    def total_bytes(self) -> int:
        """Bytes of all columns, and of the frames."""
        return super().total_bytes + sum(column.nbytes for column in self.frames.values())


def open_writer(
    directory: str | os.PathLike[str],
    row_dtype: np.dtype[Any],
    capacity: int,
    *,
    run_id: str,
    guard: int | None = None,
    batch_rows: int | None = None,
    keep: int = 0,
    shared: SharedSpec | None = None,
    sync_interval_s: float = 0.0,
    recovers: bool = True,
    kept_from: int | None = None,
) -> RingWriter:
    """The writing end of a replay, with or without frames: see `RingWriter.open`."""
    kind = RingWriter if shared is None else FrameRingWriter
    return kind.open(
        directory,
        row_dtype,
        capacity,
        run_id=run_id,
        guard=guard,
        batch_rows=batch_rows,
        keep=keep,
        shared=shared,
        sync_interval_s=sync_interval_s,
        recovers=recovers,
        kept_from=kept_from,
    )


def open_reader(directory: str | os.PathLike[str], *, batch_rows: int | None = None) -> RingReader:
    """The reading end of a replay, whichever way it stores observations.

    Args:
        directory, batch_rows: as `RingReader` takes them.

    Raises:
        ReplayFormatError: there is no replay, or a torn one.
    """
    reader = RingReader(directory, batch_rows=batch_rows)
    if reader.manifest.shared is None:
        return reader
    return FrameRingReader(directory, batch_rows=batch_rows)


def whole_stacks(batch: Mapping[str, Any]) -> Columns:
    """A batch that brings its frames, with whole observations: what a plain ring would be given."""
    frames = {name: column for name, column in batch.items() if split_name(name)[0] == FRAMES}
    return whole_observations(batch, frames)


def _shared(frames: Columns, manifest: Manifest) -> tuple[Columns, SharedSpec]:
    if manifest.shared is None or any(split_name(name)[0] != FRAMES for name in frames):
        raise ReplayFormatError("the replay stores observations whole, and no frames")
    return frames, manifest.shared

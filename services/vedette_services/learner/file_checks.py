"""Compares a run's files with what was written down of them: checkpoints with the hashes in the
journal, rows with their checksums.

An execution makes states of its own, so it says nothing of the files. They may have been changed
since, by a disk or by a hand.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.errors import CheckpointError
from vedette_rl.replay.checksums import RingChecksums
from vedette_rl.replay.frame_ring import FrameRingReader
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.ring import RingReader
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import read_state
from vedette_rl.storage.state_hash import hash_state
from vedette_services.learner.trainer.learner import hash_saved
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import Part, StateHashes
from vedette_services.run.spans import Segment


class FileCheck(NamedTuple):
    """A checkpoint, or the best model, that was looked at.

    Args:
        name: its place in the run's directory.
        equal: None: it was not compared.
        why: it is not equal; "" where it is.
    """

    name: str
    equal: bool | None
    why: str = ""

    def describe(self) -> str:
        """Say what is not equal, or why it was not compared."""
        return f"{self.name}: {self.why}"


def hashes_by_epoch(parts: Sequence[Part]) -> dict[tuple[int, int], StateHashes]:
    """The hashes of all states that a journal has, by the epoch that saved them and step."""
    return {
        (part.header.epoch, step): hashes for part in parts for step, hashes in part.saved.items()
    }


def start_hashes(segment: Segment, parts: Sequence[Part]) -> StateHashes | None:
    """The hashes of the checkpoint that a segment begins at; None: the journal has none."""
    header = segment.part.header
    epoch = header.written_by if segment.begin == header.step else header.epoch
    return None if epoch is None else hashes_by_epoch(parts).get((epoch, segment.begin))


def check_checkpoints(
    run: RunDirectory,
    parts: Sequence[Part],
    segments: Sequence[Segment],
    epochs: Collection[int],
) -> Iterator[FileCheck]:
    """Compare each checkpoint of the steps of segments with the journal.

    Args:
        parts: of the journal.
        epochs: of the parts that lead to the segments, and on from them without a step.
    """
    saved = hashes_by_epoch(parts)
    first = segments[0]
    executed = {
        step: hashes
        for each in segments
        for step, hashes in each.part.saved.items()
        if each.begin < step <= each.end
    }
    if (hashes := start_hashes(first, parts)) is not None:
        executed[first.begin] = hashes
    paths = Checkpoints(run.checkpoints, keep=1).list()
    there = [int(path.name) for path in paths]
    newest_saved = max((step for _, step in saved), default=0)
    yield from _missing(executed, there, oldest=min(there, default=newest_saved))
    for path in paths:
        step = int(path.name)
        name = f"checkpoints/{step}"
        if not first.begin <= step <= segments[-1].end:
            continue
        try:
            state, meta = read_state(path)
        except CheckpointError as error:
            yield FileCheck(name, equal=False, why=f"it cannot be read: {error.why}")
            continue
        epoch = meta.get("epoch")
        if not isinstance(epoch, int) or epoch not in epochs:
            why = f"it is of start {epoch!r:.20}, which these steps are not of"
            yield FileCheck(name, equal=None, why=f"not compared: {why}")
        elif (expected := executed.get(step)) is None:
            yield FileCheck(name, equal=None, why="not compared: the journal has no hash of it")
        elif _is_saved(state, expected, saved.get((epoch, step))):
            yield FileCheck(name, equal=True)
        else:
            yield FileCheck(name, equal=False, why="it is not the state that was saved")


def _missing(saved: Collection[int], there: Collection[int], oldest: int) -> Iterator[FileCheck]:
    """The checks of checkpoints that are missing, and that no run removes itself.

    Args:
        saved: the steps of those that the journal has a hash of.
        there: the steps of those that are there.
        oldest: that a run has kept, which removes the oldest first.
    """
    for step in sorted(saved):
        if step >= oldest and step not in there:
            why = "not compared: it is not there, and the journal has a hash of it"
            yield FileCheck(f"checkpoints/{step}", equal=None, why=why)


def find_hashes(state: State) -> StateHashes | None:
    """The hashes of a state that was read; None: it is none of a learner."""
    return hash_saved(state) if isinstance(state.get("agent"), Mapping) else None


def _is_saved(state: State, executed: StateHashes, of_epoch: StateHashes | None) -> bool:
    """True for a state that was executed; and for the same agent with what a later start has saved
    beside it, which did no step."""
    found = find_hashes(state)
    if found is None or found == executed:
        return found is not None
    return found == of_epoch and found.agent == executed.agent


@dataclass
class BestModel:
    """The model in ``best/``, which is compared when its step is executed.

    Args:
        step, epoch: of it.
        digest: its hash.
        dtypes: of its arrays, which may have travelled as shorter numbers.
        is_compared: it was.
    """

    step: int
    epoch: int
    digest: bytes
    dtypes: Mapping[str, np.dtype[Any]]
    is_compared: bool = False

    @classmethod
    def read(cls, run: RunDirectory) -> Self | None:
        """Read it; None where there is none, or one that says no step."""
        try:
            state, meta = read_state(run.best)
            model = state["model"]
            dtypes = {
                name: array.dtype
                for name, array in model.items()
                if isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
            }
            return cls(int(meta["version"]), int(meta["epoch"]), hash_state(model), dtypes)
        except (CheckpointError, KeyError, TypeError, ValueError, AttributeError):
            return None  # no model of a run, so nothing that could be said of it

    def compare(self, model: ModelInfo) -> FileCheck:
        """Compare it with the model of its step."""
        self.is_compared = True
        arrays = {
            name: array.astype(self.dtypes.get(name, array.dtype))
            for name, array in model.arrays.items()
        }
        equal = hash_state(arrays) == self.digest
        return FileCheck("best", equal, "" if equal else f"it is not the model of {self._step}")

    def uncompared(self) -> FileCheck:
        """The check of one whose step was not executed, or was at no time sent to actors."""
        return FileCheck("best", equal=None, why=f"not compared: it is of {self._step}")

    @property
    def _step(self) -> str:
        return f"step {self.step:,} of start {self.epoch}"


class RowCheck(NamedTuple):
    """Rows, or frames that they share, that are not as they were written or have no checksum.

    Args:
        source: the name of their replay.
        begin, end: the rows of a block, since the run began; of frames, their numbers.
        columns: that are not as they were written; none: there is no checksum.
        row_with_frames: the first row with one of these frames; None: they are rows.
    """

    source: str
    begin: int
    end: int
    columns: tuple[str, ...] = ()
    row_with_frames: int | None = None

    @property
    def first_row(self) -> int:
        """The first row that it is about."""
        return self.begin if self.row_with_frames is None else self.row_with_frames

    def describe(self) -> str:
        """Say it."""
        kind = "rows" if self.row_with_frames is None else "frames"
        where = f"{kind} {self.begin:,} to {self.end - 1:,} of replay {self.source}"
        if not self.columns:
            return f"{where} have no checksum: not compared"
        columns = ", ".join(self.columns)
        return f"{where} are not as they were written: one or more has another {columns}"


def check_rows(
    rings: Mapping[str, RingReader], drawn: Mapping[str, tuple[int, int]]
) -> Iterator[RowCheck]:
    """Compare the rows that were drawn from with their checksums.

    Args:
        rings: by the names of their sources, with the writer's cursor.
        drawn: of each that grows, the first row and the end; all rows of the others.
    """
    for source, ring in rings.items():
        begin, end = drawn.get(source, (ring.floor, ring.inserted))
        if begin < end:
            yield from _join(_check_ring(source, ring, begin, end))


def _check_ring(source: str, ring: RingReader, begin: int, end: int) -> Iterator[RowCheck]:
    sums = RingChecksums.read(ring.directory, ring.manifest)
    if sums is None:
        yield RowCheck(source, begin, end)
        return
    try:
        names = [column.name for column in ring.manifest.columns]
        count = ring.inserted
        overwritten = max(count - ring.capacity - ring.keep, ring.floor)
        are_spans_whole = True
        for found in sums.rows.verify(begin, end, count, overwritten):
            columns = tuple(names[i] for i in found.columns)
            are_spans_whole &= FRAME_SPANS not in columns
            yield RowCheck(source, found.begin, found.end, columns)
        shared_spec = ring.manifest.shared
        if not are_spans_whole:
            return  # which frames these rows have is not known
        if sums.shared is not None and shared_spec and isinstance(ring, FrameRingReader):
            spans = ring.columns[FRAME_SPANS]
            first = int(spans[begin % len(spans), 0])
            last = int(spans[(end - 1) % len(spans), 1])
            count = int(spans[(count - 1) % len(spans), 1])
            first = max(0, first, last - shared_spec.all_entries)
            overwritten = count - ring.frames_capacity - ring.frames_keep
            if ring.floor:
                overwritten = max(overwritten, int(spans[ring.floor % len(spans), 0]))
            shared = [column.name for column in shared_spec.columns]
            for found in sums.shared.verify(first, last, count, overwritten):
                columns = tuple(shared[i] for i in found.columns)
                row = _first_row_with(spans, found.begin, begin, end)
                yield RowCheck(source, found.begin, found.end, columns, row)
    finally:
        sums.close()


def _first_row_with(spans: NDArray[Any], frame: int, begin: int, end: int) -> int:
    """The first row from `begin` to `end` that has a frame of this number or above."""
    numbers = range(begin, end)
    return begin + bisect.bisect_right(numbers, frame, key=lambda i: int(spans[i % len(spans), 1]))


def _join(found: Iterator[RowCheck]) -> Iterator[RowCheck]:
    """Blocks behind each other with the same columns as one."""
    last: RowCheck | None = None
    for each in found:
        if last is not None and _goes_on(last, each):
            last = last._replace(end=each.end)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _goes_on(last: RowCheck, each: RowCheck) -> bool:
    """True for a block behind another one, of which the same is to be said."""
    is_behind = (each.source, each.begin) == (last.source, last.end)
    are_frames = [one.row_with_frames is not None for one in (last, each)]
    return is_behind and each.columns == last.columns and are_frames[0] == are_frames[1]

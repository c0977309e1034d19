"""A step looks at the replay once: executed again with the rows that it saw, it does the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import counting_frames
import counting_rows
import numpy as np
import pytest
import torch
from kinds_of_rows import KINDS, Kind
from numpy.typing import NDArray
from played_sequences import SEQUENCE_KINDS, frames_shared

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.core.learning import draw_wait_reason, look_at
from vedette_rl.device.loader import CpuLoader, DeviceLoader, RingLoader
from vedette_rl.device.ring import DeviceRing, DeviceRings
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import PrioritizedSequences, UniformSequences
from vedette_rl.replay.frame_ring import MemoryFrameRing, open_reader, open_writer
from vedette_rl.replay.mixed import MixedReplay, Source
from vedette_rl.replay.mixed_sequences import MixedSequences
from vedette_rl.replay.prioritized import TD_ERROR, PrioritizedReplay
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.rows import MemoryRing, Rows, kept_of_guard
from vedette_rl.replay.uniform import UniformReplay

CAPACITY = 200
GUARD = 20_000  # nothing is overwritten, so that the same rows are there when it is done again
BATCH_ROWS = 9
STEPS = 60
BATCH_SIZE = 32


def with_td_errors(first: int, rows: int) -> Columns:
    """Rows whose actors computed errors."""
    errors = (1 + np.arange(first, first + rows) % 17).astype(np.float32)
    return {**counting_rows.rows(first, rows), TD_ERROR: errors}


ACTORS_ERRORS = KINDS["rows"]._replace(
    row=np.dtype([*counting_rows.DTYPE.descr, (TD_ERROR, "<f4")]), batch=with_td_errors
)
FRAMES = KINDS["frames"]._replace(
    shared=replace(counting_frames.SHARED, capacity=CAPACITY + 40, guard=GUARD)
)


class Growing:
    """The cursor of a ring into which some rows are inserted whenever it is read."""

    def __init__(self, kind: Kind, writer: RingWriter, rng: np.random.Generator) -> None:
        self.kind = kind
        self.writer = writer
        self.rng = rng

    def __getitem__(self, at: int) -> int:
        rows = int(self.rng.integers(0, BATCH_ROWS + 1))
        if rows:
            self.writer.append(self.kind.batch(self.writer.inserted, rows), rows)
            self.writer.commit()
        return self.writer.inserted


class Case(NamedTuple):
    """A replay, and how its batches come to the device."""

    kind: Kind
    config: ReplayConfig
    sources: int
    copied: bool = False


SEQUENCES = SEQUENCE_KINDS["rows"]
FRAMES_OF_SEQUENCES = SEQUENCE_KINDS["frames"]._replace(
    shared=frames_shared(2 * CAPACITY, 2 * GUARD)
)
DRAWN = ReplayConfig(sequence=5, burn_in=3)
DRAWN_BY_PRIORITY = ReplayConfig(sequence=5, burn_in=3, prioritized=True, beta_steps=STEPS)

BY_PRIORITY = ReplayConfig(prioritized=True, beta_steps=STEPS)
CASES = {
    "uniform": Case(KINDS["rows"], ReplayConfig(), 1),
    "by priority": Case(KINDS["rows"], BY_PRIORITY, 1),
    "by the priorities of actors": Case(
        ACTORS_ERRORS, BY_PRIORITY.model_copy(update={"initial_priorities": "actor"}), 1
    ),
    "two sources": Case(KINDS["rows"], ReplayConfig(), 2),
    "two sources by priority": Case(KINDS["rows"], BY_PRIORITY, 2),
    "frames": Case(FRAMES, ReplayConfig(), 1),
    "frames by priority": Case(FRAMES, BY_PRIORITY, 1),
    "frames of two sources": Case(FRAMES, ReplayConfig(), 2),
    "frames of two sources by priority": Case(FRAMES, BY_PRIORITY, 2),
    "copied": Case(KINDS["rows"], BY_PRIORITY, 1, copied=True),
    "copied frames": Case(FRAMES, ReplayConfig(), 1, copied=True),
    "copies of two sources": Case(KINDS["rows"], BY_PRIORITY, 2, copied=True),
    "copied frames of two sources": Case(FRAMES, BY_PRIORITY, 2, copied=True),
    "sequences": Case(SEQUENCES, DRAWN, 1),
    "sequences by priority": Case(SEQUENCES, DRAWN_BY_PRIORITY, 1),
    "sequences of two sources": Case(SEQUENCES, DRAWN, 2),
    "sequences of two sources by priority": Case(SEQUENCES, DRAWN_BY_PRIORITY, 2),
    "sequences of frames": Case(FRAMES_OF_SEQUENCES, DRAWN_BY_PRIORITY, 1),
    "copied sequences": Case(SEQUENCES, DRAWN_BY_PRIORITY, 1, copied=True),
    "copied sequences of two sources": Case(SEQUENCES, DRAWN, 2, copied=True),
    "copied sequences of frames of two sources": Case(
        FRAMES_OF_SEQUENCES, DRAWN_BY_PRIORITY, 2, copied=True
    ),
}


def replay_of(case: Case, readers: Sequence[Rows]) -> tuple[Any, DeviceLoader]:
    """The replay of these rings and its loader; a copy follows at every look."""
    rng = np.random.default_rng(7)
    by_priority = case.config.prioritized
    kind: Any = PrioritizedReplay if by_priority else UniformReplay
    first = {}
    if case.config.sequence:
        kind = PrioritizedSequences if by_priority else UniformSequences
        first = {"first": ("memory",)}
    drawn: list[Any] = [kind(reader, rng, case.config, **first) for reader in readers]
    replay: Any = drawn[0]
    if case.sources > 1:
        others = [Source("other", drawn[1], 0.3, grows=True)]
        mixed = MixedSequences if case.config.sequence else MixedReplay
        replay = mixed(drawn[0], others, warmup=CAPACITY // 2)
    if not case.copied:
        return replay, CpuLoader(replay, BATCH_SIZE, torch.device("cpu"))
    clock: Any = itertools.count().__next__
    device = torch.device("cpu")
    copies = DeviceRings(readers, device, clock=clock)
    copy = copies if case.sources > 1 else DeviceRing(readers[0], device, clock=clock)
    return replay, RingLoader(replay, copy, BATCH_SIZE)


def parts_of(replay: Any) -> list[Any]:
    return [s.replay for s in replay._sources] if isinstance(replay, MixedReplay) else [replay]


class Step(NamedTuple):
    """What a step saw, and what it did with it."""

    looks: list[tuple[int, ...]]
    """The rows inserted that each of its looks saw, by source."""
    done: dict[str, Any]


def do_step(replay: Any, loader: DeviceLoader, looks: Iterator[None]) -> Step:
    """Ask the limiter's and the sources' questions as often as there are looks, then draw."""
    seen = []
    for _ in looks:
        answer = [look_at(replay)]
        if isinstance(replay, MixedReplay):
            answer.append(replay.choose_sources(pretrains=False, offline=True))
        answer.append(draw_wait_reason(replay) == "")
        seen.append(tuple(part.live[1] for part in parts_of(replay)))
    loaded = loader.load()
    weights = None if loaded.weights is None else loaded.weights.numpy().copy()
    batch = {name: column.numpy().copy() for name, column in loaded.batch.items()}
    replay.update_priority(loaded.indices, 1.0 + (loaded.indices % 13))
    masses = [part.tree.leaves.copy() for part in parts_of(replay) if hasattr(part, "tree")]
    done = {
        "answer": np.array(answer),
        "live": np.array([part.live for part in parts_of(replay)]),
        "indices": loaded.indices.copy(),
        "weights": weights,
        "masses": np.concatenate(masses) if masses else None,
        **batch,
    }
    return Step(seen, done)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_step_is_a_function_of_the_rows_that_its_looks_saw(case: Case, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    places = [tmp_path / str(number) for number in range(case.sources)]
    with ExitStack() as opened:
        writers = []
        for place in places:
            kind = case.kind
            writer = open_writer(
                place,
                kind.row,
                CAPACITY,
                run_id="counting",
                guard=GUARD,
                batch_rows=BATCH_ROWS,
                shared=kind.shared,
            )
            opened.callback(writer.close)
            writers.append(writer)
        readers = [open_reader(place, batch_rows=BATCH_ROWS) for place in places]
        first_rows = 40 if case.config.sequence else 3  # of which one can be drawn
        begin = [first_rows, 0][: case.sources]  # the other source is empty for a while
        for writer, rows in zip(writers, begin, strict=True):
            if rows:
                writer.append(case.kind.batch(0, rows), rows)
                writer.commit()
        replay, loader = replay_of(case, readers)
        cursors = [Growing(case.kind, writer, rng) for writer in writers]
        for reader, cursor in zip(readers, cursors, strict=True):
            reader.use_cursor(cursor)
        first = []
        for _ in range(STEPS):
            waits = int(rng.integers(1, 3))
            first.append(do_step(replay, loader, iter([None] * waits)))
        assert writers[0].inserted > 2 * CAPACITY

        readers = [open_reader(place, batch_rows=BATCH_ROWS) for place in places]
        for reader, rows in zip(readers, begin, strict=True):
            reader.use_cursor([rows])
        replay, loader = replay_of(case, readers)

        def set_cursors(looks: list[tuple[int, ...]]) -> Iterator[None]:
            for look in looks:
                for reader, inserted in zip(readers, look, strict=True):
                    reader.use_cursor([inserted])
                yield

        for number, step in enumerate(first):
            again = do_step(replay, loader, set_cursors(step.looks))
            for name, value in step.done.items():
                np.testing.assert_array_equal(
                    again.done[name], value, err_msg=f"{name} of step {number}"
                )


class Overtaking(MemoryRing):
    """A ring into which rows are inserted whenever its rows have been copied."""

    bursts: tuple[int, ...] = ()

    def gather(self, places: NDArray[np.int64], out: Columns) -> None:
        super().gather(places, out)
        if self.bursts:
            burst, *rest = self.bursts
            counting_rows.insert(self, burst)
            self.bursts = tuple(rest)


DRAWN_IN_MEMORY = {
    name: case for name, case in CASES.items() if case.kind is KINDS["rows"] and not case.copied
}


@pytest.mark.parametrize("case", DRAWN_IN_MEMORY.values(), ids=DRAWN_IN_MEMORY)
def test_a_draw_that_is_dropped_for_doubt_is_as_if_it_had_not_been(case: Case) -> None:
    """Batches, masses and generators are those of the last look alone."""
    bursts = (150, 210, 170)

    def replay_and_ring() -> tuple[Any, Overtaking]:
        rings = [Overtaking(counting_rows.DTYPE, CAPACITY, guard=40) for _ in range(case.sources)]
        for ring in rings:
            counting_rows.insert(ring, CAPACITY)
        return replay_of(case, rings)[0], rings[0]

    doubting, ring = replay_and_ring()
    ring.bursts = bursts
    dropped = doubting.sample(200)
    assert not ring.bursts
    sure, ring = replay_and_ring()
    counting_rows.insert(ring, sum(bursts))
    expected = sure.sample(200)
    for _ in range(2):
        np.testing.assert_array_equal(dropped.indices, expected.indices)
        np.testing.assert_array_equal(dropped.weights, expected.weights)
        for name, column in expected.columns.items():
            np.testing.assert_array_equal(dropped.columns[name], column)
        for replay, sample in ((doubting, dropped), (sure, expected)):
            replay.update_priority(sample.indices, 1.0 + (sample.indices & 7))
        dropped, expected = doubting.sample(200), sure.sample(200)


@pytest.mark.parametrize("keep", [0, 700])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_writer_leaves_alone_what_readers_take_as_whole(
    kind: Kind, keep: int, tmp_path: Path
) -> None:
    """Whatever is appended, also where nothing of it is committed yet, and frames are the limit."""
    guard = 1200
    rng = np.random.default_rng(0)
    shared = kind.shared and replace(kind.shared, capacity=300, guard=guard, keep=keep)
    writer = open_writer(
        tmp_path,
        kind.row,
        300,
        run_id="counting",
        guard=guard,
        batch_rows=90,
        keep=keep,
        shared=shared,
    )
    assert writer.room == guard * 3 // 4 if shared is None else writer.room > 90
    reader = open_reader(tmp_path, batch_rows=90)
    kept = 0
    for _ in range(200):
        seen = reader.inserted
        oldest = reader.live()[0]
        while rows := min(writer.room, int(rng.integers(0, 91))):
            writer.append(kind.batch(writer.inserted + writer.pending, rows), rows)
        first = max(0, reader.doubtful_below(seen))
        numbers = np.arange(first, seen)
        columns = empty_columns(reader.drawn_dtype, len(numbers))
        reader.gather(numbers % len(next(iter(reader.columns.values()))), columns)
        kind.assert_rows(columns, numbers)
        kept = max(kept, oldest - first)
        writer.commit(kind.stamp(writer.inserted + writer.pending))
    assert writer.keep == guard // 4 + keep
    assert writer.inserted > 4 * (300 + guard)
    assert kept >= 200 + keep
    writer.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_as_many_rows_as_are_kept_may_be_inserted_during_a_copy(kind: Kind) -> None:
    """No row is in doubt, so nothing is drawn anew; with one more row all of that may be."""
    shared = kind.shared and replace(kind.shared, guard=4000)
    settings: dict[str, Any] = {"guard": 1200, "batch_rows": 90}
    ring: Any = (
        MemoryRing(kind.row, 300, **settings)
        if shared is None
        else MemoryFrameRing(kind.row, 300, shared, **settings)
    )

    def insert(rows: int) -> None:
        for _ in range(rows // 50):
            ring.append(kind.batch(ring.inserted, 50), 50)
            ring.commit()

    insert(900)
    replay = UniformReplay(ring, np.random.default_rng(0))
    replay.look()
    numbers = np.arange(*replay.live)
    insert(ring.keep)
    assert replay.is_whole(numbers)
    insert(50)
    assert not replay.is_whole(numbers)


@pytest.mark.parametrize("config", [ReplayConfig(), BY_PRIORITY], ids=["uniform", "by priority"])
def test_a_source_whose_first_rows_come_after_the_look_has_no_part_in_the_batch(
    config: ReplayConfig,
) -> None:
    rings = [MemoryRing(counting_rows.DTYPE, CAPACITY, guard=40) for _ in range(2)]
    counting_rows.insert(rings[0], CAPACITY)
    replay, _ = replay_of(Case(KINDS["rows"], config, 2), rings)
    replay.look()
    counting_rows.insert(rings[1], 10)
    assert not replay.sample(BATCH_SIZE).columns["source"].any()
    assert replay.sample(BATCH_SIZE).columns["source"].any()


def test_a_ring_whose_guard_is_one_batch_keeps_nothing() -> None:
    assert [kept_of_guard(4096, rows) for rows in (1, 3072, 4000, 4096, 5000)] == [
        1024,
        1024,
        96,
        0,
        0,
    ]
    assert kept_of_guard(4096, None) == 0


def test_a_first_priority_that_was_read_too_late_is_in_doubt() -> None:
    """Also where no row of the batch is: its mass would be of another row."""
    ring = MemoryRing(ACTORS_ERRORS.row, CAPACITY, guard=40)
    replay = PrioritizedReplay(
        ring, np.random.default_rng(0), CASES["by the priorities of actors"].config
    )

    def insert(rows: int) -> None:
        for _ in range(rows // 10):
            ring.append(with_td_errors(ring.inserted, 10), 10)
            ring.commit()

    insert(CAPACITY)
    replay.look()
    newest = np.arange(CAPACITY - 5, CAPACITY)
    insert(CAPACITY // 2)
    replay.add_new_rows()
    assert not replay.is_whole(newest)
    assert replay.is_whole(newest)  # what was read then is no part of the next draw


@pytest.mark.parametrize("case", DRAWN_IN_MEMORY.values(), ids=DRAWN_IN_MEMORY)
def test_what_networks_compute_from_begins_at_a_multiple_of_64_bytes(case: Case) -> None:
    """In numpy's own memory that is so by chance, and products of matrices may depend on it."""
    begins = set()
    for size in range(7, 40):
        rings = [MemoryRing(case.kind.row, CAPACITY) for _ in range(case.sources)]
        for ring in rings:
            ring.append(case.kind.batch(0, 90), 90)
            ring.commit()
        loaded = CpuLoader(replay_of(case, rings)[0], size, torch.device("cpu")).load()
        begins |= {tensor.data_ptr() % 64 for tensor in loaded.batch.values()}
        if loaded.weights is not None:
            begins.add(loaded.weights.data_ptr() % 64)
    assert begins == {0}


@pytest.mark.parametrize("case", DRAWN_IN_MEMORY.values(), ids=DRAWN_IN_MEMORY)
def test_a_sample_says_once_what_its_looks_saw(case: Case) -> None:
    rings = [Overtaking(counting_rows.DTYPE, CAPACITY, guard=40) for _ in range(case.sources)]
    for ring in rings:
        counting_rows.insert(ring, CAPACITY)
    replay, _ = replay_of(case, rings)
    assert [*replay.growing] == ["actors", "other"][: case.sources]
    rings[0].bursts = (150, 210)
    others = (CAPACITY,) * (case.sources - 1)
    replay.sample(200)
    seen = (CAPACITY, CAPACITY + 150, CAPACITY + 360)
    assert replay.drawn_looks() == [(rows, *others) for rows in seen]
    replay.sample(200)
    assert replay.drawn_looks() == [(CAPACITY + 360, *others)]

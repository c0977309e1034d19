"""Rows whose stacks share frames, against whole ones in a list."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_rest import live_columns
from counting_frames import (
    BATCH,
    CAPACITY,
    ROW,
    SHARED,
    STACK,
    STORED,
    assert_stacks,
    batch,
    open_ring,
    stamp,
)
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette_rl.core.columns import Columns
from vedette_rl.envs import Spaces, transition_dtype
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay.budget import replay_space
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.export import LiveRows
from vedette_rl.replay.frame_ring import (
    FrameAppender,
    FrameRingReader,
    FrameRingWriter,
    MemoryFrameRing,
    open_reader,
    whole_stacks,
)
from vedette_rl.replay.frame_stacks import frame_stack, make_frame_ring_spec, stored_row
from vedette_rl.replay.manifest import ColumnSpec, SharedSpec
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.rows import MemoryRing, Rows, default_guard
from vedette_rl.replay.uniform import UniformReplay

HERE = Path(__file__).parent
BATCHES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60), st.booleans()), max_size=60)


def shared_frames(shape: tuple[int, ...], capacity: int, guard: int) -> SharedSpec:
    return SharedSpec((ColumnSpec("frames", "|u1", shape),), capacity, guard)


def random_batch(rng: np.random.Generator, first: int, rows: int, frames: int) -> Columns:
    """Any rows on any frames."""
    frames = min(frames, 8 * rows)
    return {
        "obs": rng.integers(0, frames, (rows, 4), dtype=np.uint32),
        "action": np.arange(first, first + rows),
        "next_obs": rng.integers(0, frames, (rows, 4), dtype=np.uint32),
        "frames": rng.integers(0, 256, (frames, 5, 3), dtype=np.uint8),
    }


class Reference:
    """Every batch ever inserted, whole, and where its frames begin."""

    def __init__(self, capacity: int, frames_capacity: int) -> None:
        self._capacity = capacity
        self._frames_capacity = frames_capacity
        self._rows: list[dict[str, Any]] = []
        self._begins: list[int] = []
        self._frames = 0

    def insert(self, columns: Columns, rows: int) -> None:
        whole = whole_stacks(columns)
        self._rows += [{name: column[i] for name, column in whole.items()} for i in range(rows)]
        self._begins += [self._frames] * rows
        self._frames += len(columns["frames"])

    @property
    def oldest(self) -> int:
        """The first row that is within the capacity, and all its batch's frames too."""
        kept = self._frames - self._frames_capacity
        within = range(max(0, len(self._rows) - self._capacity), len(self._rows))
        return next((i for i in within if self._begins[i] >= kept), len(self._rows))

    def assert_equal(self, columns: Columns, numbers: Any) -> None:
        for name in ROW.names or ():
            expected = [self._rows[i][name] for i in numbers]
            np.testing.assert_array_equal(
                columns[name], np.array(expected).reshape(columns[name].shape), err_msg=name
            )


def insert(ring: FrameAppender, reference: Reference, batches: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows, frames, commits in batches:
        if ring.room < rows:
            ring.commit(b"")  # type: ignore[attr-defined]  # both rings have it
        columns = random_batch(rng, ring.inserted + ring.pending, rows, frames)
        ring.append(columns, rows)
        reference.insert(columns, rows)
        if commits:
            ring.commit(b"some")  # type: ignore[attr-defined]
    ring.commit(b"all")  # type: ignore[attr-defined]


def assert_same(rows: Rows, reference: Reference) -> None:
    oldest, inserted = rows.live()
    assert oldest == reference.oldest
    if inserted == oldest:
        return
    replay = UniformReplay(rows, np.random.default_rng(0))
    assert len(replay) == inserted - oldest
    for _ in range(3):
        sample = replay.sample(50)
        assert sample.indices.min() >= oldest
        reference.assert_equal(sample.columns, sample.indices)


@settings(max_examples=100)
@given(BATCHES, st.integers(1, 40), st.integers(100, 250), st.integers(0, 9))
def test_a_ring_in_memory_gives_back_every_live_stack(
    batches: list[tuple[int, int, bool]], capacity: int, frames_capacity: int, seed: int
) -> None:
    shared = shared_frames((5, 3), frames_capacity, 100)
    ring = MemoryFrameRing(STORED, capacity, shared, guard=15)
    reference = Reference(capacity, frames_capacity)
    insert(ring, reference, batches, seed)
    assert_same(ring, reference)


@settings(max_examples=8)
@given(BATCHES, BATCHES, st.integers(1, 40), st.integers(100, 250))
def test_a_ring_on_disk_goes_on_after_it_was_closed(
    before: list[tuple[int, int, bool]],
    after: list[tuple[int, int, bool]],
    capacity: int,
    frames_capacity: int,
) -> None:
    shared = shared_frames((5, 3), frames_capacity, 100)
    reference = Reference(capacity, frames_capacity)
    with tempfile.TemporaryDirectory() as place:
        for seed, batches in enumerate((before, after)):
            ring = FrameRingWriter.open(
                place, STORED, capacity, run_id="r", guard=15, shared=shared
            )
            insert(ring, reference, batches, seed)
            assert_same(FrameRingReader(place), reference)
            ring.close()
        columns = live_columns(place)
        numbers = range(reference.oldest, len(columns["action"]) + reference.oldest)
        assert columns["obs"].shape == (len(numbers), 4, 5, 3)
        reference.assert_equal(columns, numbers)


def test_pieces_of_an_export_are_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette_rl.replay.export.PIECE_BYTES", 60 * 7)
    ring = open_ring(tmp_path)
    ring.append(batch(0, 40), 40)
    ring.commit()
    ring.close()
    with LiveRows(tmp_path) as live:
        assert [len(piece) for piece in live.pieces("obs")] == [7, 7, 7, 7, 7, 5]
        assert live.names == ("obs", "action", "next_obs")
        assert_stacks({name: live.column(name) for name in live.names}, np.arange(40))


def test_rows_die_early_where_episodes_are_short_and_are_never_drawn_by_priority() -> None:
    shared = shared_frames((5, 3), 200, 100)
    ring = MemoryFrameRing(STORED, 100, shared, guard=20)
    reference = Reference(100, 200)
    insert(ring, reference, [(10, 80, True)] * 9, 0)
    assert ring.live() == (70, 90)
    replay = PrioritizedReplay(ring, np.random.default_rng(0), ReplayConfig(prioritized=True))
    assert len(replay) == 20
    for _ in range(20):
        sample = replay.sample(32)
        assert sample.indices.min() >= 70
        reference.assert_equal(sample.columns, sample.indices)
        replay.update_priority(np.arange(60, 92) % 90, np.ones(32))
        insert(ring, reference, [(3, 20, True)], 1)
        assert replay.sample(64).indices.min() >= ring.live()[0]


def test_a_plain_ring_and_one_of_frames_draw_the_same() -> None:
    plain_row = np.dtype([(name, ROW[name]) for name in ROW.names or ()])
    shared = make_frame_ring_spec(STACK, 100, guard=50, extra_frames=4, rows_per_batch=10)
    framed = MemoryFrameRing(STORED, 100, shared, guard=50)
    plain = MemoryRing(plain_row, 100)
    for first in range(0, 300, 10):
        columns = batch(first, 10)
        framed.append(columns, 10)
        plain.append(whole_stacks(columns), 10)
        framed.commit()
        plain.commit()
    one, other = (UniformReplay(rows, np.random.default_rng(5)) for rows in (framed, plain))
    assert framed.drawn_dtype == plain.drawn_dtype
    for _ in range(5):
        first, second = one.sample(40), other.sample(40)
        np.testing.assert_array_equal(first.indices, second.indices)
        for name, column in second.columns.items():
            np.testing.assert_array_equal(first.columns[name], column)


def test_a_batch_that_is_refused_leaves_nothing_behind() -> None:
    ring = MemoryFrameRing(STORED, 50, SHARED, guard=30)
    ring.append(batch(0, 5), 5)
    with pytest.raises(ValueError, match="places beyond its 8 frames"):
        ring.append({**batch(5, 5), "frames": batch(5, 5)["frames"][:8]}, 5)
    with pytest.raises(ValueError, match="frames are float32"):
        ring.append({**batch(5, 5), "frames": np.zeros((9, 5, 3), np.float32)}, 5)
    with pytest.raises(ValueError, match="rows are appended where"):
        ring.append(batch(5, 31), 31)
    ring.append(batch(5, 5), 5)
    ring.commit()
    sample = UniformReplay(ring, np.random.default_rng(0)).sample(20)
    assert_stacks(sample.columns, sample.indices)


def test_what_differs_from_the_replay_that_is_there_is_named(tmp_path: Path) -> None:
    open_ring(tmp_path).close()
    with pytest.raises(ReplayFormatError, match="has 'frames' apart from its rows"):
        RingWriter.open(tmp_path, STORED, CAPACITY, run_id="counting")
    for change, words in (
        (shared_frames((5, 4), 10, 10), r"\(5, 3\), not uint8 \(5, 4\)"),
        (shared_frames((5, 3), 10, 10_000), "room for .* of 'frames' before a commit"),
    ):
        with pytest.raises(ReplayFormatError, match=words):
            FrameRingWriter.open(tmp_path, STORED, CAPACITY, run_id="counting", shared=change)
    fewer = shared_frames((5, 3), 10, 10)  # it keeps what it was made with
    ring = FrameRingWriter.open(tmp_path, STORED, CAPACITY, run_id="counting", shared=fewer)
    assert ring.frames_capacity == SHARED.capacity
    ring.close()


def test_a_replay_without_frames_is_no_ring_of_frames(tmp_path: Path) -> None:
    RingWriter.open(tmp_path, ROW, 10, run_id="r").close()
    assert type(open_reader(tmp_path)).__name__ == "RingReader"
    with pytest.raises(ReplayFormatError, match="stores observations whole"):
        FrameRingReader(tmp_path)


def test_a_million_atari_transitions_take_less_than_eight_and_a_half_gigabytes() -> None:
    spaces = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(18), stack=4)
    frames = frame_stack(ReplayConfig(), spaces)
    assert frames is not None
    stored = stored_row(transition_dtype(spaces), frames)
    guard = default_guard(1_000_000, stored.itemsize + frames.frame_bytes)
    shared = make_frame_ring_spec(
        frames, 1_000_000, guard=guard, extra_frames=8 * 6, rows_per_batch=600
    )
    need = replay_space(stored, 1_000_000, prioritized=True, guard=guard, shared=shared)
    assert 7.5e9 < need.total_bytes < 8.5e9


CAMERA = Box(0, 255, (48, 48, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "stack", "storage", "is_stored_once"),
    [
        (Box(0, 255, (4, 84, 84), np.uint8), 4, "auto", True),
        (Box(0, 255, (4, 84, 84, 3), np.uint8), 4, "auto", True),
        (Box(0, 255, (4, 84, 84), np.uint8), 4, "plain", False),
        (Box(0, 255, (4, 6, 6), np.uint8), 4, "auto", True),
        (Box(0, 255, (3, 84, 84), np.uint8), 0, "auto", True),
        (Dict(a=CAMERA, b=CAMERA, c=Box(-1, 1, (7,), np.float32)), 0, "auto", True),
        (Dict(a=CAMERA, b=CAMERA, c=Box(-1, 1, (7,), np.float32)), 0, "plain", False),
        (Box(-1, 1, (4, 3), np.float32), 4, "auto", False),
        (Box(-1, 1, (4, 3), np.float32), 4, "once", True),
        (Box(-1, 1, (17,), np.float32), 0, "auto", False),
        (Box(-1, 1, (17,), np.float32), 0, "once", True),
        (Box(-1, 1, (1023,), np.float32), 0, "auto", False),
        (Box(-1, 1, (1024,), np.float32), 0, "auto", True),
        (Discrete(500), 0, "once", True),
    ],
)
def test_large_observations_and_stacked_images_are_stored_once(
    space: Any, stack: int, storage: Any, is_stored_once: bool
) -> None:
    found = frame_stack(ReplayConfig(frame_storage=storage), Spaces(space, Discrete(2), stack))
    assert (found is not None) == is_stored_once
    if found is not None and stack:
        assert (found.stack, *found.parts[0].shape) == space.shape
    elif found is not None:
        assert found.stack == 1
        assert found.frame_bytes == 0 + sum(
            leaf.dtype.itemsize * int(np.prod(leaf.shape)) for leaf in observation_columns(space)
        )


# A writer in another process


def test_kills_at_any_moment_leave_rows_and_frames_whole(
    tmp_path: Path, start_counting: "Callable[[Path], subprocess.Popen[str]]"
) -> None:
    chance = np.random.default_rng(0)
    inserted = 0
    for _ in range(5):
        child = start_counting(tmp_path)
        assert child.stdout is not None
        assert int(child.stdout.readline()) == inserted
        time.sleep(chance.uniform(0.0, 0.05))
        child.kill()
        child.wait(timeout=10)
        ring = open_ring(tmp_path)
        assert ring.stamp == (stamp(ring.inserted) if ring.inserted else b"")
        assert ring.inserted >= inserted
        inserted = ring.inserted
        ring._held.close()  # let go without the care of a close
        columns = live_columns(tmp_path)
        assert_stacks(columns, np.arange(inserted - len(columns["action"]), inserted))
    assert inserted > CAPACITY


def test_a_writer_at_full_speed_never_tears_a_stack(
    tmp_path: Path, start_counting: "Callable[[Path, int], subprocess.Popen[str]]"
) -> None:
    child = start_counting(tmp_path, 8192)
    assert child.stdout is not None
    assert child.stdout.readline() == "0\n"
    ring = open_reader(tmp_path, batch_rows=BATCH)
    uniform = UniformReplay(ring, np.random.default_rng(0))
    prioritized = PrioritizedReplay(
        ring, np.random.default_rng(1), ReplayConfig(), memory=open_priorities(ring)
    )
    until = time.monotonic() + 30
    while not ring.inserted and time.monotonic() < until:
        time.sleep(0.001)
    until = time.monotonic() + 2.0
    samples = 0
    while time.monotonic() < until:
        for replay in (uniform, prioritized):
            sample = replay.sample(64)
            assert_stacks(sample.columns, sample.indices)
        samples += 1
    assert child.poll() is None
    assert samples > 50
    assert ring.inserted > 20 * CAPACITY

"""Batches of several sources: their parts, their rows, and their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_rows import BATCH, DTYPE, StartInserting, assert_rows, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vedette_rl.core import ReplayBuffer, Sample
from vedette_rl.core.columns import empty_columns
from vedette_rl.core.protocols import implements
from vedette_rl.errors import EmptyReplayError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import MemoryFrameRing
from vedette_rl.replay.frame_stacks import FramePart, FrameStack, stored_row
from vedette_rl.replay.manifest import ColumnSpec, SharedSpec
from vedette_rl.replay.mixed import NUMBER_BITS, MixedReplay, Source
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing, Rows
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.settings.stored import ScheduleConfig

BY_PRIORITY = ReplayConfig(
    prioritized=True, alpha=1.0, beta_0=1.0, beta_final=1.0, priority_epsilon=1e-9
)
Ring = MemoryRing | RingWriter


def filled(ring: Ring, count: int, first: int = 0) -> Ring:
    for begin in range(0, count, 20):
        some = min(20, count - begin)
        ring.append(rows(first + begin, some), some)
        ring.commit()
    return ring


def memory(count: int, first: int = 0) -> MemoryRing:
    ring = MemoryRing(DTYPE, 100, guard=20)
    filled(ring, count, first)
    return ring


def on_disk(place: Path, count: int, capacity: int = 100, first: int = 0) -> RingWriter:
    ring = RingWriter.open(place, DTYPE, capacity, run_id="r", guard=20)
    filled(ring, count, first)
    return ring


def drawn(ring: Rows, rng: np.random.Generator, config: ReplayConfig) -> Any:
    if not config.prioritized:
        return UniformReplay(ring, rng)
    stored = open_priorities(ring) if isinstance(ring, RingReader) else None
    return PrioritizedReplay(ring, rng, config, memory=stored)


def mixed(
    *rings: Rows,
    shares: tuple[float, ...] = (0.5,),
    config: ReplayConfig | None = None,
    grows: bool = False,
    warmup: int = 1,
    **more: Any,
) -> MixedReplay:
    config = config or ReplayConfig()
    rng = np.random.default_rng(0)
    others = [
        Source(f"s{i}", drawn(ring, rng, config), share, grows=grows, **more)
        for i, (ring, share) in enumerate(zip(rings[1:], shares, strict=True))
    ]
    return MixedReplay(drawn(rings[0], rng, config), others, warmup=warmup)


def counted(sample: Sample, sources: int) -> NDArray[Any]:
    return np.bincount(sample.columns["source"], minlength=sources)


def assert_own_rows(sample: Sample, firsts: tuple[int, ...]) -> None:
    """Each row is the one of its number in its own source, whose rows begin at one of `firsts`."""
    sources = sample.indices >> NUMBER_BITS
    numbers = sample.indices & ((1 << NUMBER_BITS) - 1)
    np.testing.assert_array_equal(sources, sample.columns["source"])
    columns = {name: column for name, column in sample.columns.items() if name != "source"}
    assert_rows(columns, numbers + np.array(firsts)[sources])


def test_it_is_a_replay_buffer_whose_inserted_rows_are_the_actors() -> None:
    replay = mixed(memory(130), memory(40))
    assert implements(replay, ReplayBuffer)
    assert (len(replay), replay.inserted) == (140, 130)


@settings(max_examples=40, deadline=None)
@given(
    shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
    batch_size=st.integers(1, 97),
    batches=st.integers(1, 60),
)
def test_the_parts_of_a_batch_are_the_shares_exactly_over_many(
    shares: list[float], batch_size: int, batches: int
) -> None:
    scale = max(1.0, sum(shares))
    wanted = [share / scale for share in shares]
    replay = mixed(memory(50), *(memory(20) for _ in wanted), shares=tuple(wanted))
    total = np.zeros(len(wanted) + 1)
    expected = batch_size * np.array([max(0.0, 1.0 - sum(wanted)), *wanted])
    for _ in range(batches):
        of_sources = counted(replay.sample(batch_size), len(total))
        assert of_sources.sum() == batch_size
        assert (np.abs(of_sources - expected) <= 1.0 + 1e-6).all()
        total += of_sources
    # the multiples of the golden ratio: a discrepancy of log T at each of a part's two borders
    assert (np.abs(total - batches * expected) <= 2 * (2.0 + np.log2(batches))).all()


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("inserted", [1, 99, 100, 119, 121, 240, 777])
@pytest.mark.parametrize("disk", [False, True])
def test_rows_are_live_ones_of_their_own_source_wherever_the_rings_wrap(
    tmp_path: Path, inserted: int, disk: bool, grows: bool
) -> None:
    if disk:  # one array for each column spans all rings
        for name, count in (("a", inserted), ("b", 37), ("c", 100)):
            first = {"a": 0, "b": 5000, "c": 90_000}[name]
            on_disk(tmp_path / name, count, first=first).close()
        rings: list[Rows] = [RingReader(tmp_path / name) for name in "abc"]
    else:
        rings = [memory(inserted), memory(37, first=5000), memory(100, first=90_000)]
    replay = mixed(*rings, shares=(0.3, 0.45), grows=grows)
    assert (replay._joined is not None) == disk
    for batch_size in (1, 7, 64, 300):
        sample = replay.sample(batch_size)
        assert_own_rows(sample, (0, 5000, 90_000))
        of_actors = sample.indices[sample.columns["source"] == 0]
        assert (of_actors >= max(0, inserted - 100)).all()
        assert (of_actors < inserted).all()


def test_every_row_of_a_source_is_as_likely(tmp_path: Path) -> None:
    for name, count in (("a", 50), ("b", 10)):
        on_disk(tmp_path / name, count).close()
    replay = mixed(RingReader(tmp_path / "a"), RingReader(tmp_path / "b"), shares=(0.25,))
    found = np.concatenate([replay.sample(64).indices for _ in range(2000)])
    counts = np.bincount(np.where(found >> NUMBER_BITS, 50 + (found & 63), found), minlength=60)
    np.testing.assert_allclose(counts[:50], 2000 * 48 / 50, rtol=0.15)
    np.testing.assert_allclose(counts[50:], 2000 * 16 / 10, rtol=0.1)


def test_a_source_without_rows_leaves_its_share_to_the_others() -> None:
    growing = MemoryRing(DTYPE, 100, guard=20)
    replay = mixed(memory(50), memory(20), growing, shares=(0.5, 0.25), grows=True)
    np.testing.assert_array_equal(counted(replay.sample(60), 3), [20, 40, 0])
    filled(growing, 1)
    np.testing.assert_array_equal(counted(replay.sample(60), 3), [15, 30, 15])


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0.01, 0.99), other=st.floats(0.01, 0.99), batch_size=st.integers(1, 300))
def test_a_last_source_without_rows_gives_none_whatever_rounding_does(
    share: float, other: float, batch_size: int
) -> None:
    """With shares of 0.3 and 0.1 a batch of 256 had one row of it, all zeros."""
    empty = MemoryRing(DTYPE, 100, guard=20)
    replay = mixed(memory(50), memory(20), empty, shares=(share, other), config=BY_PRIORITY)
    for _ in range(3):
        assert counted(replay.sample(batch_size), 3)[2] == 0


def test_actors_take_part_once_they_are_warm() -> None:
    actors = memory(9)
    replay = mixed(actors, memory(20), warmup=10)
    assert counted(replay.sample(8), 2).tolist() == [0, 8]
    filled(actors, 1, first=9)
    assert counted(replay.sample(8), 2).tolist() == [4, 4]


def test_sources_are_drawn_from_alone_where_that_is_asked() -> None:
    replay = mixed(memory(50), memory(20), memory(10), shares=(0.25, 0.5))
    replay.sources_only = True
    assert counted(replay.sample(12), 3).tolist() == [0, 4, 8]
    replay.sources_only = False
    assert counted(replay.sample(12), 3).tolist() == [3, 3, 6]


def test_actors_are_drawn_from_where_no_source_has_rows() -> None:
    replay = mixed(memory(50), MemoryRing(DTYPE, 10, guard=5), grows=True)
    replay.sources_only = True
    assert counted(replay.sample(12), 2).tolist() == [12, 0]


def test_no_rows_at_all_are_refused() -> None:
    with pytest.raises(EmptyReplayError):
        mixed(*(MemoryRing(DTYPE, 10, guard=5) for _ in range(2))).sample(4)


def test_a_share_follows_its_schedule() -> None:
    schedule = ScheduleConfig(kind="linear", total_opts=4, final=0.0)
    replay = mixed(memory(50), memory(20), shares=(1.0,), schedule=schedule)
    parts = [counted(replay.sample(100), 2)[1] for _ in range(6)]
    np.testing.assert_allclose(parts, [75, 50, 25, 0, 0, 0], atol=1)


def test_the_shares_drawn_are_told_since_they_were_last_told() -> None:
    replay = mixed(memory(50), memory(20), shares=(0.25,))
    replay.sample(8)
    assert replay.stats() == {"share_actors": 0.75, "share_s0": 0.25}
    replay.sources_only = True
    replay.sample(8)
    assert replay.stats() == {"share_actors": 0.0, "share_s0": 1.0}


@pytest.mark.parametrize("config", [ReplayConfig(), BY_PRIORITY])
def test_a_resumed_replay_draws_as_if_nothing_had_happened(config: ReplayConfig) -> None:
    rings = memory(120), memory(30), memory(20)

    def made() -> MixedReplay:
        return mixed(*rings, shares=(0.3, 0.21), config=config)

    one = made()
    for _ in range(5):
        one.sample(17)
    state = one.get_state()
    expected = [one.sample(17).indices.copy() for _ in range(4)]
    again = made()
    again.set_state(state)
    for indices in expected:
        np.testing.assert_array_equal(again.sample(17).indices, indices)


def test_a_run_goes_on_with_a_source_more_or_less() -> None:
    actors = memory(50)
    alone = UniformReplay(actors, np.random.default_rng(3))
    replay = mixed(actors, memory(20))
    replay.set_state(alone.get_state())
    replay.sample(8)
    alone.set_state(replay.get_state())
    assert alone.rng.bit_generator.state == replay.actors.rng.bit_generator.state


# By priority


def test_the_schedule_of_beta_goes_on_with_the_first_source_of_a_run() -> None:
    config = ReplayConfig(prioritized=True, beta_steps=100)
    alone = drawn(memory(50), np.random.default_rng(0), config)
    for _ in range(60):
        alone.sample(8)
    replay = mixed(memory(50), memory(20), config=config)
    replay.set_state(alone.get_state())
    assert replay.actors.beta == alone.beta > config.beta_0
    replay.sample(8)
    alone.sample(8)
    assert replay.actors.beta == alone.beta
    assert replay.get_state()["draws"] == alone.get_state()["draws"] == 61


def test_rows_are_drawn_by_priority_inside_each_source() -> None:
    replay = mixed(memory(2), memory(4), config=BY_PRIORITY, shares=(0.5,))
    first = replay.sample(40)
    errors = np.where(first.columns["source"] == 0, 1.0, 1.0 + (first.indices & 255))
    replay.update_priority(first.indices, errors)
    found = np.concatenate([replay.sample(40).indices for _ in range(500)])
    of_demos = found[found >> NUMBER_BITS == 1] & 255
    assert len(of_demos) == 20 * 500
    counts = np.bincount(of_demos, minlength=4)
    np.testing.assert_allclose(counts / counts.sum(), np.array([1, 2, 3, 4]) / 10, atol=0.02)
    of_actors = found[found >> NUMBER_BITS == 0]
    np.testing.assert_allclose(np.bincount(of_actors), 5000, rtol=0.05)


def test_priorities_go_to_the_rows_drawn_a_batch_before_too() -> None:
    replay = mixed(memory(3), memory(3), config=BY_PRIORITY)
    first = replay.sample(60)
    indices = first.indices.copy()
    replay.sample(60)
    replay.update_priority(indices, np.where(indices >> NUMBER_BITS, 7.0, 1.0) + (indices & 255))
    of_actors, of_demos = (source.replay for source in replay._sources)
    assert isinstance(of_actors, PrioritizedReplay)
    assert isinstance(of_demos, PrioritizedReplay)
    np.testing.assert_allclose(of_actors.tree.leaves[:3], [1, 2, 3], atol=1e-6)
    np.testing.assert_allclose(of_demos.tree.leaves[:3], [7, 8, 9], atol=1e-6)


def test_rows_overwritten_since_they_were_drawn_keep_the_priority_of_the_new_ones() -> None:
    actors = memory(100)
    replay = mixed(actors, memory(30), config=BY_PRIORITY)
    sample = replay.sample(200)
    drawn_ = sample.indices[sample.columns["source"] == 0]
    filled(actors, 40, first=100)  # over the rows [0, 40)
    replay.look()
    replay.update_priority(sample.indices, np.full(200, 5.0))
    assert isinstance(replay.actors, PrioritizedReplay)
    leaves = replay.actors.tree.leaves
    # the new ones have the largest priority seen, which this very call made 5
    np.testing.assert_allclose(leaves[:40], 5.0)
    alive = np.unique(drawn_[drawn_ >= 40])
    np.testing.assert_allclose(leaves[alive], 5.0)
    others = np.setdiff1d(np.arange(40, 100), alive)
    np.testing.assert_allclose(leaves[others], 1.0)
    replay.update_priority(sample.indices.copy(), np.full(200, 2.0))
    np.testing.assert_allclose(leaves[:40], 5.0)
    np.testing.assert_allclose(leaves[alive], 2.0)


def test_rows_whose_frames_were_overwritten_get_no_priority() -> None:
    """Episodes so short that the frames are the limit: rows leave before their own ring is full."""
    frames = FrameStack(1, (FramePart("", np.dtype("<f4"), (1,)),))
    plain = np.dtype([("obs", "<f4", (1,)), ("reward", "<f4"), ("next_obs", "<f4", (1,))])
    shared = SharedSpec((ColumnSpec("frames", "<f4", (1,)),), 120, 40)
    ring = MemoryFrameRing(stored_row(plain, frames), 100, shared, guard=20)

    def insert(first: int, count: int) -> None:
        for number in range(first, first + count):
            two = np.array([[number], [number + 0.5]], np.float32)
            places = {"obs": np.uint32([0]), "next_obs": np.uint32([1]), "frames": two}
            ring.append({**places, "reward": np.float32([number])}, 1)
        ring.commit()

    demos = MemoryRing(plain, 10, guard=5)
    demos.append(empty_columns(plain, 5), 5)
    demos.commit()
    replay = mixed(ring, demos, shares=(0.25,), config=BY_PRIORITY)
    insert(0, 20)
    insert(20, 20)
    sample = replay.sample(32)
    for first in (40, 60, 80):
        insert(first, 20)
    replay.look()
    assert ring.live()[0] > 20
    replay.update_priority(sample.indices.copy(), np.full(32, 5.0, np.float32))
    for _ in range(20):
        columns = replay.sample(32).columns
        of_actors = columns["source"] == 0
        np.testing.assert_array_equal(columns["obs"][of_actors, 0], columns["reward"][of_actors])


def test_a_source_whose_rows_were_overwritten_is_drawn_from_where_they_lie() -> None:
    for config in (ReplayConfig(), BY_PRIORITY):
        replay = mixed(memory(50), memory(333, first=7000), config=config)
        for _ in range(5):
            sample = replay.sample(64)
            assert_own_rows(sample, (0, 7000))
            replay.update_priority(sample.indices, np.linspace(0.1, 2.0, 64))


def test_weights_make_each_source_uniform_and_leave_the_shares_as_they_are() -> None:
    """Against the mean over q(i) = share_s / N_s, computed in plain numpy."""
    share = 0.25
    sizes = (5, 8)
    replay = mixed(*(memory(n) for n in sizes), shares=(share,), config=BY_PRIORITY)
    rng = np.random.default_rng(7)
    priorities = [rng.uniform(0.2, 5.0, n) for n in sizes]
    values = [rng.normal(3.0 * s, 1.0, n) for s, n in enumerate(sizes)]
    for number, given_ in enumerate(priorities):
        indices = np.arange(len(given_)) + (number << NUMBER_BITS)
        replay.update_priority(indices, given_)
    total = 0.0
    weight_sum = 0.0
    parts = np.zeros(2)
    for _ in range(3000):
        sample = replay.sample(64)
        assert sample.weights is not None
        assert sample.weights.max() == 1.0
        source = sample.indices >> NUMBER_BITS
        row = sample.indices & 255
        # undo the largest of the batch, which is another in each
        relative = np.concatenate([len(p) * p / p.sum() for p in priorities])
        lowest = relative[np.where(source, 5, 0) + row].min()
        weights = sample.weights / lowest
        found = np.where(source, values[1][row % 8], values[0][row % 5])
        total += float((weights * found).sum())
        weight_sum += float(weights.sum())
        parts += [weights[source == 0].sum(), weights[source == 1].sum()]
    expected = (1 - share) * values[0].mean() + share * values[1].mean()
    assert total / weight_sum == pytest.approx(expected, abs=0.02)
    np.testing.assert_allclose(parts / parts.sum(), [1 - share, share], atol=0.01)


def test_one_weighs_as_many() -> None:
    """With all of a batch from one source, weights are those of `PrioritizedReplay`."""
    ring = memory(30)
    plain = PrioritizedReplay(ring, np.random.default_rng(5), BY_PRIORITY)
    replay = mixed(ring, memory(10), shares=(0.0,), config=BY_PRIORITY)
    errors = np.linspace(0.1, 2.0, 30)
    plain.update_priority(np.arange(30), errors)
    replay.update_priority(np.arange(30), errors)
    replay.actors.rng.bit_generator.state = plain.rng.bit_generator.state
    expected, found = plain.sample(64), replay.sample(64)
    assert expected.weights is not None
    assert found.weights is not None
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)


@pytest.mark.parametrize("capacity", [5, 600, 150_000])
def test_priorities_of_all_sources_survive_their_process(tmp_path: Path, capacity: int) -> None:
    places = tmp_path / "a", tmp_path / "b"
    for place, size in zip(places, (capacity, 5), strict=True):
        on_disk(place, 5, capacity=size).close()

    def made() -> MixedReplay:
        return mixed(*map(RingReader, places), config=BY_PRIORITY)

    indices = np.concatenate([[0, 3], np.arange(4) + (1 << NUMBER_BITS)])
    first = made()
    first.sample(10)
    first.update_priority(indices, np.array([2.0, 5.0, 1.0, 2.0, 3.0, 4.0]))
    again = made()
    for number, expected in enumerate(([2, 1, 1, 5, 1], [1, 2, 3, 4, 1])):
        replay = again._sources[number].replay
        assert isinstance(replay, PrioritizedReplay)
        np.testing.assert_allclose(replay.tree.leaves[:5], expected, atol=1e-6)
        assert replay.tree.total == pytest.approx(sum(expected), abs=1e-6)
    drawn_rows = np.concatenate([again.sample(100).indices for _ in range(20)])
    for number, expected in enumerate(([2, 1, 1, 5, 1], [1, 2, 3, 4, 1])):
        mine = drawn_rows[drawn_rows >> NUMBER_BITS == number] - (number << NUMBER_BITS)
        shares = np.bincount(mine, minlength=5) / len(mine)
        np.testing.assert_allclose(shares, np.array(expected) / sum(expected), atol=0.02)


# Beside a writer


@pytest.mark.slow
def test_rows_are_whole_while_actors_insert(
    tmp_path: Path, start_inserting: StartInserting
) -> None:
    child = start_inserting(tmp_path / "a", 500, 8192)
    assert child.stdout is not None
    child.stdout.readline()
    on_disk(tmp_path / "b", 100, first=7000).close()
    replay = mixed(RingReader(tmp_path / "a", batch_rows=BATCH), RingReader(tmp_path / "b"))
    while replay.inserted < 500:
        pass
    for _ in range(3000):
        assert_own_rows(replay.sample(64), (0, 7000))
    assert replay.inserted > 5000


@pytest.mark.parametrize("error", [np.nan, np.inf, 1e38])
def test_an_error_that_no_gradient_has_counts_as_none_in_any_source(error: float) -> None:
    """As `PrioritizedReplay` has it; it ended the training."""
    replay = mixed(memory(50), memory(50, 1000), config=BY_PRIORITY)
    indices = replay.sample(20).indices
    replay.update_priority(indices, np.full(20, error, np.float32))
    for part in replay.replays:
        assert isinstance(part, PrioritizedReplay)
        assert np.isfinite(part.tree.leaves).all()
        assert part.stats()["max_priority"] == 1.0
    replay.sample(20)

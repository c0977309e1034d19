"""Sequences are drawn as a search over the live rows finds them, uniformly or by priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_sequences import (
    BURN_IN,
    GUARD,
    STEPS,
    Model,
    Row,
    histories,
    insert,
    new_ring,
    obs_of,
    plays,
    steps_from,
)

from vedette_rl.core.learning import Sample
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import PrioritizedSequences, UniformSequences
from vedette_rl.replay.rows import MemoryRing

L = STEPS + BURN_IN
CONFIG = ReplayConfig(sequence=STEPS, burn_in=BURN_IN, capacity=100)
BY_PRIORITY = CONFIG.model_copy(update={"prioritized": True, "alpha": 0.5, "beta_0": 1.0})
FIRST = ("memory",)

Replay = UniformSequences | PrioritizedSequences


def uniform(ring: MemoryRing, seed: int = 0) -> UniformSequences:
    return UniformSequences(ring, np.random.default_rng(seed), CONFIG, first=FIRST)


def by_priority(
    ring: MemoryRing, seed: int = 0, config: ReplayConfig = BY_PRIORITY, **memory: Any
) -> PrioritizedSequences:
    return PrioritizedSequences(ring, np.random.default_rng(seed), config, first=FIRST, **memory)


def made(ring: MemoryRing, prioritized: bool) -> Replay:
    return by_priority(ring) if prioritized else uniform(ring)


class Played:
    """A ring, the model of its rows, and replays that draw from it."""

    def __init__(self, capacity: int, *, once: bool = False) -> None:
        self.ring = new_ring(capacity, once=once)
        self.ring.branch = "one"
        self.model = Model()

    def insert(self, *rows: Row) -> None:
        insert(self.ring, rows)
        self.model.rows += rows

    def complete(self, live: tuple[int, int] | None = None) -> dict[int, tuple[list[int], int]]:
        return self.model.complete(*(live or self.ring.live()))

    def assert_drawn(self, sample: Sample, live: tuple[int, int]) -> None:
        """Every column of a sample is that of the sequences that its indices name."""
        complete = self.complete(live)
        for row, number in enumerate(sample.indices.tolist()):
            burned = self.model.burned(number, *live)
            window, _ = complete[number]
            numbers = burned + window
            padded = np.array(numbers + [numbers[-1]] * (L - len(numbers)))
            rows = [self.model.rows[n] for n in padded]
            streams = np.array([r.stream for r in rows])
            time = np.array([r.t for r in rows])
            got = {name: column[row] for name, column in sample.columns.items()}
            assert (got["burned"], got["length"]) == (len(burned), len(window))
            learned = [len(burned) <= k < len(numbers) for k in range(L)]
            np.testing.assert_array_equal(got["learned"], learned)
            obs = obs_of(streams, time)
            np.testing.assert_array_equal(got["obs"][: len(numbers)], obs[: len(numbers)])
            behind = obs_of(streams[-1:], time[-1:] + 1)[0]
            np.testing.assert_array_equal(got["obs"][len(numbers)], behind)
            np.testing.assert_array_equal(got["obs"][len(numbers) + 1 :], obs[len(numbers) :])
            np.testing.assert_array_equal(got["reward"], padded)
            np.testing.assert_array_equal(got["version"], padded)
            np.testing.assert_array_equal(got["memory"], np.full(3, padded[0]))
            np.testing.assert_array_equal(got["begins"], [r.begins for r in rows])
            np.testing.assert_array_equal(got["t"], time)


def history(draw_from: Sequence[Row], capacity: int, *, once: bool = False) -> Played:
    played = Played(capacity, once=once)
    played.insert(*draw_from)
    return played


# By example


def test_a_batch_has_the_shapes_that_agents_are_told() -> None:
    played = history(steps_from(0, 12), 20)
    sample = uniform(played.ring).sample(7)
    shapes = {name: column.shape for name, column in sample.columns.items()}
    assert shapes == {
        "obs": (7, L + 1, 2),
        "reward": (7, L),
        "memory": (7, 3),
        **dict.fromkeys(("env", "t", "begins", "terminated", "truncated"), (7, L)),
        **dict.fromkeys(("version", "manager", "actor", "learned"), (7, L)),
        "burned": (7,),
        "length": (7,),
    }
    assert sample.indices.shape == (7,)
    assert sample.weights is None
    weights = by_priority(played.ring).sample(7).weights
    assert weights is not None
    assert weights.shape == (7,)


@pytest.mark.parametrize("prioritized", [False, True])
def test_nothing_is_drawn_where_no_sequence_is_whole(prioritized: bool) -> None:
    played = Played(20)
    replay = made(played.ring, prioritized)
    with pytest.raises(EmptyReplayError, match="3 steps"):
        replay.sample(1)
    played.insert(*steps_from(0, 2))
    replay.look()
    assert replay.wait_reason() == (
        "learner waits: none of 2 samples begins a whole sequence of 3 steps (replay.sequence)"
    )
    with pytest.raises(EmptyReplayError):
        replay.sample(1)
    played.insert(*steps_from(2, 1))
    assert replay.wait_reason()  # which is of the last look
    replay.look()
    assert replay.wait_reason() == ""
    assert replay.sample(4).indices.tolist() == [0] * 4


def test_a_ring_too_small_for_its_environments_is_named() -> None:
    played = Played(6)
    for stream in range(12):
        played.insert(*steps_from(0, 1, (0, 0, stream)))
    replay = uniform(played.ring)
    replay.look()
    assert replay.wait_reason().endswith("(replay.sequence); raise replay.capacity")


def test_every_whole_sequence_is_as_likely_as_any_other() -> None:
    """The ring has wrapped around, and one environment's steps are lost now and then."""
    played = Played(50)
    for t in range(60):
        played.insert(Row((0, 0, 0), t), *([] if t % 6 == 5 else [Row((0, 0, 1), t)]))
    replay = uniform(played.ring)
    numbers = np.concatenate([replay.sample(64).indices for _ in range(300)])
    drawn, times = np.unique(numbers, return_counts=True)
    assert drawn.tolist() == sorted(played.complete())
    expected = len(numbers) / len(drawn)
    chi_square = ((times - expected) ** 2 / expected).sum()
    assert chi_square < len(drawn) + 5 * np.sqrt(2 * len(drawn))


def test_draws_follow_the_priorities_and_weights_correct_them() -> None:
    played = history(steps_from(0, 12), 20)
    replay = by_priority(played.ring)
    numbers = np.array(sorted(played.complete()))
    replay.look()
    replay.update_priority(numbers, (1.0 + numbers) ** 2)
    priorities = (1.0 + numbers) ** 2 + BY_PRIORITY.priority_epsilon
    chances = priorities**0.5 / (priorities**0.5).sum()
    drawn = np.zeros(len(numbers))
    for _ in range(300):
        sample = replay.sample(64)
        np.add.at(drawn, sample.indices, 1)
        weights = (1 / chances[sample.indices]) / (1 / chances[sample.indices]).max()
        np.testing.assert_allclose(sample.weights, weights, rtol=1e-5)
    np.testing.assert_allclose(drawn / drawn.sum(), chances, atol=0.01)


def test_a_beginning_gets_the_largest_priority_when_it_becomes_complete() -> None:
    played = history(steps_from(0, 4), 20)
    replay = by_priority(played.ring)
    replay.sample(8)
    played.insert(*steps_from(4, 1))  # 2 is complete now, 3 and 4 are not
    replay.look()
    replay.update_priority(np.array([0, 3]), np.array([99.0, 50.0]))
    replay.sample(8)
    expected = np.array([99.0, 1.0, 99.0, 0.0, 0.0])
    expected[expected == 99.0] += BY_PRIORITY.priority_epsilon
    np.testing.assert_allclose(replay.tree.leaves[:5], expected**0.5, rtol=1e-7)


def test_a_beginning_with_another_row_is_new() -> None:
    """A client that counts from 0 again has sent a step of the same key."""
    played = history(steps_from(0, 4), 20)
    replay = by_priority(played.ring)
    replay.sample(8)
    replay.update_priority(np.array([0, 1]), np.array([4.0, 0.25]))
    played.insert(*steps_from(3, 1))
    sample = replay.sample(8)
    played.assert_drawn(sample, replay.live)
    np.testing.assert_allclose(replay.tree.leaves[:2], [2.0, 2.0], rtol=1e-5)


def test_a_writer_that_laps_the_ring_while_sequences_are_copied_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = history(steps_from(0, 12), 12)
    replay = uniform(played.ring)
    state = replay.rng.bit_generator.state
    gather = MemoryRing.gather
    laps = [False, True, False]  # rows, memories, observations: in the middle of the first draw

    def lapping(ring: MemoryRing, places: Any, out: Any) -> None:
        gather(ring, places, out)
        if laps and laps.pop(0):
            played.insert(*steps_from(played.ring.inserted, 2 * GUARD))

    monkeypatch.setattr(MemoryRing, "gather", lapping)
    played.assert_drawn(replay.sample(16), replay.live)
    assert not laps
    assert replay.live == played.ring.live()
    drawn = replay.windows
    again = uniform(played.ring)
    again.rng.bit_generator.state = state
    again.sample(16)
    np.testing.assert_array_equal(again.windows.numbers, drawn.numbers)  # the generator went back


def test_a_row_of_burn_in_that_may_be_overwritten_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row is inserted while the first draw is copied, so that the oldest one is in doubt."""
    gather = MemoryRing.gather
    waiting: list[Played] = []

    def gathering(ring: MemoryRing, places: Any, out: Any) -> None:
        gather(ring, places, out)
        if waiting:
            waiting.pop().insert(*steps_from(12, 1))

    monkeypatch.setattr(MemoryRing, "gather", gathering)
    kept = []
    for seed in range(30):
        played = history(steps_from(0, 12), 12)
        replay = uniform(played.ring, seed)
        waiting.append(played)
        replay.sample(1)
        if replay.live == (0, 12):
            kept.append(int(replay.windows.numbers.min()))
    assert kept
    assert min(kept) >= 1


def test_a_writer_that_laps_the_ring_while_the_index_reads_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = history(steps_from(0, 12), 12)
    doubtful_below = MemoryRing.doubtful_below
    laps = [True]

    def lapping(ring: MemoryRing, seen: int) -> int:
        if laps and laps.pop():
            played.insert(*steps_from(played.ring.inserted, 2 * GUARD))
        return doubtful_below(ring, seen)

    monkeypatch.setattr(MemoryRing, "doubtful_below", lapping)
    replay = uniform(played.ring)
    assert replay.live == played.ring.live() == (12, 24)
    played.assert_drawn(replay.sample(16), replay.live)
    monkeypatch.setattr(MemoryRing, "doubtful_below", lambda ring, seen: ring.inserted)
    with pytest.raises(ReplayOverrunError):
        uniform(played.ring)


# By property

LOOKS = st.lists(st.booleans(), min_size=30, max_size=30)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("prioritized", [False, True])
@settings(max_examples=40, deadline=None)
@given(
    batches=st.one_of(histories(), plays()),
    looks=LOOKS,
    capacity=st.sampled_from([5, 7, 12, 60]),
)
def test_what_is_drawn_is_what_a_search_over_the_live_rows_finds(
    prioritized: bool, once: bool, batches: list[list[Row]], looks: list[bool], capacity: int
) -> None:
    """Rows are lost, late, repeated and overwritten."""
    played = Played(capacity, once=once)
    replay = made(played.ring, prioritized)
    for rows, draws in zip(batches, looks, strict=False):
        played.insert(*rows)
        if not draws:
            continue
        replay.look()
        complete = played.complete(replay.live)
        assert replay.drawable == len(complete)
        assert bool(replay.wait_reason()) == (not complete)
        if complete:
            sample = replay.sample(16)
            assert replay.live == played.ring.live()
            played.assert_drawn(sample, replay.live)
            tree = replay.tree if isinstance(replay, PrioritizedSequences) else replay._tree
            can_be_drawn = np.flatnonzero(tree.leaves).tolist()
            assert can_be_drawn == sorted(number % capacity for number in complete)
            replay.update_priority(sample.indices, np.full(16, 0.5))


@settings(max_examples=80, deadline=None)
@given(
    batches=st.one_of(histories(), plays()),
    looks=LOOKS,
    capacity=st.sampled_from([5, 7, 12, 60]),
    in_file=st.booleans(),
)
def test_a_resume_at_any_step_draws_as_if_nothing_had_happened(
    batches: list[list[Row]], looks: list[bool], capacity: int, in_file: bool
) -> None:
    """Beside a replay that goes on, one is made anew from its state before every draw; or from the
    priorities in its file, which a killed process leaves."""
    played = Played(capacity)
    memory = {"memory": np.zeros(8 + 64 + 1)[:-1]} if in_file else {}  # a view, as a file is mapped
    replay = by_priority(played.ring, **memory)
    for rows, draws in zip(batches, looks, strict=False):
        state = replay.get_state()
        left = replay._head.base[:-1].copy() if in_file else None
        played.insert(*rows)
        replay.look()
        if not draws:  # the limiter lets nobody draw
            continue
        again = by_priority(played.ring, **({} if left is None else {"memory": left}))
        if left is None:
            again.set_state(state)
        again.rng.bit_generator.state = replay.rng.bit_generator.state
        again.draws = replay.draws
        if not played.complete():
            continue
        drawn, expected = again.sample(8), replay.sample(8)
        np.testing.assert_array_equal(drawn.indices, expected.indices)
        np.testing.assert_array_equal(drawn.weights, expected.weights)
        np.testing.assert_array_equal(again.tree.leaves, replay.tree.leaves)
        for one in (again, replay):
            one.update_priority(expected.indices, 1.0 + expected.indices % 5)
        np.testing.assert_array_equal(again.tree.leaves, replay.tree.leaves)


def test_priorities_of_sequences_of_another_length_are_those_of_nobody() -> None:
    played = history(steps_from(0, 12), 20)
    replay = by_priority(played.ring)
    sample = replay.sample(8)
    replay.update_priority(sample.indices, np.full(8, 9.0))
    for steps in (2, 4):
        other = BY_PRIORITY.model_copy(update={"sequence": steps})
        again = by_priority(played.ring, config=other)
        again.set_state(replay.get_state())
        assert not again.goes_on
        again.sample(8)
        masses = again.tree.leaves[: 12 - steps + 1]
        np.testing.assert_array_equal(masses, np.full(len(masses), masses[0]))
        in_file = np.concatenate([replay._head, replay.tree.leaves])
        from_file = by_priority(played.ring, config=other, memory=in_file[:])
        from_file.sample(8)
        masses = from_file.tree.leaves[: 12 - steps + 1]
        np.testing.assert_array_equal(masses, np.ones(len(masses)))


def test_beginnings_without_a_priority_in_the_file_are_new() -> None:
    """Whose process was killed while it wrote them."""
    played = history(steps_from(0, 12), 20)
    replay = by_priority(played.ring)
    sample = replay.sample(8)
    replay.update_priority(sample.indices, np.full(8, 9.0))
    file = np.concatenate([replay._head, replay.tree.leaves])
    file[8 + 4 : 8 + 7] = 0.0
    again = by_priority(played.ring, memory=file[:])
    again.sample(8)
    expected = replay.tree.leaves.copy()
    expected[4:7] = again.first_mass
    np.testing.assert_array_equal(again.tree.leaves, expected)


def test_priorities_of_rows_that_are_not_there_are_those_of_nobody() -> None:
    played = history(steps_from(0, 12), 20)
    replay = by_priority(played.ring)
    replay.sample(8)
    state = replay.get_state()
    fewer = history(steps_from(0, 8), 20)
    again = by_priority(fewer.ring)
    again.set_state(state)
    assert not again.goes_on
    fewer.assert_drawn(again.sample(16), again.live)


def test_beginnings_that_wait_long_for_a_draw_get_a_priority_all_the_same() -> None:
    """As those of actors do while a run learns from its sources alone."""
    played = Played(40)
    replay = by_priority(played.ring)
    for t in range(700):
        played.insert(*steps_from(t, 1))
        replay.look()
    assert len(replay._waiting) <= 256
    assert sum(map(len, replay._waiting)) <= 256 + 40
    replay.sample(8)
    complete = np.array(sorted(played.complete()))
    np.testing.assert_array_equal(replay.tree.leaves[complete % 40], np.ones(len(complete)))
    assert replay.tree.total == len(complete) == replay.weighed_rows

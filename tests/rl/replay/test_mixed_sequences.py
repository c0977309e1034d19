"""Batches of sequences of several sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from played_sequences import BURN_IN, STEPS, insert, new_ring, steps_from

from vedette_rl.core import ReplayBuffer
from vedette_rl.core.protocols import implements
from vedette_rl.errors import EmptyReplayError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import PrioritizedSequences, UniformSequences
from vedette_rl.replay.mixed import NUMBER_BITS, Source
from vedette_rl.replay.mixed_sequences import MixedSequences
from vedette_rl.replay.rows import MemoryRing

UNIFORM = ReplayConfig(sequence=STEPS, burn_in=BURN_IN)
BY_PRIORITY = UNIFORM.model_copy(update={"prioritized": True, "alpha": 1.0, "beta_0": 1.0})
each_way = pytest.mark.parametrize("config", [UNIFORM, BY_PRIORITY], ids=["uniform", "by priority"])


def mixed(*rings: MemoryRing, config: ReplayConfig, share: float = 0.5, warmup: int = 1) -> Any:
    rng = np.random.default_rng(0)
    kind: Any = PrioritizedSequences if config.prioritized else UniformSequences
    actors, *others = [kind(ring, rng, config, first=("memory",)) for ring in rings]
    named = [Source(f"s{k}", replay, share, grows=True) for k, replay in enumerate(others)]
    return MixedSequences(actors, named, warmup=warmup)


def played(steps: int, first: int = 0) -> MemoryRing:
    ring = new_ring(40)
    insert(ring, steps_from(first, steps))
    return ring


@each_way
def test_a_sequence_is_of_one_source_and_has_its_rows(config: ReplayConfig) -> None:
    replay = mixed(played(20), played(15, 1000), config=config, share=0.25)
    assert implements(replay, ReplayBuffer)
    for _ in range(20):
        sample = replay.sample(16)
        source = sample.columns["source"]
        assert source.shape == (16,)
        assert source.sum() == 4
        np.testing.assert_array_equal(sample.indices >> NUMBER_BITS, source)
        numbers = sample.indices & ((1 << NUMBER_BITS) - 1)
        learned_at = sample.columns["burned"]
        first = np.take_along_axis(sample.columns["t"], learned_at[:, None], 1)[:, 0]
        np.testing.assert_array_equal(first, numbers + 1000 * source.astype(np.int64))


@each_way
def test_a_source_in_which_no_sequence_is_whole_has_no_part(config: ReplayConfig) -> None:
    actors, other = played(20), new_ring(40)
    insert(other, steps_from(0, STEPS - 1))
    replay = mixed(actors, other, config=config)
    assert not replay.sample(8).columns["source"].any()
    insert(other, steps_from(STEPS - 1, 1))
    assert replay.sample(8).columns["source"].sum() == 4
    insert(other, [row for k in range(14) for row in steps_from(k, 3, (9, 0, k))])  # it is gone
    insert(other, [row for k in range(20) for row in steps_from(k, 2, (8, 0, k))])
    assert not replay.sample(8).columns["source"].any()


@each_way
def test_where_no_source_has_a_whole_sequence_the_learner_waits(config: ReplayConfig) -> None:
    actors, other = new_ring(40), new_ring(40)
    insert(actors, steps_from(0, 2))
    insert(other, steps_from(0, 1))
    replay = mixed(actors, other, config=config)
    replay.look()
    assert replay.wait_reason().startswith("learner waits: none of 2 samples begins a whole")
    with pytest.raises(EmptyReplayError):
        replay.sample(4)
    insert(other, steps_from(1, 2))
    replay.look()
    assert replay.wait_reason() == ""
    assert replay.sample(4).columns["source"].all()
    insert(actors, steps_from(2, 1))
    replay.look()
    replay.sources_only = True
    assert replay.wait_reason() == ""
    assert replay.sample(4).columns["source"].all()


def test_weights_correct_what_priorities_do_inside_each_source() -> None:
    """w = (N_s p / sum of p)**-beta over its largest, as `vedette_rl.replay.mixed` has it."""
    replay = mixed(played(12), played(9, 1000), config=BY_PRIORITY)
    replay.look()
    code = 1 << NUMBER_BITS
    of_actors, of_other = np.arange(10), np.arange(7)
    indices = np.concatenate([of_other + code, of_actors])
    errors = np.concatenate([1.0 + of_other**2, 2.0 + of_actors])
    replay.update_priority(indices, errors)
    p = dict(zip(indices.tolist(), errors + BY_PRIORITY.priority_epsilon, strict=True))
    sums = [sum(v for n, v in p.items() if n >> NUMBER_BITS == source) for source in range(2)]
    sample = replay.sample(32)
    relative = np.array(
        [(10, 7)[n >> NUMBER_BITS] * p[n] / sums[n >> NUMBER_BITS] for n in sample.indices.tolist()]
    )
    np.testing.assert_allclose(sample.weights, relative.min() / relative, rtol=1e-5)
    assert sample.weights.dtype == np.float32


@each_way
def test_a_saved_state_draws_on_as_if_nothing_had_happened(config: ReplayConfig) -> None:
    rings = [played(20), played(15, 1000)]
    for ring, branch in zip(rings, "ab", strict=True):
        ring.branch = branch
    one = mixed(*rings, config=config, share=0.3)
    for _ in range(3):
        sample = one.sample(8)
        one.update_priority(sample.indices, 1.0 + np.arange(8))
    other = mixed(*rings, config=config, share=0.3)
    other.set_state(one.get_state())
    assert other.goes_on == config.prioritized
    for _ in range(3):
        expected, found = one.sample(8), other.sample(8)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.weights, expected.weights)

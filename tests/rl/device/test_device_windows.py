"""Sequences that a device gathers from its copy are those that the host gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from played_sequences import BURN_IN, GUARD, STEPS, Row, histories, insert, new_ring, plays
from strict_cuda import StrictCuda
from test_device_ring import (
    CPU,
    assert_same,
    captured_copy,
    copied,
    every_time,
    loaded_by,
    pinned_loader,
)

from vedette_rl.device.loader import CpuLoader, DeviceLoader, RingLoader
from vedette_rl.device.ring import FOLLOW_S, DeviceRing, DeviceRings
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import PrioritizedSequences, UniformSequences
from vedette_rl.replay.mixed import Source
from vedette_rl.replay.mixed_sequences import MixedSequences
from vedette_rl.replay.rows import MemoryRing

BATCH = 9
UNIFORM = ReplayConfig(sequence=STEPS, burn_in=BURN_IN)
BY_PRIORITY = ReplayConfig(sequence=STEPS, burn_in=BURN_IN, prioritized=True)
FIRST = ("memory",)

whole_and_once = pytest.mark.parametrize("once", [False, True], ids=["rows", "frames"])
each_way = pytest.mark.parametrize("config", [UNIFORM, BY_PRIORITY], ids=["uniform", "by priority"])


def drawn_from(rings: Sequence[Any], config: ReplayConfig) -> Any:
    """A replay of these rings: of the actors', and of sources that grow."""
    rng = np.random.default_rng(5)
    kind: Any = PrioritizedSequences if config.prioritized else UniformSequences
    actors, *others = [kind(ring, rng, config, first=FIRST) for ring in rings]
    if not others:
        return actors
    named = [Source(f"s{k}", replay, 0.3, grows=True) for k, replay in enumerate(others)]
    return MixedSequences(actors, named)


def copy_of(rings: Sequence[Any]) -> DeviceRing | DeviceRings:
    """A copy that follows at every look."""
    if len(rings) == 1:
        return DeviceRing(rings[0], CPU, clock=every_time())
    return DeviceRings(rings, CPU, clock=every_time())


@whole_and_once
@each_way
@pytest.mark.parametrize("sources", [1, 2])
@settings(max_examples=20, deadline=None)
@given(
    batches=st.one_of(histories(), plays()),
    turns=st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.booleans()), min_size=30),
)
def test_batches_are_those_of_the_ring(
    once: bool,
    config: ReplayConfig,
    sources: int,
    batches: list[list[Row]],
    turns: list[tuple[bool, int, bool]],
) -> None:
    """Rows are lost, late, repeated and overwritten; and a trainer may start again."""
    rings = [new_ring(capacity, once=once) for capacity in (12, 30)[:sources]]

    def loaders() -> tuple[DeviceLoader, DeviceLoader]:
        plain, followed = drawn_from(rings, config), drawn_from(rings, config)
        return CpuLoader(plain, BATCH, CPU), RingLoader(followed, copy_of(rings), BATCH)

    pair = loaders()
    errors = np.random.default_rng(0)
    for rows, (draws, to, restarts) in zip(batches, turns, strict=False):
        insert(rings[to % sources], rows)
        if restarts:
            pair = loaders()
        plain, followed = (loader._replay for loader in pair)  # type: ignore[attr-defined]
        plain.look()
        followed.look()
        assert plain.wait_reason() == followed.wait_reason()
        if not draws or plain.wait_reason():
            continue
        expected, found = (loader.load() for loader in pair)
        assert_same(found, expected)
        td_errors = errors.random(BATCH).astype(np.float32)
        for replay, batch in ((plain, expected), (followed, found)):
            replay.update_priority(batch.indices, td_errors)


def played_on(ring: MemoryRing, steps: int) -> None:
    """Two environments play on in a ring."""
    for _ in range(steps):
        t = ring.inserted // 2
        streams = ((0, 0, 0), (0, 0, 1))
        insert(ring, [Row(stream, t, begins=t % 8 == 0, ended=t % 8 == 7) for stream in streams])


@whole_and_once
@each_way
def test_batches_stay_where_they_are(once: bool, config: ReplayConfig) -> None:
    rings = [new_ring(40, once=once), new_ring(30, once=once)]
    for ring in rings:
        played_on(ring, 12)
    for count in (1, 2):
        loader = RingLoader(drawn_from(rings[:count], config), copy_of(rings[:count]), BATCH)
        first = loader.load()
        places = {name: tensor.data_ptr() for name, tensor in first.batch.items()}
        for _ in range(5):
            played_on(rings[0], 9)
            again = loader.load()
            assert again.batch is first.batch
            assert {name: tensor.data_ptr() for name, tensor in again.batch.items()} == places


@whole_and_once
@each_way
@pytest.mark.parametrize("sources", [1, 2])
def test_batches_that_a_graph_gathers_are_those_of_the_rings(
    once: bool, config: ReplayConfig, sources: int, cuda: StrictCuda
) -> None:
    """Rows come in between, and the rings wrap around."""
    rings = [new_ring(40, once=once) for _ in range(sources)]
    for ring in rings:
        played_on(ring, 12)
    plain, followed = drawn_from(rings, config), drawn_from(rings, config)
    ours = CpuLoader(plain, BATCH, CPU)
    with cuda:
        loader = RingLoader(followed, captured_copy(rings), BATCH)
    errors = np.random.default_rng(0)
    lengths = set[tuple[int, ...]]()
    for step in range(12):
        expected, found = ours.load(), loaded_by(cuda, loader)
        assert_same(found, expected)
        lengths.add(tuple(found.batch["length"].tolist()))
        assert cuda.replayed == max(0, step - 2)
        td_errors = errors.random(BATCH).astype(np.float32)
        for each, batch in ((plain, expected), (followed, found)):
            each.update_priority(batch.indices, td_errors)
        played_on(rings[step % sources], 9)
    cuda.check()
    assert cuda.captured == 1
    assert len(lengths) > 6  # what is marked as learned from differs each time


@each_way
@pytest.mark.parametrize("sources", [1, 2])
def test_batches_by_pinned_memory_are_those_of_the_replay_one_ahead(
    config: ReplayConfig, sources: int, cuda: StrictCuda
) -> None:
    rings = [new_ring(40) for _ in range(sources)]
    for ring in rings:
        played_on(ring, 12)
    plain, pinned = drawn_from(rings, config), drawn_from(rings, config)
    ours = CpuLoader(plain, BATCH, CPU)
    loader = pinned_loader(pinned, BATCH)
    errors = np.random.default_rng(0)
    ahead = copied(ours.load())
    for _ in range(10):
        expected = ahead
        found = loaded_by(cuda, loader)
        ahead = copied(ours.load())
        assert_same(found, expected)
        played_on(rings[0], 5)
        td_errors = errors.random(BATCH).astype(np.float32)
        for each, indices in ((plain, expected.indices), (pinned, found.indices)):
            each.update_priority(indices, td_errors)
    cuda.check()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StrictCuda:
    return StrictCuda(monkeypatch)


def test_the_copy_can_be_given_up_in_the_middle() -> None:
    ring = new_ring(40)
    played_on(ring, 30)
    plain, followed = drawn_from([ring], BY_PRIORITY), drawn_from([ring], BY_PRIORITY)
    loader = RingLoader(followed, copy_of([ring]), BATCH)
    assert_same(loader.load(), CpuLoader(plain, BATCH, CPU).load())
    played_on(ring, 3)
    loader.give_up_copy()
    ours, theirs = (CpuLoader(replay, BATCH, CPU) for replay in (plain, followed))
    assert_same(theirs.load(), ours.load())


def test_rows_that_the_ring_has_lost_before_the_index_read_them_are_drawn_from_a_newer_copy() -> (
    None
):
    """The copy has rows that the writer has overwritten since, and would not follow yet."""
    ring = new_ring(12)
    played_on(ring, 6)
    now = [0.0]
    copy = DeviceRing(ring, CPU, clock=lambda: now[0])
    replay = drawn_from([ring], UNIFORM)
    loader = RingLoader(replay, copy, BATCH)
    played_on(ring, 1)
    now[0] += FOLLOW_S
    copy.follow()
    assert copy.live() == ring.live()
    played_on(ring, 2 * (12 + GUARD))
    assert copy.live() != ring.live()
    expected = CpuLoader(drawn_from([ring], UNIFORM), BATCH, CPU).load()
    found = loader.load()
    assert replay.live == copy.live() == ring.live()
    assert_same(found, expected)


def test_a_batch_names_the_versions_of_what_is_learned_from() -> None:
    ring = new_ring(40)
    played_on(ring, 20)
    for loader in (
        CpuLoader(drawn_from([ring], UNIFORM), BATCH, CPU),
        RingLoader(drawn_from([ring], UNIFORM), copy_of([ring]), BATCH),
    ):
        loaded = loader.load()
        assert loaded.versions is not None
        learned = loaded.batch["version"][loaded.batch["learned"]]
        assert torch.equal(torch.from_numpy(loaded.versions), learned)
        assert len(learned) == int(loaded.batch["length"].sum())

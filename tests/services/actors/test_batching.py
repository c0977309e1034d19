"""From an environment's stacks to batches that hold each frame once, and back."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette_protocol.errors import SchemaError
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs import Spaces, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import RowColumnError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import MemoryFrameRing, whole_stacks
from vedette_rl.replay.frame_stacks import (
    FrameStack,
    frame_stack,
    make_frame_ring_spec,
    row_with_places,
    stored_row,
)
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing, Rows
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.steps import NStep
from vedette_rl.steps.frame_steps import FrameSteps
from vedette_services.actors.batching import FrameWriter, TransitionBatcher, WholeRows
from vedette_services.actors.handover import HandoverReader, HandoverWriter, SlotLayout
from vedette_services.run.replay_layout import batch_schema, frame_stack_of_schema

STACK = 3


class Numbered(gym.Env[Any, Any]):
    """Each frame says of which environment, episode and step it is."""

    observation_space = gym.spaces.Box(0, 255, (3, 5), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int, length: int) -> None:
        self._seen = np.array([number, -1, 0])
        self._length = length

    def _obs(self) -> Any:
        return np.repeat(self._seen.astype(np.uint8)[:, None], 5, 1)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen = self._seen * [1, 1, 0] + [0, 1, 0]
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._seen[2] += 1
        return self._obs(), 1.0, bool(self._seen[2] >= self._length), False, {}


class Kept:
    """Slots that keep what is published, as payloads of the schema."""

    def __init__(self, schema: Schema, n_buffer: int, entries: int) -> None:
        self._schema = schema
        self.payloads = []
        self.columns: Columns = {
            name: np.empty((n_buffer, *schema.row_dtype[name].shape), schema.row_dtype[name].base)
            for name in schema.row_dtype.names or ()
        }
        assert schema.sharing is not None
        self._shared = schema.sharing.names
        for column in schema.sharing.columns:
            shape = (entries, *column.shape)
            self.columns[column.name] = np.empty(shape, column.numpy_dtype)

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        batch = {
            name: column[: entries if name in self._shared else rows]
            for name, column in self.columns.items()
        }
        self.payloads.append((rows, bytes(self._schema.pack(batch, rows)), (epoch, version)))


def made(
    lengths: list[int], n: int, steps: int
) -> tuple[Schema, FrameSteps, list[Columns], list[Columns], Any]:
    """The schema, the processor, and lazily its transitions beside those of whole stacks."""
    envs = [FrameStackObservation(Numbered(i, length), STACK) for i, length in enumerate(lengths)]
    row = LoopVectorEnv(envs, seed=0)
    spaces = Spaces(row.spaces.observation, row.spaces.action, STACK)
    frames = frame_stack(ReplayConfig(), spaces)
    dtype = transition_dtype(spaces)
    assert frames is not None
    schema = batch_schema(dtype, column_bounds(spaces), frames)
    assert frame_stack_of_schema(Schema.from_wire(schema.to_wire())) == frames
    inner = NStep(n, 0.9, len(lengths), row_with_places(dtype, frames))
    framed = FrameSteps(inner, frames, len(lengths), n)
    plain = NStep(n, 0.9, len(lengths), dtype)
    row.reset()

    def play() -> Any:
        for _ in range(steps):
            step = row.step(np.zeros(len(lengths), np.int64))
            yield framed.process(step), plain.process(step)
        yield framed.flush(), plain.flush()

    return schema, framed, [], [], play


def joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 15),
    st.integers(6, 60),
    st.integers(1, 30),
)
def test_batches_hold_the_same_rows_in_the_same_order(
    lengths: list[int], n: int, n_buffer: int, entries: int, steps: int
) -> None:
    schema, framed, packed, expected, play = made(lengths, n, steps)
    slots = Kept(schema, n_buffer, entries)
    batching = TransitionBatcher(slots, n_buffer, lambda: True, FrameWriter(framed.pool))
    for version, (transitions, whole) in enumerate(play()):
        batching.push(transitions, (1, version))
        expected.append(whole)
    batching.flush()
    for rows, payload, _ in slots.payloads:
        assert 0 < rows <= n_buffer
        views = schema.views(payload, rows)
        schema.check_values(views)
        assert len(views["frames"]) <= entries
        used = np.concatenate([views["obs"].ravel(), views["next_obs"].ravel()])
        assert np.unique(used).tolist() == list(range(len(views["frames"])))
        packed.append(whole_stacks(views))
    whole_rows, plain_rows = joined(packed), joined(expected)
    for name, column in plain_rows.items():
        np.testing.assert_array_equal(whole_rows[name], column, err_msg=name)


def test_a_batch_of_one_episode_has_a_frame_a_row_and_those_at_its_edge() -> None:
    schema, framed, _, _, play = made([1000, 1000], 3, 60)
    slots = Kept(schema, 40, 200)
    batching = TransitionBatcher(slots, 40, lambda: True, FrameWriter(framed.pool))
    for transitions, _ in play():
        batching.push(transitions, (1, 0))
    counts = [len(schema.views(payload, rows)["frames"]) for rows, payload, _ in slots.payloads]
    # a stack of 3 and two steps more on the way to a successor, of each of two environments; the
    # first batch begins with a frame that is shown three times
    assert counts[:2] == [40 + 2 * (3 + 2) - 4, 40 + 2 * (3 + 2)]


CAMERAS = gym.spaces.Dict(
    {
        "front": gym.spaces.Box(0, 255, (4, 5, 3), np.uint8),
        "wrist": gym.spaces.Box(0, 255, (3, 4), np.uint8),
        "joints": gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        "gear": gym.spaces.Discrete(300),
    }
)


class Robot(gym.Env[Any, Any]):
    """Every part of an observation says of which environment, episode and step it is."""

    observation_space = CAMERAS
    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int, length: int) -> None:
        self._seen = [number, -1, 0]
        self._length = length

    def _obs(self) -> Any:
        seen = np.array(self._seen)
        return {
            "front": np.broadcast_to(seen.astype(np.uint8), (4, 5, 3)),
            "wrist": np.broadcast_to(seen[:, None].astype(np.uint8), (3, 4)),
            "joints": seen.astype(np.float32) / 7,
            "gear": int(seen.sum()) % 300,
        }

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen = [self._seen[0], self._seen[1] + 1, 0]
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._seen[2] += 1
        over = self._seen[2] >= self._length
        return self._obs(), 1.0, over and self._length % 2 == 0, over and self._length % 2 == 1, {}


def batches_of_cameras(
    lengths: list[int], n: int, n_buffer: int, entries: int, steps: int
) -> tuple[Spaces, FrameStack, Schema, list[tuple[int, bytes]], list[Columns]]:
    """What one actor sends, and its transitions with whole observations."""
    row = LoopVectorEnv([Robot(i, length) for i, length in enumerate(lengths)], seed=0)
    frames = frame_stack(ReplayConfig(frame_storage="once"), row.spaces)
    assert frames is not None
    dtype = transition_dtype(row.spaces)
    schema = batch_schema(dtype, column_bounds(row.spaces), frames)
    assert frame_stack_of_schema(Schema.from_wire(schema.to_wire())) == frames
    framed = FrameSteps(
        NStep(n, 0.9, len(row), row_with_places(dtype, frames)), frames, len(row), n
    )
    plain = NStep(n, 0.9, len(row), dtype)
    expected = []
    slots = Kept(schema, n_buffer, entries)
    batching = TransitionBatcher(slots, n_buffer, lambda: True, FrameWriter(framed.pool))
    row.reset()
    for _ in range(steps):
        step = row.step(np.zeros(len(row), np.int64))
        batching.push(framed.process(step), (1, 0))
        expected.append(plain.process(step))
    batching.push(framed.flush(), (1, 0))
    batching.flush()
    expected.append(plain.flush())
    sent = [(rows, payload) for rows, payload, _ in slots.payloads]
    return row.spaces, frames, schema, sent, expected


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 15),
    st.integers(2, 40),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
    st.integers(20, 90),
)
def test_cameras_stored_once_are_drawn_as_those_stored_whole(
    lengths: list[int],
    n: int,
    n_buffer: int,
    entries: int,
    steps: int,
    chance: Any,
    capacity: int,
) -> None:
    """Batches come late, in any order and twice; the ring wraps around and draws by priority."""
    made_here = batches_of_cameras(lengths, n, n_buffer, entries, steps)
    spaces, frames, schema, sent, expected = made_here
    arrived = []
    for rows, payload in sent:
        views = schema.views(payload, rows)
        schema.check_values(views)
        assert len(views["frames/front"]) <= entries
        arrived.append((rows, views))
    whole = joined([whole_stacks(views) for _, views in arrived])
    plain_rows = joined(expected)
    assert set(whole) == set(plain_rows)
    for name, column in plain_rows.items():
        np.testing.assert_array_equal(whole[name], column, err_msg=name)
    arrived += chance.choices(arrived, k=3)
    chance.shuffle(arrived)
    dtype = transition_dtype(spaces)
    shared = make_frame_ring_spec(
        frames, capacity, guard=60, extra_frames=30, rows_per_batch=n_buffer
    )
    once = MemoryFrameRing(stored_row(dtype, frames), capacity, shared, guard=60)
    plain = MemoryRing(dtype, capacity, guard=60)
    for rows, views in arrived:
        once.append(views, rows)
        plain.append(whole_stacks(views), rows)
        once.commit()
        plain.commit()
    assert once.drawn_dtype == plain.drawn_dtype
    if once.live() != plain.live():  # episodes of one step need more frames than are kept
        assert min(lengths) < 12
        return
    for kind in (UniformReplay, by_priority):
        one, other = (kind(rows, np.random.default_rng(5)) for rows in (once, plain))
        for _ in range(3):
            first, second = one.sample(40), other.sample(40)
            np.testing.assert_array_equal(first.indices, second.indices)
            for name, column in second.columns.items():
                np.testing.assert_array_equal(first.columns[name], column, err_msg=name)
            errors = second.columns["reward"] + second.columns["n_steps"]
            one.update_priority(first.indices, errors)
            other.update_priority(second.indices, errors)


def by_priority(rows: Rows, rng: np.random.Generator) -> PrioritizedReplay:
    return PrioritizedReplay(rows, rng, ReplayConfig(prioritized=True))


def test_an_episode_of_cameras_travels_in_half_the_bytes() -> None:
    _, _, schema, sent, _ = batches_of_cameras([1000, 1000], 1, 50, 200, 100)
    (rows, payload), *_ = sent
    assert len(schema.views(payload, rows)["frames/front"]) == 50 + 2
    assert rows == 50


def test_a_handover_carries_full_and_partial_batches_of_frames() -> None:
    schema, framed, _, expected, play = made([5, 9], 2, 17)
    layout = SlotLayout(schema, 8)
    assert layout.entries == 8 * 6
    reader = HandoverReader(layout, 2)
    memory, channel = reader.pass_fds
    writer = HandoverWriter(os.dup(memory), os.dup(channel), layout, 2)
    reader.close_child_ends()
    taken: list[Columns] = []

    def wait_for_slot() -> bool:
        reader.poll()
        while reader.ready_batches:
            size = reader.next_bytes
            batch = reader.receive()
            assert len(batch.payload) == size
            taken.append(whole_stacks(schema.views(batch.payload, batch.rows)))
        writer.poll(0.0)
        return True

    batching = TransitionBatcher(writer, 8, wait_for_slot, FrameWriter(framed.pool))
    for transitions, whole in play():
        batching.push(transitions, (1, 0))
        expected.append(whole)
    batching.flush()
    wait_for_slot()
    whole_rows, plain_rows = joined(taken), joined(expected)
    for name, column in plain_rows.items():
        np.testing.assert_array_equal(whole_rows[name], column, err_msg=name)
    writer.close()
    reader.close()


@pytest.mark.parametrize("n_buffer", [8, 16, 60])
def test_a_handover_carries_every_part_of_full_and_partial_batches(n_buffer: int) -> None:
    _, _, schema, sent, expected = batches_of_cameras([5, 9], 1, n_buffer, 2 * n_buffer, 20)
    layout = SlotLayout(schema, n_buffer)
    reader = HandoverReader(layout, 2)
    memory, channel = reader.pass_fds
    writer = HandoverWriter(os.dup(memory), os.dup(channel), layout, 2)
    reader.close_child_ends()
    taken: list[Columns] = []
    for rows, payload in sent:
        views = schema.views(payload, rows)
        columns = writer.columns
        for name, column in views.items():
            columns[name][: len(column)] = column
        writer.publish(rows, 1, 0, len(views["frames/front"]))
        reader.poll()
        batch = reader.receive()
        assert len(batch.payload) == len(payload)
        taken.append(whole_stacks(schema.views(batch.payload, batch.rows)))
        writer.poll(0.0)
    whole_rows, plain_rows = joined(taken), joined(expected)
    for name, column in plain_rows.items():
        np.testing.assert_array_equal(whole_rows[name], column, err_msg=name)
    writer.close()
    reader.close()


def test_a_batch_carries_the_oldest_version_behind_its_rows() -> None:
    schema, framed, _, _, play = made([50], 1, 10)
    slots = Kept(schema, 4, 100)
    batching = TransitionBatcher(slots, 4, lambda: True, FrameWriter(framed.pool))
    for version, (transitions, _) in enumerate(play()):
        batching.push(transitions, (2, version))
    batching.flush()
    assert [made_by for *_, made_by in slots.payloads] == [(2, 0), (2, 4), (2, 8)]


def test_a_place_beyond_the_frames_is_refused() -> None:
    schema, framed, _, _, play = made([50], 1, 4)
    slots = Kept(schema, 4, 100)
    batching = TransitionBatcher(slots, 4, lambda: True, FrameWriter(framed.pool))
    for transitions, _ in play():
        batching.push(transitions, (1, 0))
    rows, payload, _ = slots.payloads[0]
    views = {name: column.copy() for name, column in schema.views(payload, rows).items()}
    views["next_obs"][2, 1] = len(views["frames"])
    with pytest.raises(SchemaError, match="'next_obs': place 5, but there are 5 entries"):
        schema.check_values(views)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"action": np.array([0.0, 1.7])}, "'action': it comes with 1.7, which is no int64"),
        ({"n_steps": np.array([1, 257])}, "'n_steps': it comes with 257, which is no uint8"),
        ({"obs": np.ones((2, 1))}, r"'obs': it is of \[3\] a row, and comes as \[1\]"),
        ({"action": np.array(["a", "b"])}, "'action': it is of int64, and comes as <U1"),
    ],
)
def test_rows_are_not_changed_into_what_their_columns_hold(
    changed: dict[str, Any], why: str
) -> None:
    """A step processor of the user's own may make anything."""
    spaces = Spaces(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2))
    slot = empty_columns(transition_dtype(spaces), 4)
    rows = {name: np.zeros_like(column[:2], np.float64) for name, column in slot.items()}
    assert WholeRows().write(slot, 0, rows, slice(0, 2)) == 2
    lists: dict[str, Any] = {name: column.tolist() for name, column in rows.items()}
    assert WholeRows().write(slot, 0, lists | {"reward": [1.0, 2.0]}, slice(0, 2)) == 2
    assert slot["reward"][:2].tolist() == [1.0, 2.0]
    with pytest.raises(RowColumnError, match=why):
        WholeRows().write(slot, 0, rows | changed, slice(0, 2))

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
from vedette_rl.core import Columns
from vedette_rl.envs import Spaces, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import whole_stacks
from vedette_rl.replay.frame_stacks import frame_stack, row_with_places
from vedette_rl.steps import NStep
from vedette_rl.steps.frames import FrameSteps
from vedette_services.actors.batching import FrameWriter, TransitionBatcher
from vedette_services.actors.handover import HandoverReader, HandoverWriter, SlotLayout
from vedette_services.run.replay_layout import batch_schema, frame_stack_of_schema

STACK = 3


class Numbered(gym.Env[Any, Any]):
    """Each frame says of which environment, episode and step it is."""

    observation_space = gym.spaces.Box(0, 255, (3, 5), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int, length: int) -> None:
        self._seen, self._length = np.array([number, -1, 0]), length

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
        self._schema, self.payloads = schema, []
        self.columns: Columns = {
            name: np.empty((n_buffer, *schema.row_dtype[name].shape), schema.row_dtype[name].base)
            for name in schema.row_dtype.names or ()
        }
        self.columns["frames"] = np.empty((entries, 3, 5), np.uint8)

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        batch = {
            name: column[: entries if name == "frames" else rows]
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
    frames, dtype = frame_stack(ReplayConfig(), spaces), transition_dtype(spaces)
    assert frames is not None
    schema = batch_schema(dtype, column_bounds(spaces), frames)
    assert frame_stack_of_schema(Schema.from_wire(schema.to_wire())) == frames
    inner = NStep(n, 0.9, len(lengths), row_with_places(dtype, STACK))
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

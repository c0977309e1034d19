"""Transitions of places in a pool of frames, against those of whole stacks."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette_rl.core import Columns, Step
from vedette_rl.envs import Spaces, VectorEnvironment, transition_dtype
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import FramePart, FrameStack, frame_stack, row_with_places
from vedette_rl.steps import NStep
from vedette_rl.steps.frame_steps import FrameSteps, is_shifted
from vedette_rl.testing import ScriptedEnv

DISCOUNT = 0.5
ENDS = st.sampled_from(["terminated", "truncated", "both"])
SCRIPT = st.lists(st.tuples(st.integers(1, 9), ENDS), min_size=1, max_size=5)


class Pictures(gym.Env[Any, Any]):
    """Shows (own number, episode, step) as an image; `still` shows the same image for ever."""

    observation_space = gym.spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int, script: list[tuple[int, str]], still: bool = False) -> None:
        self._number = number
        self._script = script
        self._still = still
        self._episode = -1
        self._t = 0

    def _obs(self) -> np.ndarray[Any, Any]:
        seen = (0, 0, 0) if self._still else (self._number, self._episode, self._t)
        return np.array([seen, seen], np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = self._episode + 1
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        length, end = self._script[self._episode % len(self._script)]
        self._t += 1
        over = self._t >= length
        return (
            self._obs(),
            float(self._t + 100 * self._episode),
            over and end != "truncated",
            over and end != "terminated",
            {},
        )


class Shuffled(gym.ObservationWrapper[Any, Any, Any]):
    """A stack that is turned over at random: no successor is the stack moved by one."""

    def observation(self, observation: Any) -> Any:
        return np.roll(observation, self.np_random.integers(1, 3), axis=0)


def envs_of(
    scripts: list[list[tuple[int, str]]], stack: int, padding: str, kind: str
) -> list[gym.Env[Any, Any]]:
    envs: list[gym.Env[Any, Any]] = []
    for number, script in enumerate(scripts):
        env = Pictures(number, script, still=kind == "still")
        stacked = FrameStackObservation(env, stack, padding_type=padding)
        envs.append(Shuffled(stacked) if kind == "shuffled" else stacked)
    return envs


def row_of(envs: list[gym.Env[Any, Any]], mode: AutoresetMode | None) -> VectorEnvironment:
    if mode is None:
        return LoopVectorEnv(envs, seed=0)
    vector = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode)
    return NativeVectorEnv(vector, seed=0)


def steps_of(row: VectorEnvironment, count: int) -> Iterator[Step]:
    row.reset()
    for _ in range(count):
        yield row.step(np.zeros(len(row), np.int64))


def spaces_of(row: VectorEnvironment) -> Spaces:
    stack = row.spaces.observation.shape[0]  # type: ignore[index]  # of a Box
    return Spaces(row.spaces.observation, row.spaces.action, stack)


def assert_equal(found: Columns, expected: Columns) -> None:
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column, err_msg=name)


@settings(max_examples=60)
@given(
    scripts=st.lists(SCRIPT, min_size=1, max_size=4),
    stack=st.integers(2, 4),
    n=st.integers(1, 5),
    padding=st.sampled_from(["reset", "zero"]),
    kind=st.sampled_from(["plain", "still", "shuffled"]),
    mode=st.sampled_from([None, *AutoresetMode]),
)
def test_transitions_are_those_of_whole_stacks(
    scripts: list[list[tuple[int, str]]],
    stack: int,
    n: int,
    padding: str,
    kind: str,
    mode: AutoresetMode | None,
) -> None:
    row = row_of(envs_of(scripts, stack, padding, kind), mode)
    spaces = spaces_of(row)
    frames = frame_stack(ReplayConfig(), spaces)
    assert frames == FrameStack(stack, (FramePart("", np.dtype(np.uint8), (2, 3)),))
    dtype = transition_dtype(spaces)
    plain = NStep(n, DISCOUNT, len(row), dtype)
    inner = NStep(n, DISCOUNT, len(row), row_with_places(dtype, frames))
    framed = FrameSteps(inner, frames, len(row), n)
    for step in steps_of(row, 40):
        assert_equal(framed.with_whole_stacks(framed.process(step)), plain.process(step))
    assert_equal(framed.with_whole_stacks(framed.flush()), plain.flush())


@settings(max_examples=60)
@given(
    scripts=st.lists(SCRIPT, min_size=1, max_size=4),
    n=st.integers(1, 5),
    kind=st.sampled_from(["box", "dict", "tuple", "discrete"]),
    mode=st.sampled_from([None, *AutoresetMode]),
)
def test_transitions_are_those_of_whole_observations(
    scripts: list[list[tuple[int, Any]]], n: int, kind: Any, mode: AutoresetMode | None
) -> None:
    row = row_of([ScriptedEnv(k, script, kind) for k, script in enumerate(scripts)], mode)
    frames = frame_stack(ReplayConfig(frame_storage="once"), row.spaces)
    assert frames is not None
    dtype = transition_dtype(row.spaces)
    plain = NStep(n, DISCOUNT, len(row), dtype)
    inner = NStep(n, DISCOUNT, len(row), row_with_places(dtype, frames))
    framed = FrameSteps(inner, frames, len(row), n)
    stored = 0
    for step in steps_of(row, 40):
        assert_equal(framed.with_whole_stacks(framed.process(step)), plain.process(step))
        before = stored
        stored = int(framed.pool.numbers.max()) + 1
        done = int((step.terminated | step.truncated).sum())
        assert stored - before == len(row) + done + (0 if before else len(row))
    assert_equal(framed.with_whole_stacks(framed.flush()), plain.flush())


def test_a_step_of_a_stack_stores_one_frame_and_a_new_episode_one_more() -> None:
    row = LoopVectorEnv(envs_of([[(10, "terminated")]] * 3, 4, "reset", "plain"), seed=0)
    spaces = spaces_of(row)
    frames = frame_stack(ReplayConfig(), spaces)
    assert frames is not None
    framed = FrameSteps(
        NStep(1, DISCOUNT, 3, row_with_places(transition_dtype(spaces), frames)), frames, 3, 1
    )
    stored = []
    for step in steps_of(row, 20):
        framed.process(step)
        stored.append(int(framed.pool.numbers.max()) + 1)
    assert stored[0] == 6  # a beginning and a successor of each
    assert np.diff(stored).tolist() == [3] * 8 + [6] + [3] * 9 + [6]


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 3, 3), (1, 1, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_stack_has_moved_only_if_every_byte_says_so(shape: tuple[int, ...], dtype: type) -> None:
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 9, (5, 4, *shape)).astype(dtype)
    moved = np.concatenate([obs[:, 1:], rng.integers(0, 9, (5, 1, *shape))], 1).astype(dtype)
    assert is_shifted(obs, moved).all()
    moved[2, 2, 0, 0, -1] += 1
    moved[4, 0, -1, -1, 0] += 1
    assert is_shifted(obs, moved).tolist() == [True, True, False, True, False]

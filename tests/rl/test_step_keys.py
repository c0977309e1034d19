"""Rows say which of them follow one another."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from vedette_rl.core import Columns, ModelInfo, Step
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.core.step_keys import StepKeys, first_time
from vedette_rl.envs import transition_dtype
from vedette_rl.envs.pushed_envs import PushedEnvs
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import frame_stack, row_with_places
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps import NStep
from vedette_rl.steps.frame_steps import FrameSteps

FIRST = first_time(2**32 - 1)


class Numbered(gym.Env[Any, Any]):
    """Sees (episode, step), and fails at a step that is asked for."""

    observation_space = gym.spaces.Box(0, 1000, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 4, fails_at: int = 0) -> None:
        self._seen = np.zeros(2, np.float32)
        self._length = length
        self._left = fails_at

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._seen = np.array([self._seen[0] + 1, 0], np.float32)
        return self._seen.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        if self._left == 0:
            raise ValueError("sensor lost")
        self._seen[1] += 1
        return self._seen.copy(), 0.0, bool(self._seen[1] == self._length), False, {}


class Zeros:
    """Plays action 0."""

    def sync_model(self, model: ModelInfo) -> None:
        pass

    def act(self, obs: Columns, *, explore: bool) -> NDArray[Any]:
        return np.zeros(len(obs["obs"]), np.int64)


class NoModels:
    """Never has a model."""

    has_new = False

    def read(self) -> None:
        return None


def rows_of(envs: LoopVectorEnv, steps: int, *, once: bool = False) -> Columns:
    """The rows of so many steps, with keys; with observations stored once, if that is asked."""
    columns = SEQUENCE_KEYS
    dtype = transition_dtype(envs.spaces, columns)
    processor: Any = NStep(1, 0.9, len(envs), dtype)
    if once:
        frames = frame_stack(ReplayConfig(frame_storage="once"), envs.spaces)
        assert frames is not None
        inner = NStep(1, 0.9, len(envs), row_with_places(dtype, frames))
        processor = framed = FrameSteps(inner, frames, len(envs), 1)
    loop = RolloutLoop(envs, Zeros(), processor, NoModels(), 1, keys=StepKeys(len(envs), FIRST))
    loop.begin()
    pieces = []
    for _ in range(steps):
        rows = loop.process(loop.play())
        pieces.append(framed.with_whole_stacks(rows) if once else rows)
    loop.close()
    return {name: np.concatenate([rows[name] for rows in pieces]) for name in pieces[0]}


@pytest.mark.parametrize("once", [False, True])
def test_a_row_begins_an_episode_or_follows_the_row_before(once: bool) -> None:
    rows = rows_of(LoopVectorEnv([Numbered(3), Numbered(5)], seed=0), 20, once=once)
    assert [rows[name].dtype for name in ("env", "t", "begins")] == [np.uint32, np.int64, np.bool_]
    assert rows["t"].max() < 2**62
    for env in (0, 1):
        mine = {name: column[rows["env"] == env] for name, column in rows.items()}
        assert mine["t"].tolist() == list(range(FIRST, FIRST + 20))
        assert mine["begins"].tolist() == (mine["obs"][:, 1] == 0).tolist()
        follows = ~mine["begins"][1:]
        assert (mine["obs"][1:] == mine["next_obs"][:-1])[follows].all()
        assert (mine["terminated"][:-1] == mine["begins"][1:]).all()


def test_nothing_follows_a_row_behind_which_the_environment_failed() -> None:
    made = [Numbered(100, fails_at=5), Numbered(100)]
    group = SerialEnvs(made, make=lambda: Numbered(100))
    envs = LoopVectorEnv(group, seed=0, makes_again=True)
    rows = rows_of(envs, 9)
    failed = rows["env"] == 0
    t = rows["t"][failed] - FIRST
    assert t.tolist() == [0, 1, 2, 3, 5, 6, 7, 8], "the lost step has a number and no row"
    assert np.flatnonzero(rows["begins"][failed]).tolist() == [0, 4]
    assert (rows["t"][~failed] - FIRST).tolist() == list(range(9))


def test_a_programs_own_loop_says_where_its_episodes_begin() -> None:
    space = Numbered.observation_space
    envs = PushedEnvs(space, Numbered.action_space, 2)
    processor = NStep(1, 0.9, 2, transition_dtype(envs.spaces, SEQUENCE_KEYS))
    loop = RolloutLoop(envs, Zeros(), processor, NoModels(), 1, keys=StepKeys(2, 0))
    envs.begin(np.zeros((2, 2), np.float32))
    loop.begin()

    def play(left_out: list[bool] | None = None) -> list[tuple[int, int, bool]]:
        flags = None if left_out is None else np.array(left_out)
        seen = np.zeros((2, 2), np.float32)
        pushed = envs.push(loop.act(), np.zeros(2), seen, envs.never, envs.never, left_out=flags)
        rows = loop.process(loop.on_step(pushed))
        names = ("env", "t", "begins")
        return list(zip(*(rows[name].tolist() for name in names), strict=True))

    assert play() == [(0, 0, True), (1, 0, True)]
    assert play() == [(0, 1, False), (1, 1, False)]
    which = np.array([False, True])
    envs.begin(np.zeros((2, 2), np.float32), which)  # it leaves an episode in the middle
    loop.mark_begun(which)
    assert play() == [(0, 2, False), (1, 2, True)]
    assert play([True, False]) == [(1, 3, False)]  # of an evaluation
    assert play() == [(0, 3, True), (1, 4, False)]


def test_a_step_that_only_resets_has_no_number() -> None:
    keys = StepKeys(2, 7)
    valid = np.array([True, False])
    begins = np.array([True, False])
    assert keys.of_step(begins, valid)["t"].tolist() == [7, 7]
    assert keys.of_step(~valid, ~begins)["t"].tolist() == [8, 7]


def test_columns_of_a_step_do_not_change_with_the_next() -> None:
    keys = StepKeys(1, 0)
    none = np.zeros(1, np.bool_)
    first = keys.of_step(none, ~none)
    keys.of_step(none, ~none)
    assert first["t"].tolist() == [0]


@pytest.mark.parametrize("word", [0, 1, 3, 4, 2**31, 2**32 - 1])
def test_a_count_begins_at_a_multiple_of_2_to_the_32(word: int) -> None:
    first = first_time(word)
    assert first % 2**32 == 0
    assert 0 <= first <= 2**62 - 2**32
    assert first == (word >> 2) * 2**32


def test_a_step_without_keys_has_no_such_columns() -> None:
    envs = LoopVectorEnv([Numbered()], seed=0)
    loop = RolloutLoop(envs, Zeros(), NStep(1, 0.9, 1, np.dtype([("action", "i8")])), NoModels(), 1)
    loop.begin()
    step: Step = loop.play()
    assert step.extra == {}

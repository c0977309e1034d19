"""What collects: on the newest model, and exploring."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Columns, ModelInfo, RowColumn
from vedette_rl.envs import transition_dtype
from vedette_rl.envs.layout import RewardTransform
from vedette_rl.envs.pushed_envs import PushedEnvs
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import SpaceLayoutError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import frame_stack, row_with_places
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps import NStep
from vedette_rl.steps.frame_steps import FrameSteps
from vedette_rl.testing import ScriptedEnv


class Remembering:
    """Remembers how it was asked, on which model."""

    def __init__(self) -> None:
        self.version = -1
        self.asked: list[tuple[int, bool]] = []

    def sync_model(self, model: ModelInfo) -> None:
        self.version = model.version

    def act(self, obs: Columns, *, explore: bool) -> Any:
        self.asked.append((self.version, explore))
        return np.zeros(len(next(iter(obs.values()))), np.int64)


class Published:
    """A model source, and the model itself: the newest version."""

    epoch = 0

    def __init__(self) -> None:
        self.version = 0
        self.has_new = True

    def publish(self, version: int) -> None:
        self.version = version
        self.has_new = True

    def read(self) -> Published:
        self.has_new = False
        return self

    def info(self) -> ModelInfo:
        return ModelInfo(self.version, {})


def test_it_explores_on_the_newest_model() -> None:
    row = LoopVectorEnv([ScriptedEnv(), ScriptedEnv(1)], seed=0)
    policy = Remembering()
    models = Published()
    processor = NStep(3, 0.99, 2, transition_dtype(row.spaces))
    loop = RolloutLoop(row, policy, processor, models, 3)
    loop.begin()
    for version in (1, 1, 2, 7, 7, 7):
        if version != models.version:
            models.publish(version)
        loop.process(loop.play())
    assert policy.asked == [(version, True) for version in (1, 1, 2, 7, 7, 7)]
    assert loop.acting_on == (0, 7)
    assert loop.env_steps == 12


class Counting(Remembering):
    """Fills a column: how often it was asked."""

    def acted_columns(self) -> Columns:
        return {"asked": np.full(1, len(self.asked))}


class Wrapped:
    """Passes everything on to a policy."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


def test_a_wrapped_policy_keeps_its_columns() -> None:
    row = LoopVectorEnv([ScriptedEnv()], seed=0)
    dtype = transition_dtype(row.spaces, [RowColumn("asked", np.dtype(np.int64), ())])
    policy: Any = Wrapped(Counting())
    loop = RolloutLoop(row, policy, NStep(1, 0.99, 1, dtype), Published(), 1)
    loop.begin()
    filled = [loop.process(loop.play())["asked"].tolist() for _ in range(3)]
    assert filled == [[1], [2], [3]]


def test_a_transition_is_as_old_as_the_model_that_began_it() -> None:
    row = LoopVectorEnv([ScriptedEnv()], seed=0)
    models = Published()
    processor = NStep(2, 0.99, 1, transition_dtype(row.spaces))
    loop = RolloutLoop(row, Remembering(), processor, models, 2)
    loop.begin()
    made_by = []
    for version in (1, 2, 3, 4):
        models.publish(version)
        loop.process(loop.play())
        made_by.append(loop.made_by)
    assert made_by == [(0, 1), (0, 1), (0, 2), (0, 3)]
    loop.close()


def played(row: Any, once: bool) -> tuple[RolloutLoop, FrameSteps | None]:
    """A loop of three-step transitions; with observations stored once, if that is asked."""
    dtype = transition_dtype(row.spaces)
    frames = frame_stack(ReplayConfig(frame_storage="once"), row.spaces)
    assert frames is not None
    steps = NStep(3, 0.9, len(row), row_with_places(dtype, frames) if once else dtype)
    framed = FrameSteps(steps, frames, len(row), 3) if once else None
    return RolloutLoop(row, Remembering(), framed or steps, Published(), 3), framed


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("kind", ["box", "dict", "tuple", "discrete"])
def test_environments_that_others_step_give_the_same_transitions(kind: Any, once: bool) -> None:
    rewards = RewardTransform(0.5, 20.0)
    ours, pushed = ScriptedEnv(kind=kind), ScriptedEnv(kind=kind)
    loop, framed = played(LoopVectorEnv([ours], seed=0, rewards=rewards), once)
    envs = PushedEnvs(pushed.observation_space, pushed.action_space, None, rewards)
    other, other_framed = played(envs, once)

    def whole(columns: Columns, framed: FrameSteps | None) -> Columns:
        return columns if framed is None else framed.with_whole_stacks(columns)

    envs.begin(pushed.reset()[0])
    loop.begin(), other.begin()
    for number in range(25):
        expected = whole(loop.process(loop.play()), framed)
        action = other.act()
        obs, *outcome, _ = pushed.step(envs.action_to_environment(action))
        step = other.on_step(envs.push(action, outcome[0], obs, *outcome[1:]))
        if step.begins.any():
            envs.begin(pushed.reset()[0])
            other.mark_begun(step.begins)
        found = whole(other.process(step), other_framed)
        assert found.keys() == expected.keys()
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column, err_msg=f"{name} {number}")
    assert pushed.actions == ours.actions
    assert loop.pop_finished_episodes() == other.pop_finished_episodes()
    assert (loop.env_steps, loop.acting_on) == (other.env_steps, other.acting_on)


def test_an_executed_action_far_outside_its_space_is_refused_where_it_is_given() -> None:
    envs = PushedEnvs(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-1, 1, (2,)), None)
    envs.begin(np.zeros(1))
    for own, refused in (([1.5, -3.0], False), ([0.0, 1e25], True)):
        push = (np.zeros((1, 2)), 0.0, np.zeros(1), False, False, [(0, np.array(own))])
        if refused:
            with pytest.raises(ValueError, match=r"action=array.* is outside -21.0 to"):
                envs.push(*push)
        else:
            np.testing.assert_array_equal(envs.push(*push).action[0], np.float32(own))


def test_some_of_several_environments_begin_while_others_go_on() -> None:
    scripted = ScriptedEnv()
    envs = PushedEnvs(scripted.observation_space, scripted.action_space, 3)
    first = np.arange(9.0).reshape(3, 3)
    envs.begin(first, np.array([True, False, True]))
    assert not envs.is_begun
    envs.begin(first)
    zeros = np.zeros(3)
    none = np.zeros(3, np.bool_)
    step = envs.push(zeros, zeros, first + 1, none, np.array([False, True, False]))
    envs.begin(first + 100, step.begins)
    np.testing.assert_array_equal(step.obs["obs"], first)
    np.testing.assert_array_equal(step.next_obs["obs"], first + 1)
    np.testing.assert_array_equal(step.init_obs["obs"], first + np.array([[1], [100], [1]]))
    with pytest.raises(ValueError, match=r"truncated of shape \(\), expected of shape \(3,\)"):
        envs.push(zeros, zeros, first, none, False)
    with pytest.raises(ValueError, match=r"action=nan of environment 1: nan is no int64"):
        envs.push(zeros, zeros, first, none, none, [(1, np.nan)])
    broken = np.where([[True], [False], [False]], np.nan, first)
    with pytest.raises(SpaceLayoutError, match=r"'obs'\[0, 0\] is nan, which is not"):
        envs.begin(broken)
    envs.begin(broken, envs.flags([False, True, True]))  # of the first nothing is read
    with pytest.raises(ValueError, match=r"which=\[0, 2\]: True or False for each"):
        envs.flags([0, 2])
    envs.begin(first)
    own = envs.action_to_environment(np.array([0, 1, 2]))
    assert own.tolist() == [2, 3, 4]  # this space begins at 2
    step = envs.push(zeros, zeros, first, none, none, [(1, 4)])
    assert step.action.tolist() == [0, 2, 0]
    assert not step.extra


def test_the_rest_of_an_episode_whose_steps_were_left_out_is_no_episode() -> None:
    """As where an evaluation between the own episodes is cut, and the episode goes on."""
    envs = PushedEnvs(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2), 2)
    obs = np.zeros((2, 1), np.float32)
    action = np.zeros(2, np.int64)
    ones = np.ones(2)
    never = np.zeros(2, np.bool_)

    def play(steps: int, left_out: int) -> list[tuple[float, int]]:
        for step in range(steps):
            ended = np.full(2, step == steps - 1)
            left = np.array([step < left_out, False])
            envs.push(action, ones, obs, ended, never, (), left)
        return envs.pop_finished_episodes()

    envs.begin(obs)
    assert play(10, left_out=8) == [(10.0, 10)]  # of the second alone
    envs.begin(obs)
    assert play(4, left_out=0) == [(4.0, 4), (4.0, 4)]
    envs.push(action, ones, obs, never, never, (), ~never)
    envs.begin(obs, np.array([True, False]))  # a cut begins anew
    assert play(3, left_out=0) == [(3.0, 3)]


def test_exploration_counts_from_a_version_and_rows_keep_the_models_own() -> None:
    envs = LoopVectorEnv([ScriptedEnv()], seed=0)
    policy, models = Remembering(), Published()
    processor = NStep(1, 0.99, 1, transition_dtype(envs.spaces))
    loop = RolloutLoop(envs, policy, processor, models, 1, explore_from=100)
    told = []
    for version in (0, 60, 100, 130):
        models.publish(version)
        assert loop.sync()
        assert loop.acting_on == (0, version)
        told.append(policy.version)
    assert told == [0, 0, 0, 30]

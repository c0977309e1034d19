"""The environment check finds what would make transitions wrong."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vedette_rl.envs import EnvConfig
from vedette_rl.errors import EnvironmentFaultError, UnknownEnvironmentError
from vedette_rl.testing import ScriptedEnv, check_environment

NAME = "Checked-v0"


@pytest.fixture
def registered() -> Any:
    def register(env_type: Any, **how: Any) -> EnvConfig:
        gym.register(NAME, entry_point=env_type, **how)
        return EnvConfig(id=NAME)

    yield register
    gym.registry.pop(NAME, None)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasiums_own_pass(env_id: str) -> None:
    report = check_environment(EnvConfig(id=env_id), steps=800)
    assert report.episodes >= 4
    assert report.autoreset == ("NextStep" if env_id == "CartPole-v1" else None)
    assert report.warnings == ()


@pytest.mark.parametrize("kind", ["box", "dict", "tuple", "discrete"])
def test_nested_observations_pass(registered: Any, kind: str) -> None:
    report = check_environment(
        registered(ScriptedEnv, kwargs={"kind": kind, "episodes": [(3, "truncated")]}), steps=50
    )
    assert (report.episodes, report.longest) == (16, 3)


class Random(ScriptedEnv):
    def _obs(self) -> Any:
        return np.random.default_rng().random(3)


class NotItsSpace(ScriptedEnv):
    def _obs(self) -> Any:
        return super()._obs() - 10.0


class OneJointOut(ScriptedEnv):
    def __init__(self) -> None:
        super().__init__()
        joints = gym.spaces.Box(-1.0, 1.0, (2,))
        self.observation_space = gym.spaces.Dict(camera=self.observation_space, joints=joints)

    def _obs(self) -> Any:
        return {"camera": super()._obs(), "joints": np.array([0.0, 1.5], np.float32)}


class NotFinite(ScriptedEnv):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class NumberFlags(ScriptedEnv):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, *rest = super().step(action)
        return obs, reward, int(terminated), *rest


@pytest.mark.parametrize(
    ("env_type", "fault"),
    [
        (Random, "the same seed and actions led elsewhere at step 0"),
        (NotItsSpace, "gave an observation that is not of its space"),
        (OneJointOut, r"not of its space: 'joints': 1.5 at \[1\] is outside -1.0 to 1.0$"),
        (NotFinite, "one finite number is needed"),
        (NumberFlags, "terminated as a int, not a bool"),
    ],
)
def test_a_fault_is_named(registered: Any, env_type: Any, fault: str) -> None:
    with pytest.raises(EnvironmentFaultError, match=fault):
        check_environment(registered(env_type), steps=50)


def test_a_nondeterministic_environment_may_differ(registered: Any) -> None:
    check_environment(registered(Random, nondeterministic=True), steps=50)


class OwnLimit(gym.Wrapper[Any, Any, Any, Any]):
    """Reports truncation as termination."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


def test_a_time_limit_reported_as_termination_is_doubted(registered: Any) -> None:
    config = registered(lambda: OwnLimit(ScriptedEnv(episodes=[(5, "truncated")])))
    [doubt] = check_environment(config, steps=50).warnings
    assert "all 10 episodes were terminated after 5 steps" in doubt


def test_a_registered_limit_reported_as_termination_is_a_fault(registered: Any) -> None:
    registered(lambda: ScriptedEnv(episodes=[(100, "terminated")]), max_episode_steps=5)
    wrapped = EnvConfig(id=NAME, wrappers=(f"{__name__}:OwnLimit",))
    with pytest.raises(EnvironmentFaultError, match="limit of 5 steps is reported as terminated"):
        check_environment(wrapped, steps=50)


def vector_of(mode: AutoresetMode, change: Any = None) -> Any:
    class Vector(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            return result if change is None else change(result)

    return lambda num_envs: Vector([ScriptedEnv] * num_envs, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_passes(registered: Any, mode: AutoresetMode) -> None:
    config = registered(ScriptedEnv, vector_entry_point=vector_of(mode))
    assert check_environment(config, steps=80).autoreset == mode.value


def test_a_reset_step_with_a_reward_is_a_fault(registered: Any) -> None:
    def change(result: Any) -> Any:
        return result[0], result[1] + 1.0, *result[2:]

    form = vector_of(AutoresetMode.NEXT_STEP, change)
    with pytest.raises(EnvironmentFaultError, match="the step that resets has a reward"):
        check_environment(registered(ScriptedEnv, vector_entry_point=form), steps=80)


def test_a_missing_final_observation_is_a_fault(registered: Any) -> None:
    form = vector_of(AutoresetMode.SAME_STEP, lambda result: (*result[:4], {}))
    with pytest.raises(UnknownEnvironmentError, match="final_obs"):
        check_environment(registered(ScriptedEnv, vector_entry_point=form), steps=80)


class Walk(gym.Env[Any, Any]):
    """Five steps to the right, from 0 or from a random place."""

    observation_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, *, random: bool = False, resets_itself: bool = False) -> None:
        self.random = random
        self.resets_itself = resets_itself

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.random() if self.random else 0.0
        self.t = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.place = self.place + float(action)
        self.t = self.t + 1
        over = self.t >= 5 + action
        if over and self.resets_itself:
            self.reset()
        return self.seen(), 1.0, over, False, {}

    def seen(self) -> Any:
        return np.array([self.place], np.float32)


@pytest.mark.parametrize("random", [False, True])
def test_an_environment_that_resets_itself_is_doubted(registered: Any, random: bool) -> None:
    config = registered(lambda: Walk(random=random, resets_itself=True))
    [doubt] = check_environment(config, steps=100).warnings
    assert "terminated episodes ended on an observation that reset() gives" in doubt


@pytest.mark.parametrize("random", [False, True])
def test_one_that_waits_for_its_reset_is_not(registered: Any, random: bool) -> None:
    assert check_environment(registered(lambda: Walk(random=random)), steps=100).warnings == ()


class Bandit(ScriptedEnv):
    """One step, and nothing to see."""

    def __init__(self) -> None:
        super().__init__(episodes=[(1, "terminated")])

    def _obs(self) -> Any:
        return np.zeros(3)


class NothingToSee(ScriptedEnv):
    def _obs(self) -> Any:
        return np.zeros(3)


class Contexts(ScriptedEnv):
    """One step, which shows what was seen before."""

    def __init__(self) -> None:
        super().__init__(episodes=[(1, "terminated")])

    def _obs(self) -> Any:
        return np.full(3, self.episode)


class FewStates(gym.Env[Any, Any]):
    """A random walk over a ring of states that begins anywhere, and ends where it may begin."""

    observation_space = gym.spaces.Discrete(4)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(4))
        self.t = 0
        return self.place, {}

    def step(self, action: Any) -> Any:
        self.place = (self.place + 2 * int(action) - 1) % 4
        self.t = self.t + 1
        return self.place, 0.0, self.t > 1 and self.place == 0, False, {}


FINE = [Bandit, NothingToSee, Contexts, FewStates]


@pytest.mark.parametrize("env_type", FINE)
def test_ends_that_may_look_like_beginnings_are_not_doubted(registered: Any, env_type: Any) -> None:
    assert check_environment(registered(env_type), steps=200).warnings == ()


def test_frozen_lake_is_not_doubted() -> None:
    assert check_environment(EnvConfig(id="FrozenLake-v1")).warnings == ()


def same_step(env_type: Any, *, gives_next: bool) -> Any:
    """A vector form that resets in the same step, and tells the new episodes' rows as last ones."""

    class Vector(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            batch, *rest, infos = super().step(actions)
            if gives_next and "final_obs" in infos:
                infos["final_obs"] = batch
            return batch, *rest, infos

    return lambda num_envs: Vector([env_type] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("random", [False, True])
def test_a_final_observation_of_the_next_episode_is_doubted(registered: Any, random: bool) -> None:
    form = same_step(lambda: Walk(random=random), gives_next=True)
    config = registered(lambda: Walk(random=random), vector_entry_point=form)
    [doubt] = check_environment(config, steps=200).warnings
    assert "is `final_obs` what came after the last action" in doubt


@pytest.mark.parametrize("gives_next", [False, True])
@pytest.mark.parametrize("env_type", FINE[:2])
def test_a_final_observation_that_cannot_be_told_apart_is_not_doubted(
    registered: Any, env_type: Any, gives_next: bool
) -> None:
    form = same_step(env_type, gives_next=gives_next)
    config = registered(env_type, vector_entry_point=form)
    assert not any("final_obs" in doubt for doubt in check_environment(config, steps=200).warnings)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_form_of_environments_that_reset_themselves_is_doubted(
    registered: Any, mode: AutoresetMode
) -> None:
    def form(num_envs: int) -> Any:
        return SyncVectorEnv([lambda: Walk(resets_itself=True)] * num_envs, autoreset_mode=mode)

    doubts = check_environment(registered(Walk, vector_entry_point=form), steps=200).warnings
    assert ["ended on an observation that begins one" in doubt for doubt in doubts] == [True]

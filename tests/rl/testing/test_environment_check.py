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

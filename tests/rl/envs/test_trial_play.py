"""Faults that come after the first step are found where an environment is tried."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import try_environment
from vedette_rl.errors import EnvironmentFaultError


class Failing(gym.Env[Any, Any]):
    """Episodes of 20 steps; step 61 raises, the last reward of the second episode is NaN."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str = "", delay_s: float = 0.0) -> None:
        self._fault = fault
        self._delay_s = delay_s
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        time.sleep(self._delay_s)
        if self._fault == "raises" and self._steps == 61:
            raise RuntimeError("simulator lost")
        reward = float("nan") if self._fault == "nan" and self._steps == 41 else 1.0
        return np.zeros(2, np.float32), reward, self._steps % 20 == 1, False, {}


def config(**kwargs: Any) -> EnvConfig:
    return EnvConfig.model_validate({"id": f"{__name__}:Failing", "kwargs": kwargs})


def test_an_exception_of_a_later_step_is_raised_with_the_step() -> None:
    with pytest.raises(RuntimeError, match="simulator lost") as raised:
        try_environment(config(fault="raises"), steps=1000, seconds=60.0)
    assert raised.value.__notes__ == ["in step 61 of random actions"]


def test_a_reward_of_a_last_step_that_is_not_finite_is_refused_with_the_step() -> None:
    with pytest.raises(EnvironmentFaultError, match="'reward' with a value") as raised:
        try_environment(config(fault="nan"), steps=1000, seconds=60.0)
    assert raised.value.__notes__ == ["in step 41 of random actions"]


def test_it_ends_at_its_steps_and_counts_the_ends_of_episodes() -> None:
    played = try_environment(config(), steps=101, seconds=60.0)
    assert (played.steps, played.episodes) == (101, 5)


def test_it_ends_at_its_seconds_and_may_play_no_more_than_the_look_at_it() -> None:
    played = try_environment(config(delay_s=0.01), steps=10**6, seconds=0.1)
    assert 1 < played.steps <= 11
    assert try_environment(config(), steps=0, seconds=60.0).steps == 1

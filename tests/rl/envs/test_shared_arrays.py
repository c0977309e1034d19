"""Environments whose instances write into one array: each row is what its own environment saw."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vedette_rl.envs import EnvConfig, make_vector_environment
from vedette_rl.envs.make import make_group
from vedette_rl.envs.shared_arrays import copied, share_memory
from vedette_rl.envs.vector_env import SerialEnvs, ThreadedEnvs
from vedette_rl.errors import SpaceLayoutError

COUNT = 4


class OneBuffer(gym.Env[Any, Any]):
    """Shows (its number, the step) in an array of its class, as a C library with static memory."""

    observation_space: gym.Space[Any] = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    buffer: ClassVar[NDArray[Any]] = np.zeros(2, np.float32)
    paid: ClassVar[NDArray[Any]] = np.zeros(1)
    made = 0

    def __init__(self) -> None:
        OneBuffer.made += 1
        self.number = OneBuffer.made
        self.at = 0

    def observe(self) -> Any:
        self.buffer[:] = self.number, self.at
        return self.buffer

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.at += 1
        self.paid[0] = self.number
        return self.observe(), self.paid, self.at == self.number + 2, False, {}


class View(OneBuffer):
    """Gives a new array of the same memory each time."""

    def observe(self) -> Any:
        super().observe()
        return self.buffer[:]


class Parts(OneBuffer):
    observation_space = gym.spaces.Dict(
        number=gym.spaces.Box(0, 1e6, (1,)),
        rest=gym.spaces.Tuple([gym.spaces.Box(0, 1e6, (1,))]),
    )

    def observe(self) -> Any:
        super().observe()
        return {"number": self.buffer[:1], "rest": (self.buffer[1:],)}


@pytest.mark.parametrize("stepping", ["serial", "threads"])
@pytest.mark.parametrize("name", ["OneBuffer", "View", "Parts"])
def test_each_row_is_what_its_own_environment_saw(name: str, stepping: str) -> None:
    OneBuffer.made = 0
    config = EnvConfig(id=f"{__name__}:{name}").model_copy(update={"stepping": stepping})
    first, second = ("obs/number", "obs/rest/0") if name == "Parts" else ("obs", "obs")
    envs = make_vector_environment(config, COUNT, seed=0)
    try:
        obs = envs.reset()
        numbers = np.arange(1, COUNT + 1)
        steps = np.zeros(COUNT)
        for _ in range(12):
            np.testing.assert_array_equal(obs[first][:, 0], numbers)
            step = envs.step(np.zeros(COUNT, np.int64))
            steps += 1
            np.testing.assert_array_equal(step.next_obs[first][:, 0], numbers)
            np.testing.assert_array_equal(step.next_obs[second][:, -1], steps)
            np.testing.assert_array_equal(step.reward, numbers)
            steps[step.terminated] = 0
            obs = step.init_obs
            np.testing.assert_array_equal(obs[second][:, -1], steps)
    finally:
        envs.close()


class Fresh(OneBuffer):
    def observe(self) -> Any:
        return np.array([self.number, self.at], np.float32)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(self.number), terminated, truncated, info


@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_instances_with_arrays_of_their_own_are_not_copied_after_the_first_step(
    stepping: str,
) -> None:
    config = EnvConfig(id=f"{__name__}:Fresh").model_copy(update={"stepping": stepping})
    group = make_group(config, COUNT)
    assert isinstance(group, SerialEnvs | ThreadedEnvs)
    try:
        obs = group.layout.empty(COUNT)
        group.reset(range(COUNT), [None] * COUNT, obs, range(COUNT))
        group.step(np.zeros(COUNT, np.int64), obs)
        assert not group._shares
    finally:
        group.close()


class SharedByStepsAlone(OneBuffer):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed)
        return obs.copy(), info


def test_steps_alone_that_give_one_array_are_read_in_turn_and_refused_in_threads() -> None:
    OneBuffer.made = 0
    config = EnvConfig(id=f"{__name__}:SharedByStepsAlone")
    envs = make_vector_environment(config, COUNT, seed=0)
    envs.reset()
    for _ in range(3):
        step = envs.step(np.zeros(COUNT, np.int64))
        np.testing.assert_array_equal(step.next_obs["obs"][:, 0], np.arange(1, COUNT + 1))
    envs.close()
    threads = make_vector_environment(
        config.model_copy(update={"stepping": "threads"}), COUNT, seed=0
    )
    threads.reset()
    with pytest.raises(SpaceLayoutError, match=r"one array in all instances.*stepping=serial"):
        threads.step(np.zeros(COUNT, np.int64))
    threads.close()


def test_memory_is_compared_between_environments_and_not_within_one() -> None:
    one, other = np.zeros(3), np.zeros(3)
    assert share_memory([{"a": one}, (other, [one.view()])])
    assert share_memory([{"a": one}, (other, one.reshape(1, 3))])
    assert not share_memory([(one, one), (other, other)])
    assert not share_memory([1.0, 1.0, None, "text", "text"])
    numbers = [1, 2]
    assert share_memory([numbers, numbers])
    tensor = torch.zeros(3)
    assert share_memory([tensor, tensor.view(3, 1)])
    assert not share_memory([tensor, tensor.clone()])


def test_a_copy_has_no_array_of_the_value() -> None:
    value = {"a": np.zeros(2), "b": (np.zeros(2), [1, 2]), "c": torch.zeros(2), "d": 1.0}
    copy = copied(value)
    assert not share_memory([value, copy])
    assert copy["d"] == 1.0
    assert copy["b"][1] == [1, 2]

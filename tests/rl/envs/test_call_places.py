"""A value that is looked at after the call names the user's code that gave it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, TimeLimit

from vedette_rl.envs.call_places import call_place, call_places


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as users have them."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapped


class Sim(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    @logged
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Derived(Sim):
    """Its methods are those of its base."""


class Halved(gym.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return observation / 2


class Named(gym.Wrapper[Any, Any, Any, Any]):
    """Changes nothing of what comes out."""

    reward = 3.0


def line_of(method: Any) -> int:
    return int(method.__code__.co_firstlineno)


FILE = "test_call_places.py"


@pytest.mark.parametrize(
    "env",
    [
        lambda: Sim(),
        lambda: Derived(),
        lambda: ClipReward(TimeLimit(Sim(), 5), -1.0, 1.0),
        lambda: Named(Sim()),
    ],
)
def test_the_environment_is_named_through_wrappers_that_are_not_the_users(env: Any) -> None:
    step = Sim.step.__wrapped__  # type: ignore[attr-defined]  # functools.wraps sets it
    assert call_places(env()) == {
        "reset()": f"Sim.reset, {FILE}:{line_of(Sim.reset)}",
        "step()": f"Sim.step, {FILE}:{line_of(step)}",
    }


def test_a_wrapper_of_the_user_that_changes_what_comes_out_is_named() -> None:
    place = f"Halved.observation, {FILE}:{line_of(Halved.observation)}"
    assert call_place(TimeLimit(Halved(Sim()), 5), "step") == place


def test_what_is_not_written_in_python_is_named_without_a_line() -> None:
    class Compiled(Sim):
        step = np.add

    assert call_place(Compiled(), "step") == "Compiled.step"

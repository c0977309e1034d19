"""A person's action, reported inside of wrappers that change actions, is stored in the agent's
terms, or refused at the first one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    ClipAction,
    DiscretizeAction,
    RescaleAction,
    StickyAction,
    TransformAction,
)
from gymnasium.wrappers import vector as of_vectors

from vedette_rl.envs import EnvConfig, make_vector_environment
from vedette_rl.envs.executed_actions import convert_executed_actions
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import EnvironmentFaultError
from vedette_rl.teleop.takeover import PersonInput, Takeover

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")


class Arm(gym.Env[Any, Any]):
    """Its action is in [0, 10]^2, or one of 18; a person does `done` in each step."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, done: Any = (10.0, 5.0), discrete: bool = False) -> None:
        self.done = done
        self.action_space: gym.Space[Any] = gym.spaces.Box(0.0, 10.0, (2,))
        if discrete:
            self.action_space = gym.spaces.Discrete(18)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        info = {}
        if self.done is not None:
            info = {"is_intervention": True, "teleop_action": np.asarray(self.done)}
        return np.zeros(1, np.float32), 0.0, False, False, info


class Fewer(gym.ActionWrapper[Any, Any, Any]):
    """Three of the eighteen actions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(3)

    def action(self, action: Any) -> Any:
        return (0, 5, 17)[int(action)]


class Pairs(Fewer):
    """The eighteen actions as a number of 3 and one of 6."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.MultiDiscrete([3, 6])

    def action(self, action: Any) -> Any:
        return int(action[0]) * 6 + int(action[1])


class Smooth(gym.ActionWrapper[Any, Any, Any]):
    """Its action depends on the one before."""

    last = 0.0

    def action(self, action: Any) -> Any:
        self.last = 0.5 * self.last + 0.5 * action
        return self.last


class Drifts(gym.ActionWrapper[Any, Any, Any]):
    """What becomes of an action depends on how often it was asked for."""

    asked = 0

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(3)

    def action(self, action: Any) -> Any:
        self.asked += 1
        return int(action) + self.asked


class Reversed(Smooth):
    """It knows by itself."""

    def reverse_action(self, action: Any) -> Any:
        return 2 * action


class InStep(gym.Wrapper[Any, Any, Any, Any]):
    """Changes actions in its step."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Box(0.0, 1.0, (2,))

    def step(self, action: Any) -> Any:
        return self.env.step(10 * action)


def half(env: Any) -> Any:
    """Actions that are halved and shifted."""
    return TransformAction(env, lambda a: a * 0.5 + 1, gym.spaces.Box(-2.0, 18.0, (2,)))


def stored(env: Any) -> list[Any]:
    envs = LoopVectorEnv([convert_executed_actions(env)], seed=0)
    envs.reset()
    step = envs.step(np.zeros((1, *env.action_space.shape), np.int64))
    return list(np.asarray(step.action[0]).ravel())


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (lambda: RescaleAction(Arm(), -1.0, 1.0), [1.0, 0.0]),
        (lambda: RescaleAction(Arm((12.0, -5.0)), -1.0, 1.0), [1.4, -2.0]),  # more than it may
        (lambda: ClipAction(Arm()), [10.0, 5.0]),
        (lambda: half(Arm()), [18.0, 8.0]),
        (lambda: RescaleAction(half(Arm()), -1.0, 1.0), [1.0, 0.0]),  # two of them
        (lambda: ClipAction(RescaleAction(Arm(), -1.0, 1.0)), [1.0, 0.0]),
        (lambda: StickyAction(Arm(), 0.5), [10.0, 5.0]),
        (lambda: Fewer(Arm(17, discrete=True)), [2]),
        (lambda: Pairs(Arm(17, discrete=True)), [2, 5]),
        (lambda: DiscretizeAction(Arm((9.5, 0.5)), 10), [90]),
        (lambda: Reversed(Arm()), [20.0, 10.0]),
    ],
)
def test_an_executed_action_is_stored_as_the_agents_own(env: Any, expected: Any) -> None:
    np.testing.assert_allclose(stored(env()), expected, atol=1e-4)


@pytest.mark.parametrize(
    "env",
    [
        lambda: Fewer(Arm(16, discrete=True)),  # none of the three
        lambda: ClipAction(Arm((12.0, 5.0))),  # nothing becomes 12
        lambda: DiscretizeAction(Arm((9.9, 0.5)), 10),  # no bin's centre
        lambda: DiscretizeAction(Arm((9.5, 0.5)), 1000),  # too many to try
        lambda: Smooth(Arm()),
        lambda: Drifts(Arm(3, discrete=True)),  # the first action becomes 3 when it is tried again
        lambda: InStep(Arm()),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_wrapper_and_the_fix(env: Any) -> None:
    made = env()
    name = type(made).__name__
    with pytest.raises(EnvironmentFaultError, match=f"wrapper {name} outside.*put {name} inside"):
        stored(made)


@pytest.mark.parametrize("env", [Smooth, InStep, Fewer])
def test_nothing_is_converted_where_nobody_acts(env: Any) -> None:
    made = env(Arm(None, discrete=env is Fewer))
    np.testing.assert_array_equal(stored(made), np.zeros(made.action_space.shape).ravel())


def test_the_search_leaves_the_wrapper_as_it_is() -> None:
    env = Smooth(Arm())
    with pytest.raises(EnvironmentFaultError):
        stored(env)
    np.testing.assert_array_equal(env.last, [0.0, 0.0])


class Person(Takeover):
    """A person who does the largest action, without a device."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, None)

    def _read(self) -> PersonInput:
        return PersonInput(self.action_space.high)

    def _show(self) -> None:
        """There is no window."""


@pytest.mark.parametrize(
    "wrappers", [("RescaleAction", "Person"), ("Person", "RescaleAction")], ids=" in ".join
)
def test_a_takeover_is_stored_in_the_agents_terms_inside_and_outside(
    wrappers: tuple[str, ...],
) -> None:
    of = {
        "Person": {"name": f"{__name__}:Person"},
        "RescaleAction": {
            "name": "gymnasium.wrappers:RescaleAction",
            "kwargs": {"min_action": -1.0, "max_action": 1.0},
        },
    }
    table = {
        "id": f"{__name__}:Arm",
        "kwargs": {"done": None},
        "wrappers": [of[name] for name in wrappers],
    }
    envs = make_vector_environment(EnvConfig.model_validate(table), 2, 0)
    envs.reset()
    np.testing.assert_allclose(envs.step(np.zeros((2, 2))).action, np.ones((2, 2)))
    assert "_ExecutedActions" not in str(envs.group.envs[0])  # type: ignore[attr-defined]  # a loop's


def test_a_wrapper_of_a_vector_that_changes_actions_refuses_the_first_one() -> None:
    made = gym.vector.SyncVectorEnv([Arm, Arm])
    envs = NativeVectorEnv(of_vectors.RescaleAction(made, -1.0, 1.0), seed=0)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match="put RescaleAction inside"):
        envs.step(np.zeros((2, 2)))

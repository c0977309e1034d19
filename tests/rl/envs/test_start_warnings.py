"""What an environment has and a run does not use, or pays for, is said at the start: masks of
allowed actions, a window."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs import EnvConfig, probe_environment

MASK = np.array([1, 0], np.int8)


class Plain(gym.Env[Any, Any]):
    observation_space: gym.Space[Any] = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    has_info = False

    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def look(self) -> dict[str, Any]:
        return {"action_mask": MASK.copy()} if self.has_info else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observe(), self.look()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observe(), 0.0, True, False, self.look()


class AnswersAll(Plain):
    """As a client of a remote simulator."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: MASK


class Method(Plain):
    def action_masks(self) -> Any:
        return MASK


class Info(Plain):
    has_info = True


class Part(Plain):
    observation_space = gym.spaces.Dict(
        observation=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
        action_mask=gym.spaces.Box(0, 1, (2,), np.int8),
    )

    def observe(self) -> Any:
        return {"observation": np.zeros(2, np.float32), "action_mask": MASK.copy()}


class Window(Plain):
    metadata = {"render_modes": ["human"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


def test_a_window_in_training_is_said_with_the_key_to_drop() -> None:
    config = EnvConfig(id=f"{__name__}:Window", kwargs={"render_mode": "human"})
    with pytest.warns(UserWarning, match=r"draws every step.*leave env\.kwargs\.render_mode out"):
        probe_environment(config)


def wrapped() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Method(), 9)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("Method", r"Method\.action_masks\(\)"),
        ("wrapped", r"Method\.action_masks\(\)"),
        ("Info", r"info\['action_mask'\] of reset\(\)"),
        ("Part", "the part 'action_mask' of the observations"),
    ],
)
def test_a_mask_that_no_agent_uses_is_said_with_its_place(name: str, named: str) -> None:
    with pytest.warns(UserWarning, match=f"{named} says which actions are allowed.*among all"):
        probe_environment(EnvConfig(id=f"{__name__}:{name}"))


@pytest.mark.parametrize("name", ["Plain", "AnswersAll"])
def test_an_environment_without_a_mask_is_not_warned_of(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe_environment(EnvConfig(id=f"{__name__}:{name}"))

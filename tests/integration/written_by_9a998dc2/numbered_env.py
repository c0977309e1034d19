"""An environment of pictures that are numbers: which copy of it plays, and which step it is."""

from __future__ import annotations

import time
import uuid
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, ModelInfo
from vedette_rl.envs.spaces import Spaces

UIDS = 2**31


class NumberedPictures(gym.Env[NDArray[Any], np.int64]):
    """A picture ``(2, 8)``: the bytes of the environment's own number, and of its step's.

    Steps count over all episodes, so of each number the replay must hold the transitions 0 -> 1,
    1 -> 2, ... once each.

    Args:
        sleep_s: how long a step takes.
    """

    observation_space = gym.spaces.Box(0, 255, (2, 8), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, sleep_s: float = 0.0) -> None:
        self._uid = uuid.uuid4().int % UIDS
        self._t = 0
        self._sleep_s = sleep_s

    def _picture(self) -> NDArray[Any]:
        return np.array([[self._uid], [self._t]], np.int64).view(np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        time.sleep(self._sleep_s)
        self._t += 1
        return self._picture(), float(self._t % 3), self._t % 7 == 0, self._t % 11 == 0, {}


def steps_of(pictures: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers ``(rows, 2)``, environment and step, of pictures ``(rows, ..., 2, 8)``; of a
    stack its newest."""
    numbers = np.ascontiguousarray(pictures).view(np.int64)[..., 0]
    return numbers.reshape(len(numbers), -1, 2)[:, -1]


class Flips:
    """A policy of a user's training loop, with one array: the chance of action 1."""

    def __init__(self, spaces: Spaces, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def sync_model(self, model: ModelInfo) -> None:
        (self._chance,) = model.arrays["chance"]

    def act(self, obs: Columns, *, explore: bool) -> NDArray[np.int64]:
        return (self._rng.random(len(obs["obs"])) < self._chance).astype(np.int64)

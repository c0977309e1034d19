"""`Synthetic-v0`: an environment with observations of any shape that takes hardly any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class Synthetic(gym.Env[NDArray[Any], np.int64]):
    """Returns the same observation for ever; episodes have 100 steps.

    Args:
        shape: of an observation.
        dtype: ``float32`` or ``uint8``.
        sleep_s: seconds that a step sleeps, to imitate a slow simulator.
    """

    def __init__(
        self, shape: Sequence[int] = (4,), dtype: str = "float32", sleep_s: float = 0.0
    ) -> None:
        high = 255 if dtype == "uint8" else 1
        self.observation_space = gym.spaces.Box(0, high, tuple(shape), np.dtype(dtype).type)
        self.action_space = gym.spaces.Discrete(2)
        self._obs = np.ones(tuple(shape), dtype)
        self._steps = 0
        self._sleep_s = sleep_s

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        self._steps += 1
        return self._obs.copy(), 1.0, self._steps % 100 == 0, False, {}


gym.register("Synthetic-v0", entry_point="vedette.bench.synthetic:Synthetic")

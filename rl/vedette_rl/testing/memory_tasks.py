"""Tasks that cannot be solved by what is seen at one step: an agent needs a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]


class RepeatFirst(gym.Env[Numbers, np.int64]):
    """Shows one of two signs at first and nothing from then on; the last action is to name it.

    The return is 1 where it does, else 0: 0.5 on average without a memory. An observation is
    float32 ``(3,)``: one number for each sign, and one for none.

    Args:
        steps: of an episode. With 1 the sign is seen by the action that names it.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, steps: int = 5) -> None:
        self.steps = steps
        self.observation_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.t = 0
        self.sign = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Numbers, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.sign = int(self.np_random.integers(2))
        return np.eye(3, dtype=np.float32)[self.sign], {}

    def step(self, action: np.int64) -> tuple[Numbers, float, bool, bool, dict[str, Any]]:
        self.t += 1
        is_over = self.t == self.steps
        reward = float(is_over and action == self.sign)
        return np.eye(3, dtype=np.float32)[2], reward, is_over, False, {}


class PartOfObservation(gym.ObservationWrapper[Numbers, Any, Numbers]):
    """Shows some numbers of a vector alone, such as places without velocities.

    Args:
        indices: of the numbers that are shown.

    Raises:
        ValueError: the observation is no vector, or has no such numbers.
    """

    def __init__(self, env: gym.Env[Numbers, Any], indices: Sequence[int]) -> None:
        super().__init__(env)
        whole = env.observation_space
        if not isinstance(whole, gym.spaces.Box) or len(whole.shape) != 1:
            raise ValueError(f"the observation is {whole}, and not a vector")
        size = whole.shape[0]
        if not indices or not all(0 <= index < size for index in indices):
            raise ValueError(f"indices is {list(indices)}: name numbers from 0 to {size - 1}")
        self.indices = list(indices)
        self.observation_space = gym.spaces.Box(
            whole.low[self.indices], whole.high[self.indices], dtype=whole.dtype.type
        )

    def observation(self, observation: Numbers) -> Numbers:
        """The numbers that are shown."""
        return observation[self.indices]

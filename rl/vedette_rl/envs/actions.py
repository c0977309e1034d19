"""Actions as agents say them to actions as environments take them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.envs.spaces import action_field


class ActionForm:
    """Turns a row of agent's actions into the environment's own.

    Discrete actions count from 0 for agents and from `start` for an environment; a Box of float64
    gets float64.
    """

    def __init__(self, space: gym.Space[Any], count: int) -> None:
        _, self._dtype, shape = action_field(space)
        self._shape = (count, *shape)
        self._env_dtype = space.dtype
        self._scalar = shape == () and space.dtype == self._dtype
        self._start: Any = 0
        if isinstance(space, (gs.Discrete, gs.MultiDiscrete)):
            self._start = space.start if np.any(space.start) else 0
        self._shifted = bool(np.any(self._start))

    def column(self, action: NDArray[Any]) -> NDArray[Any]:
        """The action as it is stored; the same array where it already is so.

        Raises:
            ValueError: it is not one action for each environment.
        """
        action = np.asarray(action, dtype=self._dtype)
        if action.shape != self._shape:
            raise ValueError(f"actions of shape {action.shape}, expected {self._shape}")
        return action

    def of_env(self, column: NDArray[Any]) -> NDArray[Any]:
        """What the environments are given. Arrays are fresh: they may keep or change theirs."""
        if self._shifted:
            column = column + self._start
        elif self._scalar:
            return column
        return column.astype(self._env_dtype)

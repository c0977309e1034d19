"""Conversion of agents' actions to those that environments take."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.envs.spaces import action_field


class ActionConverter:
    """Converts a vector of an agent's actions to the environment's own.

    Discrete actions count from 0 for agents and from `start` for an environment; a Box of float64
    gets float64, within its own bounds.
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
        self._bounds = _bounds_that_round_outwards(space)

    @property
    def is_identity(self) -> bool:
        """True if the environment takes the agent's actions unchanged."""
        return not self._shifted and self._env_dtype == self._dtype

    def to_column(self, action: NDArray[Any]) -> NDArray[Any]:
        """The action as it is stored; the same array where it already is so.

        Raises:
            ValueError: it is not one action for each environment.
        """
        action = np.asarray(action, dtype=self._dtype)
        if action.shape != self._shape:
            raise ValueError(f"actions of shape {action.shape}, expected {self._shape}")
        return action

    def to_environment(self, column: NDArray[Any]) -> NDArray[Any]:
        """The actions for the environments, of any number of them. Arrays are new: an environment
        may keep or change its own."""
        if self._shifted:
            column = column + self._start
        elif self._scalar:
            return column
        own: NDArray[Any] = column.astype(self._env_dtype)
        return own if self._bounds is None else np.clip(own, *self._bounds, out=own)


def _bounds_that_round_outwards(
    space: gym.Space[Any],
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The bounds of a Box that actions can pass by being stored in float32: ``float32(0.1)`` is
    above 0.1. None where they cannot."""
    if not isinstance(space, gs.Box) or space.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):
        above = space.high.astype(np.float32) > space.high
        below = space.low.astype(np.float32) < space.low
    return (space.low, space.high) if above.any() or below.any() else None

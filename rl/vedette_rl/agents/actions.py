"""What an agent knows of an action space. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.errors import UnsupportedSpaceError

_INFINITY = np.float32(np.inf)


@dataclass(frozen=True, slots=True)
class DiscreteActions:
    """Finitely many actions: `n` of them, of which the environment calls the first `start`."""

    n: int
    start: int

    @classmethod
    def from_space(cls, agent: str, space: gym.Space[Any]) -> DiscreteActions:
        """Read it from the space.

        Raises:
            UnsupportedSpaceError: the space is not Discrete.
        """
        if not isinstance(space, spaces.Discrete):
            raise UnsupportedSpaceError(agent, "action", space, "Discrete")
        return cls(int(space.n), int(space.start))


@dataclass(frozen=True, slots=True)
class BoxActions:
    """Vectors between bounds; agents see them flattened and scaled to [-1, 1].

    Args:
        low: the lower bounds ``(D,)`` float32, `high` the upper ones; where float32 has no such
            number, the next one within.
        shape: the environment's shape of an action.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    shape: tuple[int, ...]

    @classmethod
    def from_space(cls, agent: str, space: gym.Space[Any]) -> BoxActions:
        """Read it from the space.

        Raises:
            UnsupportedSpaceError: the space is no Box of floats, or not of a finite width.
        """
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise UnsupportedSpaceError(agent, "action", space, "continuous Box")
        with np.errstate(over="ignore"):
            low = space.low.astype(np.float32).ravel()
            high = space.high.astype(np.float32).ravel()
            width = high - low  # of a Box that says the largest float for "no bound", inf
        if not np.isfinite(width).all():
            takes = "bounded Box (gymnasium.wrappers.TransformAction gives one bounds)"
            raise UnsupportedSpaceError(agent, "action", space, takes)
        low = np.where(low < space.low.ravel(), np.nextafter(low, _INFINITY), low)
        high = np.where(high > space.high.ravel(), np.nextafter(high, -_INFINITY), high)
        return cls(low, high, space.shape)

    @property
    def dimensions(self) -> int:
        """D: numbers an action has."""
        return len(self.low)

    @property
    def center(self) -> NDArray[np.float32]:
        """What 0 is scaled to ``(D,)``."""
        center: NDArray[np.float32] = (self.high + self.low) * np.float32(0.5)
        return center

    @property
    def half_width(self) -> NDArray[np.float32]:
        """The distance ``(D,)`` from the center to a bound; 1 where both bounds are the same."""
        half: NDArray[np.float32] = (self.high - self.low) * np.float32(0.5)
        return np.where(half > 0, half, np.float32(1))

    def from_unit(self, unit_ED: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions ``(E, *shape)`` in the environment's bounds from ``(E, D)`` in [-1, 1]."""
        action = np.clip(self.center + self.half_width * unit_ED, self.low, self.high)
        return action.reshape(len(unit_ED), *self.shape)

"""Action spaces as agents use them. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.errors import UnsupportedSpaceError
from vedette_rl.networks.layers import Array

_INFINITY = np.float32(np.inf)


@dataclass(frozen=True, slots=True)
class DiscreteActions:
    """Finitely many actions: `size` of them, of which the environment calls the first `start`."""

    size: int
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
            width = high - low  # inf, of a Box with the largest float as "no bound"
        if not np.isfinite(width).all():
            takes = "bounded Box (gymnasium.wrappers.TransformAction gives one bounds)"
            raise UnsupportedSpaceError(agent, "action", space, takes)
        low = np.where(low < space.low.ravel(), np.nextafter(low, _INFINITY), low)
        high = np.where(high > space.high.ravel(), np.nextafter(high, -_INFINITY), high)
        return cls(low, high, space.shape)

    @property
    def size(self) -> int:
        """D: numbers an action has."""
        return len(self.low)

    @property
    def center(self) -> NDArray[np.float32]:
        """The center ``(D,)`` of the bounds, which 0 is scaled to."""
        center: NDArray[np.float32] = (self.high + self.low) * np.float32(0.5)
        return center

    @property
    def half_width(self) -> NDArray[np.float32]:
        """The distance ``(D,)`` from the center to a bound; 1 where both bounds are the same."""
        half: NDArray[np.float32] = (self.high - self.low) * np.float32(0.5)
        return np.where(half > 0, half, np.float32(1))

    @property
    def scaling(self) -> tuple[NDArray[np.float32], ...]:
        """The arguments of `to_bounds` after the actions."""
        return self.center, self.half_width, self.low, self.high


def to_bounds(
    unit_ED: Array, center_D: Array, half_width_D: Array, low_D: Array, high_D: Array
) -> Array:
    """Actions ``(E, D)`` within the environment's bounds from those in [-1, 1]."""
    return (center_D + half_width_D * unit_ED).clip(low_D, high_D)

"""Action spaces as agents use them. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.errors import TooManyCategoriesError, UnsupportedSpaceError
from vedette_rl.networks.layers import Array
from vedette_rl.networks.observation import CATEGORIES_MAX

_INFINITY = np.float32(np.inf)


@dataclass(frozen=True, slots=True)
class DiscreteActions:
    """Finitely many actions, in one dimension or in several, each of which has a head of values.

    A network gives the values ``(B, A)`` of all heads side by side.

    Args:
        counts: the actions of each dimension.
        starts: the environment's number of the first choice of each.
        shape: the shape of an action; () where there is one dimension that is not an array.
    """

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...] = ()

    @classmethod
    def from_space(cls, agent: str, space: gym.Space[Any]) -> DiscreteActions:
        """Read it from the space.

        Raises:
            UnsupportedSpaceError: the space is not Discrete and not MultiDiscrete.
            TooManyCategoriesError: a network cannot have so many values.
        """
        match space:
            case spaces.Discrete():
                actions = cls((int(space.n),), (int(space.start),))
            case spaces.MultiDiscrete():
                counts = tuple(int(n) for n in space.nvec.flat)
                starts = tuple(int(n) for n in np.asarray(space.start).flat)
                actions = cls(counts, starts, tuple(space.nvec.shape))
            case _:
                raise UnsupportedSpaceError(agent, "action", space, "Discrete or MultiDiscrete")
        if actions.size > CATEGORIES_MAX:
            raise TooManyCategoriesError(agent, "actions", space, actions.size, CATEGORIES_MAX)
        return actions

    def describe(self) -> dict[str, list[int]]:
        """These actions, as the wire's page says."""
        return {"counts": list(self.counts), "starts": list(self.starts)}

    @property
    def size(self) -> int:
        """A: values that a network gives."""
        return sum(self.counts)

    @property
    def heads(self) -> int:
        """D: dimensions of an action."""
        return len(self.counts)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The column ``(D,)`` of each head's first value."""
        return np.cumsum((0, *self.counts[:-1]), dtype=np.int64)

    def greedy(self, xp: Any, q_BA: Array) -> Array:
        """The best actions ``(B, *shape)`` as the environment calls them, with numpy or torch."""
        best = [
            q_BA[:, first : first + count].argmax(1) + start
            for first, count, start in zip(
                self.offsets.tolist(), self.counts, self.starts, strict=True
            )
        ]
        return xp.stack(best, 1).reshape(-1, *self.shape) if self.shape else best[0]

    def padded(self, q_BA: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values ``(B D, C)`` of each head in a row of its own; -inf where it has fewer."""
        most = max(self.counts)
        if min(self.counts) == most:
            return q_BA.reshape(-1, most)
        q_BDC = np.full((len(q_BA), self.heads, most), -_INFINITY)
        for head, (first, count) in enumerate(zip(self.offsets, self.counts, strict=True)):
            q_BDC[:, head, :count] = q_BA[:, first : first + count]
        return q_BDC.reshape(-1, most)


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

    def describe(self) -> dict[str, list[float]]:
        """These actions, as the wire's page says."""
        return {"low": self.low.tolist(), "high": self.high.tolist()}

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

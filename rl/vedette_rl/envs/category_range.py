"""The categories of a Discrete, MultiDiscrete or MultiBinary space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray


class CategoryRange:
    """Finds numbers that name no category of their space.

    It is looked at in each step of each actor: a comparison as unsigned integers, in which what is
    below `start` is very large, costs half of two.

    Args:
        start: the smallest category of each number.
        counts: how many categories each has.
        dtype: of the columns.
    """

    def __init__(
        self,
        start: np.int64 | NDArray[np.int64],
        counts: np.int64 | NDArray[np.int64],
        dtype: np.dtype[Any],
    ) -> None:
        start, counts = np.asarray(start), np.asarray(counts)
        self._unsigned = np.dtype(f"u{dtype.itemsize}")
        self._start = start.astype(dtype)
        self._shifted = bool(start.any())
        self._last = (counts - 1).astype(self._unsigned)
        self._end = start + counts - 1

    @classmethod
    def of(cls, space: gym.Space[Any]) -> CategoryRange | None:
        """That of a space; None for one that has no categories."""
        if isinstance(space, gs.Discrete):
            return cls(np.int64(space.start), np.int64(space.n), np.dtype(space.dtype))
        if isinstance(space, gs.MultiDiscrete):
            start, counts = space.start.astype(np.int64), space.nvec.astype(np.int64)
            return cls(start, counts, np.dtype(space.dtype))
        if isinstance(space, gs.MultiBinary):
            start, counts = np.zeros(space.shape, np.int64), np.full(space.shape, 2, np.int64)
            return cls(start, counts, np.dtype(space.dtype))
        return None

    def has_all(self, rows: NDArray[Any]) -> bool:
        """True if each number of `rows` ``(R, *shape)`` names a category."""
        return not np.count_nonzero(self._outside(rows))

    def find_outside(
        self, rows: NDArray[Any], which: NDArray[np.bool_] | None = None
    ) -> tuple[int, ...] | None:
        """The place of the first number that names none, in the rows of `which` ``(R,)`` if it is
        given; None if all do."""
        outside = self._outside(rows)
        if which is not None:
            outside[~which] = False
        places = np.argwhere(outside)
        return tuple(places[0].tolist()) if len(places) else None

    def describe(self, place: tuple[int, ...]) -> str:
        """The categories of the number at this place of one observation, as words."""
        return f"{self._start[place]} to {self._end[place]}"

    def _outside(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        shifted = rows - self._start if self._shifted else rows
        outside: NDArray[np.bool_] = shifted.view(self._unsigned) > self._last
        return outside

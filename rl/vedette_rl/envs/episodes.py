"""Returns of episodes, and the transform of rewards in transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class EpisodeReturns:
    """Sums the true rewards of each environment's episode.

    ::

        tally.add(reward)             # every step
        tally.end(done)               # where episodes ended with it
        tally.take()                  # now and then
    """

    def __init__(self, count: int) -> None:
        self._returns = np.zeros(count, np.float64)
        self._steps = 0
        self._began = np.zeros(count, np.int64)
        self._finished: list[tuple[float, int]] = []

    def reset(self) -> None:
        """Drop unfinished episodes: all environments were reset."""
        self._returns.fill(0.0)
        self._began.fill(self._steps)

    def add(self, reward: NDArray[Any], valid: NDArray[Any] | None = None) -> None:
        """Count a step of all environments.

        Args:
            reward: ``(E,)`` true rewards.
            valid: ``(E,)`` bool, which rows stepped and did not only reset; None means all.
        """
        self._steps += 1
        if valid is None:
            self._returns += reward
        else:
            np.add(self._returns, reward, out=self._returns, where=valid)
            self._began[~valid] = self._steps

    def end(self, done: NDArray[Any]) -> None:
        """The episodes of the environments marked in `done` ``(E,)`` ended with this step."""
        for i in np.flatnonzero(done):
            self._finished.append((float(self._returns[i]), int(self._steps - self._began[i])))
        self._returns[done] = 0.0
        self._began[done] = self._steps

    def pop_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished


class RewardTransform:
    """Rewards of transitions: the true ones scaled, then clipped to ±`clip` (0: not clipped)."""

    def __init__(self, scale: float = 1.0, clip: float = 0.0) -> None:
        self._scale, self._clip = scale, clip

    def write(self, true: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the float32 rewards of `true` into `out`."""
        if self._scale == 1.0:
            out[:] = true
        else:
            np.multiply(true, self._scale, out=out, casting="same_kind")
        if self._clip:
            np.clip(out, -self._clip, self._clip, out=out)

"""The history of a run's weights: how many optimization steps lie between two models.

Versions count optimization steps, and go back when a start goes on from an older checkpoint. Models
of the steps that are lost stay in the replay and under way. So a model is an epoch (a start of the
learner) and a version, and the way between two models may lead over a fork.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNREACHED = 1 << 62
"""The lag of a row of a later epoch than this run has come to: it was put back from an older
copy."""


@dataclass(frozen=True, slots=True)
class History:
    """The starts that led to these weights.

    Args:
        starts: epoch, and the optimization step at which it began, in their order.
    """

    starts: tuple[tuple[int, int], ...] = ()

    def begun(self, epoch: int, opt_steps: int) -> History:
        """The history of a start that goes on from these weights."""
        return History((*self.starts, (epoch, opt_steps)))

    def lag(self, epoch: int, version: int, opt_steps: int) -> int:
        """Optimization steps between the model of a row and the weights of now.

        For models of this history it is ``opt_steps - version``. For those of an abandoned branch
        it counts both ways from where that branch left it.

        Args:
            epoch, version: the model that acted.
            opt_steps: of the weights.
        """
        if self._is_later(epoch):
            return UNREACHED
        parted = self._parted(epoch, opt_steps)
        return (opt_steps - parted) + abs(version - parted)

    def lags(self, epoch: int, versions: NDArray[np.int64], opt_steps: int) -> NDArray[np.int64]:
        """`lag` of several models of one epoch: ``(N,)`` of versions ``(N,)``."""
        if self._is_later(epoch):
            return np.full(len(versions), UNREACHED)
        parted = self._parted(epoch, opt_steps)
        return (opt_steps - parted) + np.abs(versions - parted)

    def _is_later(self, epoch: int) -> bool:
        return bool(self.starts) and epoch > self.starts[-1][0]

    def _parted(self, epoch: int, opt_steps: int) -> int:
        """The optimization step at which the models of an epoch leave this history."""
        later = [step for begun, step in self.starts if begun > epoch]
        return min([*later, opt_steps])

    def to_array(self) -> NDArray[np.int64]:
        """``(N, 2)``, for a checkpoint."""
        return np.array(self.starts, np.int64).reshape(-1, 2)

    @classmethod
    def from_array(cls, array: NDArray[np.int64]) -> History:
        """The history of a checkpoint."""
        return cls(tuple((int(epoch), int(step)) for epoch, step in array))

"""The result of an evaluation, and the interface of evaluators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from vedette_rl.core.acting import Policy


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Greedy episodes of one model. Returns are undiscounted sums of rewards."""

    version: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seed: int

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def return_mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def return_std(self) -> float:
        return float(np.std(self.returns))

    @property
    def length_mean(self) -> float:
        return float(np.mean(self.lengths))


@runtime_checkable
class Evaluator(Protocol):
    """Plays episodes with a policy and reports their returns."""

    def evaluate(self, policy: Policy, version: int) -> Evaluation:
        """Play the same episodes (same seeds) at every call, greedily."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...

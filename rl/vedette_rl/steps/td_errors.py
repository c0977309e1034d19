"""Transitions with the |TD error| that the acting network gives them: Ape-X's initial priorities
(Horgan et al. 2018, https://arxiv.org/abs/1803.00933, algorithm 1, line 8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.core.acting import TdErrorPolicy
from vedette_rl.replay.prioritized import TD_ERROR


class StepsWithTdErrors:
    """A `StepProcessor` that adds the column `TD_ERROR` to another's transitions.

    Args:
        inner: what makes the transitions.
        policy: computes the errors, by the model that it acts on now.
        whole: gives the transitions whole observations, where theirs are something else.
    """

    def __init__(
        self, inner: StepProcessor, policy: TdErrorPolicy, whole: Callable[[Columns], Columns]
    ) -> None:
        self._inner, self._policy, self._whole = inner, policy, whole

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes."""
        return self._with_errors(self._inner.process(step))

    def flush(self) -> Columns:
        """Return unfinished transitions, of fewer steps."""
        return self._with_errors(self._inner.flush())

    def _with_errors(self, transitions: Columns) -> Columns:
        if len(transitions["reward"]):
            errors = self._policy.td_errors(self._whole(transitions))
        else:
            errors = np.empty(0, np.float32)
        return {**transitions, TD_ERROR: errors}

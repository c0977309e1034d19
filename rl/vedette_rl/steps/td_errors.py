"""TD errors that actors add to their transitions: initial priorities, as in Ape-X."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.core.acting import TdErrorPolicy
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.steps.registry import prepare_steps


class StepsWithTdErrors:
    """A `StepProcessor` that adds the column `TD_ERROR` to another's transitions.

    They are Ape-X's initial priorities (Horgan et al. 2018, https://arxiv.org/abs/1803.00933,
    algorithm 1, line 8).

    Args:
        inner: the step processor that makes the transitions.
        policy: computes the errors, by the model that it acts on now.
        whole: gives the transitions whole observations, where theirs are something else.
    """

    def __init__(
        self, inner: StepProcessor, policy: TdErrorPolicy, whole: Callable[[Columns], Columns]
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._whole = whole

    @property
    def span(self) -> int | None:
        """The inner processor's span; None where it has none."""
        return getattr(self._inner, "span", None)

    def prepare(self, envs: VectorEnvironment, seed: int) -> None:
        """Prepare the inner processor."""
        prepare_steps(self._inner, envs, seed)

    def process(self, step: Step) -> Columns:
        return self._with_errors(self._inner.process(step))

    def flush(self) -> Columns:
        return self._with_errors(self._inner.flush())

    def _with_errors(self, transitions: Columns) -> Columns:
        if len(transitions["reward"]):
            errors = self._policy.td_errors(self._whole(transitions))
        else:
            errors = np.empty(0, np.float32)
        return {**transitions, TD_ERROR: errors}

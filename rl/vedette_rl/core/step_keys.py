"""The keys of steps, by which rows say which of them follow one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import BEGINS, ENV, TIME, Columns


def first_time(word: int) -> int:
    """Return the `TIME` from which a process counts that drew this random number of 32 bits.

    It is a multiple of 2**32 below 2**62. From 0, a process that starts again would fill the place
    of a lost batch with rows of its own.
    """
    return word >> 2 << 32


class StepKeys:
    """Counts the steps of E environments.

    ::

        keys = StepKeys(envs, first_time(word))
        extra = keys.of_step(begins, valid, envs.lost)      # after every step

    Args:
        envs: E.
        first: `TIME` of each environment's first step.
    """

    def __init__(self, envs: int, first: int) -> None:
        self._env = np.arange(envs, dtype=np.uint32)
        self._time = np.full(envs, first, np.int64)

    def of_step(
        self, begins: NDArray[np.bool_], valid: NDArray[np.bool_], lost: Sequence[int] = ()
    ) -> Columns:
        """Return a step's columns of `SEQUENCE_KEYS` ``(E,)``, and count it.

        Args:
            begins: ``(E,)``, where an episode began with the observation that was acted on.
            valid: ``(E,)``, where the step is a transition.
            lost: environments that failed in it: what follows does not follow what was before, so
                they count a step that no row has.
        """
        columns: Columns = {ENV: self._env, TIME: self._time, BEGINS: begins}
        following = self._time + valid
        following[list(lost)] += 1
        self._time = following
        return columns

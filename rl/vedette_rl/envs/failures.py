"""Failures of single environments: told, counted, and judged by what was played before them.

A simulator that raises once in 10,000 steps loses the episode in which it does; it is made again,
and the others play on. One that fails again and again before anything has come of it is broken: its
error ends whoever plays it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PROGRESS_STEPS = 1000
"""An environment makes progress where it plays so many steps, or an episode to its end."""

MOST_FAILURES = 10
"""Failures of one environment, in a row without progress between them, or within `PROGRESS_STEPS`
steps: the last is raised."""

MOST_UNPLAYED = 3
"""The same for one that fails before its first step is over: when it is made, or reset."""


@dataclass(frozen=True, slots=True)
class EnvironmentFailure:
    """A failure of one environment of a group.

    Args:
        env: its number in the group.
        error: what it raised.
        count: failures of the group until now.
    """

    env: int
    error: Exception
    count: int


OnFailure = Callable[[EnvironmentFailure], None]
"""Told of a failure before the environment is made again, which may take long."""


class ReplaceableEnvs(Protocol):
    """A group of environments of which one is made again."""

    def replace(self, i: int) -> None: ...


class FailureJudge:
    """Judges whether an environment of a group that has failed is made again.

    ::

        judge.steps += 1                        # of all environments
        judge.on_ended(done)                    # where episodes ended
        judge.replace(envs, failures)    # raises the error of one that is broken

    Args:
        count: environments of the group.
        on_failure: told of each; None: nobody is.
    """

    def __init__(self, count: int, on_failure: OnFailure | None = None) -> None:
        self.on_failure = on_failure
        self.steps = 0
        """Of each environment."""
        self._failures = 0
        self._in_a_row = [0] * count
        self._failed_at = [deque[int](maxlen=MOST_FAILURES) for _ in range(count)]
        self._unplayed = [0] * count
        self._made_at = [0] * count  # steps then
        self._ended = np.zeros(count, np.bool_)  # an episode, since it was made

    def on_ended(self, which: NDArray[np.bool_]) -> None:
        """Episodes of these environments ``(E,)`` ended as they should."""
        self._ended |= which

    def replace(self, group: ReplaceableEnvs, failures: Sequence[tuple[int, Exception]]) -> None:
        """Make the environments again that have failed, which need a reset then.

        Raises:
            Exception: what one raised, with a note: it is broken.
        """
        for env, error in failures:
            failed: Exception | None = error
            while failed is not None:
                self._judge(env, failed)
                failed = None
                try:
                    group.replace(env)
                except Exception as again:  # noqa: BLE001 - its constructor may raise anything
                    failed = again

    def _judge(self, env: int, error: Exception) -> None:
        """Judge whether it is to be made again; raises the error of one that is broken."""
        played = self.steps - self._made_at[env]
        ended = bool(self._ended[env])
        progressed = ended or played >= PROGRESS_STEPS
        self._in_a_row[env] = 1 if progressed else self._in_a_row[env] + 1
        # The step in which it failed is counted.
        self._unplayed[env] = 0 if ended or played > 1 else self._unplayed[env] + 1
        self._made_at[env] = self.steps
        self._ended[env] = False
        self._failures += 1
        if self._unplayed[env] >= MOST_UNPLAYED:
            error.add_note(f"it failed {MOST_UNPLAYED} times in a row before a step was played")
            raise error
        if self._in_a_row[env] >= MOST_FAILURES:
            error.add_note(
                f"it failed {MOST_FAILURES} times in a row, each time before an episode ended or "
                f"{PROGRESS_STEPS:,} steps were played"
            )
            raise error
        failed_at = self._failed_at[env]
        failed_at.append(self.steps)
        if len(failed_at) == MOST_FAILURES and self.steps - failed_at[0] < PROGRESS_STEPS:
            error.add_note(f"it failed {MOST_FAILURES} times within {PROGRESS_STEPS:,} steps")
            raise error
        if self.on_failure is not None:
            self.on_failure(EnvironmentFailure(env, error, self._failures))

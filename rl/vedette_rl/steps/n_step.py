"""n-step transitions (Sutton & Barto 2018, section 7.1; Watkins 1989, corrected returns).

A transition of n steps goes from what was seen at t to what was seen at t + n and carries
``R = r_t + discount r_{t+1} + ... + discount^(n-1) r_{t+n-1}``; the learner bootstraps with
``discount ** n_steps``. Where an episode ends before n steps are over, terminated or truncated, the
transition is of as many steps as there were: none reaches into the next episode.

E is the number of environments, n of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, columns_of

N_MAX = 255  # the column `n_steps` is uint8


class NStep:
    """A `StepProcessor` over a row of E environments.

    Args:
        n: steps of a transition, 1 to 255.
        discount: of each step's reward.
        envs: E.
        dtype: of a transition (`vedette_rl.envs.transition_dtype`).
    """

    def __init__(self, n: int, discount: float, envs: int, dtype: np.dtype[Any]) -> None:
        if not 1 <= n <= N_MAX:
            raise ValueError(f"n-step transitions are of 1 to {N_MAX} steps, not {n}")
        self._n, self._discount, self._dtype = n, discount, dtype
        self._rows = np.arange(envs)
        # Unfinished transitions: place k of environment e holds what was seen and done at its
        # beginning, what it returned so far, and its age in steps (0: the place is free).
        self._begun: Columns = {
            name: column.reshape(n, envs, *column.shape[1:])
            for name, column in columns_of(_begin_dtype(dtype), n * envs).items()
        }
        self._returns = np.zeros((n, envs), np.float64)
        self._gains = np.zeros((n, envs), np.float64)  # discount ** age where unfinished, else 0
        self._ages = np.zeros((n, envs), np.int64)
        self._place = np.zeros(envs, np.int64)
        self._last: Step | None = None

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes, oldest first for each environment."""
        if self._n == 1:
            return self._one_step(step)
        valid = step.valid
        rows = self._rows if valid.all() else np.flatnonzero(valid)
        self._begin(step, rows)
        reward = np.where(valid, step.reward, 0.0)
        self._returns += self._gains * reward
        unfinished = (self._ages > 0) & valid
        self._ages[unfinished] += 1
        self._gains[unfinished] *= self._discount
        self._ages[self._place[rows], rows] = 1
        self._gains[self._place[rows], rows] = self._discount
        self._place[rows] = (self._place[rows] + 1) % self._n
        self._last = step
        done = (step.terminated | step.truncated) & valid
        return self._take((self._ages == self._n) | ((self._ages > 0) & done), step, done)

    def flush(self) -> Columns:
        """What is unfinished, up to the successor seen last: neither terminated nor truncated, so
        its value still counts. Call it before the row's next step; the processor is empty after.
        """
        if self._last is None:
            return columns_of(self._dtype, 0)
        step, self._last = self._last, None
        return self._take(self._ages > 0, step, np.zeros(len(self._rows), np.bool_))

    def _begin(self, step: Step, rows: NDArray[Any]) -> None:
        place = self._place[rows]
        for name, column in step.obs.items():
            self._begun[name][place, rows] = column[rows]
        self._begun["action"][place, rows] = step.action[rows]
        self._returns[place, rows] = step.reward[rows]

    def _take(self, which: NDArray[Any], step: Step, done: NDArray[Any]) -> Columns:
        place, rows = np.nonzero(which)
        ages = self._ages[place, rows]
        if (ages < self._n).any():  # only then may an environment have several
            order = np.lexsort((-ages, rows))
            place, rows, ages = place[order], rows[order], ages[order]
        transitions: Columns = {
            name: column[place, rows] for name, column in self._begun.items() if name != "action"
        }
        transitions["action"] = self._begun["action"][place, rows]
        transitions["reward"] = self._returns[place, rows].astype(np.float32)
        for name, column in step.next_obs.items():
            transitions[f"next_{name}"] = column[rows]
        transitions["terminated"] = (step.terminated & done)[rows]
        transitions["truncated"] = (step.truncated & done)[rows]
        transitions["n_steps"] = ages.astype(np.uint8)
        self._ages[place, rows] = 0
        self._gains[place, rows] = 0.0
        return transitions

    def _one_step(self, step: Step) -> Columns:
        rows = slice(None) if step.valid.all() else step.valid
        transitions: Columns = {name: column[rows].copy() for name, column in step.obs.items()}
        transitions["action"] = step.action[rows].astype(self._dtype["action"].base)
        transitions["reward"] = step.reward[rows].copy()
        for name, column in step.next_obs.items():
            transitions[f"next_{name}"] = column[rows].copy()
        transitions["terminated"] = step.terminated[rows].copy()
        transitions["truncated"] = step.truncated[rows].copy()
        transitions["n_steps"] = np.ones(len(transitions["reward"]), np.uint8)
        return transitions


def _begin_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The columns known when a transition begins: its observation and action."""
    names = [
        name
        for name in dtype.names or ()
        if name == "obs" or name.startswith("obs/") or name == "action"
    ]
    return np.dtype([(name, dtype[name].base, dtype[name].shape) for name in names])

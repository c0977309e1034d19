"""The built-in step processor, which makes n-step transitions.

(Sutton & Barto 2018, section 7.1; Watkins 1989, corrected returns.)

A transition of n steps goes from what was seen at t to what was seen at t + n and carries
``R = r_t + discount r_{t+1} + ... + discount^(n-1) r_{t+n-1}``; the learner bootstraps with
``discount ** n_steps``. Where an episode ends before n steps are over, terminated or truncated, the
transition is of as many steps as there were: none reaches into the next episode.

E is the number of environments, n of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, empty_columns
from vedette_rl.errors import RowColumnError

N_MAX = 255  # the column `n_steps` is uint8


class NStep:
    """A `StepProcessor` over a vector of E environments.

    A row that is not `valid` is taken for a reset after an episode's end, as Gymnasium has it: it
    begins nothing, and nothing is unfinished there.

    Args:
        n: steps of a transition, 1 to 255.
        discount: the discount of each step's reward.
        envs: E.
        dtype: the dtype of a transition (`vedette_rl.envs.transition_dtype`).
    """

    def __init__(self, n: int, discount: float, envs: int, dtype: np.dtype[Any]) -> None:
        if not 1 <= n <= N_MAX:
            raise ValueError(f"n-step transitions are of 1 to {N_MAX} steps, not {n}")
        self._n = n
        self._dtype = dtype
        # Place k holds what every environment saw and did at one step: of the last n steps one
        # each, in a ring. `_alive` marks those whose transition is unfinished.
        self._begun: Columns = {
            name: column.reshape(n, envs, *column.shape[1:])
            for name, column in empty_columns(_begin_dtype(dtype), n * envs).items()
        }
        self._returns = np.zeros((n, envs), np.float64)
        self._alive = np.zeros((n, envs), np.bool_)
        self._place = 0
        places = np.arange(n)
        self._ages = (places[:, None] - places) % n + 1  # [now, then]: steps from then to now
        self._gains = (discount ** (self._ages - 1.0))[:, :, None]
        self._extra: Columns = {}  # what steps carry besides, ``(n, E, *shape)`` each
        self._last: Step | None = None

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes, oldest first for each environment.

        Raises:
            RowColumnError: a column of `Step.extra` has another shape than in steps before.
        """
        if self._n == 1:
            return _one_step(step, self._dtype)
        place = self._place
        for name, column in step.obs.items():
            self._begun[name][place] = column
        self._begun["action"][place] = step.action
        for name, column in step.extra.items():
            if name not in self._extra:
                self._extra[name] = np.zeros((self._n, *column.shape), column.dtype)
            begun = self._extra[name]
            if begun.shape[1:] != column.shape:  # numpy might repeat it
                why = f"it comes as {[*column.shape]}, and came as {[*begun.shape[1:]]} before"
                raise RowColumnError(name, f"{why}: give every step the same")
            begun[place] = column
        self._returns[place] = 0.0
        self._returns += self._gains[place] * step.reward
        self._alive[place] = step.valid
        self._last = step
        self._place = oldest = (place + 1) % self._n
        done = step.terminated | step.truncated
        if done.any():
            which = self._alive & done
            which[oldest] |= self._alive[oldest]
            return self._complete(which, step, place)
        return self._complete_oldest(oldest, step)

    def flush(self) -> Columns:
        """Return unfinished transitions up to the last successor: neither terminated nor truncated,
        so its value still counts. The processor is empty afterwards.

        The environments may have been stepped once more, where one of them failed. Then only the
        last step's `init_obs` is still valid: which is the successor wherever no episode ended.
        """
        if self._last is None:
            return empty_columns(self._dtype, 0)
        none_ended = np.zeros(self._alive.shape[1], np.bool_)
        step = replace(
            self._last,
            next_obs=self._last.init_obs,
            terminated=none_ended,
            truncated=none_ended,
        )
        self._last = None
        return self._complete(self._alive.copy(), step, (self._place - 1) % self._n)

    def _complete(self, which: NDArray[Any], step: Step, now: int) -> Columns:
        """The transitions marked in `which` ``(n, E)``, up to the step at place `now`."""
        then, rows = np.nonzero(which)
        order = np.lexsort((-self._ages[now, then], rows))
        then, rows = then[order], rows[order]
        begun = {name: column[then, rows] for name, column in self._begun.items()}
        extra = {name: column[then, rows] for name, column in self._extra.items()}
        self._alive &= ~which
        ages = self._ages[now, then].astype(np.uint8)
        return _transitions(begun, self._returns[then, rows], step, rows, ages, extra)

    def _complete_oldest(self, oldest: int, step: Step) -> Columns:
        """Complete the transitions of n steps: the only ones where no episode ends."""
        alive = self._alive[oldest]
        rows = slice(None) if alive.all() else np.flatnonzero(alive)
        begun = {name: column[oldest][rows].copy() for name, column in self._begun.items()}
        extra = {name: column[oldest][rows].copy() for name, column in self._extra.items()}
        returns = self._returns[oldest][rows]
        alive[:] = False
        ages = np.full(len(returns), self._n, np.uint8)
        return _transitions(begun, returns, step, rows, ages, extra)


def _transitions(
    begun: Columns,
    returns: NDArray[Any],
    step: Step,
    rows: Any,
    ages: NDArray[Any],
    extra: Columns,
) -> Columns:
    """Columns in their order, owned by the caller. `rows` are the environments of each, or all."""
    action = begun.pop("action")
    transitions: Columns = {**begun, "action": action, "reward": returns.astype(np.float32)}
    for name, column in step.next_obs.items():
        transitions["next_" + name] = column[rows].copy()
    transitions["terminated"] = step.terminated[rows].copy()
    transitions["truncated"] = step.truncated[rows].copy()
    transitions["n_steps"] = ages
    transitions.update(extra)
    return transitions


def _one_step(step: Step, dtype: np.dtype[Any]) -> Columns:
    rows = slice(None) if step.valid.all() else step.valid
    begun: Columns = {name: column[rows].copy() for name, column in step.obs.items()}
    begun["action"] = step.action[rows].astype(dtype["action"].base)
    reward = step.reward[rows]
    extra = {name: column[rows].copy() for name, column in step.extra.items()}
    return _transitions(begun, reward, step, rows, np.ones(len(reward), np.uint8), extra)


def _begin_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The columns known when a transition begins: its observation and action."""
    names = [
        name
        for name in dtype.names or ()
        if name == "obs" or name.startswith("obs/") or name == "action"
    ]
    return np.dtype([(name, dtype[name].base, dtype[name].shape) for name in names])

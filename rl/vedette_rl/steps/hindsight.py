"""Hindsight experience replay (HER; Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495).

Each transition of an episode comes once as it was, and k times with a goal that was reached later
in the same episode: the strategy *future* of their section 4.5, k = 4. The reward is computed
again, by the environment's own ``compute_reward``.

The environment is one of goals, as gymnasium-robotics has them: its observation is a dictionary
with ``achieved_goal`` and ``desired_goal`` of the same shape, and it has
``compute_reward(achieved_goal, desired_goal, info)`` for arrays ``(rows, *goal)``. Where it has
``compute_terminated`` of the same arguments, that is asked, too; else a relabelled transition is
terminated as the original is.

Letters: E environments, T steps of an episode, k goals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, empty_columns
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import HindsightError
from vedette_rl.steps.n_step import NStep

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
_REACHED = f"next_obs/{ACHIEVED}"
_WANTED = f"obs/{DESIRED}", f"next_obs/{DESIRED}"

EPISODE_STEPS_MAX = 1000
"""Steps of an episode that are held; of a longer one each such part is taken for an episode."""


class Hindsight:
    """A `StepProcessor` that gives each episode once it has ended, relabelled too.

    Args:
        n: 1: a reward of several steps would be of several goals.
        discount: not used.
        envs: E.
        dtype: of a transition.
        goals: k, relabelled transitions beside each.

    Raises:
        HindsightError: n is not 1, or the observations have no goals.
    """

    def __init__(
        self, n: int, discount: float, envs: int, dtype: np.dtype[Any], goals: int = 4
    ) -> None:
        if n != 1:
            raise HindsightError(f"it makes transitions of one step, not of {n}", "agent.n_step=1")
        names = dtype.names or ()
        if not {_REACHED, *_WANTED} <= {*names} or dtype[_REACHED] != dtype[_WANTED[0]]:
            raise HindsightError(
                f"the observation needs {ACHIEVED!r} and {DESIRED!r} of the same shape",
                "actors.step_processor=n_step, or another environment",
            )
        self._dtype, self._goals = dtype, goals
        self._steps = NStep(1, discount, envs, dtype)
        self._held: list[Columns] = []  # transitions of all E environments, a step each
        self._first = self._next = 0  # numbers of the oldest step held, and of the next one
        self._began = np.zeros(envs, np.int64)  # the steps with which the episodes begin
        self.span = 1
        """Steps from the oldest that is held, or was given last, to the newest."""

    def prepare(self, envs: VectorEnvironment, seed: int) -> None:
        """Take the environments' own reward, and a seed for the goals.

        Raises:
            HindsightError: they do not have it.
        """
        compute = envs.attribute("compute_reward")
        if compute is None:
            raise HindsightError(
                "the environment has no compute_reward(achieved_goal, desired_goal, info)",
                "actors.step_processor=n_step, or give it that method",
            )
        self._compute: Callable[..., Any] = compute
        self._terminated: Callable[..., Any] | None = envs.attribute("compute_terminated")
        self._transform = envs.transform_rewards
        self._rng = np.random.default_rng(seed)

    def process(self, step: Step) -> Columns:
        """The transitions of the episodes that end with this step, as they were and relabelled."""
        everyone = np.ones(len(step.valid), np.bool_)
        self._held.append(self._steps.process(replace(step, valid=everyone)))
        now, self._next = self._next, self._next + 1
        self._began[~step.valid] = self._next
        self.span = max(1, self._next - int(self._began.min()))
        long = self._next - self._began >= EPISODE_STEPS_MAX
        return self._end(((step.terminated | step.truncated) & step.valid) | long, now)

    def flush(self) -> Columns:
        """The transitions of unfinished episodes, relabelled as far as they went."""
        return self._end(self._began < self._next, self._next - 1)

    def _end(self, ended: NDArray[np.bool_], last: int) -> Columns:
        """The transitions of these environments' episodes, whose last step is this."""
        found = [self._with_hindsight(env, last) for env in np.flatnonzero(ended).tolist()]
        self._began[ended] = self._next
        oldest = int(self._began.min())
        del self._held[: oldest - self._first]
        self._first = oldest
        if not found:
            return empty_columns(self._dtype, 0)
        return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}

    def _with_hindsight(self, env: int, last: int) -> Columns:
        """An episode's T transitions, then each k times with other goals."""
        steps = self._held[int(self._began[env]) - self._first : last + 1 - self._first]
        episode = {name: np.stack([step[name][env] for step in steps]) for name in steps[0]}
        t = np.arange(len(steps)).repeat(self._goals)
        again = {name: column[t] for name, column in episode.items()}
        later = self._rng.integers(t, len(steps))  # one of the steps t, ..., T - 1
        goal = episode[_REACHED][later]
        for name in _WANTED:
            again[name] = goal
        reached = again[_REACHED]
        infos: list[dict[str, Any]] = [{}] * len(t)
        reward = np.asarray(self._compute(reached, goal, infos), np.float64)
        if reward.shape != t.shape:
            why = f"its compute_reward gave {reward.shape} for {len(t)} rows of goals"
            raise HindsightError(why, "compute_reward for arrays (rows, *goal)")
        self._transform(reward, again["reward"])
        if self._terminated is not None:
            again["terminated"][:] = self._terminated(reached, goal, infos)
        return {name: np.concatenate([column, again[name]]) for name, column in episode.items()}

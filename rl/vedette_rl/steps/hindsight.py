"""Hindsight experience replay (HER; Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495).

Each transition of an episode comes once as it was, and k times with a goal that was reached later
in the same episode: the strategy *future* of their section 4.5, k = 4. The reward is computed
again, by the environment's own ``compute_reward``.

The environment is one of goals, as gymnasium-robotics has them: its observation is a dictionary
with ``achieved_goal`` and ``desired_goal`` of the same shape, and it has
``compute_reward(achieved_goal, desired_goal, info)`` for arrays ``(B, *goal)``, with a list of B
empty dictionaries for ``info``. Where it has
``compute_terminated`` of the same arguments, that is asked, too; else a relabelled transition is
terminated as the original is. Transitions of n steps are made as `NStep` makes them, with the
rewards of their own goal; they end where that goal terminates them.

The reward of a step must be that of ``compute_reward`` for its own goals, else relabelled rows
would have other rewards than those beside them. A wrapper that changes rewards or goals and has no
``compute_reward`` of its own breaks this: the steps of each episode are compared. Some may have
costs of their own besides, which relabelled rows then lack.

Letters: E environments, T steps of an episode, k goals, n steps of a transition, R rows,
B pairs of goals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, empty_columns
from vedette_rl.envs.layout import ObservationLayout
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import HindsightError
from vedette_rl.steps.n_step import NStep

log = logging.getLogger("vedette.actors")

ACHIEVED = "achieved_goal"
DESIRED = "desired_goal"
_REACHED = f"next_obs/{ACHIEVED}"
_WANTED = f"obs/{DESIRED}", f"next_obs/{DESIRED}"

_CONTRACT = (
    "actors.step_processor=n_step, or have compute_reward take many rows: it is called with "
    "achieved (B, *goal), desired (B, *goal) and info, a list of B empty dictionaries, and "
    "returns B finite rewards"
)

EPISODE_STEPS_MAX = 1000
"""Steps of an episode that are held; of a longer one each such part is taken for an episode."""

_WRAPPED = (
    "actors.step_processor=n_step, or env.reward_scale in the place of a wrapper that scales, or "
    "give the outermost wrapper that changes rewards, ends or goals a {method} that does the same"
)
_TOLERANCE = 1e-3
"""By which rewards of the same goals may differ, of the largest reward of the episode."""
_DIFFERING_ROWS = 3
_SOME = 1e-3
"""So many rows, and this share of those that could differ, are more than rounding at a
threshold."""
_FAR, _MOST = 0.3, 0.5
"""By so much of the largest reward, and in this share of the rows, they differ by more than costs
besides, such as that of a collision or of the actions."""


class Hindsight:
    """A `StepProcessor` that gives each episode once it has ended, relabelled too.

    Args:
        n: steps of a transition.
        discount: the discount of each step's reward.
        envs: E.
        dtype: the dtype of a transition.
        goals: k, relabelled transitions beside each.

    Raises:
        HindsightError: the observations have no goals.
    """

    def __init__(
        self, n: int, discount: float, envs: int, dtype: np.dtype[Any], goals: int = 4
    ) -> None:
        names = dtype.names or ()
        if not {_REACHED, *_WANTED} <= {*names} or dtype[_REACHED] != dtype[_WANTED[0]]:
            raise HindsightError(
                f"the observation needs {ACHIEVED!r} and {DESIRED!r} of the same shape",
                "actors.step_processor=n_step, or another environment",
            )
        self._dtype = dtype
        self._goals = goals
        self._ahead = np.arange(n)
        self._gains = discount ** np.arange(n, dtype=np.float64)
        self._steps = NStep(1, discount, envs, dtype)
        self._held: list[Columns] = []  # transitions of all E environments, a step each
        self._first = self._next = 0  # numbers of the oldest step held, and of the next one
        self._began = np.zeros(envs, np.int64)  # the steps with which the episodes begin
        self.span = 1
        """Steps from the oldest that is held, or was given last, to the newest."""
        self._reward_check = _Comparison("reward", "compute_reward", _MOST)
        self._end_check = _Comparison("end", "compute_terminated", _SOME)

    def prepare(self, envs: VectorEnvironment, seed: int) -> None:
        """Take the environments' own reward, which is tried on two rows, and a seed for the goals.

        Raises:
            HindsightError: they do not have it, or it does not take many rows.
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
        reached, wanted = _sampled_goals(envs, 2)
        try:
            true = self._rewards(reached, wanted)
            self._ends(reached, wanted)
        except HindsightError:
            raise
        except Exception as e:
            why = f"its goals cannot be judged again ({type(e).__name__}: {e})"
            raise HindsightError(why, _CONTRACT) from e
        if not np.isfinite(true).all():
            why = f"its compute_reward gave {true.tolist()} for two goals of its space"
            raise HindsightError(why, _CONTRACT)

    def process(self, step: Step) -> Columns:
        """The transitions of the episodes that end with this step, as they were and relabelled.

        Raises:
            HindsightError: most steps have other rewards than ``compute_reward`` gives for their
                goals, or go on where ``compute_terminated`` says that they end.
        """
        everyone = np.ones(len(step.valid), np.bool_)
        self._held.append(self._steps.process(replace(step, valid=everyone)))
        now = self._next
        self._next = self._next + 1
        self._began[~step.valid] = self._next
        self.span = max(1, self._next - int(self._began.min()))
        long = self._next - self._began >= EPISODE_STEPS_MAX
        return self._end(((step.terminated | step.truncated) & step.valid) | long, now)

    def flush(self) -> Columns:
        """The transitions of unfinished episodes, relabelled as far as they went."""
        return self._end(self._began < self._next, self._next - 1)

    def _end(self, ended: NDArray[np.bool_], last: int) -> Columns:
        """The transitions of these environments' episodes, whose last step is this."""
        relabelled = [self._with_hindsight(env, last) for env in np.flatnonzero(ended).tolist()]
        self._began[ended] = self._next
        oldest = int(self._began.min())
        del self._held[: oldest - self._first]
        self._first = oldest
        if not relabelled:
            return empty_columns(self._dtype, 0)
        return {name: np.concatenate([rows[name] for rows in relabelled]) for name in relabelled[0]}

    def _with_hindsight(self, env: int, last: int) -> Columns:
        """An episode's T transitions, then each k times with other goals."""
        held = self._held[int(self._began[env]) - self._first : last + 1 - self._first]
        episode = {name: np.stack([step[name][env] for step in held]) for name in held[0]}
        self._compare(episode)
        t = np.arange(len(held))
        steps, inside = self._steps_of(t, len(held))
        whole = self._transitions(
            episode, t, inside, episode["reward"][steps], episode["terminated"][steps]
        )
        t = t.repeat(self._goals)
        goal = episode[_REACHED][self._rng.integers(t, len(held))]  # of one of t, ..., T - 1
        steps, inside = self._steps_of(t, len(held))
        reward, terminated = self._compute_rewards_and_ends(episode, steps, goal)
        again = self._transitions(episode, t, inside, reward, terminated)
        for name in _WANTED:
            again[name] = goal
        return {name: np.concatenate([column, again[name]]) for name, column in whole.items()}

    def _compare(self, episode: Columns) -> None:
        """Compare an episode's own rewards and ends ``(T,)`` with those of its own goals.

        Raises:
            HindsightError: most differ.
        """
        reached = episode[_REACHED]
        reward, ends = episode["reward"], episode["terminated"]
        found, found_ends = self._judge(reached, episode[_WANTED[0]])
        largest = np.fmax.reduce(np.abs(np.concatenate([reward, found])))
        atol = _TOLERANCE * largest

        def differs(rewards: NDArray[Any], rows: Any = slice(None)) -> NDArray[np.bool_]:
            alike: NDArray[np.bool_]
            alike = np.isclose(reward[rows], rewards, rtol=0.0, atol=atol, equal_nan=True)
            return ~alike

        other = differs(found)
        # An end for another reason, such as a fall or the time, is the environment's own.
        goes_on = found_ends & ~(ends | episode["truncated"])
        if (rows := np.flatnonzero(other | goes_on)).size:
            for goals in _roundings(reached[rows], *(episode[name][rows] for name in _WANTED)):
                rewards, stops = self._judge(*goals)
                other[rows] &= differs(rewards, rows)
                goes_on[rows] &= stops
        far = other & (np.abs(reward - found) > _FAR * largest)
        self._reward_check.add(reward, found, other, far, (reward != 0.0) | (found != 0.0))
        self._end_check.add(ends, found_ends, goes_on, goes_on, ends | found_ends)

    def _judge(
        self, reached: NDArray[Any], wanted: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the rewards of transitions ``(B,)`` and the ends by these goals."""
        reward = np.empty(len(wanted), np.float32)
        self._transform(self._rewards(reached, wanted), reward)
        return reward, self._ends(reached, wanted)

    def _steps_of(self, t: NDArray[Any], length: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The steps ``(R, n)`` of transitions that begin at `t`, and which are in the episode."""
        steps = t[:, None] + self._ahead
        return np.minimum(steps, length - 1), steps < length

    def _compute_rewards_and_ends(
        self, episode: Columns, steps: NDArray[Any], goal: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return rewards and ends ``(R, n)`` of steps, had `goal` ``(R, *goal)`` been wanted."""
        reached = episode[_REACHED][steps.ravel()]
        wanted = goal.repeat(steps.shape[1], axis=0)
        reward, ends = self._judge(reached, wanted)
        if self._terminated is None:
            return reward.reshape(steps.shape), episode["terminated"][steps]
        return reward.reshape(steps.shape), ends.reshape(steps.shape)

    def _rewards(self, reached: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.float64]:
        """The environment's own rewards ``(B,)``."""
        true = np.asarray(self._compute(reached, wanted, _no_infos(wanted)), np.float64)
        if true.shape != (len(wanted),):
            why = f"its compute_reward gave {true.shape} for {len(wanted)} rows of goals"
            raise HindsightError(why, _CONTRACT)
        return true

    def _ends(self, reached: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.bool_]:
        """Return where the environment's ``compute_terminated`` ends an episode ``(B,)``."""
        if self._terminated is None:
            return np.zeros(len(wanted), np.bool_)
        ends = np.asarray(self._terminated(reached, wanted, _no_infos(wanted)))
        if ends.shape != (len(wanted),):  # gymnasium-robotics' is of one row
            pairs = zip(reached, wanted, strict=True)
            ends = np.array([self._terminated(*pair, {}) for pair in pairs])
            if ends.size == len(wanted):  # an array of one flag for each
                ends = ends.reshape(-1)
        is_flag = (ends == 0) | (ends == 1)  # numpy would take any number, and a text
        if ends.shape != (len(wanted),) or not np.all(is_flag):
            wrong = ends[~is_flag].tolist()[:3] if np.shape(is_flag) == ends.shape else []
            gave = wrong or f"{ends.shape} for {len(wanted)} rows of goals"
            why = f"its compute_terminated gave {gave}"
            raise HindsightError(why, "actors.step_processor=n_step, or have it return bools")
        return ends.astype(np.bool_)

    def _transitions(
        self,
        episode: Columns,
        t: NDArray[Any],
        inside: NDArray[Any],
        reward: NDArray[Any],
        terminated: NDArray[Any],
    ) -> Columns:
        """The transitions ``(R,)`` that begin at steps `t`, up to n steps or the first end."""
        ends = terminated & inside
        going = inside & (ends.cumsum(axis=1) - ends == 0)
        length = going.sum(axis=1)
        last = t + length - 1
        rows = {
            name: column[last if name.split("/")[0] in ("next_obs", "truncated") else t]
            for name, column in episode.items()
        }
        rows["reward"] = (going * reward * self._gains).sum(axis=1).astype(np.float32)
        rows["terminated"] = np.take_along_axis(terminated, length[:, None] - 1, axis=1)[:, 0]
        rows["n_steps"] = length.astype(np.uint8)
        return rows


class _Comparison:
    """Counts steps that differ from what a method gives for their goals, and says so once.

    Args:
        what: is compared.
        method: the environment's.
        most: the share that may differ by far.
    """

    def __init__(self, what: str, method: str, most: float) -> None:
        self._what = what
        self._method = method
        self._most = most
        self._differing = self._far = self._compared = 0
        self._has_warned = False

    def add(
        self,
        stepped: NDArray[Any],
        given: NDArray[Any],
        differs: NDArray[np.bool_],
        far: NDArray[np.bool_],
        may_differ: NDArray[np.bool_],
    ) -> None:
        """Count the steps ``(T,)`` of an episode.

        Args:
            stepped, given: what the steps gave, and the method for the same goals.
            differs, far: where they are not the same, and by far not.
            may_differ: where they are not both nothing.

        Raises:
            HindsightError: more than may differ by far.
        """
        self._differing += int(differs.sum())
        self._far += int(far.sum())
        self._compared += int(may_differ.sum())
        if not differs.any() or self._differing < _DIFFERING_ROWS:
            return
        row = int(np.flatnonzero(differs)[0])
        why = (
            f"a step's {self._what} is {_shown(stepped[row])} in its transition, and "
            f"{_shown(given[row])} by {self._method} of the same goals (so or similarly in "
            f"{self._differing:,} of {self._compared:,} steps)"
        )
        if self._far >= _DIFFERING_ROWS and self._far > self._most * self._compared:
            raise HindsightError(why, _WRAPPED.format(method=self._method))
        if self._differing > _SOME * self._compared and not self._has_warned:
            self._has_warned = True
            log.warning("%s: relabelled transitions have the latter", why)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if value.dtype.kind == "f" else str(bool(value)).lower()


def _roundings(
    reached: NDArray[Any], before: NDArray[Any], after: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the goals ``(reached, wanted)`` of rows that a step may have seen: the one wanted
    before or after it, and each as much nearer or farther as float32 may have moved them."""
    for wanted in (before, after):
        yield reached, wanted
        if reached.dtype.kind == "f":
            yield np.nextafter(reached, wanted), np.nextafter(wanted, reached)
            away = 2.0 * reached - wanted, 2.0 * wanted - reached
            yield np.nextafter(reached, away[0]), np.nextafter(wanted, away[1])


def _no_infos(wanted: NDArray[Any]) -> list[dict[str, Any]]:
    """An info for each row, which holds nothing: those of steps are not kept."""
    return [{} for _ in wanted]


def _sampled_goals(envs: VectorEnvironment, rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Achieved and desired goals ``(rows, *goal)``, drawn from a copy of their space."""
    space = deepcopy(envs.spaces.observation)
    space.seed(0)
    layout = ObservationLayout(space)
    seen = [layout.encode(space.sample()) for _ in range(rows)]
    return (
        np.concatenate([columns[f"obs/{ACHIEVED}"] for columns in seen]),
        np.concatenate([columns[_WANTED[0]] for columns in seen]),
    )

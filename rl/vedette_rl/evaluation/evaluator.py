"""Greedy episodes, several side by side.

Episode i begins with ``reset(seed=seed + i)`` in whichever environment is free, so what it returns
does not depend on how many are played at once, and every evaluation plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Evaluation, Policy, act_of
from vedette_rl.envs.call_places import call_places
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.failures import FailureJudge, OnFailure
from vedette_rl.envs.layout import ActionConverter, ObservationLayout
from vedette_rl.envs.make import MakeProcesses, make_group
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.vector_env import Env, EnvGroup
from vedette_rl.errors import EnvironmentFaultError, EvaluationCancelledError

_ENVS_MOST = 20
_PROCESSES_MOST = 8  # each has the memory of an interpreter


class GreedyEvaluator:
    """Plays greedy episodes on environments of its own, made at the first evaluation.

    Args:
        env_config: the environment that is played, without what only training wants.
        episodes: played at every evaluation, at least 1.
        seed: the seed of the first episode; episode i has `seed` + i.
        side_by_side: environments at most; one forward pass of the policy serves all. None: 20, or
            8 in processes of their own.
        max_episode_steps: an episode is cut here and counted as cut: a greedy policy may circle
            forever where the environment sets no limit. It counts steps of the environment as it is
            wrapped; None: `vedette_rl.envs.registry.find_episode_bound`.
        allow_import, make_processes: see `vedette_rl.envs.make.make_group`.
        on_failure: told of each environment that fails; it is made again, and begins its episode
            again.
    """

    def __init__(
        self,
        env_config: EnvConfig,
        episodes: int,
        seed: int,
        *,
        side_by_side: int | None = None,
        max_episode_steps: int | None = None,
        allow_import: AllowImport | None = None,
        make_processes: MakeProcesses | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        if min(episodes, side_by_side or 1, max_episode_steps or 1) < 1:
            raise ValueError("an evaluation plays at least one episode of one step")
        self._config = env_config.for_evaluation()
        self._episodes = episodes
        self._seed = seed
        self._bound = max_episode_steps
        usual = _PROCESSES_MOST if env_config.stepping == "processes" else _ENVS_MOST
        self._width = min(episodes, side_by_side or usual)
        self._make = partial(
            make_group, self._config, allow_import=allow_import, make_processes=make_processes
        )
        self._on_failure = on_failure
        self._group: EnvGroup | None = None
        self._judge: FailureJudge | None = None

    def open(self) -> EnvGroup:
        """Make the environments, if they are not there; they stay from one evaluation to the next.

        Raises:
            UnknownEnvironmentError, ImportNotAllowedError: as `make_group`; and whatever an
                environment raises.
        """
        if self._group is None:
            self._group = group = self._make(self._width)
            group.keeps_failures = group.can_replace
            self._judge = FailureJudge(len(group), self._on_failure)
        return self._group

    def evaluate(
        self,
        policy: Policy,
        version: int,
        *,
        seed: int | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_episodes: Callable[[int], None] = lambda ended: None,
    ) -> Evaluation:
        """Play episodes greedily: the same ones (same seeds) at every call without a `seed`.

        Args:
            policy: acts on the model of `version` already; discrete actions count from 0 for it,
                whatever the environment's `start` is.
            version: noted in the result.
            seed: of the first episode; None: the same at every call.
            is_cancelled: asked before every step; True if the result is not wanted any more.
            on_episodes: told the number of episodes that have ended, whenever it grows.

        Raises:
            EvaluationCancelledError: it is not; the next evaluation plays all its episodes again.
            EnvironmentFaultError: rewards are not finite, of which a mean could not be compared, or
                an observation is not, on which nobody can act.
            Exception: an environment is broken, and raised this.
        """
        group = self.open()
        assert self._judge is not None, "it is made with the group"
        bound = self._bound or group.description.episode_bound
        first = self._seed if seed is None else seed
        table = _EpisodeTable(group, self._judge, first, self._episodes, bound)
        act = act_of(policy)
        ended = 0
        while len(table):
            if table.ended > ended:
                on_episodes(ended := table.ended)
            if is_cancelled():
                raise EvaluationCancelledError(version, table.ended, self._episodes)
            if not_finite := table.find_not_finite():
                raise EnvironmentFaultError(self._config.id, not_finite)
            table.play(act(table.obs(), explore=False, begins=table.begins()))
        if not np.isfinite(table.returns).all():
            fault = (
                f"an episode's rewards add up to {table.returns[~np.isfinite(table.returns)][0]}"
            )
            raise EnvironmentFaultError(self._config.id, fault)
        returns, lengths = tuple(table.returns.tolist()), tuple(table.lengths.tolist())
        return Evaluation(version, returns, lengths, first, bound, table.cut)

    def close(self) -> None:
        """Close the environments."""
        if self._group is not None:
            self._group.close()
        self._group = None


class EnvironmentPolicy:
    """A policy as a function of one environment's observations, in that environment's own terms.

    Args:
        policy: acts greedily, on the model that it has.
        env: whose spaces they are.
    """

    def __init__(self, policy: Policy, env: Env) -> None:
        self._act = act_of(policy)
        self._layout = ObservationLayout(env.observation_space, call_places(env))
        self._form = ActionConverter(env.action_space, 1)
        self._columns = self._layout.empty(1)

    def __call__(self, obs: Any, *, begins: bool) -> Any:
        """The action; `begins` where the observation is an episode's first."""
        self._layout.write(self._columns, 0, obs, origin="reset()" if begins else "step()")
        chosen = self._act(self._columns, explore=False, begins=np.array([begins]))
        return self._form.to_environment(self._form.to_column(chosen))[0]


_NONE = -1


def _marked(places: Sequence[int], which: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Flags ``(count,)`` of those of `places` for which `which` is true."""
    marked = np.zeros(count, np.bool_)
    marked[[*places]] = which
    return marked


class _EpisodeTable:
    """The episodes being played. A place is an environment and the episode in it.

    Places that have nothing left to play stay empty, so that a policy with memory finds every
    environment in its row; the last ones are given up.
    """

    def __init__(
        self, group: EnvGroup, judge: FailureJudge, seed: int, episodes: int, bound: int
    ) -> None:
        self.returns = np.zeros(episodes, np.float64)
        self.lengths = np.zeros(episodes, np.int64)
        self.cut = 0
        """Episodes that the bound ended, and not the environment."""
        self._group = group
        self._judge = judge
        self._seed = seed
        self._bound = bound
        self._obs = group.layout.empty(len(group))
        self._begins = np.ones(len(group), np.bool_)
        self._begun = 0
        self._playing = [_NONE] * len(group)  # the episode at each place
        self._begin(range(len(group)))
        self._form = ActionConverter(group.description.action_space, len(group))

    def __len__(self) -> int:
        return len(self._playing)

    @property
    def ended(self) -> int:
        """Episodes played to their ends."""
        return self._begun - sum(episode != _NONE for episode in self._playing)

    def obs(self) -> Columns:
        """The observations that the next actions are chosen on, a row for each episode."""
        return {name: column[: len(self)] for name, column in self._obs.items()}

    def find_not_finite(self) -> str:
        """A clause on an observation to act on that is not finite; "" if all are."""
        obs = self.obs()
        if self._group.layout.find_not_finite(obs) is None:
            return ""
        playing = np.array([episode != _NONE for episode in self._playing])
        found = self._group.layout.find_not_finite(obs, playing)
        if found is None:
            return ""
        leaf, place = found
        at = f"{[*place[1:]]}" if place[1:] else ""
        return f"an observation's {leaf.name!r}{at} is {obs[leaf.name][place]}, which is not finite"

    def begins(self) -> NDArray[np.bool_]:
        """Flags of the episodes that begin with these observations."""
        return self._begins[: len(self)]

    def play(self, action: Any) -> None:  # the environment's own
        """Step every place; begin the next episode where one ends."""
        actions = self._form.to_environment(self._form.to_column(action))
        playing = [place for place, episode in enumerate(self._playing) if episode != _NONE]
        self._begins = np.zeros(len(self._begins), np.bool_)
        group = self._group
        count = len(playing)
        self._step(actions, playing)
        self._judge.steps += 1
        failures = group.failures
        episodes = [self._playing[place] for place in playing]
        self.returns[episodes] += group.reward[:count]
        self.lengths[episodes] += 1
        ended = group.terminated[:count] | group.truncated[:count]
        self._judge.on_ended(_marked(playing, ended, len(self._begins)))
        cut = ~ended & (self.lengths[episodes] >= self._bound)
        if failures:
            failed = {place for place, _ in failures}
            cut &= [place not in failed for place in playing]
        self.cut += int(np.count_nonzero(cut))
        places = [playing[k] for k in np.flatnonzero(ended | cut)]
        again = len(self.returns) - self._begun
        if failures:
            self._begin_again(failures)
        self._begin(places[:again])
        for place in places[again:]:
            self._playing[place] = _NONE
        if self._playing[-1] == _NONE:
            self._give_up_last()

    def _step(self, actions: NDArray[Any], playing: list[int]) -> None:
        """Step the environments at these places."""
        if len(playing) == len(self):
            self._group.step(actions, self.obs(), playing)
            return
        obs = self._group.layout.empty(len(playing))
        self._group.step(actions[playing], obs, playing)
        for name, column in obs.items():
            self._obs[name][playing] = column

    def _begin(self, places: Sequence[int]) -> None:
        """Begin the next episodes at these places."""
        if not places:
            return
        episodes = range(self._begun, self._begun + len(places))
        for place, episode in zip(places, episodes, strict=True):
            self._playing[place] = episode
            self._begins[place] = True
        self._begun = episodes.stop
        self._reset(places)

    def _reset(self, places: Sequence[int]) -> None:
        """Begin the episodes at these places; environments that fail are made again."""
        seeds = [self._seed + self._playing[place] for place in places]
        self._group.reset(places, seeds, self._obs, places)
        if self._group.failures:
            self._begin_again(self._group.failures)

    def _begin_again(self, failures: Sequence[tuple[int, Exception]]) -> None:
        """Begin the episodes again of environments that have failed, in new ones.

        Raises:
            Exception: one is broken.
        """
        places = [place for place, _ in failures]
        self._judge.replace(self._group, failures)
        episodes = [self._playing[place] for place in places]
        self.returns[episodes] = 0.0
        self.lengths[episodes] = 0
        self._begins[places] = True
        self._reset(places)

    def _give_up_last(self) -> None:
        while self._playing and self._playing[-1] == _NONE:
            self._playing.pop()
        self._form = ActionConverter(self._group.description.action_space, len(self._playing))

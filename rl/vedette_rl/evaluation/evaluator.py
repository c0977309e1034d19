"""Greedy episodes, several side by side.

Episode i begins with ``reset(seed=seed + i)`` in whichever environment is free, so what it returns
does not depend on how many are played at once, and every evaluation plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vedette_rl.core import Columns, Evaluation, Policy
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import ActionConverter, ObservationLayout
from vedette_rl.envs.make import make_env
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import EnvironmentFaultError, EvaluationCancelledError

UNLIMITED_STEPS = 1000
"""Steps of an episode at most, where an environment names no limit: that of most benchmarks."""

_LIMIT_ATTRIBUTES = ("max_episode_steps", "_max_episode_steps", "max_steps")
"""Attributes in which environments keep the limit that they apply themselves."""


def step_limit(env: Env) -> int | None:
    """Steps after which Gymnasium or ALE ends an episode; None if nothing is known of that."""
    spec = env.spec
    if spec is None:
        return None
    frames = spec.kwargs.get("max_num_frames_per_episode")  # ALE's, at least one a step
    return spec.max_episode_steps or (int(frames) if frames else None)


def episode_bound(env: Env) -> int:
    """Steps at which evaluations cut an episode, unless they are told otherwise.

    The environment's own limit. Where none is known it is `UNLIMITED_STEPS`, or more if the
    environment has a greater limit in one of the usual attributes.
    """
    if limit := step_limit(env):
        return limit
    found = (env.get_wrapper_attr(name) for name in _LIMIT_ATTRIBUTES if env.has_wrapper_attr(name))
    return max([UNLIMITED_STEPS, *(value for value in found if isinstance(value, int))])


class GreedyEvaluator:
    """Plays greedy episodes on environments of its own, made at the first evaluation.

    Args:
        env_config: what is played, without what only training wants.
        episodes: played at every evaluation, at least 1.
        seed: of the first episode; episode i has `seed` + i.
        side_by_side: environments at most; one forward pass of the policy serves all.
        max_episode_steps: an episode is cut here and counted as cut: a greedy policy may circle
            forever where the environment sets no limit. It counts steps of the environment as it is
            wrapped; None: `episode_bound`.
        allow_import: see `vedette_rl.envs.make_env`.
    """

    def __init__(
        self,
        env_config: EnvConfig,
        episodes: int,
        seed: int,
        *,
        side_by_side: int = 20,
        max_episode_steps: int | None = None,
        allow_import: AllowImport | None = None,
    ) -> None:
        if min(episodes, side_by_side, max_episode_steps or 1) < 1:
            raise ValueError("an evaluation plays at least one episode of one step")
        self._config = env_config.for_evaluation()
        self._episodes, self._seed, self._bound = episodes, seed, max_episode_steps
        self._width = min(side_by_side, episodes)
        self._allow_import = allow_import
        self._envs: list[Env] = []

    def evaluate(
        self, policy: Policy, version: int, *, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Evaluation:
        """Play the same episodes (same seeds) at every call, greedily.

        Args:
            policy: acts on the model of `version` already; discrete actions count from 0 for it,
                whatever the environment's `start` is.
            version: noted in the result.
            is_cancelled: asked before every step; True if the result is not wanted any more.

        Raises:
            EvaluationCancelledError: it is not; the next evaluation plays all its episodes anew.
            EnvironmentFaultError: rewards are not finite; a mean of them could not be compared.
        """
        while len(self._envs) < self._width:
            self._envs.append(make_env(self._config, allow_import=self._allow_import))
        bound = self._bound or episode_bound(self._envs[0])
        table = _EpisodeTable(self._envs, self._seed, self._episodes, bound)
        while len(table):
            if is_cancelled():
                raise EvaluationCancelledError(version, table.ended, self._episodes)
            table.play(policy.act(table.obs(), explore=False))
        if not np.isfinite(table.returns).all():
            fault = (
                f"an episode's rewards add up to {table.returns[~np.isfinite(table.returns)][0]}"
            )
            raise EnvironmentFaultError(self._config.id, fault)
        returns, lengths = tuple(table.returns.tolist()), tuple(table.lengths.tolist())
        return Evaluation(version, returns, lengths, self._seed, bound, table.cut)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
        self._envs = []


class _EpisodeTable:
    """The episodes being played. A place is an environment and the episode in it; places that
    have nothing left to play are given up, so that no step is played for nothing."""

    def __init__(self, envs: list[Env], seed: int, episodes: int, bound: int) -> None:
        self.returns = np.zeros(episodes, np.float64)
        self.lengths = np.zeros(episodes, np.int64)
        self.cut = 0
        """Episodes that the bound ended, and not the environment."""
        self._seed, self._bound = seed, bound
        self._space = envs[0].action_space
        self._layout = ObservationLayout(envs[0].observation_space)
        self._obs = self._layout.empty(len(envs))
        self._begun = 0
        self._places: list[tuple[Env, int]] = []
        for place, env in enumerate(envs):
            self._places.append(self._begin(env, place))
        self._form = ActionConverter(self._space, len(envs))

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ended(self) -> int:
        """Episodes played to their ends."""
        return self._begun - len(self)

    def obs(self) -> Columns:
        """The observations that the next actions are chosen on, a row for each episode."""
        return {name: column[: len(self)] for name, column in self._obs.items()}

    def play(self, action: Any) -> None:  # the environment's own
        """Step every place; begin the next episode where one ends."""
        actions = self._form.to_environment(self._form.to_column(action))
        finished: list[int] = []
        for place, (env, episode) in enumerate(self._places):
            obs, reward, terminated, truncated, _ = env.step(actions[place])
            self.returns[episode] += float(reward)
            self.lengths[episode] += 1
            ended = bool(terminated or truncated)
            if not ended and self.lengths[episode] >= self._bound:
                ended, self.cut = True, self.cut + 1
            if not ended:
                self._layout.write(self._obs, place, obs)
            elif self._begun < len(self.returns):
                self._places[place] = self._begin(env, place)
            else:
                finished.append(place)
        for place in reversed(finished):
            self._give_up(place)

    def _begin(self, env: Env, place: int) -> tuple[Env, int]:
        episode, self._begun = self._begun, self._begun + 1
        obs, _ = env.reset(seed=self._seed + episode)
        self._layout.write(self._obs, place, obs)
        return env, episode

    def _give_up(self, place: int) -> None:
        last = len(self._places) - 1
        self._places[place] = self._places[last]
        for column in self._obs.values():
            column[place] = column[last]
        self._places.pop()
        self._form = ActionConverter(self._space, len(self._places))

"""Greedy episodes, several side by side.

Episode i begins with ``reset(seed=seed + i)`` in whichever environment is free, so what it returns
does not depend on how many are played at once, and every evaluation plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Evaluation, Policy, act_of
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import ActionConverter, ObservationLayout
from vedette_rl.envs.make import make_env
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import EnvironmentFaultError, EvaluationCancelledError


class GreedyEvaluator:
    """Plays greedy episodes on environments of its own, made at the first evaluation.

    Args:
        env_config: what is played, without what only training wants.
        episodes: played at every evaluation, at least 1.
        seed: of the first episode; episode i has `seed` + i.
        side_by_side: environments at most; one forward pass of the policy serves all.
        longest: an episode is left here, as if truncated: a greedy policy may circle forever where
            the environment sets no limit. It counts steps of the environment as it is wrapped; the
            default is Atari's usual 30 minutes at 60 frames a second where a step is a frame, and
            so many times longer where a wrapper skips frames.
        allow_import: see `vedette_rl.envs.make_env`.
    """

    def __init__(
        self,
        env_config: EnvConfig,
        episodes: int,
        seed: int,
        *,
        side_by_side: int = 20,
        longest: int = 108_000,
        allow_import: AllowImport | None = None,
    ) -> None:
        if min(episodes, side_by_side, longest) < 1:
            raise ValueError("an evaluation plays at least one episode of one step")
        self._config = env_config.for_evaluation()
        self._episodes, self._seed, self._longest = episodes, seed, longest
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
        table = _EpisodeTable(self._envs, self._seed, self._episodes, self._longest)
        act = act_of(policy)
        while len(table):
            if is_cancelled():
                raise EvaluationCancelledError(version, table.ended, self._episodes)
            table.play(act(table.obs(), explore=False, begins=table.begins()))
        if not np.isfinite(table.returns).all():
            fault = (
                f"an episode's rewards add up to {table.returns[~np.isfinite(table.returns)][0]}"
            )
            raise EnvironmentFaultError(self._config.id, fault)
        returns, lengths = tuple(table.returns.tolist()), tuple(table.lengths.tolist())
        return Evaluation(version=version, returns=returns, lengths=lengths, seed=self._seed)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
        self._envs = []


class _EpisodeTable:
    """The episodes being played. A place is an environment and the episode in it.

    Places that have nothing left to play stay empty, so that a policy with memory finds every
    environment in its row; the last ones are given up.
    """

    def __init__(self, envs: list[Env], seed: int, episodes: int, longest: int) -> None:
        self.returns = np.zeros(episodes, np.float64)
        self.lengths = np.zeros(episodes, np.int64)
        self._seed, self._longest = seed, longest
        self._space = envs[0].action_space
        self._layout = ObservationLayout(envs[0].observation_space)
        self._obs = self._layout.empty(len(envs))
        self._begins = np.ones(len(envs), np.bool_)
        self._begun = 0
        self._places: list[tuple[Env, int] | None] = []
        for place, env in enumerate(envs):
            self._places.append(self._begin(env, place))
        self._form = ActionConverter(self._space, len(envs))

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ended(self) -> int:
        """Episodes played to their ends."""
        return self._begun - sum(place is not None for place in self._places)

    def obs(self) -> Columns:
        """The observations that the next actions are chosen on, a row for each episode."""
        return {name: column[: len(self)] for name, column in self._obs.items()}

    def begins(self) -> NDArray[np.bool_]:
        """Where an episode begins with these observations."""
        return self._begins[: len(self)]

    def play(self, action: Any) -> None:  # the environment's own
        """Step every place; begin the next episode where one ends."""
        actions = self._form.to_environment(self._form.to_column(action))
        self._begins = np.zeros(len(self._begins), np.bool_)
        for place, playing in enumerate(self._places):
            if playing is None:
                continue
            env, episode = playing
            obs, reward, terminated, truncated, _ = env.step(actions[place])
            self.returns[episode] += float(reward)
            self.lengths[episode] += 1
            if not (terminated or truncated or self.lengths[episode] >= self._longest):
                self._layout.write(self._obs, place, obs)
            elif self._begun < len(self.returns):
                self._places[place] = self._begin(env, place)
            else:
                self._places[place] = None
        if self._places[-1] is None:
            self._give_up_last()

    def _begin(self, env: Env, place: int) -> tuple[Env, int]:
        episode, self._begun = self._begun, self._begun + 1
        obs, _ = env.reset(seed=self._seed + episode)
        self._layout.write(self._obs, place, obs)
        self._begins[place] = True
        return env, episode

    def _give_up_last(self) -> None:
        while self._places and self._places[-1] is None:
            self._places.pop()
        self._form = ActionConverter(self._space, len(self._places))

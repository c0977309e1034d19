"""A vector of environments stepped one after the other.

An environment whose episode ends is reset within the same step, so no step is wasted, and what
Gymnasium's vector environments cost beyond the environments themselves is not paid: observations
are written straight into preallocated columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.actions import ActionConverter
from vedette_rl.envs.episodes import EpisodeReturns, RewardTransform
from vedette_rl.envs.layout import ObservationLayout
from vedette_rl.envs.spaces import agent_spaces

Env = gym.Env[Any, Any]


class LoopVectorEnv:
    """`VectorEnvironment` over environments of its own.

    Args:
        envs: E environments of the same spaces; closed with the row.
        seed: of the whole vector: each environment's own is derived from it.
        rewards: what rewards become in transitions.
    """

    def __init__(self, envs: Sequence[Env], *, seed: int, rewards: RewardTransform | None = None):
        first = envs[0]
        self.spaces = agent_spaces(first.observation_space, first.action_space)
        self._envs = list(envs)
        self._steps = [env.step for env in envs]
        words = np.random.SeedSequence(seed).generate_state(len(envs))
        self._seeds = [int(word >> 1) for word in words]  # some simulators want 31 bits
        self._layout = ObservationLayout(first.observation_space)
        self._actions = ActionConverter(first.action_space, len(envs))
        self._rewards = rewards or RewardTransform()
        self._tally = EpisodeReturns(len(envs))
        # What was seen, its successor and the new episodes' beginnings: three buffers in turn,
        # so that none of a step's is overwritten before the next.
        self._buffers = [self._layout.empty(len(envs)) for _ in range(3)]
        self._current = -1
        self._true_reward = np.zeros(len(envs), np.float64)
        self._reward = np.zeros(len(envs), np.float32)
        self._terminated = np.zeros(len(envs), np.bool_)
        self._truncated = np.zeros(len(envs), np.bool_)
        self._valid = np.ones(len(envs), np.bool_)

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self) -> Columns:
        """Begin new episodes everywhere; the first call seeds, later ones go on from there."""
        self._current = 0
        for i, env in enumerate(self._envs):
            seed = self._seeds[i] if self._seeds else None
            obs, _ = env.reset(seed=seed)
            self._layout.write(self._buffers[0], i, obs)
        self._seeds = []
        self._tally.reset()
        return self._buffers[0]

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; an exception of one comes out as it is, with a note of which."""
        if self._current < 0:
            raise RuntimeError("the row was not reset before its first step")
        action = self._actions.to_column(action)
        seen, following = self._current, (self._current + 1) % 3
        next_obs = self._buffers[following]
        ended = self._play(self._actions.to_environment(action), next_obs)
        self._rewards.write(self._true_reward, self._reward)
        self._tally.add(self._true_reward)
        self._current = following
        if ended:
            self._current = (following + 1) % 3
            self._reset_ended(next_obs, self._buffers[self._current])
        return Step(
            obs=self._buffers[seen],
            action=action,
            reward=self._reward,
            next_obs=next_obs,
            terminated=self._terminated,
            truncated=self._truncated,
            init_obs=self._buffers[self._current],
            valid=self._valid,
        )

    def _play(self, actions: NDArray[Any], next_obs: Columns) -> bool:
        """Step all; whether an episode ended. One assignment a column: a place at a time costs
        half as much again."""
        results: list[tuple[Any, ...]] = []
        try:
            for step, action in zip(self._steps, actions, strict=True):
                results.append(step(action))
        except Exception as e:
            i = len(results)
            e.add_note(f"in environment {i} of {len(self)}: {self._envs[i]}")
            raise
        obs, reward, terminated, truncated, _ = zip(*results, strict=True)
        self._layout.write_rows(next_obs, obs)
        self._true_reward[:] = reward
        self._terminated[:] = terminated
        self._truncated[:] = truncated
        return True in terminated or True in truncated

    def _reset_ended(self, next_obs: Columns, init_obs: Columns) -> None:
        done = self._terminated | self._truncated
        self._tally.end(done)
        for name, column in next_obs.items():
            init_obs[name][:] = column
        for i in np.flatnonzero(done):
            obs, _ = self._envs[i].reset()
            self._layout.write(init_obs, int(i), obs)

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        return self._tally.pop_finished()

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()

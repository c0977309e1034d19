"""Vectors of environments: what all have in common, and the one that steps one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.layout import ActionConverter, ObservationLayout
from vedette_rl.envs.spaces import agent_spaces

Env = gym.Env[Any, Any]


class EpisodeReturns:
    """Sums the true rewards of each environment's episode.

    ::

        returns.add(reward)             # every step
        returns.end(done)               # where episodes ended with it
        returns.pop_finished()          # now and then
    """

    def __init__(self, count: int) -> None:
        self._returns = np.zeros(count, np.float64)
        self._steps = 0
        self._began = np.zeros(count, np.int64)
        self._finished: list[tuple[float, int]] = []

    def reset(self) -> None:
        """Drop unfinished episodes: all environments were reset."""
        self._returns.fill(0.0)
        self._began.fill(self._steps)

    def add(self, reward: NDArray[Any], valid: NDArray[Any] | None = None) -> None:
        """Count a step of all environments.

        Args:
            reward: ``(E,)`` true rewards.
            valid: ``(E,)`` bool, which rows stepped and did not only reset; None means all.
        """
        self._steps += 1
        if valid is None:
            self._returns += reward
        else:
            np.add(self._returns, reward, out=self._returns, where=valid)
            self._began[~valid] = self._steps

    def end(self, done: NDArray[Any]) -> None:
        """The episodes of the environments marked in `done` ``(E,)`` ended with this step."""
        for i in np.flatnonzero(done):
            self._finished.append((float(self._returns[i]), int(self._steps - self._began[i])))
        self._returns[done] = 0.0
        self._began[done] = self._steps

    def pop_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished


class RewardTransform:
    """Rewards of transitions: the true ones scaled, then clipped to ±`clip` (0: not clipped)."""

    def __init__(self, scale: float = 1.0, clip: float = 0.0) -> None:
        self._scale, self._clip = scale, clip

    def write(self, true: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the float32 rewards of `true` into `out`."""
        if self._scale == 1.0:
            out[:] = true
        else:
            np.multiply(true, self._scale, out=out, casting="same_kind")
        if self._clip:
            np.clip(out, -self._clip, self._clip, out=out)


class VectorEnvironment:
    """E environments stepped together.

    ::

        envs = make_vector_environment(config, count=8, seed=0)
        obs = envs.reset()
        while not stopped:
            step = envs.step(policy.act(obs, explore=True))
            ...
            obs = step.init_obs
            returns_and_lengths = envs.pop_finished_episodes()
        envs.close()

    Args:
        observation: the space of one environment.
        action: likewise.
        count: E.
        rewards: what rewards become in transitions.
    """

    def __init__(
        self,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        count: int,
        rewards: RewardTransform | None,
    ) -> None:
        self.spaces = agent_spaces(observation, action)
        self._count = count
        self._layout = ObservationLayout(observation)
        self._actions = ActionConverter(action, count)
        self._rewards = rewards or RewardTransform()
        self._returns = EpisodeReturns(count)
        # What was seen, its successor and the new episodes' beginnings: three buffers in turn,
        # so that none of a step's is overwritten before the next.
        self._buffers = [self._layout.empty(count) for _ in range(3)]
        self._current = -1
        self._reward = np.zeros(count, np.float32)

    def __len__(self) -> int:
        return self._count

    def reset(self) -> Columns:
        """Begin new episodes everywhere; the first call seeds, later ones go on from there.

        Returns:
            columns ``obs...`` of ``(E, *shape)``, valid until the next step.
        """
        raise NotImplementedError

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; where an episode ends a new one begins."""
        raise NotImplementedError

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call: true rewards, before
        any scaling or clipping."""
        return self._returns.pop_finished()

    def attribute(self, name: str) -> Any:
        """An attribute of an environment, the first of them; None where it has none."""
        raise NotImplementedError

    def transform_rewards(self, true: NDArray[Any], out: NDArray[Any]) -> None:
        """Write what true rewards become in transitions into `out` (float32)."""
        self._rewards.write(true, out)

    def close(self) -> None:
        """Close the environments."""
        raise NotImplementedError

    def _action_column(self, action: NDArray[Any]) -> NDArray[Any]:
        """The actions as they are stored, for environments that were reset."""
        if self._current < 0:
            raise RuntimeError("the environments were not reset before their first step")
        return self._actions.to_column(action)


class LoopVectorEnv(VectorEnvironment):
    """Steps environments of its own one after the other.

    An environment whose episode ends is reset within the same step, so no step is wasted, and what
    Gymnasium's vector environments cost beyond the environments themselves is not paid:
    observations are written straight into preallocated columns.

    Args:
        envs: E environments of the same spaces; closed with the vector.
        seed: of the whole vector: each environment's own is derived from it.
        rewards: what rewards become in transitions.
    """

    def __init__(self, envs: Sequence[Env], *, seed: int, rewards: RewardTransform | None = None):
        first = envs[0]
        super().__init__(first.observation_space, first.action_space, len(envs), rewards)
        self._envs = list(envs)
        self._steps = [env.step for env in envs]
        words = np.random.SeedSequence(seed).generate_state(len(envs))
        self._seeds = [int(word >> 1) for word in words]  # some simulators want 31 bits
        self._true_reward = np.zeros(len(envs), np.float64)
        self._terminated = np.zeros(len(envs), np.bool_)
        self._truncated = np.zeros(len(envs), np.bool_)
        self._valid = np.ones(len(envs), np.bool_)

    def reset(self) -> Columns:
        self._current = 0
        for i, env in enumerate(self._envs):
            seed = self._seeds[i] if self._seeds else None
            obs, _ = env.reset(seed=seed)
            self._layout.write(self._buffers[0], i, obs)
        self._seeds = []
        self._returns.reset()
        return self._buffers[0]

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; an exception of one comes out as it is, with a note of which."""
        action = self._action_column(action)
        seen, following = self._current, (self._current + 1) % 3
        next_obs = self._buffers[following]
        ended = self._play(self._actions.to_environment(action), next_obs)
        self._rewards.write(self._true_reward, self._reward)
        self._returns.add(self._true_reward)
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
        """Step all, and return True if an episode ended. One assignment a column: a place at a time
        costs half as much again."""
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
        self._returns.end(done)
        for name, column in next_obs.items():
            init_obs[name][:] = column
        for i in np.flatnonzero(done):
            obs, _ = self._envs[i].reset()
            self._layout.write(init_obs, int(i), obs)

    def attribute(self, name: str) -> Any:
        try:
            return self._envs[0].get_wrapper_attr(name)
        except AttributeError:
            return None

    def close(self) -> None:
        for env in self._envs:
            env.close()

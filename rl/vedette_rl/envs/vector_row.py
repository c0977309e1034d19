"""A row of environments that Gymnasium steps as one: its three autoreset modes made one step.

================  ==========================================  ==============================
mode              after an episode's last step                the row that is no transition
================  ==========================================  ==============================
``NEXT_STEP``     the next step resets, its action ignored    that next step
``SAME_STEP``     the observation is the new episode's;       none
                  the last one is ``infos["final_obs"]``
``DISABLED``      nothing: who steps resets, by a mask        none
================  ==========================================  ==============================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.actions import ActionConverter
from vedette_rl.envs.episodes import EpisodeReturns, RewardTransform
from vedette_rl.envs.layout import ObservationLayout, row_of_batch
from vedette_rl.envs.spaces import agent_spaces
from vedette_rl.envs.vector_form import VectorEnv, autoreset_mode, final_observations


class NativeVectorEnv:
    """`VectorEnvironment` over a `gymnasium.vector.VectorEnv`.

    Args:
        envs: closed with the row.
        seed: of the whole row.
        rewards: what rewards become in transitions.

    Raises:
        UnknownEnvironmentError: it does not say its autoreset mode, so nobody can tell which of
            its rows are transitions.
    """

    def __init__(self, envs: VectorEnv, *, seed: int, rewards: RewardTransform | None = None):
        self.spaces = agent_spaces(envs.single_observation_space, envs.single_action_space)
        self._envs = envs
        self._mode = autoreset_mode(envs)
        self._seed: int | None = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
        self._layout = ObservationLayout(envs.single_observation_space)
        self._actions = ActionConverter(envs.single_action_space, envs.num_envs)
        self._rewards = rewards or RewardTransform()
        self._tally = EpisodeReturns(envs.num_envs)
        self._buffers = [self._layout.empty(envs.num_envs) for _ in range(3)]
        self._current = -1
        self._resetting = np.zeros(envs.num_envs, np.bool_)
        self._reward = np.zeros(envs.num_envs, np.float32)

    def __len__(self) -> int:
        return self._envs.num_envs

    def reset(self) -> Columns:
        """Begin new episodes everywhere; the first call seeds, later ones go on from there."""
        obs, _ = self._envs.reset(seed=self._seed)
        self._seed = None
        self._current = 0
        self._resetting = np.zeros(len(self), np.bool_)
        self._layout.write_all(self._buffers[0], obs)
        self._tally.reset()
        return self._buffers[0]

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment. A row that only reset is not `valid`."""
        if self._current < 0:
            raise RuntimeError("the row was not reset before its first step")
        action = self._actions.to_column(action)
        batch, reward, terminated, truncated, infos = self._envs.step(
            self._actions.to_environment(action)
        )
        valid = ~self._resetting
        terminated, truncated = terminated & valid, truncated & valid
        done = terminated | truncated
        self._rewards.write(reward, self._reward)
        self._tally.add(reward, valid)
        if done.any():
            self._tally.end(done)
        seen, following = self._current, (self._current + 1) % 3
        self._current = self._successors(following, batch, done, infos)
        return Step(
            obs=self._buffers[seen],
            action=action,
            reward=self._reward,
            next_obs=self._buffers[following],
            terminated=terminated,
            truncated=truncated,
            init_obs=self._buffers[self._current],
            valid=valid,
        )

    def _successors(
        self, following: int, batch: Any, done: NDArray[Any], infos: dict[str, Any]
    ) -> int:
        """Write the successors into buffer `following`; say which buffer to act on next."""
        beginning = (following + 1) % 3
        next_obs, init_obs = self._buffers[following], self._buffers[beginning]
        self._layout.write_all(next_obs, batch)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resetting = done
            return following
        if not done.any():
            return following
        if self._mode is AutoresetMode.DISABLED:
            batch, _ = self._envs.reset(options={"reset_mask": done.copy()})
        self._layout.write_all(init_obs, batch)
        for name, column in init_obs.items():
            column[~done] = next_obs[name][~done]
        if self._mode is AutoresetMode.SAME_STEP:
            self._write_final(next_obs, done, infos)
        return beginning

    def _write_final(self, next_obs: Columns, done: NDArray[Any], infos: dict[str, Any]) -> None:
        final = final_observations(self._envs, infos)
        for i in np.flatnonzero(done):
            self._layout.write(next_obs, int(i), row_of_batch(final, int(i)))

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        return self._tally.pop_finished()

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

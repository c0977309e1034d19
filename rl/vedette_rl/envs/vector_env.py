"""Several environments as one row that a policy acts on at once."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.episodes import RewardTransform
from vedette_rl.envs.loop_vector_env import LoopVectorEnv
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import NativeVectorEnv, make_native_vector, make_vector
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.spaces import Spaces

AUTO_VECTOR_COUNT = 32
"""From how many environments on ``auto`` takes the vector form: CartPole's costs about as much as
12 of the loop's steps whatever their number."""


class VectorEnvironment(Protocol):
    """E environments stepped together.

    ::

        row = make_row(config, count=8, seed=0)
        obs = row.reset()
        while not stopped:
            step = row.step(policy.act(obs, explore=True))
            ...
            obs = step.init_obs
            returns_and_lengths = row.pop_finished_episodes()
        row.close()
    """

    spaces: Spaces

    def __len__(self) -> int:
        """E."""
        ...

    def reset(self) -> Columns:
        """Begin new episodes everywhere: columns ``obs...`` of ``(E, *shape)``, valid until the
        next step."""
        ...

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; where an episode ends a new one begins."""
        ...

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call: true rewards, before
        any scaling or clipping."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


def make_vector_environment(
    config: EnvConfig, count: int, seed: int, *, allow_import: AllowImport | None = None
) -> VectorEnvironment:
    """A row of `count` environments.

    Args:
        config: which ones.
        count: E.
        seed: of the whole vector; another actor's vector takes another.
        allow_import: see `make_env`.

    Raises:
        UnknownEnvironmentError: they cannot be made here.
        ImportNotAllowedError: `allow_import` refused.
        SpaceLayoutError: transitions of their spaces have no columns.
    """
    if count < 1:
        raise ValueError(f"a row has at least one environment, not {count}")
    rewards = RewardTransform(config.reward_scale, config.reward_clip)
    if config.vectorization == "vector_entry_point":
        return NativeVectorEnv(make_vector(config, count, allow_import), seed=seed, rewards=rewards)
    envs = [make_env(config, allow_import=allow_import)]
    if config.vectorization == "auto" and count >= AUTO_VECTOR_COUNT:
        vector = make_native_vector(envs[0], config, count, allow_import)
        if vector is not None:
            envs[0].close()
            return NativeVectorEnv(vector, seed=seed, rewards=rewards)
    envs.extend(make_env(config, allow_import=allow_import) for _ in range(count - 1))
    return LoopVectorEnv(envs, seed=seed, rewards=rewards)

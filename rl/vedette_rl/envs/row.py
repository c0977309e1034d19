"""Several environments as one row that a policy acts on at once."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import gymnasium as gym
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.episodes import RewardForm
from vedette_rl.envs.loop_row import LoopRow
from vedette_rl.envs.make import AllowImport, find_spec, make_env
from vedette_rl.envs.spaces import Spaces
from vedette_rl.envs.vector_row import VectorRow
from vedette_rl.errors import RlError, UnknownEnvironmentError

AUTO_VECTOR_COUNT = 32
"""From how many environments on ``auto`` takes the vector form: CartPole's costs about as much as
12 of the loop's steps whatever their number."""


class EnvRow(Protocol):
    """E environments stepped together.

    ::

        row = make_row(config, count=8, seed=0)
        obs = row.reset()
        while not stopped:
            step = row.step(policy.act(obs, explore=True))
            ...
            obs = step.init_obs
            returns_and_lengths = row.finished()
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

    def finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call: true rewards, before
        any scaling or clipping."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


def make_row(
    config: EnvConfig, count: int, seed: int, *, allow_import: AllowImport | None = None
) -> EnvRow:
    """A row of `count` environments.

    Args:
        config: which ones.
        count: E.
        seed: of the whole row; another actor's row takes another.
        allow_import: see `make_env`.

    Raises:
        UnknownEnvironmentError: they cannot be made here.
        ImportRefusedError: `allow_import` said no.
        SpaceLayoutError: transitions of their spaces have no columns.
    """
    if count < 1:
        raise ValueError(f"a row has at least one environment, not {count}")
    rewards = RewardForm(config.reward_scale, config.reward_clip)
    if config.vectorization == "vector_entry_point":
        return VectorRow(_make_vector(config, count, allow_import), seed=seed, rewards=rewards)
    envs = [make_env(config, allow_import=allow_import)]
    if config.vectorization == "auto" and count >= AUTO_VECTOR_COUNT:
        vector = _vector_of(envs[0], config, count, allow_import)
        if vector is not None:
            envs[0].close()
            return VectorRow(vector, seed=seed, rewards=rewards)
    envs.extend(make_env(config, allow_import=allow_import) for _ in range(count - 1))
    return LoopRow(envs, seed=seed, rewards=rewards)


def _vector_of(
    env: gym.Env[Any, Any], config: EnvConfig, count: int, allow_import: AllowImport | None
) -> gym.vector.VectorEnv[Any, Any, Any] | None:
    """The vector form of `env`; None where it has none or another one is played there."""
    spec = find_spec(config, allow_import)
    if spec.vector_entry_point is None or spec.additional_wrappers or config.wrappers:
        return None
    try:
        vector = _make_vector(config, count, allow_import)
    except RlError:
        return None
    same = (
        vector.single_observation_space == env.observation_space
        and vector.single_action_space == env.action_space
        and "autoreset_mode" in (vector.metadata or {})
    )
    if not same:
        vector.close()
        return None
    return vector


def _make_vector(
    config: EnvConfig, count: int, allow_import: AllowImport | None
) -> gym.vector.VectorEnv[Any, Any, Any]:
    if config.wrappers:
        raise UnknownEnvironmentError(
            config.id, "its vector form takes no env.wrappers; set env.vectorization to 'loop'"
        )
    spec = copy.copy(find_spec(config, allow_import))
    if spec.vector_entry_point is None:
        raise UnknownEnvironmentError(
            config.id, "it has no vector form; set env.vectorization to 'loop'"
        )
    if config.max_episode_steps is not None:
        spec.max_episode_steps = config.max_episode_steps
    kwargs: dict[str, Any] = dict(config.kwargs)
    try:
        return gym.make_vec(spec, count, vectorization_mode="vector_entry_point", **kwargs)
    except (gym.error.Error, ImportError, TypeError) as e:
        text = " ".join(str(e).split())
        raise UnknownEnvironmentError(config.id, f"its vector form cannot be made: {text}") from e

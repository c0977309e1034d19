"""The vector form that some environments are registered with (``vector_entry_point``).

It may play faster, and it may show something else: Atari's is already preprocessed and stacked.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import row_of_batch
from vedette_rl.envs.registry import AllowImport, find_spec
from vedette_rl.errors import RlError, UnknownEnvironmentError

Env = gym.Env[Any, Any]
VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
_CLIPPING = "reward_clipping"
"""ALE's word for it, on where nobody says: returns would be of clipped rewards."""


def make_vector(
    config: EnvConfig,
    count: int,
    allow_import: AllowImport | None = None,
    *,
    render_mode: str | None = None,
) -> VectorEnv:
    """`count` environments as the vector environment that their authors wrote.

    Raises:
        UnknownEnvironmentError: there is none, or it cannot be made as configured.
        ImportRefusedError: `allow_import` said no.
    """
    if config.wrappers or config.frame_stack:
        raise UnknownEnvironmentError(
            config.id,
            "its vector form takes no env.wrappers or env.frame_stack; "
            "set env.vectorization to 'loop'",
        )
    spec = copy.copy(find_spec(config, allow_import))
    if spec.vector_entry_point is None:
        raise UnknownEnvironmentError(
            config.id, "it has no vector form; set env.vectorization to 'loop'"
        )
    if config.max_episode_steps is not None:
        spec.max_episode_steps = config.max_episode_steps
    kwargs: dict[str, Any] = dict(config.kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    try:
        if _CLIPPING not in {**spec.kwargs, **kwargs} and _takes(spec, _CLIPPING):
            kwargs[_CLIPPING] = False
        return gym.make_vec(spec, count, vectorization_mode="vector_entry_point", **kwargs)
    except (gym.error.Error, ImportError, TypeError) as e:
        text = " ".join(str(e).split())
        raise UnknownEnvironmentError(config.id, f"its vector form cannot be made: {text}") from e


def _takes(spec: gym.envs.registration.EnvSpec, argument: str) -> bool:
    """Whether the vector form's constructor names this argument."""
    entry: Any = spec.vector_entry_point  # a name, or what it names
    creator = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    try:
        return argument in inspect.signature(creator).parameters
    except ValueError:  # one that has no signature
        return False


def make_native_vector(
    env: Env, config: EnvConfig, count: int, allow_import: AllowImport | None
) -> VectorEnv | None:
    """The vector form of `env`; None where it has none, or one of other spaces."""
    spec = find_spec(config, allow_import)
    if (
        spec.vector_entry_point is None
        or spec.additional_wrappers
        or config.wrappers
        or config.frame_stack
    ):
        return None
    try:
        vector = make_vector(config, count, allow_import)
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


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """How `envs` goes on after an episode.

    Raises:
        UnknownEnvironmentError: it does not say, so nobody can tell which of its rows are
            transitions.
    """
    mode = (envs.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError as e:
        raise UnknownEnvironmentError(
            name_of(envs),
            f"its vector form says autoreset mode {mode!r}; set env.vectorization to 'loop'",
        ) from e


def final_observations(envs: VectorEnv, infos: dict[str, Any]) -> Any:
    """The last observations of episodes that ended in a step that also reset.

    Raises:
        UnknownEnvironmentError: they are not given, so what came after the last action is lost.
    """
    final = infos.get("final_obs", infos.get("final_observation"))  # the second until 1.0
    if final is None:
        raise UnknownEnvironmentError(
            name_of(envs), "it resets in the same step and does not give `final_obs`"
        )
    return final


def name_of(envs: VectorEnv) -> str:
    """What to call `envs` in a sentence."""
    return envs.spec.id if envs.spec is not None else type(envs).__name__


class SingleOfVector(gym.Env[Any, Any]):
    """A vector environment of one as a plain environment: evaluations play what actors play."""

    def __init__(self, envs: VectorEnv) -> None:
        self._envs, self._mode = envs, autoreset_mode(envs)
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.metadata = dict(envs.metadata)
        self.render_mode = envs.render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        batch, infos = self._envs.reset(seed=seed, options=options)
        return row_of_batch(batch, 0), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = np.asarray([action], dtype=self._envs.single_action_space.dtype)
        batch, rewards, terminated, truncated, infos = self._envs.step(actions)
        over = bool(terminated[0]), bool(truncated[0])
        if self._mode is AutoresetMode.SAME_STEP and any(over):
            batch = final_observations(self._envs, infos)
        return row_of_batch(batch, 0), float(rewards[0]), *over, infos

    def render(self) -> Any:  # gymnasium's word for it
        frames = self._envs.render()
        return frames[0] if frames is not None else None

    def close(self) -> None:
        self._envs.close()

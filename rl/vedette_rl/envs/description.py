"""What a vector must know of environments that it does not hold itself, also as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import FrameStackObservation

from vedette_rl.envs.altering_wrappers import AlteringWrapper, altering_wrappers
from vedette_rl.envs.registry import find_episode_bound
from vedette_rl.envs.stored_spaces import space_from_json, space_to_json


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """The description of an environment that is made.

    Args:
        observation_space, action_space: as the environment names them.
        episode_bound: steps at which evaluations cut an episode, unless they are told otherwise.
        wrapped_stack: frames of the `FrameStackObservation` around it; 0: it has none.
        altering: wrappers around it that change what evaluations measure.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    episode_bound: int
    wrapped_stack: int
    altering: tuple[AlteringWrapper, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON's types.

        Raises:
            SpaceLayoutError: a space is of a kind that agents do not take.
        """
        return {
            "observation": space_to_json(self.observation_space),
            "action": space_to_json(self.action_space),
            "episode_bound": self.episode_bound,
            "wrapped_stack": self.wrapped_stack,
            "altering": self.altering,
        }

    @classmethod
    def from_json(cls, text: dict[str, Any]) -> EnvDescription:
        """The description that `to_json` wrote; a space of a custom class is of Gymnasium's."""
        return cls(
            space_from_json(text["observation"]),
            space_from_json(text["action"]),
            int(text["episode_bound"]),
            int(text["wrapped_stack"]),
            tuple(AlteringWrapper(*wrapper) for wrapper in text["altering"]),
        )


def describe_environment(env: gym.Env[Any, Any]) -> EnvDescription:
    """Look at an environment; it is neither reset nor stepped."""
    return EnvDescription(
        env.observation_space,
        env.action_space,
        find_episode_bound(env),
        _wrapped_stack(env),
        altering_wrappers(env),
    )


def _wrapped_stack(env: gym.Env[Any, Any]) -> int:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, FrameStackObservation):
            return env.stack_size
        env = env.env
    return 0

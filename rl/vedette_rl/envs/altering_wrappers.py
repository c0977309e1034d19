"""Wrappers by which the returns of evaluations are not those of the environment, or differ from
one evaluation of a model to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import wrappers
from gymnasium.wrappers import vector

from vedette_rl.envs.config import EnvConfig

Alters = Literal["observations", "rewards", "statistics of rewards"]


class AlteringWrapper(NamedTuple):
    """A wrapper around an environment.

    Args:
        name: of its class.
        alters: what it changes.
    """

    name: str
    alters: Alters


_KINDS: tuple[tuple[type, Alters], ...] = (
    (wrappers.NormalizeObservation, "observations"),
    (vector.NormalizeObservation, "observations"),
    (wrappers.NormalizeReward, "statistics of rewards"),
    (vector.NormalizeReward, "statistics of rewards"),
    (wrappers.TransformReward, "rewards"),  # ClipReward is one
    (vector.TransformReward, "rewards"),
)

_WHY: dict[Alters, str] = {
    "observations": (
        "scales observations by statistics that each environment gathers for itself, and a model is"
        " evaluated with others than it has learned with, again with others by `vedette eval`: use "
        "agent.normalize_observations=true, whose statistics are saved with the model"
    ),
    "statistics of rewards": (
        "scales rewards by statistics that each environment gathers for itself: returns, the best "
        "model and the target are of scaled rewards, and `vedette eval` scales them otherwise: use "
        "env.reward_scale, or set training_only = true in env.wrappers"
    ),
    "rewards": (
        "changes rewards: returns, the best model and the target are of changed ones: use "
        "env.reward_scale or env.reward_clip, or set training_only = true in env.wrappers"
    ),
}


def altering_wrappers(env: Any) -> tuple[AlteringWrapper, ...]:
    """Those around an environment or a vector of them, the outermost first."""
    found = []
    for wrapper in wrapper_chain(env):
        for kind, alters in _KINDS:
            if isinstance(wrapper, kind):
                found.append(AlteringWrapper(type(wrapper).__name__, alters))
    return tuple(found)


def wrapper_chain(env: Any) -> Iterator[Any]:
    """Yield the wrappers around an environment or a vector of them, the outermost first, and then
    the environment."""
    while env is not None:
        yield env
        is_wrapper = isinstance(env, gym.Wrapper | gym.vector.VectorWrapper)
        # a vector of one that stands for an environment: `SingleOfVector`
        env = env.env if is_wrapper else getattr(env, "vector", None)


def in_evaluations(
    found: Iterable[AlteringWrapper], config: EnvConfig
) -> tuple[AlteringWrapper, ...]:
    """Those of a training environment that evaluations have, too."""
    left_out = Counter(
        wrapper.name.rpartition(":")[2] for wrapper in config.wrappers if wrapper.training_only
    )
    kept = []
    for wrapper in found:
        if left_out[wrapper.name]:
            left_out[wrapper.name] -= 1
        else:
            kept.append(wrapper)
    return tuple(kept)


def describe_altering(found: Sequence[AlteringWrapper]) -> list[str]:
    """What each does to evaluations, and what to use in its place, a line each."""
    return [f"the wrapper {name} {_WHY[alters]}" for name, alters in dict.fromkeys(found)]

"""Masks of allowed actions, which environments give for libraries that use them: no agent here
does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium import spaces as gs

_NAMES = ("action_mask", "action_masks")


def find_action_mask(env: gym.Env[Any, Any], info: Mapping[str, Any]) -> str:
    """Say where an environment gives a mask; "" if it gives none.

    sb3-contrib calls a method `action_masks`, PettingZoo's environments have a part of the
    observation, Gymnasium's Taxi has an entry of `info`.

    Args:
        info: what reset() gave with the observation.
    """
    if isinstance(env.observation_space, gs.Dict):
        for name in _NAMES:
            if name in env.observation_space.spaces:
                return f"the part {name!r} of the observations"
    for name in _NAMES:
        if name in info:
            return f"info[{name!r}] of reset()"
    inner: gym.Env[Any, Any] | None = env
    while inner is not None:
        # Of the class: an instance may answer to every name.
        if callable(getattr(type(inner), "action_masks", None)):
            return f"{type(inner).__name__}.action_masks()"
        inner = inner.env if isinstance(inner, gym.Wrapper) else None
    return ""

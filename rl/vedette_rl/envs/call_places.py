"""Names the user's code that a value comes from, where the value is looked at after the call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

_NOT_USER_CODE = ("gymnasium.core", "gymnasium.wrappers", "vedette_rl")
_OF_WRAPPERS = ("observation", "reward")
"""What Gymnasium's wrappers of observations and of rewards call in `step` and `reset`."""


def call_places(env: gym.Env[Any, Any]) -> Mapping[str, str]:
    """The place of each call of an environment, as ``{"step()": "Sim.step, sim.py:12"}``."""
    return {f"{name}()": call_place(env, name) for name in ("reset", "step")}


def call_place(env: gym.Env[Any, Any], name: str) -> str:
    """Where the outermost class that is not Gymnasium's or ours defines a method, or changes what
    it gives: the environment's, or that of a wrapper around it. "" where that is not known."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if place := _definition(type(layer), (name, *_OF_WRAPPERS)):
            return place
        layer = layer.env
    return _definition(type(layer), (name,))


def _definition(kind: type, names: tuple[str, ...]) -> str:
    """The first of these methods that a class has of user's code; "" if there is none."""
    for base in kind.__mro__:
        if base.__module__.startswith(_NOT_USER_CODE):
            continue
        for name in names:
            method = vars(base).get(name)
            if not callable(method):
                continue
            code = getattr(inspect.unwrap(method), "__code__", None)
            line = f", {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
            return f"{base.__name__}.{name}{line}"
    return ""

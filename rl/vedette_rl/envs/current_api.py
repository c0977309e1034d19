"""Refuses what environments of gym's old API give, where it comes from them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import gymnasium as gym

from vedette_rl.envs.call_places import call_place
from vedette_rl.errors import EnvironmentFaultError

_NO_SEED = (
    "takes no seed, as in gym's old API: define reset(self, *, seed=None, options=None), which "
    "returns obs and a dictionary"
)
_NO_INFO = (
    "does not give (obs, info), but the observation alone, as in gym's old API: return obs and a "
    "dictionary, such as obs, {}"
)
_FOUR_VALUES = (
    "gives four values, as in gym's old API: return obs, reward, terminated, truncated, info; "
    "truncated is true where a limit has cut the episode"
)


def check_calls(env: gym.Env[Any, Any], env_id: str) -> None:
    """Check what the innermost environment gives, whose wrappers would fail at it in their own
    words.

    Args:
        env: made, with wrappers around it or none; it is changed.
        env_id: its name, for the error.
    """
    outer = env
    if not isinstance(outer, gym.Wrapper):
        return
    while isinstance(outer.env, gym.Wrapper):
        outer = outer.env
    outer.env = _CheckedCalls(outer.env, env_id)


class _CheckedCalls(gym.Wrapper[Any, Any, Any, Any]):
    """The innermost environment, whose first calls are checked."""

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._id = env_id

        @functools.wraps(env.reset)  # Gymnasium looks at its arguments
        def reset(**kwargs: Any) -> tuple[Any, dict[str, Any]]:
            return self._reset(**kwargs)

        self.reset = reset  # type: ignore[method-assign]

    def _reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset.

        Raises:
            EnvironmentFaultError: it takes no seed, or gives no info.
        """
        if "seed" in kwargs and not takes_seed(type(self.env)):
            raise self._fault("reset", _NO_SEED)
        given = self.env.reset(**kwargs)
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)):
            raise self._fault("reset", _NO_INFO)
        return given

    def step(self, action: Any) -> Any:
        """Step.

        Raises:
            EnvironmentFaultError: it gives four values.
        """
        given = self.env.step(action)
        if isinstance(given, tuple) and len(given) == 4:
            raise self._fault("step", _FOUR_VALUES)
        return given

    def _fault(self, name: str, fault: str) -> EnvironmentFaultError:
        place = call_place(self.env, name)
        return EnvironmentFaultError(self._id, f"{name}() {fault}{f' ({place})' if place else ''}")


def takes_seed(kind: type[Any]) -> bool:
    """True if the `reset` of a class can be given a seed."""
    try:
        parameters = inspect.signature(kind.reset).parameters.values()
    except (TypeError, ValueError):  # of a compiled class
        return True
    return any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in parameters)

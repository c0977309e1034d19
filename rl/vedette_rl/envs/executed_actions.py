"""Executed actions in the terms of the wrappers outside of what reports them.

A person's action is reported in an environment's info, by the environment or by a wrapper, in its
own terms. A wrapper outside that changes actions has others, and the agent has the outermost ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from gymnasium.wrappers import StickyAction
from numpy.typing import NDArray

from vedette_rl.envs.layout import INTERVENED_ACTION, find_intervention
from vedette_rl.errors import EnvironmentFaultError

Env = gym.Env[Any, Any]

_TRIED_MOST = 10_000
"""Actions of a discrete wrapper that are compared with an executed one."""

_TOLERANCE = 1e-4
"""Of a Box's inner action, relative to its size: wrappers compute in float32."""


def convert_executed_actions(env: Env) -> Env:
    """Have each wrapper of `env` that changes actions find executed ones in its own terms.

    Returns:
        The same environment.
    """
    wrapper = env
    while isinstance(wrapper, gym.Wrapper):
        inner = wrapper.env
        if _changes_actions(wrapper):
            wrapper.env = _ExecutedActions(inner, wrapper)
        wrapper = inner
    return env


def _changes_actions(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> bool:
    is_action_wrapper = isinstance(wrapper, gym.ActionWrapper)
    return is_action_wrapper or bool(wrapper.action_space != wrapper.env.action_space)


class _ExecutedActions(gym.Wrapper[Any, Any, Any, Any]):
    """Stands inside a wrapper, and converts executed actions that come from further inside to it.

    Args:
        env: what the wrapper is around.
        outer: the wrapper.
    """

    def __init__(self, env: Env, outer: gym.Wrapper[Any, Any, Any, Any]) -> None:
        super().__init__(env)
        self._outer = outer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        executed = find_intervention(info) if info else None
        if executed is not None:
            info = {**info, INTERVENED_ACTION: outer_action(self._outer, executed)}
        return obs, reward, terminated, truncated, info

    @property
    def spec(self) -> Any:  # type: ignore[override]  # Gymnasium's own wrappers do so
        """That of the environment: nobody has wrapped it by this."""
        return self.env.spec

    def __str__(self) -> str:
        return str(self.env)


def outer_action(wrapper: gym.Wrapper[Any, Any, Any, Any], executed: Any) -> Any:
    """The action of a wrapper that becomes the executed one inside of it.

    A wrapper's own method ``reverse_action`` says it. Without one it is searched: among all actions
    of a discrete wrapper, and among those of a wrapper of a Box that leaves each number as it is,
    scales or shifts it.

    Raises:
        EnvironmentFaultError: there is none, or the wrapper's actions depend on more than the
            action.
    """
    if isinstance(wrapper, StickyAction):  # what it executes is in the same terms
        return executed
    if reverse := getattr(wrapper, "reverse_action", None):
        return reverse(executed)
    if isinstance(wrapper, gym.ActionWrapper):
        try:
            found = _search(copy.copy(wrapper).action, wrapper.action_space, executed)
        except Exception:  # noqa: BLE001 - of somebody's wrapper, shown what it does not expect
            found = None
        if found is not None:
            return found
    name = type(wrapper).__name__
    raise EnvironmentFaultError(
        str(wrapper.unwrapped),
        f"a person's action {executed} cannot be converted to an action of the wrapper {name} "
        f"outside ({wrapper.action_space}): put {name} inside of what reports the action (earlier "
        "in env.wrappers), or give it a method reverse_action",
    )


def _search(apply: Callable[[Any], Any], space: gym.Space[Any], executed: Any) -> Any:
    """The action of `space` that `apply` changes to `executed`; None: none was found, or `apply`
    depends on more than the action."""
    reference: Any = None
    found: Any = None
    for candidate in _candidates(apply, space, np.asarray(executed)):
        if reference is None:
            reference = candidate, np.array(apply(candidate))
        if _is_close(apply(candidate), executed):
            found = candidate
            break
    if found is None or reference is None:
        return None
    first, before = reference
    return found if np.array_equal(before, apply(first)) else None


def _candidates(
    apply: Callable[[Any], Any], space: gym.Space[Any], executed: NDArray[Any]
) -> Iterator[Any]:
    match space:
        case gs.Discrete() if space.n <= _TRIED_MOST:
            yield from (np.int64(space.start + k) for k in range(int(space.n)))
        case gs.MultiDiscrete() if np.prod(space.nvec, dtype=np.float64) <= _TRIED_MOST:
            for numbers in product(*(range(int(n)) for n in space.nvec.flat)):
                yield np.reshape(numbers, space.shape).astype(space.dtype) + space.start
        case gs.Box() if space.shape == executed.shape:
            yield executed.astype(space.dtype)
            yield _affine_candidate(apply, space, executed)
        case _:
            return


def _affine_candidate(
    apply: Callable[[Any], Any], space: gs.Box, executed: NDArray[Any]
) -> NDArray[Any]:
    """The action by the line through what becomes of two others."""
    is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low = np.where(is_bounded, space.low, 0.0).astype(space.dtype)
    high = np.where(is_bounded, space.high, 1.0).astype(space.dtype)
    of_low, of_high = (np.array(apply(end.copy()), np.float64) for end in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (executed - of_low) / (of_high - of_low)
    # where both ends become the same, any action does
    share = np.where(np.isfinite(share), share, 0.0)
    found: NDArray[Any] = (low + share * (high.astype(np.float64) - low)).astype(space.dtype)
    return found


def _is_close(action: Any, executed: Any) -> bool:
    one, other = np.asarray(action), np.asarray(executed)
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "iub" and other.dtype.kind in "iub":
        return bool((one == other).all())
    return bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE))

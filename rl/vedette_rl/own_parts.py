"""Checks what agents, replays and policies of the user's own return, each at its first call alone.

Later calls cost nothing: the check has taken itself away. No torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vedette_rl.core.learning import Agent, OptResult, ReplayBuffer, Sample
from vedette_rl.envs.spaces import action_field
from vedette_rl.errors import OwnPartError


def check_first_opt(name: str, agent: Agent) -> None:
    """Have the first optimization step of agent `name` checked.

    That step raises:
        OwnPartError: it returns no `OptResult`, TD errors that are not one for each sample, or does
            not count.
    """

    def checked(opt: Callable[..., OptResult], *args: Any, **kwargs: Any) -> OptResult:
        before = agent.opt_steps
        result = opt(*args, **kwargs)
        if not (hasattr(result, "td_errors") and hasattr(result, "record")):
            raise OwnPartError("agent.name", name, "opt", _describe(result), "an OptResult")
        if result.td_errors is not None and result.td_errors.ndim != 1:
            found = f"td_errors of shape {tuple(result.td_errors.shape)}"
            raise OwnPartError("agent.name", name, "opt", found, "one for each sample, (B,)")
        if agent.opt_steps <= before:
            found = f"with opt_steps at {agent.opt_steps}, which was {before} before"
            expected = "an agent that counts: opt adds 1 to opt_steps"
            raise OwnPartError("agent.name", name, "opt", found, expected)
        return result

    _check_first_call(agent, "opt", checked)


def check_first_sample(name: str, replay: ReplayBuffer) -> None:
    """Have the first draw of replay `name` checked; that raises as `check_sample`."""

    def checked(sample: Callable[[int], Sample], batch_size: int) -> Sample:
        drawn = sample(batch_size)
        check_sample(name, drawn, batch_size)
        return drawn

    _check_first_call(replay, "sample", checked)


def check_sample(name: str, drawn: Sample, batch_size: int) -> None:
    """Check a sample of replay `name`.

    Raises:
        OwnPartError: it is no `Sample`, or not of `batch_size` rows.
    """
    if not all(hasattr(drawn, part) for part in ("columns", "indices", "weights")):
        expected = "vedette_rl.core.Sample(columns, indices)"
        raise OwnPartError("replay.name", name, "sample", _describe(drawn), expected)
    arrays = {**drawn.columns, "indices": drawn.indices}
    if drawn.weights is not None:
        arrays["weights"] = drawn.weights
    for part, array in arrays.items():
        if np.shape(array)[:1] != (batch_size,):
            found = f"{part!r} of shape {np.shape(array)}"
            raise OwnPartError("replay.name", name, "sample", found, f"{batch_size} rows")


def check_actions(name: str, actions: Any, space: gym.Space[Any], envs: int) -> None:
    """Check what the policy of agent `name` returned for `envs` environments.

    Args:
        space: of one action, as agents see it: discrete ones count from 0.

    Raises:
        OwnPartError: they are not one action of the space for each; a Box's bounds are not looked
            at, as many environments clip.
    """
    _, dtype, shape = action_field(space)
    try:
        found = np.asarray(actions)
    except (TypeError, ValueError):
        found = np.empty(0, object)
    sound = found.shape == (envs, *shape) and np.can_cast(found.dtype, dtype, "same_kind")
    if sound and isinstance(space, spaces.Box):
        sound = bool(np.isfinite(found).all())
    elif sound:
        sound = all(space.contains(one.astype(space.dtype)) for one in found)
    if not sound:
        expected = f"an action of {space} for each environment, {dtype}{[envs, *shape]}"
        raise OwnPartError("agent.name", name, "act", _describe(actions), expected)


def _check_first_call(part: Any, method: str, checked: Callable[..., Any]) -> None:
    """Have ``checked(call, ...)`` in place of the first call of a method, where the object can hold
    one of its own."""
    if not hasattr(part, "__dict__"):
        return
    own, call = vars(part).get(method), getattr(part, method)

    def first(*args: Any, **kwargs: Any) -> Any:
        if own is None:
            delattr(part, method)
        else:
            setattr(part, method, own)
        return checked(call, *args, **kwargs)

    setattr(part, method, first)


def _describe(value: object) -> str:
    """A value in a few words."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None:
        return f"a {type(value).__name__}"
    shown = np.array2string(np.asarray(value), threshold=8) if isinstance(value, np.ndarray) else ""
    return f"{dtype}{[*shape]} {shown}".strip()

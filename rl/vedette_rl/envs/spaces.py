"""Spaces as columns: which columns an environment's transitions have.

An observation may be any nesting of dictionaries and tuples of arrays; an action is one array.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.core.columns import RowColumn, row_dtype
from vedette_rl.envs.config import EnvConfig
from vedette_rl.errors import DeclaredSpaceError, SpaceLayoutError

Field = tuple[str, np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True)
class Spaces:
    """The spaces of an environment as agents see them.

    Discrete actions count from 0 here whatever the environment's `start` is: the vector of
    environments adds it (see `agent_spaces`).

    Args:
        observation: the observation space of the wrapped environment.
        action: its action space.
        stack: the number of frames in an observation that is a stack, along its first axis, as far
            as `vedette_rl.envs.probe` can see; 0: it is no stack.
    """

    observation: gym.Space[Any]
    action: gym.Space[Any]
    stack: int = 0


@dataclass(frozen=True, slots=True)
class ObservationColumn:
    """One array of an observation.

    Args:
        name: the column's name, ``obs`` or ``obs/KEY/...``.
        path: the keys and places that lead to it in an observation; empty for a plain array.
        dtype: the stored dtype: float64 becomes float32, the rest stays.
        shape: the shape of one observation.
    """

    name: str
    path: tuple[Any, ...]
    space: gym.Space[Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def observation_columns(space: gym.Space[Any]) -> tuple[ObservationColumn, ...]:
    """The arrays of an observation, in the order of their columns.

    Raises:
        SpaceLayoutError: a part has no fixed shape, or two parts would be one column.
    """
    try:
        leaves = tuple(_leaves(space, "obs", ()))
    except _NoArrayError as error:
        raise _refuse_part(space, *error.args) from None
    names = [leaf.name for leaf in leaves]
    for name in names:
        if names.count(name) > 1:
            raise SpaceLayoutError("observation", space, f"two of its parts are called {name!r}")
    if not leaves:
        raise SpaceLayoutError("observation", space, "it holds no array")
    return leaves


class _NoArrayError(Exception):
    """A part of an observation is no array of a fixed shape: its path and its space."""


def _refuse_part(
    space: gym.Space[Any], path: tuple[Any, ...], part: gym.Space[Any]
) -> SpaceLayoutError:
    """The refusal of an observation that is, or has, something else than arrays."""
    is_text = isinstance(part, gs.Text) or (part.dtype is not None and part.dtype.kind in "SU")
    what = "text" if is_text else f"a {type(part).__name__}, of no fixed shape"
    fix = "name a wrapper in env.wrappers that makes it an array"
    kept = [str(key) for key, inner in _parts(space) if _is_laid_out(inner)]
    if type(part).__module__.partition(".")[0] == "minigrid":
        fix = "leave it out by 'env.wrappers=[\"minigrid.wrappers:ImgObsWrapper\"]'"
    elif len(path) == 1 and kept:
        keys = f"kwargs = {{filter_keys = {json.dumps(kept)}}}"
        name = "gymnasium.wrappers:FilterObservation"
        fix = f"""leave it out by 'env.wrappers=[{{name = "{name}", {keys}}}]', or {fix}"""
    name = type(space).__name__
    of = f"its part {'/'.join(map(str, path))!r}" if path else "it"
    return SpaceLayoutError("observation", name, f"{of} is {what}: {fix}")


def _parts(space: gym.Space[Any]) -> list[tuple[Any, gym.Space[Any]]]:
    return list(space.spaces.items()) if isinstance(space, gs.Dict) else []


def _is_laid_out(space: gym.Space[Any]) -> bool:
    try:
        return bool(tuple(_leaves(space, "obs", ())))
    except (_NoArrayError, SpaceLayoutError):
        return False


def _leaves(space: gym.Space[Any], name: str, path: tuple[Any, ...]) -> Iterator[ObservationColumn]:
    if isinstance(space, gs.Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, f"{name}/{key}", (*path, key))
    elif isinstance(space, gs.Tuple):
        for place, inner in enumerate(space.spaces):
            yield from _leaves(inner, f"{name}/{place}", (*path, place))
    elif isinstance(space, (gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary)):
        yield ObservationColumn(name, path, space, *_array("observation", space))
    else:
        raise _NoArrayError(path, space)


def _array(part: str, space: gym.Space[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if space.dtype is None or space.shape is None:
        raise SpaceLayoutError(part, space, "an array of a fixed shape is needed")
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f" and dtype.itemsize > 4:
        dtype = np.dtype(np.float32)
    if dtype.kind not in "fiub":
        raise SpaceLayoutError(part, space, f"{dtype} is not a number")
    if 0 in space.shape:
        raise SpaceLayoutError(part, space, f"an array of shape {space.shape} holds nothing")
    return dtype, tuple(space.shape)


def action_field(space: gym.Space[Any]) -> Field:
    """Column of an action: int64 for discrete ones, float32 for a Box of floats.

    Raises:
        SpaceLayoutError: it is not one array.
    """
    if not isinstance(space, (gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary)):
        why = "an action is one array: name a wrapper in env.wrappers that makes it one"
        raise SpaceLayoutError("action", space, why)
    dtype, shape = _array("action", space)
    if isinstance(space, (gs.Discrete, gs.MultiDiscrete)):
        dtype = np.dtype(np.int64)
    elif dtype.kind == "f":
        dtype = np.dtype(np.float32)
    return "action", dtype, shape


def describe_spaces(spaces: Spaces) -> dict[str, str]:
    """Return what networks depend on, as texts: the arrays of an observation, and the action."""
    leaves = observation_columns(spaces.observation)
    _, dtype, shape = action_field(spaces.action)
    action = spaces.action
    counted = isinstance(action, (gs.Discrete, gs.MultiDiscrete))
    return {
        "observations": ", ".join(f"{leaf.name} {leaf.dtype} {leaf.shape}" for leaf in leaves),
        "actions": str(action) if counted else f"{dtype} {shape}",
    }


def transition_dtype(spaces: Spaces, columns: Sequence[RowColumn] = ()) -> np.dtype[Any]:
    """A transition as a row: ``obs..., action, reward, next_obs..., terminated, truncated,
    n_steps``, and the columns that an agent or step processor declares."""
    leaves = observation_columns(spaces.observation)
    flag = np.dtype(np.bool_)
    fields: list[Field] = [(leaf.name, leaf.dtype, leaf.shape) for leaf in leaves]
    fields.append(action_field(spaces.action))
    fields.append(("reward", np.dtype(np.float32), ()))
    fields.extend((f"next_{leaf.name}", leaf.dtype, leaf.shape) for leaf in leaves)
    fields.append(("terminated", flag, ()))
    fields.append(("truncated", flag, ()))
    fields.append(("n_steps", np.dtype(np.uint8), ()))
    fields.extend((column.name, column.numpy_dtype, column.shape) for column in columns)
    return row_dtype(fields)


def action_bounds(spaces: Spaces) -> dict[str, tuple[int, int]]:
    """Inclusive bounds of the action column where it is discrete; empty for a Box."""
    bounds = _bounds(spaces.action)
    return {} if bounds is None else {"action": bounds}


def column_bounds(spaces: Spaces, columns: Sequence[RowColumn] = ()) -> dict[str, tuple[int, int]]:
    """Inclusive bounds of every discrete column, observations, `n_steps` and declared ones too:
    what may index a table is checked where it comes in."""
    bounds = action_bounds(spaces)
    for leaf in observation_columns(spaces.observation):
        inner = _bounds(leaf.space)
        if inner is not None:
            bounds[leaf.name] = bounds[f"next_{leaf.name}"] = inner
    bounds["n_steps"] = (1, 255)
    bounds.update({column.name: column.bounds for column in columns if column.bounds})
    return bounds


def first_outside(values: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> str:
    """The first element of ``(..., *shape)`` that is not in its range, low to high ``(*shape)``, in
    one line; "" if there is none."""
    inside = (values >= low) & (values <= high)
    if inside.all():
        return ""
    where = tuple(np.argwhere(~inside)[0].tolist())
    at = where[values.ndim - low.ndim :]
    place = f" at {[*at]}" if at else ""
    return f"{values[where]}{place} is outside {low[at]} to {high[at]}"


def executed_range(space: gym.Space[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The least and the largest number of each element ``(*shape)`` of an action that was executed,
    in the environment's own terms; None where any number may be.

    An action in a Box of floats may be outside by ten times the Box's width, because a person or a
    safety filter may do more than the agent may. What is further away is an error: it would make
    the weights infinite.
    """
    match space:
        case gs.Discrete():
            return np.asarray(space.start), np.asarray(space.start + space.n - 1)
        case gs.MultiDiscrete():
            start = space.start.astype(np.int64)
            return start, start + space.nvec.astype(np.int64) - 1
        case gs.MultiBinary():
            return np.zeros(space.shape, np.int64), np.ones(space.shape, np.int64)
        case gs.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            with np.errstate(over="ignore"):  # actions are stored in float32
                low, high = np.minimum(low, np.float32(low)), np.maximum(high, np.float32(high))
            width = high - low
            return (low - 10.0 * width, high + 10.0 * width) if np.isfinite(width).all() else None
        case _:
            return None


class ElementBounds:
    """The range of each element, of columns whose elements have different ranges.

    Those are MultiDiscrete parts of unequal dimensions, and an action in a Box of floats
    (`executed_range`).

    Args:
        spaces: the environment's spaces.
    """

    def __init__(self, spaces: Spaces) -> None:
        self._ranges = dict(_element_ranges(spaces))

    def fault(self, columns: Mapping[str, NDArray[Any]]) -> str:
        """The first element of these columns ``(..., *shape)`` that is out of its range, in one
        line; "" if there is none."""
        for name, (low, high) in self._ranges.items():
            if (column := columns.get(name)) is None:  # stored once, as the entries of another
                continue
            if outside := first_outside(column, low, high):
                return f"column {name!r}: {outside}"
        return ""


def _element_ranges(spaces: Spaces) -> Iterator[tuple[str, tuple[NDArray[Any], NDArray[Any]]]]:
    for leaf in observation_columns(spaces.observation):
        if (element_range := _ragged(leaf.space)) is not None:
            yield leaf.name, element_range
            yield f"next_{leaf.name}", element_range
    action = spaces.action
    if (element_range := _ragged(action)) is not None:
        yield "action", element_range
    if isinstance(action, gs.Box) and (element_range := executed_range(action)) is not None:
        yield "action", element_range


def _ragged(space: gym.Space[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    if not isinstance(space, gs.MultiDiscrete):
        return None
    low, high = space.start, space.start + space.nvec - 1
    return None if np.ptp(low) == 0 == np.ptp(high) else (low, high)


def _bounds(space: gym.Space[Any]) -> tuple[int, int] | None:
    match space:
        case gs.Discrete():
            return int(space.start), int(space.start + space.n - 1)
        case gs.MultiDiscrete():
            return int(space.start.min()), int((space.start + space.nvec - 1).max())
        case gs.MultiBinary():
            return 0, 1
        case _:
            return None


def agent_spaces(observation: gym.Space[Any], action: gym.Space[Any], *, stack: int = 0) -> Spaces:
    """An environment's spaces as agents see them: discrete actions count from 0.

    Raises:
        SpaceLayoutError: transitions of these spaces have no columns.
    """
    if isinstance(action, gs.Discrete):
        action = gs.Discrete(int(action.n))
    elif isinstance(action, gs.MultiDiscrete):
        action = gs.MultiDiscrete(action.nvec)
    spaces = Spaces(observation, action, stack)
    transition_dtype(spaces)
    return spaces


def declared_spaces(config: EnvConfig) -> Spaces | None:
    """The spaces that a configuration declares, as agents see them; None if it declares none.

    Raises:
        SpaceLayoutError: transitions of these spaces have no columns.
    """
    if config.observation is None or config.action is None:
        return None
    observation = config.observation.build()
    shape = observation.shape or ()
    stacked = len(shape) > 1 and shape[0] == config.stack
    return agent_spaces(observation, config.action.build(), stack=shape[0] if stacked else 0)


def check_declared(config: EnvConfig, spaces: Spaces) -> None:
    """Check that an environment that was made has the declared spaces, if there are any. Bounds of
    observations in a Box may differ.

    Raises:
        DeclaredSpaceError: it has others.
    """
    declared = declared_spaces(config)
    if declared is not None and (part := differing_part(declared, spaces)):
        raise DeclaredSpaceError(part, getattr(declared, part), getattr(spaces, part))


def differing_part(one: Spaces, other: Spaces) -> Literal["", "action", "observation"]:
    """The part in which a policy of one's spaces cannot play in the other's; "" if there is none.
    Bounds of observations in a Box may differ: values that never occur need not be declared."""
    if _action_layout(one.action) != _action_layout(other.action):
        return "action"
    return "" if _layout(one.observation) == _layout(other.observation) else "observation"


RESET_CHANGED = "reset() has changed it, which was"
STEP_CHANGED = "step() has changed it, which was"
INSTANCES_DIFFER = "the first instance has"


class HasSpaces(Protocol):
    """An environment, or the description of one."""

    @property
    def observation_space(self) -> gym.Space[Any]: ...
    @property
    def action_space(self) -> gym.Space[Any]: ...


class KnownSpaces:
    """The spaces of an environment, by which others are refused: those of another instance, and
    those that it changes itself. An agent has one space.

    Args:
        env: its spaces are kept, not copied.
    """

    def __init__(self, env: HasSpaces) -> None:
        self._spaces = Spaces(env.observation_space, env.action_space)
        self._last = env.action_space

    def check(self, env: HasSpaces, how: str) -> None:
        """Check that an environment has these spaces.

        Args:
            how: where another one comes from, as the error says it: `RESET_CHANGED`, e.g.

        Raises:
            SpaceLayoutError: it has others; bounds of observations in a Box may differ.
        """
        self._last = env.action_space
        now = Spaces(env.observation_space, env.action_space)
        if part := differing_part(self._spaces, now):
            why = (
                f"{how} {getattr(self._spaces, part)}; an agent has one space: declare one "
                "that holds all of them, in the constructor"
            )
            raise SpaceLayoutError(part, getattr(now, part), why)

    def check_replaced(self, env: HasSpaces, how: str) -> None:
        """As `check`, where its space of actions is another object than when it was last seen: no
        more is looked at in every reset. Observations of another shape are found as they come."""
        if env.action_space is not self._last:
            self.check(env, how)


def _layout(space: gym.Space[Any]) -> list[tuple[Any, ...]]:
    columns = observation_columns(space)
    return [(leaf.name, leaf.dtype, leaf.shape, _bounds(leaf.space)) for leaf in columns]


def _action_layout(space: gym.Space[Any]) -> tuple[Any, ...]:
    layout = action_field(space)
    if isinstance(space, gs.Box):
        return (
            *layout,
            space.low.astype(np.float32).tolist(),
            space.high.astype(np.float32).tolist(),
        )
    return *layout, space.nvec.tolist() if isinstance(space, gs.MultiDiscrete) else _bounds(space)

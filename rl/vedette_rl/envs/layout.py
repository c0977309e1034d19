"""Conversion between what environments give and take, and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.exact_cast import InexactCastError, cast_exactly, cast_rounded
from vedette_rl.envs.call_places import call_place
from vedette_rl.envs.category_range import CategoryRange
from vedette_rl.envs.spaces import (
    ObservationColumn,
    action_field,
    executed_range,
    first_outside,
    observation_columns,
)
from vedette_rl.errors import EnvironmentFaultError, SpaceLayoutError

_SMALL_BYTES = 4096
"""Observations up to here are gathered by one assignment, which copies them twice; above it is
cheaper to write each into its row."""

_NUMBERS = frozenset("biuf")
"""Kinds of dtypes."""


class ObservationLayout:
    """Writes observations of one space into columns ``obs...``.

    Columns of floats round to their precision. Other columns store what was seen, or refuse it.
    Categories are within their space: as one-hot vectors others would be none, or another one.

    Methods take `origin`, which an error names: the call that gave what is written, ``reset()``.

    Args:
        places: where these calls are defined, which an error names, too (`call_places`).

    Raises:
        SpaceLayoutError: (any method) an array has another shape than its space, a value that its
            column cannot hold, or a category that its space does not have.
    """

    def __init__(
        self, space: gym.Space[Any], places: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.places = places
        self.leaves = observation_columns(space)
        ranges = ((leaf, CategoryRange.of(leaf.space)) for leaf in self.leaves)
        self._categories = tuple((leaf, span) for leaf, span in ranges if span is not None)
        first = self.leaves[0]
        size = first.dtype.itemsize * math.prod(first.shape)
        self._small = first.path == () and size <= _SMALL_BYTES
        self._float_leaves = tuple(leaf for leaf in self.leaves if leaf.dtype.kind == "f")

    def empty(self, rows: int) -> Columns:
        """Uninitialised columns for `rows` observations."""
        return {leaf.name: np.empty((rows, *leaf.shape), leaf.dtype) for leaf in self.leaves}

    def write(self, columns: Columns, row: int, obs: Any, *, origin: str = "") -> None:
        """Copy one observation into a row.

        Raises:
            SpaceLayoutError: an array has another shape or type than its space.
        """
        try:
            self._write(columns, row, obs)
            if self._categories:
                self._check_categories(columns, slice(row, row + 1))
        except _UnfitError as error:
            raise error.of(origin, self.places) from error.__cause__

    def _write(self, columns: Columns, row: int, obs: Any) -> None:
        for leaf in self.leaves:
            value = _of_shape(_follow(obs, leaf), leaf.shape, leaf)
            columns[leaf.name][row] = _storable(value, leaf)

    def write_rows(
        self, columns: Columns, observations: Sequence[Any], *, origin: str = ""
    ) -> None:
        """Copy one observation into each row.

        Raises:
            SpaceLayoutError: as `write`.
        """
        try:
            if not (self._small and self._write_small(columns["obs"], observations)):
                for row, obs in enumerate(observations):
                    self._write(columns, row, obs)
            if self._categories:
                self._check_categories(columns, slice(len(observations)))
        except _UnfitError as error:
            raise error.of(origin, self.places) from error.__cause__

    def _write_small(self, column: NDArray[Any], observations: Sequence[Any]) -> bool:
        """Write all rows by one assignment, where they are alike; returns if they were."""
        try:
            rows = np.array(observations)
        except Exception:  # noqa: BLE001 - row by row, the one that is no such array is named
            return False
        if rows.shape != column.shape or rows.dtype.kind not in _NUMBERS:
            return False
        column[:] = _storable(rows, self.leaves[0], of_rows=True)
        return True

    def write_all(
        self,
        columns: Columns,
        batched_obs: Any,
        *,
        origin: str = "",
        which: NDArray[np.bool_] | None = None,
    ) -> None:
        """Copy the observation of a vector environment into all rows.

        Args:
            which: ``(E,)``, the rows that are observations; None: all are.

        Raises:
            SpaceLayoutError: as `write`.
        """
        try:
            for leaf in self.leaves:
                column = columns[leaf.name]
                batch = _of_shape(_follow(batched_obs, leaf), column.shape, leaf)
                column[...] = _storable(batch, leaf, of_rows=True)
            if self._categories:
                self._check_categories(columns, slice(None), which)
        except _UnfitError as error:
            raise error.of(origin, self.places) from error.__cause__

    def _check_categories(
        self, columns: Columns, rows: slice, which: NDArray[np.bool_] | None = None
    ) -> None:
        for leaf, span in self._categories:
            column = columns[leaf.name][rows]
            if span.has_all(column):
                continue
            where = span.find_outside(column, which)
            if where is not None:
                at = [*where[1:]]
                why = f"has {column[where]}{f' at {at}' if at else ''}, outside of its space"
                raise _UnfitError(leaf, f"{why}: give {span.describe(where[1:])}")

    def find_not_finite(
        self, columns: Columns, which: NDArray[np.bool_] | None = None
    ) -> tuple[ObservationColumn, tuple[int, ...]] | None:
        """The first column with a number that is not finite, and the place of that; None if there
        is none.

        Args:
            which: ``(E,)``, the rows that are looked at; None: all are.
        """
        for leaf in self._float_leaves:
            column = columns[leaf.name]
            if column.itemsize > 2 and math.isfinite(np.vdot(column, column)):
                continue  # the cheapest way: one sum
            finite = np.isfinite(column)
            if which is not None:
                finite[~which] = True
            if not finite.all():
                return leaf, tuple(np.argwhere(~finite)[0].tolist())
        return None

    def encode(self, obs: Any, *, origin: str = "") -> Columns:  # of any space
        """One observation as columns of one row."""
        columns = self.empty(1)
        self.write(columns, 0, obs, origin=origin)
        return columns


def outside_bounds(layout: ObservationLayout, obs: Any) -> str:
    """A clause on a number that is outside of the bounds of its space; "" if there is none.

    It is stored as it is: no learner depends on these bounds.
    """
    for leaf in layout.leaves:
        if not isinstance(leaf.space, gs.Box):
            continue
        value = np.asarray(_follow(obs, leaf)).astype(leaf.dtype)  # rounding keeps what is inside
        space = leaf.space
        bounds = (space.low, space.high)
        low, high = (np.broadcast_to(bound, leaf.shape).astype(leaf.dtype) for bound in bounds)
        outside = (value < low) | (value > high)
        if outside.any():
            where = tuple(np.argwhere(outside)[0].tolist())
            at = f" at {[*where]}" if where else ""
            return (
                f"{leaf.name!r} has {value[where]}{at}, outside of its space's "
                f"{low[where]} to {high[where]}"
            )
    return ""


def rounded_away(layout: ObservationLayout, one: Any, other: Any) -> str:
    """A sentence on a large number of two observations whose change is lost in float32, where it is
    stored or in the network; "" if there is none."""
    for leaf in layout.leaves:
        if not isinstance(leaf.space, gs.Box):  # categories are no numbers for a network
            continue
        first, second = (np.asarray(_follow(obs, leaf)) for obs in (one, other))
        exact = leaf.dtype.kind in "iu" or first.dtype == second.dtype == np.float64
        if not exact:
            continue
        differs = (first != second) & (np.abs(first) >= _LARGE)
        lost = differs & (first.astype(np.float32) == second.astype(np.float32))
        if lost.any():
            numbers = first[lost][0], second[lost][0]
            how = "as it is stored" if leaf.dtype == np.float32 else "as networks compute"
            return (
                f"{leaf.name!r} has {numbers[0]:.17g} and then {numbers[1]:.17g}, which are the "
                f"same in float32, {how}: subtract an offset, by a wrapper in env.wrappers"
            )
    return ""


_LARGE = 2.0**17
"""From here on float32 has no 64th."""


def row_of_batch(batched_obs: Any, row: int) -> Any:  # of any space
    """One environment's observation out of a vector environment's."""
    match batched_obs:
        case dict():
            return {key: row_of_batch(inner, row) for key, inner in batched_obs.items()}
        case tuple():
            return tuple(row_of_batch(inner, row) for inner in batched_obs)
        case _:
            return batched_obs[row]


def _of_shape(
    value: Any, shape: tuple[int, ...], leaf: ObservationColumn
) -> Any:  # an array, or a number
    """The value, if it is of this shape: numpy would repeat it along the missing axes."""
    if getattr(value, "shape", None) == shape:
        return value
    try:
        got = np.shape(value)
    except ValueError as error:  # a nesting of arrays of several shapes
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)
        why = f"is {_short(value)}, whose rows differ in length: an array of {shape} is needed"
        if pair:
            why = "is (obs, info), as reset() returns them: give obs"
        raise _UnfitError(leaf, why) from error
    if got == shape:
        return value
    if got == () and not isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        why = f"is {_short(value)}, a {type(value).__name__}: an array of {shape} is needed"
        raise _UnfitError(leaf, why)
    raise _UnfitError(leaf, f"has shape {got}, expected {shape}")


def _storable(value: Any, leaf: ObservationColumn, *, of_rows: bool = False) -> Any:
    """An array, or a number, that the column of `leaf` takes without a change beyond rounding.

    Args:
        of_rows: its first axis counts observations.
    """
    dtype = leaf.dtype
    if isinstance(value, np.ndarray | np.generic) and value.dtype == dtype:  # no space, e.g.
        return value
    try:
        array = np.asarray(value)
        if array.dtype == object:
            array = np.array(array.tolist())
    except Exception as error:  # a tensor may refuse, for a gradient or as of another device
        raise _UnfitError(leaf, _unreadable(value, error)) from error
    if array.dtype.kind not in _NUMBERS:
        raise _UnfitError(leaf, f"is {_short(value)}, of {array.dtype}: numbers are needed")
    if dtype.kind == "f" or np.can_cast(array.dtype, dtype, "safe"):
        return array
    try:
        return cast_exactly(array, dtype)
    except InexactCastError as error:
        at = [*error.place[1:]] if of_rows else [*error.place]
        why = (
            f"has {error.value} ({array.dtype}){f' at {at}' if at else ''}, which {dtype} cannot "
            "hold: give what the space says, or declare another dtype"
        )
        raise _UnfitError(leaf, why) from None


def _short(value: Any) -> str:
    """A value as text, in one line of a few words."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}..."


_VALUE_CHARS = 60


def _unreadable(value: Any, error: Exception) -> str:
    """Say that numpy makes no array of a value, and what the value's own package advises."""
    return f"is a {type(value).__name__} that numpy cannot read: {' '.join(str(error).split())}"


class _UnfitError(Exception):
    """What an observation has in a column is none of its space."""

    def __init__(self, leaf: ObservationColumn, why: str) -> None:
        super().__init__(leaf, why)
        self._leaf = leaf
        self._why = why

    def of(self, origin: str, places: Mapping[str, str]) -> SpaceLayoutError:
        """The same for users, with the call that gave the observation, and where that is defined;
        "": it is not known."""
        name = repr(self._leaf.name)
        what = (
            f"{origin} gave an observation whose {name}" if origin else f"an observation's {name}"
        )
        why = f"{what} {self._why}{_at(places.get(origin, ''))}"
        return SpaceLayoutError("observation", self._leaf.space, why)


def _at(place: str) -> str:
    return f" ({place})" if place else ""


def _step_fault(env: gym.Env[Any, Any], fault: str) -> EnvironmentFaultError:
    """An error about what step() gave."""
    return EnvironmentFaultError(
        str(env.unwrapped), f"step() gave {fault}{_at(call_place(env, 'step'))}"
    )


def _follow(obs: Any, leaf: ObservationColumn) -> Any:  # of any space
    try:
        for key in leaf.path:
            obs = obs[key]
    except (IndexError, KeyError, TypeError) as error:
        raise _UnfitError(leaf, f"is missing in a {type(obs).__name__}") from error
    return obs


def _rounding(space: gs.Box) -> NDArray[Any] | None:
    """What two numbers of each dimension may be apart and count as one, a thousandth of its width;
    None where it has no bounds."""
    if not space.is_bounded():
        return None
    width = np.subtract(space.high, space.low, dtype=np.float64)
    return np.asarray(1e-3 * width, np.float64)


class ActionConverter:
    """Converts a vector of an agent's actions to the environment's own.

    Discrete actions count from 0 for agents and from `start` for an environment; a Box of float64
    gets float64, within its own bounds.
    """

    def __init__(self, space: gym.Space[Any], count: int) -> None:
        _, self._dtype, shape = action_field(space)
        self._shape = (count, *shape)
        self._env_dtype = space.dtype
        self._scalar = shape == () and space.dtype == self._dtype
        self._start: Any = 0
        if isinstance(space, (gs.Discrete, gs.MultiDiscrete)):
            self._start = space.start if np.any(space.start) else 0
        self._shifted = bool(np.any(self._start))
        self._range = executed_range(space)
        self._bounds = _bounds_that_round_outwards(space)
        self._near = _rounding(space) if isinstance(space, gs.Box) else np.zeros(())

    @property
    def is_identity(self) -> bool:
        """True if the environment takes the agent's actions unchanged."""
        return not self._shifted and self._env_dtype == self._dtype

    def are_alike(self, chosen: NDArray[Any], executed: NDArray[Any]) -> bool:
        """True if one stored action is the other, but for what conversions of a number within its
        space round: a wrapper's bounds may be narrow and far from 0."""
        if self._near is None:
            return bool(np.allclose(chosen, executed, 1e-3, 0.0))
        apart = np.abs(np.subtract(executed, chosen, dtype=np.float64))
        return bool((apart <= self._near).all())

    def to_column(self, action: NDArray[Any]) -> NDArray[Any]:
        """The action as it is stored; the same array where it already is so.

        Raises:
            ValueError: it is not one action for each environment, or a number is none of the
                column's dtype.
        """
        action = np.asarray(action)
        if action.shape != self._shape:
            raise ValueError(f"actions of shape {action.shape}, expected {self._shape}")
        return action if action.dtype == self._dtype else _cast_action(action, self._dtype)

    def to_environment(self, column: NDArray[Any]) -> NDArray[Any]:
        """The actions for the environments, of any number of them. Arrays are new: an environment
        may keep or change its own."""
        if self._shifted:
            column = column + self._start
        elif self._scalar:
            return column.copy()
        actions: NDArray[Any] = column.astype(self._env_dtype)
        return actions if self._bounds is None else np.clip(actions, *self._bounds, out=actions)

    def from_environment(self, action: Any) -> NDArray[Any]:  # an action of the environment's space
        """One of the environment's own actions, which was executed, as agents see it.

        Raises:
            ValueError: it has another shape, or a number that its space does not have, of a Box of
                floats one far outside (`executed_range`) or not finite.
        """
        executed = np.asarray(action)
        if executed.dtype != self._dtype or executed.shape != self._shape[1:]:
            executed = executed_action(executed, self._shape[1:], self._dtype)
        if self._range is None:
            is_inside = self._dtype.kind != "f" or np.isfinite(executed).all()
        else:
            low, high = self._range
            is_inside = ((executed >= low) & (executed <= high)).all()  # no NaN is
        if not is_inside:
            raise ValueError(self._describe_outside(executed))
        return np.asarray(executed - self._start) if self._shifted else executed

    def _describe_outside(self, executed: NDArray[Any]) -> str:
        if self._dtype.kind == "f" and not np.isfinite(executed).all():
            return f"it is not finite, or beyond {self._dtype}"
        assert self._range is not None, "of no range all are inside"
        return first_outside(executed, *self._range)


def executed_action(action: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A person's action as an array of this dtype; numpy would repeat one of another shape.

    Raises:
        ValueError: it has another shape, or a number is none of the dtype.
    """
    executed = np.asarray(action)
    if executed.shape != shape:
        raise ValueError(f"an executed action has shape {executed.shape}, not {shape}")
    return executed if executed.dtype == dtype else _cast_action(executed, dtype)


def _cast_action(action: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same numbers in another dtype; for one of floats they are rounded.

    Raises:
        ValueError: a number is none of the dtype.
    """
    if action.dtype.kind not in _NUMBERS:
        raise ValueError(f"it is of {action.dtype}: numbers are needed")
    try:
        return cast_rounded(action, dtype)
    except InexactCastError as error:
        raise ValueError(f"{error.value} is no {dtype}") from None


def _bounds_that_round_outwards(
    space: gym.Space[Any],
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The bounds of a Box that actions can pass by being stored in float32: ``float32(0.1)`` is
    above 0.1. None where they cannot."""
    if not isinstance(space, gs.Box) or space.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):
        above = space.high.astype(np.float32) > space.high
        below = space.low.astype(np.float32) < space.low
    return (space.low, space.high) if above.any() or below.any() else None


Intervention = tuple[int, Any]
"""An environment's row, and the action, as the environment takes it, of the person who acted."""

INTERVENED_ACTION = "intervene_action"
_ACTIONS = (INTERVENED_ACTION, "action_intervention", "teleop_action")
INTERVENTION_KEYS = ("is_intervention", *_ACTIONS)
"""What an environment's info says of a person's actions."""


def find_intervention(info: Mapping[str, Any]) -> Any:
    """The action of a person who acted in place of the policy, None where none did.

    HIL-SERL's convention is ``info["intervene_action"]``, which is there where a person acted;
    gym-hil's and lerobot's is ``info["is_intervention"]``, with the action beside it.

    Raises:
        EnvironmentFaultError: a person acted, and the action is not there.
    """
    action = next((info[name] for name in _ACTIONS if info.get(name) is not None), None)
    if not np.any(info.get("is_intervention", action is not None)):
        return None
    if action is None:
        fault = "info['is_intervention'] is true: give the action in info['intervene_action']"
        raise EnvironmentFaultError("of interventions", fault)
    return action


_FLAGS = frozenset((bool, np.bool_))


def read_flags(
    env: gym.Env[Any, Any], terminated: tuple[Any, ...], truncated: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The flags that steps of environments like `env` gave, as bools: numpy would take a number or
    a text, too.

    Raises:
        EnvironmentFaultError: one is neither a bool, nor 0 or 1, nor an array of one of them.
    """
    if _FLAGS.issuperset(map(type, terminated + truncated)):
        return terminated, truncated
    return (
        tuple(_read_flag(env, "terminated", flag) for flag in terminated),
        tuple(_read_flag(env, "truncated", flag) for flag in truncated),
    )


def _read_flag(env: gym.Env[Any, Any], name: str, value: Any) -> bool:
    flag = _given_array(env, name, value)
    if flag.dtype.kind not in _NUMBERS or flag.size != 1 or flag.item() not in (0, 1):
        raise _step_fault(env, f"{name}={_short(value)}, which is no bool: give bool(...) of it")
    return bool(flag.item())


def _given_array(env: gym.Env[Any, Any], name: str, value: Any) -> NDArray[Any]:
    """What step() gave under this name, as numpy takes it."""
    try:
        return np.asarray(value)
    except Exception as error:  # as in `_storable`
        raise _step_fault(env, f"{name}, which {_unreadable(value, error)}") from error


_REWARD_TYPES = frozenset((float, int, np.float64, np.float32, np.int64, np.int32, bool, np.bool_))


def read_rewards(env: gym.Env[Any, Any], rewards: tuple[Any, ...]) -> tuple[Any, ...]:
    """The rewards that steps of environments like `env` gave, each as one number: numpy would take
    a text, too.

    Raises:
        EnvironmentFaultError: one is neither a number nor an array of one; a list is none.
    """
    if _REWARD_TYPES.issuperset(map(type, rewards)):
        return rewards
    return tuple(_read_reward(env, reward) for reward in rewards)


def _read_reward(env: gym.Env[Any, Any], value: Any) -> float:
    if type(value) in _REWARD_TYPES:
        return float(value)
    is_list = isinstance(value, list | tuple)
    reward = np.array(None) if is_list else _given_array(env, "reward", value)
    if reward.dtype.kind not in _NUMBERS or reward.size != 1:
        fix = "give float(...) of it"
        if reward.dtype.kind in _NUMBERS and reward.size:
            fix = _how_to_weigh(env)
        raise _step_fault(env, f"reward={_short(value)}, which is not one number: {fix}")
    return float(reward.item())


def _how_to_weigh(env: gym.Env[Any, Any]) -> str:
    """Say how several rewards become one."""
    if type(env.unwrapped).__module__.partition(".")[0] == "mo_gymnasium":
        return """add them up by 'env.wrappers=["mo_gymnasium.wrappers:LinearReward"]'"""
    return "give one, or weigh them in a wrapper of yours, in env.wrappers"


def read_vector_rewards(name: str, rewards: Any, count: int) -> NDArray[Any]:
    """The rewards ``(E,)`` that a step of a vector environment gave.

    Raises:
        EnvironmentFaultError: they are not one number for each of its `count` environments.
    """
    array = np.asarray(rewards)
    if array.dtype.kind not in _NUMBERS or array.size != count:
        fault = (
            f"step() gave rewards {_short(rewards)}, which are not one number for each of "
            f"{count} environments"
        )
        raise EnvironmentFaultError(name, fault)
    return array.reshape(count)


def read_vector_flags(name: str, which: str, flags: Any, count: int) -> NDArray[np.bool_]:
    """The flags ``(E,)`` that a step of a vector environment gave, as bools.

    Args:
        which: ``terminated`` or ``truncated``.

    Raises:
        EnvironmentFaultError: they are not one bool, or 0 or 1, for each of its `count`
            environments.
    """
    array = np.asarray(flags)
    if array.dtype == np.bool_ and array.shape == (count,):
        return array
    fits = array.dtype.kind in _NUMBERS and array.size == count
    if not fits or not np.isin(array, (0, 1)).all():
        fault = (
            f"step() gave {which}={_short(flags)}, which are not one bool for each of {count} "
            "environments"
        )
        raise EnvironmentFaultError(name, fault)
    return array.reshape(count).astype(np.bool_)


class RewardTransform:
    """Rewards of transitions: the true ones scaled, then clipped to ±`clip` (0: not clipped)."""

    def __init__(self, scale: float = 1.0, clip: float = 0.0) -> None:
        self._scale = scale
        self._clip = clip

    def write(self, true: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the float32 rewards of `true` into `out`."""
        if self._scale == 1.0:
            out[:] = true
        else:
            np.multiply(true, self._scale, out=out, casting="same_kind")
        if self._clip:
            np.clip(out, -self._clip, self._clip, out=out)

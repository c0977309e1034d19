"""Columns: the form of transitions, observations and batches everywhere.

A column is one array whose first axis is the row: ``(rows, *shape)``. A row is described by a numpy
structured dtype, so that wire, ring and export agree without knowing what a transition is.

An observation's columns are named ``obs`` (one array) or ``obs/KEY`` (dictionaries and tuples,
nested ones as ``obs/KEY/KEY``); its successor's ``next_obs`` likewise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.exact_cast import InexactCastError, cast_exactly, may_be_cast
from vedette_rl.errors import RowColumnError

Columns = dict[str, NDArray[Any]]
"""Name to array ``(rows, *shape)``; every array has the same number of rows."""

T = TypeVar("T")

VERSION, MANAGER, ACTOR = "version", "manager", "actor"
"""The columns that the learner adds to every row: who made it, and by which model."""

EPOCH = "epoch"
"""The learner's start whose model acted: a column that it adds to rows with `SEQUENCE_KEYS`."""

ENV, TIME, BEGINS = "env", "t", "begins"
"""The names of `SEQUENCE_KEYS`."""

BURNED, LENGTH, LEARNED = "burned", "length", "learned"
"""The columns that drawn sequences have besides those of rows: the steps of burn-in, those to learn
from, and of each step whether it is one of these."""

SOURCE = "source"
"""The column of a batch that is drawn from several sources: the number of a row's source."""

INTERVENED = "intervened"
"""The column of transitions whose first action a person took, where `replay.sources` has
``interventions``."""

LOG_PROB = "log_prob"
"""The column of the logarithm of an action's probability, by the policy that acted. In a run whose
rows have it, no action is another's: nobody knows how likely that was."""

REWARD_SCALE, REWARD_CLIP = "reward_scale", "reward_clip"
"""The columns of an exported replay, or of a user's file, that say what was done to its rewards:
what they were multiplied by, and to which ± they were clipped then (0: not)."""

_TAKEN = frozenset({"action", "reward", "terminated", "truncated", "n_steps", "frames"})
_TAKEN_LATER = frozenset({VERSION, MANAGER, ACTOR, SOURCE, REWARD_SCALE, REWARD_CLIP, "frame_span"})


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column that an agent or a step processor adds to every transition.

    It is part of the schema on the wire, is checked by the learner like the others, is stored,
    drawn in batches and exported.

    Args:
        name: letters, digits and ``_``: no name that transitions have anyway.
        dtype: numpy's name of a number or bool: ``float32``, ``int64``, ``uint8``, ``bool``, ...
        shape: the shape of one row's value.
        low, high: inclusive bounds of integers; None: the dtype's own.
        first: a drawn sequence (`replay.sequence`) has the first row's value alone, ``(B, *shape)``
            and not ``(B, L, *shape)``: a recurrent state, for example.

    Raises:
        RowColumnError: an argument is not one of these.
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None
    first: bool = False

    def __post_init__(self) -> None:
        first = self.name.partition("/")[0]
        if not self.name.isidentifier() or first in ("obs", "next_obs"):
            raise RowColumnError(self.name, "its name is not made of letters, digits and _")
        if self.name in _TAKEN | _TAKEN_LATER:
            raise RowColumnError(self.name, "every transition has a column of that name")
        if self.numpy_dtype.kind not in "fiub" or self.numpy_dtype.itemsize > 8:
            raise RowColumnError(self.name, f"{self.dtype} is no number that travels")
        if self.numpy_dtype.kind not in "iu" and (self.low, self.high) != (None, None):
            raise RowColumnError(self.name, f"bounds are for integers, not {self.dtype}")
        if any(size < 1 for size in self.shape):
            raise RowColumnError(self.name, f"an array of shape {self.shape} holds nothing")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        try:
            return np.dtype(self.dtype)
        except TypeError as e:
            raise RowColumnError(self.name, f"numpy knows no dtype {self.dtype!r}") from e

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Inclusive bounds; None where the dtype's own hold."""
        if self.low is None and self.high is None:
            return None
        info = np.iinfo(self.numpy_dtype)
        low, high = (self.low, self.high)
        return (int(info.min) if low is None else low, int(info.max) if high is None else high)


SEQUENCE_KEYS = (
    RowColumn(ENV, "uint32", low=0, high=65_535),
    RowColumn(TIME, "int64", low=0, high=2**62 - 1),
    RowColumn(BEGINS, "bool"),
)
"""The columns of rows that say which of them follow one another: those of the same manager, actor
and `ENV` whose `TIME` is one more, unless an episode begins with the later one's observation
(`BEGINS`). `TIME` counts the steps of the environments of an actor, from a number of its own each
time that the actor starts. Rows with these columns are single steps."""


def check_declared(columns: Sequence[RowColumn], given: Columns, expected: Columns) -> None:
    """Check that rows have every column that was declared, and no other.

    Args:
        columns: declared beyond those of every transition.
        given: the rows.
        expected: arrays of the columns that rows have.

    Raises:
        RowColumnError: names the first that differs.
    """
    check_rows(given, len(given["reward"]), "rows of transitions")
    if given.keys() != expected.keys():
        for name in given:
            if name not in expected:
                raise RowColumnError(
                    name, "rows have it and nothing declares it: declare it, or leave it out"
                )
        missing = next(name for name in expected if name not in given)
        raise RowColumnError(missing, "it is declared, and rows come without it")
    for column in columns:
        array = given[column.name]
        if array.shape[1:] != column.shape or not np.can_cast(
            array.dtype, column.numpy_dtype, "same_kind"
        ):
            raise RowColumnError(
                column.name,
                f"it is declared as {column.dtype}{list(column.shape)} a row, and comes as "
                f"{array.dtype}{list(array.shape[1:])}",
            )


def write_rows(
    name: str, given: NDArray[Any], rows: slice, column: NDArray[Any], into: slice
) -> None:
    """Write some of the given rows into a column; floats are rounded to its precision, other
    numbers are not changed. An actor does so at each step, for each column.

    Args:
        rows: of `given`.
        into: where in `column`.

    Raises:
        RowColumnError: they have another shape, or the column cannot hold a number.
    """
    if (
        type(given) is np.ndarray
        and given.dtype == column.dtype
        and given.ndim == column.ndim
        and (given.ndim == 1 or given.shape[1:] == column.shape[1:])
    ):
        column[into] = given[rows]
        return
    array = np.asarray(given)  # a list, too
    if array.shape[1:] != column.shape[1:]:  # numpy might repeat it
        why = f"it is of {[*column.shape[1:]]} a row, and comes as {[*array.shape[1:]]}"
        raise RowColumnError(name, why)
    if not may_be_cast(array.dtype, column.dtype):
        raise RowColumnError(name, f"it is of {column.dtype}, and comes as {array.dtype}")
    try:
        column[into] = cast_exactly(array[rows], column.dtype)
    except InexactCastError as error:
        raise RowColumnError(name, f"it comes with {error}: give what it can hold") from error


def check_rows(columns: Columns, rows: int, what: str) -> None:
    """Check that every column has this many rows: numpy would repeat a single one for all.

    Args:
        what: is counted by `rows`, for the message.

    Raises:
        RowColumnError: names the first that has not.
    """
    for name, column in columns.items():
        if np.shape(column)[:1] != (rows,):
            shape = np.shape(column)
            came = f"comes with {shape[0]} rows" if shape else "comes as a single value"
            raise RowColumnError(name, f"it {came} for {rows} {what}: return one row for each")


def row_dtype(fields: Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> np.dtype[Any]:
    """The description of a row: ``(name, dtype, shape)`` of each column, in order."""
    return np.dtype([(name, dtype, shape) for name, dtype, shape in fields])


def empty_columns(dtype: np.dtype[Any], rows: int) -> Columns:
    """Uninitialised columns for `rows` rows of `dtype`, each contiguous and owned by the caller.

    Each begins at a multiple of `ALIGNED_BYTES`.
    """
    assert dtype.fields is not None, "a row dtype is structured"
    columns: Columns = {}
    for name, (field, *_) in dtype.fields.items():
        columns[name] = _empty_aligned((rows, *field.shape), field.base)
    return columns


ALIGNED_BYTES = 64
"""Of buffers that networks compute from: MKL promises equal results from run to run on memory that
begins at multiples of it, and numpy alone gives any multiple of 16."""


def _empty_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    count = math.prod(shape) * dtype.itemsize
    memory = np.empty(count + ALIGNED_BYTES, np.uint8)
    begin = -memory.ctypes.data % ALIGNED_BYTES
    return memory[begin : begin + count].view(dtype).reshape(shape)


def copy_columns(columns: Columns, into: Columns) -> None:
    """Copy all rows."""
    for name, column in columns.items():
        into[name][:] = column


def select_part(columns: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The columns of one part, renamed to begin with ``obs``: a view, nothing is copied.

    >>> part({"next_obs/a": 1, "reward": 2}, "next_obs")
    {'obs/a': 1}
    """
    return {
        "obs" + name[len(prefix) :]: column
        for name, column in columns.items()
        if name == prefix or name.startswith(prefix + "/")
    }

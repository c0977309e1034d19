"""Columns: the form of transitions, observations and batches everywhere.

A column is one array whose first axis is the row: ``(rows, *shape)``. A row is described by a numpy
structured dtype, so that wire, ring and export agree without knowing what a transition is.

An observation's columns are named ``obs`` (one array) or ``obs/KEY`` (dictionaries and tuples,
nested ones as ``obs/KEY/KEY``); its successor's ``next_obs`` likewise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Name to array ``(rows, *shape)``; every array has the same number of rows."""

T = TypeVar("T")


def row_dtype(fields: Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> np.dtype[Any]:
    """The description of a row: ``(name, dtype, shape)`` of each column, in order."""
    return np.dtype([(name, dtype, shape) for name, dtype, shape in fields])


def empty_columns(dtype: np.dtype[Any], rows: int) -> Columns:
    """Uninitialised columns for `rows` rows of `dtype`, each contiguous and owned by the caller."""
    assert dtype.fields is not None, "a row dtype is structured"
    columns: Columns = {}
    for name, (field, *_) in dtype.fields.items():
        columns[name] = np.empty((rows, *field.shape), field.base)
    return columns


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

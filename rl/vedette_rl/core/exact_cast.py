"""Casts numbers to the dtype of a column, and refuses those that would change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = "biuf"


def may_be_cast(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return True if values of one dtype may be values of the other: numbers of numbers."""
    return found.kind in _NUMBERS and wanted.kind in _NUMBERS


class InexactCastError(ValueError):
    """A number is none of the dtype that it is cast to.

    Args:
        value: the first such number.
        place: where it is in its array.
        dtype: the dtype.
    """

    def __init__(self, value: object, place: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(f"{value}, which is no {dtype}")
        self.value = value
        self.place = place

    @property
    def row(self) -> int:
        """Its place along the first axis."""
        return self.place[0]


def cast_exactly(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the same numbers ``(...)`` in another dtype; floats are rounded to those of fewer
    bits.

    Raises:
        InexactCastError: the dtype does not hold one.
    """
    if values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):  # what does not fit is found below
        cast = values.astype(dtype)
    if values.dtype.kind == "f" and dtype.kind == "f":
        return cast
    kept = cast == values
    if not kept.all():
        first = tuple(np.argwhere(~kept)[0].tolist())
        raise InexactCastError(values[first], first, dtype)
    return cast


def cast_rounded(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """As `cast_exactly`; to a dtype of floats whole numbers are rounded, too.

    Raises:
        InexactCastError: the dtype does not hold one.
    """
    if dtype.kind == "f" and may_be_cast(values.dtype, dtype):
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    return cast_exactly(values, dtype)

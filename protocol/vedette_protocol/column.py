"""One column of a batch: its name, type, shape, bounds and role."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError
from vedette_protocol.limits import DIMS_MAX, MODEL_MAX_BYTES, NAME_MAX_CHARS

Columns: TypeAlias = dict[str, NDArray[Any]]
"""Name to array ``(rows, *shape)``."""


_DTYPES: Final = {
    name: np.dtype(name if name == "?" else "<" + name)
    for name in ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
}


_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


_ROLES: Final = ("row", "place", "shared")


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        name: printable, at most 128 characters.
        dtype: one of ``? u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8``.
        shape: the shape of one row's value; () for a scalar.
        low, high: inclusive bounds of an integer column; None for the dtype's own.
        role: ``row``: a value per row. ``shared``: entries that rows refer to; `shape` is that of
            an entry. ``place``: indices of entries, unsigned.

    Raises:
        SchemaError: an argument is outside these limits.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None
    role: str = "row"

    def __post_init__(self) -> None:
        if type(self.name) is not str or not 1 <= len(self.name) <= NAME_MAX_CHARS:
            raise SchemaError(f"a column's name has 1 to {NAME_MAX_CHARS} characters")
        if not self.name.isprintable():
            raise SchemaError(f"column name {self.name!r} has characters that cannot be printed")
        if type(self.dtype) is not str or self.dtype not in _DTYPES:
            raise SchemaError(f"column {self.name!r}: unknown dtype {self.dtype!r}")
        if type(self.shape) is not tuple or len(self.shape) > DIMS_MAX:
            raise SchemaError(f"column {self.name!r}: more than {DIMS_MAX} dimensions")
        if any(type(dim) is not int or not 1 <= dim <= MODEL_MAX_BYTES for dim in self.shape):
            raise SchemaError(f"column {self.name!r}: shape {self.shape} is out of range")
        if self.row_bytes > MODEL_MAX_BYTES:
            raise SchemaError(f"column {self.name!r}: {self.row_bytes} bytes per row are too many")
        self._check_bounds()
        if self.role not in _ROLES:
            raise SchemaError(f"column {self.name!r}: unknown role {self.role!r}"[:200])
        if self.role == "place" and (self.dtype[0] != "u" or self.high is not None):
            raise SchemaError(f"column {self.name!r}: places are unsigned and have no bounds")

    def _check_bounds(self) -> None:
        if self.low is None and self.high is None:
            return
        if self.dtype[0] not in "ui":
            raise SchemaError(f"column {self.name!r}: bounds are for integers, not {self.dtype!r}")
        info = np.iinfo(_DTYPES[self.dtype])
        low = int(info.min) if self.low is None else self.low
        high = int(info.max) if self.high is None else self.high
        if type(low) is not int or type(high) is not int or not info.min <= low <= high <= info.max:
            raise SchemaError(f"column {self.name!r}: no {self.dtype!r} bounds: [{low}, {high}]")

    @property
    def row_bytes(self) -> int:
        """Size of one row's value."""
        return math.prod(self.shape) * _DTYPES[self.dtype].itemsize

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return _DTYPES[self.dtype]

    def _canonical(self) -> str:
        shape = ",".join(map(str, self.shape))
        low, high = ("" if bound is None else str(bound) for bound in (self.low, self.high))
        role = "" if self.role == "row" else f"\t{self.role}"
        return f"{self.name}\t{self.dtype}\t{shape}\t{low}\t{high}{role}\n"


def dtype_name(column: str, dtype: np.dtype[Any]) -> str:
    """The wire's name of a numpy type.

    Raises:
        SchemaError: names the column, whose type does not travel.
    """
    name = _NAMES.get(dtype.newbyteorder("<"))
    if name is None:
        raise SchemaError(f"column {column!r}: dtype {dtype} cannot be sent")
    return name

"""Schemas: named columns of dtype and shape, agreed once and then referred to by their hash.

A payload holds ``rows`` rows of a schema, column after column in the schema's order. A column is
its values in row-major order, little-endian, padded with zeros to a multiple of 8 bytes. The last
columns may be shared by the rows (`vedette_protocol.frame_sharing`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.column import Column, Columns, dtype_name
from vedette_protocol.errors import SchemaError
from vedette_protocol.frame_sharing import Sharing, sharing_of
from vedette_protocol.limits import COLUMNS_MAX, MODEL_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in order. Two schemas with the same hash are the same.

    Raises:
        SchemaError: no column, too many, two of the same name, a row that is too large, or a shared
            column that no column refers to.
    """

    columns: tuple[Column, ...]
    hash: str = field(init=False, compare=False)
    """16 hexadecimal digits of a blake2b over the canonical form."""
    _plan: tuple[tuple[str, np.dtype[Any], tuple[int, ...], int], ...] = field(
        init=False, compare=False, repr=False
    )
    sharing: Sharing | None = field(init=False, compare=False, repr=False)
    """The shared columns and the columns that refer to them; None: there are none."""

    def __post_init__(self) -> None:
        if type(self.columns) is not tuple or not 1 <= len(self.columns) <= COLUMNS_MAX:
            raise SchemaError(f"a schema has 1 to {COLUMNS_MAX} columns")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise SchemaError(f"columns of the same name: {sorted(names)}"[:200])
        if sum(column.row_bytes for column in self.columns) > MODEL_MAX_BYTES:
            raise SchemaError(f"a row has more than {MODEL_MAX_BYTES} bytes")
        canonical = "".join(column._canonical() for column in self.columns)
        digest = hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()
        # Computed once: batches are checked and laid out thousands of times a second.
        object.__setattr__(self, "hash", digest)
        object.__setattr__(self, "sharing", sharing_of(self.columns))
        rows = [column for column in self.columns if column.role != "shared"]
        plan = tuple((c.name, c.numpy_dtype, c.shape, c.row_bytes) for c in rows)
        object.__setattr__(self, "_plan", plan)

    @classmethod
    def from_dtype(
        cls, dtype: np.dtype[Any], bounds: Mapping[str, tuple[int, int]] | None = None
    ) -> Schema:
        """Make the schema of a numpy structured dtype, with inclusive bounds of integer columns."""
        if dtype.names is None or dtype.fields is None:
            raise SchemaError(f"dtype {dtype} has no named columns")
        columns = []
        for name in dtype.names:
            kind = dtype.fields[name][0]
            low, high = (bounds or {}).get(name, (None, None))
            columns.append(Column(name, dtype_name(name, kind.base), kind.shape, low, high))
        return cls(tuple(columns))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Schema:
        """Make the schema of a model: `arrays` are one row of it."""
        columns = [
            Column(name, dtype_name(name, array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        return cls(tuple(columns))

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """One row as a numpy structured dtype (packed), without the shared columns.

        Raises:
            SchemaError: the row is larger than numpy allows (2 GiB).
        """
        try:
            return np.dtype([(name, dtype, shape) for name, dtype, shape, _ in self._plan])
        except (ValueError, TypeError) as error:
            raise SchemaError(f"numpy cannot hold such a row: {error}") from error

    def payload_bytes(self, rows: int, entries: int = 0) -> int:
        """Return the size of a payload of `rows` rows that share `entries` entries."""
        shared = self.sharing.bytes(entries) if self.sharing else 0
        return self._rows_bytes(rows) + shared

    def _rows_bytes(self, rows: int) -> int:
        return sum(-(-rows * row_bytes // 8) * 8 for _, _, _, row_bytes in self._plan)

    def entries_max(self, rows: int, bytes_max: int) -> int:
        """Return the most entries that a batch of `rows` rows in `bytes_max` bytes may share."""
        if self.sharing is None:
            return 0
        return self.sharing.entries_max(rows, bytes_max - self._rows_bytes(rows))

    def pack(self, columns: Mapping[str, NDArray[Any]], rows: int) -> bytearray:
        """Lay out the first `rows` rows of `columns` and all shared entries, in one copy.

        Raises:
            SchemaError: a column is missing, unknown, too short, or of another dtype or shape.
        """
        expected = [column.name for column in self.columns]
        if columns.keys() != set(expected):
            raise SchemaError(f"expected columns {expected}, got {list(columns)}"[:400])
        entries = len(columns[self.sharing.names[0]]) if self.sharing else 0
        payload = bytearray(self.payload_bytes(rows, entries))
        offset = 0
        for name, dtype, shape, row_bytes in self._plan:
            column = columns[name]
            if column.dtype != dtype or column.shape[1:] != shape or len(column) < rows:
                raise SchemaError(
                    f"column {name!r}: expected {rows} rows of {dtype}{list(shape)}, "
                    f"got {len(column)} of {column.dtype}{list(column.shape[1:])}"
                )
            np.ndarray((rows, *shape), dtype, payload, offset)[...] = column[:rows]
            offset += -(-rows * row_bytes // 8) * 8
        if self.sharing is not None:
            self.sharing.pack(columns, entries, payload, offset)
        return payload

    def views(self, payload: bytes | bytearray | memoryview, rows: int) -> Columns:
        """Return the columns of a payload as read-only views of it.

        Raises:
            SchemaError: the payload has not the size of `rows` rows and their shared entries.
        """
        buffer = memoryview(payload).toreadonly()
        expected = self._rows_bytes(rows)
        if self.sharing is not None:
            entries = self.sharing.view(buffer, expected, rows)
        elif buffer.nbytes != expected:
            raise SchemaError(f"a payload of {rows} rows has {expected} bytes, got {buffer.nbytes}")
        columns: Columns = {}
        offset = 0
        for name, dtype, shape, row_bytes in self._plan:
            columns[name] = np.ndarray((rows, *shape), dtype, buffer, offset)
            offset += -(-rows * row_bytes // 8) * 8
        if self.sharing is not None:
            columns |= entries
        return columns

    def stacked_views(self, payloads: bytes | memoryview, batches: int, rows: int) -> Columns:
        """Return the columns of several payloads of equal size as read-only views of them.

        Args:
            payloads: `batches` payloads of `rows` rows each, one after the other.

        Returns:
            Arrays ``(batches, rows, *shape)``.

        Raises:
            SchemaError: they have another size.
        """
        size = self.payload_bytes(rows)
        if len(payloads) != batches * size:
            raise SchemaError(f"{batches} payloads of {size} bytes, got {len(payloads)} bytes")
        stack = np.frombuffer(memoryview(payloads).toreadonly(), np.uint8).reshape(batches, size)
        columns: Columns = {}
        offset = 0
        for name, dtype, shape, row_bytes in self._plan:
            part = stack[:, offset : offset + rows * row_bytes].view(dtype)
            columns[name] = part.reshape(batches, rows, *shape)
            offset += -(-rows * row_bytes // 8) * 8
        return columns

    def check_values(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Refuse values that must not get into the replay.

        Args:
            columns: every column, of any number of rows, stacked or not.

        Raises:
            SchemaError: a float is not finite, a boolean byte is neither 0 nor 1, an integer is
                outside its bounds, or a place is not the index of an entry.
        """
        # A sum is finite only if every term is. It may also overflow, then every term is checked
        with np.errstate(all="ignore"):
            for column in self.columns:
                _check_column(column, columns[column.name])
        if self.sharing is not None:
            self.sharing.check_places(columns)

    def to_wire(self) -> list[list[object]]:
        """Convert to msgpack's types: a list ``[name, dtype, [dims], low, high]`` per column, with
        its role as a sixth item where that is not ``row``."""
        return [
            [c.name, c.dtype, list(c.shape), c.low, c.high, *([c.role] if c.role != "row" else [])]
            for c in self.columns
        ]

    @classmethod
    def from_wire(cls, wire: object) -> Schema:
        """Convert the list that a peer sent to a schema.

        Raises:
            SchemaError: the list is not a valid schema.
        """
        if type(wire) is not list or len(wire) > COLUMNS_MAX:
            raise SchemaError(f"a schema is a list of 1 to {COLUMNS_MAX} columns")
        columns = []
        for entry in wire:
            if type(entry) is not list or len(entry) not in (5, 6) or type(entry[2]) is not list:
                raise SchemaError("a column is [name, dtype, [dims], low, high] and perhaps a role")
            name, dtype, shape, low, high, *role = entry
            if role and (type(role[0]) is not str or role[0] == "row"):
                raise SchemaError("a column's role is place or shared, or is left out")
            columns.append(Column(name, dtype, tuple(shape), low, high, *role))
        return cls(tuple(columns))


def spec_difference(expected: Schema, got: Schema) -> str:
    """Describe the first difference between two schemas; "" if there is none."""
    if expected == got:
        return ""
    theirs = {column.name: column for column in got.columns}
    for column in expected.columns:
        other = theirs.get(column.name)
        if other is None:
            return f"{column.name!r} is missing"
        if other != column:
            return f"{column.name!r} is {_describe(other)}, expected {_describe(column)}"
    ours = {column.name for column in expected.columns}
    unknown = [column.name for column in got.columns if column.name not in ours]
    return f"{unknown[0]!r} is not expected" if unknown else "the columns are in another order"


def _check_column(column: Column, array: NDArray[Any]) -> None:
    kind = column.dtype[0]
    if kind == "f":
        if not math.isfinite(np.add.reduce(array, axis=None)) and not np.isfinite(array).all():
            raise SchemaError(f"column {column.name!r} has a value that is not finite")
    elif kind == "?":
        if array.size and np.maximum.reduce(array.view(np.uint8), axis=None) > 1:
            raise SchemaError(f"column {column.name!r} has a boolean that is neither 0 nor 1")
    elif array.size:
        low, high = column.low, column.high
        if low is not None and (least := np.minimum.reduce(array, axis=None)) < low:
            raise SchemaError(f"column {column.name!r}: {least} is below {low}")
        if high is not None and (most := np.maximum.reduce(array, axis=None)) > high:
            raise SchemaError(f"column {column.name!r}: {most} is above {high}")


def _describe(column: Column) -> str:
    bounds = "" if column.low is None and column.high is None else f" {column.low}..{column.high}"
    role = "" if column.role == "row" else f" ({column.role})"
    return f"{column.dtype}{list(column.shape)}{bounds}{role}"

"""What the rows of a batch share: a last column that has as many entries as the batch needs.

A row points into it by *place*: columns of role ``place`` hold numbers of entries, from 0. So what
many rows show, such as the frames of stacked images, travels once. In a payload the shared column
comes behind the others: the number of entries, 8 bytes, then the entries, padded as a column is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError

_ENTRIES = struct.Struct("<Q")
ENTRIES_BYTES = _ENTRIES.size
"""The number of entries, in front of them."""


class SharedColumn(Protocol):
    """What is asked of a column here."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def numpy_dtype(self) -> np.dtype[Any]: ...
    @property
    def row_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """The shared column of a schema, and who points into it.

    Args:
        column: the shared one; its shape is that of an entry.
        pointing: names of the columns that hold places.
        places_per_row: how many places a row holds, over all of them.
    """

    column: SharedColumn
    pointing: tuple[str, ...]
    places_per_row: int

    def bytes(self, entries: int) -> int:
        """What the column takes in a payload."""
        return _ENTRIES.size + -(-entries * self.column.row_bytes // 8) * 8

    def entries_max(self, rows: int, bytes_left: int) -> int:
        """How many entries a batch may have: no more than places, and than there are bytes for."""
        fit = max(0, bytes_left - _ENTRIES.size) // 8 * 8 // self.column.row_bytes
        return min(rows * self.places_per_row, fit)

    def pack(self, entries: NDArray[Any], payload: bytearray, offset: int) -> None:
        """Write the column at the end of a payload."""
        _ENTRIES.pack_into(payload, offset, len(entries))
        self._array(len(entries), payload, offset)[...] = entries

    def check_array(self, entries: NDArray[Any]) -> None:
        """Refuse what is no array of entries.

        Raises:
            SchemaError: it is of another dtype or shape.
        """
        column = self.column
        if entries.dtype != column.numpy_dtype or entries.shape[1:] != column.shape:
            raise SchemaError(
                f"column {column.name!r}: expected entries of {column.numpy_dtype}"
                f"{list(column.shape)}, got {entries.dtype}{list(entries.shape[1:])}"
            )

    def view(self, payload: memoryview, offset: int, rows: int) -> NDArray[Any]:
        """The entries of a payload whose other columns end at `offset`.

        Raises:
            SchemaError: the payload has not exactly the bytes of its entries, or more entries than
                places point to.
        """
        if payload.nbytes < offset + _ENTRIES.size:
            raise SchemaError(
                f"a payload of {rows} rows has at least {offset + _ENTRIES.size} bytes, "
                f"got {payload.nbytes}"
            )
        (entries,) = _ENTRIES.unpack_from(payload, offset)
        if entries > rows * self.places_per_row:
            raise SchemaError(
                f"column {self.column.name!r}: {entries} entries, and {rows} rows have "
                f"{rows * self.places_per_row} places"
            )
        if payload.nbytes != offset + self.bytes(entries):
            raise SchemaError(
                f"a payload of {rows} rows and {entries} entries has "
                f"{offset + self.bytes(entries)} bytes, got {payload.nbytes}"
            )
        return self._array(entries, payload, offset)

    def check_places(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Refuse places beyond the entries.

        Raises:
            SchemaError: names the column.
        """
        entries = len(columns[self.column.name])
        for name in self.pointing:
            places = columns[name]
            if places.size and (most := np.maximum.reduce(places, axis=None)) >= entries:
                raise SchemaError(f"column {name!r}: place {most}, and there are {entries} entries")

    def _array(self, entries: int, payload: bytearray | memoryview, offset: int) -> NDArray[Any]:
        column = self.column
        return np.ndarray(
            (entries, *column.shape), column.numpy_dtype, payload, offset + _ENTRIES.size
        )


def write_entries(memory: bytearray | memoryview, offset: int, entries: int) -> None:
    """Write the number of entries where it stands in a payload."""
    _ENTRIES.pack_into(memory, offset, entries)


def sharing_of(columns: Sequence[Any]) -> Sharing | None:  # of Column, which imports this
    """What a schema's columns share; None: nothing.

    Raises:
        SchemaError: more than one is shared, it is not the last, nobody points into it, or a place
            points nowhere.
    """
    shared = [place for place, column in enumerate(columns) if column.role == "shared"]
    pointing = [column for column in columns if column.role == "place"]
    if not shared:
        if pointing:
            raise SchemaError(f"column {pointing[0].name!r} has places, and no column is shared")
        return None
    if shared != [len(columns) - 1]:
        raise SchemaError("one column may be shared, the last one")
    if not pointing:
        raise SchemaError(f"no column has places in the shared one, {columns[-1].name!r}")
    return Sharing(
        columns[-1],
        tuple(column.name for column in pointing),
        sum(column.row_bytes // column.numpy_dtype.itemsize for column in pointing),
    )

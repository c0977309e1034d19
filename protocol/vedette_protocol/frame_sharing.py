"""Frame deduplication on the wire: a shared column, so that a frame in many rows is sent once.

The words:

* *entry*: one value of the shared column, such as one frame of a stack of images;
* *shared column*: the last column of a schema, with as many entries as the batch needs;
* *place*: the index of an entry, from 0. Columns of role ``place`` refer to entries by it.

In a payload the shared column follows the others: the number of entries in 8 bytes, then the
entries, padded like a column.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError

if TYPE_CHECKING:  # the schema imports this module
    from vedette_protocol.schema import Column

_ENTRIES = struct.Struct("<Q")
ENTRIES_BYTES = _ENTRIES.size
"""Size of the number of entries, which precedes them."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The shared column of a schema, and the columns of places that refer to it.

    Args:
        column: the shared column; its shape is that of an entry.
        pointing: names of the columns of places.
        places_per_row: number of places in a row, over all these columns.
    """

    column: Column
    pointing: tuple[str, ...]
    places_per_row: int

    def bytes(self, entries: int) -> int:
        """Return the size of the column in a payload."""
        return _ENTRIES.size + -(-entries * self.column.row_bytes // 8) * 8

    def entries_max(self, rows: int, bytes_left: int) -> int:
        """Return the most entries of a batch: no more than its places, and than fit."""
        fit = max(0, bytes_left - _ENTRIES.size) // 8 * 8 // self.column.row_bytes
        return min(rows * self.places_per_row, fit)

    def pack(self, entries: NDArray[Any], payload: bytearray, offset: int) -> None:
        """Write the column into a payload."""
        _ENTRIES.pack_into(payload, offset, len(entries))
        self._array(len(entries), payload, offset)[...] = entries

    def check_array(self, entries: NDArray[Any]) -> None:
        """Refuse an array that does not hold entries of this column.

        Raises:
            SchemaError: its dtype or shape is another.
        """
        column = self.column
        if entries.dtype != column.numpy_dtype or entries.shape[1:] != column.shape:
            raise SchemaError(
                f"column {column.name!r}: expected entries of {column.numpy_dtype}"
                f"{list(column.shape)}, got {entries.dtype}{list(entries.shape[1:])}"
            )

    def view(self, payload: memoryview, offset: int, rows: int) -> NDArray[Any]:
        """Return the entries of a payload whose other columns end at `offset`.

        Raises:
            SchemaError: the payload has not the size of its entries, or more entries than places.
        """
        if payload.nbytes < offset + _ENTRIES.size:
            raise SchemaError(
                f"a payload of {rows} rows has at least {offset + _ENTRIES.size} bytes, "
                f"got {payload.nbytes}"
            )
        (entries,) = _ENTRIES.unpack_from(payload, offset)
        if entries > rows * self.places_per_row:
            raise SchemaError(
                f"column {self.column.name!r}: {entries} entries, but {rows} rows have "
                f"{rows * self.places_per_row} places"
            )
        if payload.nbytes != offset + self.bytes(entries):
            raise SchemaError(
                f"a payload of {rows} rows and {entries} entries has "
                f"{offset + self.bytes(entries)} bytes, got {payload.nbytes}"
            )
        return self._array(entries, payload, offset)

    def check_places(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Refuse places that are not the index of an entry.

        Raises:
            SchemaError: names the column.
        """
        entries = len(columns[self.column.name])
        for name in self.pointing:
            places = columns[name]
            if places.size and (most := np.maximum.reduce(places, axis=None)) >= entries:
                raise SchemaError(f"column {name!r}: place {most}, but there are {entries} entries")

    def _array(self, entries: int, payload: bytearray | memoryview, offset: int) -> NDArray[Any]:
        column = self.column
        return np.ndarray(
            (entries, *column.shape), column.numpy_dtype, payload, offset + _ENTRIES.size
        )


def write_entries(memory: bytearray | memoryview, offset: int, entries: int) -> None:
    """Write the number of entries into a payload at `offset`."""
    _ENTRIES.pack_into(memory, offset, entries)


def sharing_of(columns: Sequence[Column]) -> Sharing | None:
    """Find the shared column of a schema and the columns of places; None: there are none.

    Raises:
        SchemaError: the last column is not the only shared one, or there are places without a
            shared column, or a shared column without places.
    """
    shared = [place for place, column in enumerate(columns) if column.role == "shared"]
    pointing = [column for column in columns if column.role == "place"]
    if not shared:
        if pointing:
            raise SchemaError(f"column {pointing[0].name!r} has places, but no column is shared")
        return None
    if shared != [len(columns) - 1]:
        raise SchemaError("only the last column may be shared")
    if not pointing:
        raise SchemaError(f"no column has places for the shared column {columns[-1].name!r}")
    return Sharing(
        columns[-1],
        tuple(column.name for column in pointing),
        sum(column.row_bytes // column.numpy_dtype.itemsize for column in pointing),
    )

"""Frame deduplication on the wire: shared columns, so that a frame in many rows is sent once.

The words:

* *entry*: one value of each shared column, for example one frame of a stack of images, or a whole
  observation, whose parts are columns;
* *shared columns*: the last columns of a schema, with as many entries as the batch needs;
* *place*: the index of an entry, from 0. Columns of role ``place`` refer to entries by it.

In a payload the shared columns follow the others: the number of entries in 8 bytes, then the
entries of each, padded like a column.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.column import Column
from vedette_protocol.errors import SchemaError

_ENTRIES = struct.Struct("<Q")
ENTRIES_BYTES = _ENTRIES.size
"""Size of the number of entries, which precedes them."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The shared columns of a schema, and the columns of places that refer to them.

    Args:
        columns: the shared columns; the shape of each is that of its part of an entry.
        pointing: names of the columns of places.
        places_per_row: number of places in a row, over all these columns.
    """

    columns: tuple[Column, ...]
    pointing: tuple[str, ...]
    places_per_row: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the shared columns."""
        return tuple(column.name for column in self.columns)

    @property
    def entry_bytes(self) -> int:
        """Size of an entry, without padding."""
        return sum(column.row_bytes for column in self.columns)

    def bytes(self, entries: int) -> int:
        """Return the size of the columns in a payload."""
        return _ENTRIES.size + sum(_padded(entries * c.row_bytes) for c in self.columns)

    def entries_max(self, rows: int, bytes_left: int) -> int:
        """Return the most entries of a batch: no more than its places, and than fit."""
        fit = max(0, bytes_left - _ENTRIES.size) // self.entry_bytes
        while fit and self.bytes(fit) > bytes_left:  # each column's padding
            fit -= 1
        return min(rows * self.places_per_row, fit)

    def pack(
        self, columns: Mapping[str, NDArray[Any]], entries: int, payload: bytearray, offset: int
    ) -> None:
        """Write the columns into a payload.

        Raises:
            SchemaError: the dtype or the shape of one is another, or one has another length.
        """
        write_entries(payload, offset, entries)
        for column, into in zip(
            self.columns, self._arrays(entries, payload, offset).values(), strict=True
        ):
            given = columns[column.name]
            if given.dtype != column.numpy_dtype or given.shape != (entries, *column.shape):
                raise SchemaError(
                    f"column {column.name!r}: expected {entries} entries of {column.numpy_dtype}"
                    f"{list(column.shape)}, got {len(given)} of {given.dtype}"
                    f"{list(given.shape[1:])}"
                )
            into[...] = given

    def view(self, payload: memoryview, offset: int, rows: int) -> dict[str, NDArray[Any]]:
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
                f"column {self.columns[0].name!r}: {entries} entries, but {rows} rows have "
                f"{rows * self.places_per_row} places"
            )
        if payload.nbytes != offset + self.bytes(entries):
            raise SchemaError(
                f"a payload of {rows} rows and {entries} entries has "
                f"{offset + self.bytes(entries)} bytes, got {payload.nbytes}"
            )
        return self._arrays(entries, payload, offset)

    def check_places(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Refuse places that are not the index of an entry.

        Raises:
            SchemaError: names the column.
        """
        entries = len(columns[self.columns[0].name])
        for name in self.pointing:
            places = columns[name]
            if places.size and (most := np.maximum.reduce(places, axis=None)) >= entries:
                raise SchemaError(f"column {name!r}: place {most}, but there are {entries} entries")

    def _arrays(
        self, entries: int, payload: bytearray | memoryview, offset: int
    ) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        offset += _ENTRIES.size
        for column in self.columns:
            shape = (entries, *column.shape)
            arrays[column.name] = np.ndarray(shape, column.numpy_dtype, payload, offset)
            offset += _padded(entries * column.row_bytes)
        return arrays


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def write_entries(memory: bytearray | memoryview, offset: int, entries: int) -> None:
    """Write the number of entries into a payload at `offset`."""
    _ENTRIES.pack_into(memory, offset, entries)


def sharing_of(columns: Sequence[Column]) -> Sharing | None:
    """Find the shared columns of a schema and the columns of places; None: there are none.

    Raises:
        SchemaError: another column follows a shared one, or there are places without a shared
            column, or a shared column without places.
    """
    shared = tuple(column for column in columns if column.role == "shared")
    pointing = [column for column in columns if column.role == "place"]
    if not shared:
        if pointing:
            raise SchemaError(f"column {pointing[0].name!r} has places, but no column is shared")
        return None
    if tuple(columns[-len(shared) :]) != shared:
        raise SchemaError("only the last columns may be shared")
    if not pointing:
        raise SchemaError(f"no column has places for the shared column {columns[-1].name!r}")
    return Sharing(
        shared,
        tuple(column.name for column in pointing),
        sum(column.row_bytes // column.numpy_dtype.itemsize for column in pointing),
    )

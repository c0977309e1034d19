"""Batches between the wire and the ring: held for a moment, checked and handed on together.

What numpy costs for one small batch it costs for sixty of the same size. So the gateway takes what
has come, and looks into all of it at once; only where something is unsound, batch by batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vedette_protocol.errors import SchemaError
from vedette_protocol.messages import Batch
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns

_STACKED_BYTES = 64 << 10
"""Larger payloads are not copied together first: their bytes cost more than the calls."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sound batches of equal size.

    Args:
        columns: the wire's, ``(batches, rows, *shape)``; and `version`, `manager` and `actor`,
            ``(batches,)``.
        batches: how many.
        rows: of each.
    """

    columns: Columns
    batches: int
    rows: int


class Unsound(NamedTuple):
    """A batch that must not reach the replay, and why."""

    batch: Batch
    error: SchemaError


@dataclass(slots=True)
class Looked:
    """What was found: `blocks` and `unsound` are all that was held.

    Args:
        managers: whose batches those were.
        rows_by_version: sound rows, by the version of the model that made them.
    """

    blocks: list[Block] = field(default_factory=list)
    unsound: list[Unsound] = field(default_factory=list)
    managers: set[str] = field(default_factory=set)
    rows_by_version: Counter[int] = field(default_factory=Counter)


class Intake:
    """Holds batches until they are looked into.

    Args:
        schema: of their payloads.
        rows_max: no batch has more.
        number: the small integer that stands for a manager's id in the replay.
    """

    def __init__(self, schema: Schema, rows_max: int, number: Callable[[str], int]) -> None:
        self._schema, self._rows_max, self._number = schema, rows_max, number
        self._hash, self._full_bytes = schema.hash, schema.payload_bytes(rows_max)
        self._piles: list[list[Batch]] = []  # each of batches that are looked into at once
        self._pile_rows = 0  # of the batches of the last pile; 0: nothing can be added to it
        self.bytes = 0
        """Held."""

    def check_form(self, batch: Batch) -> None:
        """Refuse what cannot be held. Looks at no value.

        Raises:
            SchemaError: too many rows, another schema, or not the bytes that its rows have.
        """
        rows = batch.rows
        if rows > self._rows_max:
            raise SchemaError(f"{rows} rows, the run's have {self._rows_max}")
        if batch.schema != self._hash:
            raise SchemaError(f"laid out by schema {batch.schema}, not {self._hash}")
        full = rows == self._rows_max
        expected = self._full_bytes if full else self._schema.payload_bytes(rows)
        if len(batch.payload) != expected:
            raise SchemaError(
                f"a payload of {rows} rows has {expected} bytes, got {len(batch.payload)}"
            )

    def add(self, batch: Batch) -> None:
        """Hold a batch that has the right form."""
        if batch.rows == self._pile_rows:
            self._piles[-1].append(batch)
        else:
            self._piles.append([batch])
            self._pile_rows = batch.rows if len(batch.payload) <= _STACKED_BYTES else 0
        self.bytes += len(batch.payload)

    def look(self) -> Looked:
        """Look into everything that is held, and let go of it."""
        found = Looked()
        for pile in self._piles:
            self._look_into(pile, found)
        self._piles, self._pile_rows, self.bytes = [], 0, 0
        return found

    def _look_into(self, batches: list[Batch], found: Looked) -> None:
        rows, managers = batches[0].rows, [batch.manager for batch in batches]
        found.managers.update(managers)
        try:
            columns = self._columns(batches)
        except SchemaError as error:
            if len(batches) == 1:
                found.unsound.append(Unsound(batches[0], error))
                return
            middle = len(batches) // 2  # so few bad ones among many cost few looks
            self._look_into(batches[:middle], found)
            self._look_into(batches[middle:], found)
            return
        versions = [batch.version for batch in batches]
        for version, count in Counter(versions).items():
            found.rows_by_version[version] += count * rows
        numbers = {manager: self._number(manager) for manager in set(managers)}
        columns["version"] = np.array(versions, np.int64)
        columns["manager"] = np.array([numbers[manager] for manager in managers], np.int32)
        columns["actor"] = np.array([batch.actor for batch in batches], np.int32)
        found.blocks.append(Block(columns, len(batches), rows))

    def _columns(self, batches: list[Batch]) -> Columns:
        """The wire's columns, their values checked."""
        payloads = batches[0].payload
        if len(batches) > 1:
            payloads = b"".join([batch.payload for batch in batches])
        columns = self._schema.stacked_views(payloads, len(batches), batches[0].rows)
        self._schema.check_values(columns)
        return columns

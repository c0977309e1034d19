"""Batches between the wire and the ring: held for a moment, validated and inserted together.

A numpy call costs about the same for one small batch as for sixty. So the gateway takes all batches
that have come and validates them together; one by one only if one of them is invalid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vedette_protocol.errors import SchemaError
from vedette_protocol.messages import Batch
from vedette_protocol.schema import Schema
from vedette_rl.core.columns import ENV, TIME
from vedette_rl.envs.spaces import ElementBounds
from vedette_rl.replay.queue import RUN, mark_runs
from vedette_rl.replay.rows import RowAppender
from vedette_services.run.replay_layout import check_rows, has_sequence_keys

_STACKED_BYTES = 64 << 10
"""Larger payloads are not stacked: copying them costs more than the calls."""


@dataclass(frozen=True, slots=True)
class Block:
    """Valid batches of equal size.

    Args:
        columns: the wire's, `version`, `manager` and `actor`, and `epoch` where rows have keys of
            sequences. For one batch: ``(rows, *shape)``
            and one number for all rows. For more: ``(batches, rows, *shape)`` and ``(batches,)``.
        batches: the number of batches.
        rows: the rows of each.
    """

    columns: Mapping[str, Any]
    batches: int
    rows: int

    def append_to(self, ring: RowAppender) -> None:
        """Append the rows to the ring."""
        if self.batches == 1:
            ring.append(self.columns, self.rows)
        else:
            ring.append_batches(self.columns, self.batches, self.rows)


class InvalidBatch(NamedTuple):
    """A batch that is rejected, and why."""

    batch: Batch
    error: SchemaError


@dataclass(slots=True)
class ValidatedBatches:
    """All batches that were held, as valid `blocks` and `invalid` batches.

    Args:
        managers: the senders of the batches.
        rows_by_model: valid rows, by epoch and version of the model that made them.
        rows_by_manager: valid rows, by their sender.
    """

    blocks: list[Block] = field(default_factory=list)
    invalid: list[InvalidBatch] = field(default_factory=list)
    managers: set[str] = field(default_factory=set)
    rows_by_model: Counter[tuple[int, int]] = field(default_factory=Counter)
    rows_by_manager: Counter[str] = field(default_factory=Counter)


class Intake:
    """Holds batches until they are validated.

    Args:
        schema: the schema of the payloads.
        rows_max, env_steps_max: the most rows and environment steps of a batch.
        number: maps a manager's id to its number in the replay.
        elements: the ranges of single elements; None: the schema is of no environment.
        run_length: steps of a run, which are marked; 0: they are not.
    """

    def __init__(
        self,
        schema: Schema,
        rows_max: int,
        env_steps_max: int,
        number: Callable[[str], int],
        elements: ElementBounds | None,
        *,
        run_length: int = 0,
    ) -> None:
        self._run_length = run_length
        self._schema = schema
        self._rows_max = rows_max
        self._number = number
        self._elements = elements
        self._env_steps_max = env_steps_max
        self._hash = schema.hash
        self._has_epoch = has_sequence_keys(schema)
        self.full_bytes = schema.payload_bytes(rows_max)
        """Payload of a full batch, without shared frames, whose number varies."""
        self.stacks = schema.sharing is None and self.full_bytes <= _STACKED_BYTES
        """True if payloads are copied together before they are validated."""
        self._groups: list[list[Batch]] = []  # each validated at once
        self._grows = False  # the last group is one of full batches
        self.bytes = 0
        """Payload bytes held."""

    def add(self, batch: Batch) -> None:
        """Hold a batch, valid or not."""
        size = len(batch.payload)
        self.bytes += size
        # `_validate_stacked` relies on all of these and checks none of them again.
        full = (
            self.stacks
            and size == self.full_bytes
            and batch.rows == self._rows_max
            and batch.schema == self._hash
            and batch.env_steps <= self._env_steps_max
        )
        if full and self._grows:
            self._groups[-1].append(batch)
        else:
            self._groups.append([batch])
            self._grows = full

    def validate_held(self) -> ValidatedBatches:
        """Validate and release all batches."""
        validated = ValidatedBatches()
        for group in self._groups:
            validated.managers.update([batch.manager for batch in group])
            self._validate(group, validated)
        self._groups = []
        self._grows = False
        self.bytes = 0
        return validated

    def _validate(self, batches: list[Batch], validated: ValidatedBatches) -> None:
        try:
            block = (
                self._validate_one(batches[0])
                if len(batches) == 1
                else self._validate_stacked(batches)
            )
        except SchemaError as error:
            if len(batches) == 1:
                validated.invalid.append(InvalidBatch(batches[0], error))
                return
            middle = len(batches) // 2  # so a few invalid ones among many cost few checks
            self._validate(batches[:middle], validated)
            self._validate(batches[middle:], validated)
            return
        validated.blocks.append(block)
        models = Counter([(batch.epoch, batch.version) for batch in batches])
        for model, count in models.items():
            validated.rows_by_model[model] += count * block.rows
        for manager, count in Counter([batch.manager for batch in batches]).items():
            validated.rows_by_manager[manager] += count * block.rows

    def _validate_one(self, batch: Batch) -> Block:
        rows = batch.rows
        if rows > self._rows_max:
            raise SchemaError(f"{rows} rows, the run's have {self._rows_max}")
        if batch.env_steps > self._env_steps_max:
            most = self._env_steps_max
            raise SchemaError(f"{batch.env_steps} environment steps, the run's have up to {most}")
        if batch.schema != self._hash:
            raise SchemaError(f"laid out by schema {batch.schema}, not {self._hash}")
        columns = self._schema.views(batch.payload, rows)
        check_rows(columns, self._schema, self._elements)
        number = self._number(batch.manager)
        whose: dict[str, Any] = {"version": batch.version, "manager": number, "actor": batch.actor}
        if self._has_epoch:
            whose["epoch"] = batch.epoch
        if self._run_length:
            whose[RUN] = mark_runs(columns[ENV], columns[TIME], self._run_length)
        return Block({**columns, **whose}, 1, rows)

    def _validate_stacked(self, batches: list[Batch]) -> Block:
        payloads = b"".join([batch.payload for batch in batches])
        columns = self._schema.stacked_views(payloads, len(batches), self._rows_max)
        check_rows(columns, self._schema, self._elements)
        managers = [batch.manager for batch in batches]
        numbers = {manager: self._number(manager) for manager in set(managers)}
        columns["version"] = np.array([batch.version for batch in batches], np.int64)
        columns["manager"] = np.array([numbers[manager] for manager in managers], np.int32)
        columns["actor"] = np.array([batch.actor for batch in batches], np.int32)
        if self._has_epoch:
            columns["epoch"] = np.array([batch.epoch for batch in batches], np.int32)
        if self._run_length:
            columns[RUN] = mark_runs(columns[ENV], columns[TIME], self._run_length)
        return Block(columns, len(batches), self._rows_max)

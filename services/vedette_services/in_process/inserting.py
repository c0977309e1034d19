"""From an actor's batches into the replay, with the gateway's checks and no gateway."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from vedette_protocol.errors import SchemaError
from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns, columns_of
from vedette_rl.replay.rows import MemoryRing
from vedette_services.learner.complaints import Complaints
from vedette_services.learner.lag import LagMeter


@dataclass(slots=True)
class Inserting:
    """The replay's writing end, which all actors share.

    Args:
        ring: where samples go.
        schema: what a row must be.
        version: the learner's, now.
        rejected: rows refused.
        rejecting: why the last batch was rejected; "" where one has been inserted since.
        complaints: what is to be said of those.
    """

    ring: MemoryRing
    schema: Schema
    version: int = 0
    rejected: int = 0
    rejecting: str = ""
    complaints: Complaints = field(default_factory=Complaints)
    lag: LagMeter = field(default_factory=LagMeter)

    def insert(self, columns: Columns, rows: int, version: int, actor: int) -> None:
        """A batch into the replay, visible at once; one that is unsound is counted, to be said."""
        try:
            self.schema.check_values(columns)
        except SchemaError as error:
            self.rejected += rows
            self.rejecting = str(error)
            self.complaints.add(f"rejected a batch of actor {actor}", self.rejecting)
            return
        self.rejecting = ""
        self.ring.append({**columns, "version": version, "manager": 0, "actor": actor}, rows)
        self.ring.commit()
        self.lag.inserted(version, self.version, rows, time.monotonic())


class ReplaySlot:
    """The one slot of an actor's `Batching`: what is published is inserted at once."""

    def __init__(self, inserting: Inserting, n_buffer: int, actor: int) -> None:
        self._inserting, self._actor = inserting, actor
        schema = inserting.schema
        self.columns: Columns = columns_of(schema.row_dtype, n_buffer)
        self._shared = ""
        if schema.sharing is not None:
            entry, self._shared = schema.sharing.column, schema.sharing.column.name
            entries = schema.entries_max(n_buffer, PAYLOAD_MAX_BYTES)
            self.columns[self._shared] = np.empty((entries, *entry.shape), entry.numpy_dtype)

    def publish(self, rows: int, epoch: int, version: int, entries: int = 0) -> None:
        """The slot's first `rows` rows, and the entries they share, are a batch."""
        batch = {
            name: column[: entries if name == self._shared else rows]
            for name, column in self.columns.items()
        }
        self._inserting.insert(batch, rows, version, self._actor)

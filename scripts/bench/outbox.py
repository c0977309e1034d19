"""Managers with an outbox beside managers without, in turn, in one run.

Two producers send noise as fast as credit allows; or at a rate, by which the time of syncs and the
cost of a batch are told apart.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.daemons import GATEWAY, PRODUCER, Measured, ingest_run, learner_of, measured, running
from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.wire import SMALL, Payload
from vedette_services.actors.outbox.records import RECORD_BYTES
from vedette_services.host.processes import python_module

_PRODUCERS = 2
_WARM_S = 1.0
NONE = "none"
"""Names the measurement without an outbox."""


@dataclass(frozen=True, slots=True)
class OutboxBench:
    """Measures two producers into a learner's replay, with an outbox each and without.

    Args:
        payload: of a batch.
        capacity: of the replay.
        sync_ms: milliseconds from one sync to the next, each measured in turn.
        batches_per_s: of each producer; infinite: as many as credit allows.
        directory: where the outboxes are; None: the system's temporary folder.
        seconds: of a round.
        rounds: each measures all in turn; ratios are taken within a round.
    """

    payload: Payload = SMALL
    capacity: int = 100_000
    sync_ms: tuple[int, ...] = (10, 100, 1000)
    batches_per_s: float = math.inf
    directory: Path | None = None
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure all in turn; `again` is without an outbox once more, which shows the spread."""
        kinds = [NONE, *(f"{ms} ms" for ms in self.sync_ms), "again"]
        found: dict[str, list[Measured]] = {kind: [] for kind in kinds}
        for _ in range(self.rounds):
            found[NONE].append(self.measure(None))
            for ms in self.sync_ms:
                found[f"{ms} ms"].append(self.measure(ms))
            found["again"].append(self.measure(None))
        rates = {kind: [each.per_s for each in found[kind]] for kind in kinds}
        costs = {kind: [self._batch_us(each) for each in found[kind]] for kind in kinds}
        size = self.payload.schema.payload_bytes(self.payload.rows)
        return {
            "rows": self.payload.rows,
            "batch_bytes": size,
            "written_bytes_per_transition": (size + RECORD_BYTES) / self.payload.rows,
            "transitions_per_s": {kind: summarize_rounds(rates[kind]) for kind in kinds},
            "ratio": {kind: ratio_of_rounds(rates[kind], rates[NONE]) for kind in kinds[1:]},
            "processor_us_per_batch": {kind: summarize_rounds(costs[kind]) for kind in kinds},
            "processor_ratio": {
                kind: ratio_of_rounds(costs[kind], costs[NONE]) for kind in kinds[1:]
            },
        }

    def _batch_us(self, ingest: Measured) -> float:
        """Processor time of a batch, in all processes that handle it."""
        return 1e6 * ingest.processor_s / max(1, ingest.rows) * self.payload.rows

    def measure(self, sync_ms: int | None) -> Measured:
        """Measure once; without an outbox where `sync_ms` is None."""
        payload = self.payload
        config = ingest_run(payload.rows, payload.shape, payload.dtype, self.capacity)
        with (
            tempfile.TemporaryDirectory(prefix="vedette-outbox-", dir=self.directory) as folder,
            learner_of(config) as (address, asker),
        ):
            with_outbox = (
                []
                if sync_ms is None
                else [
                    "env",
                    f"VEDETTE_BENCH_OUTBOX={folder}",
                    f"VEDETTE_BENCH_SYNC_S={sync_ms / 1000}",
                ]
            )
            rate = str(self.batches_per_s)
            commands = [
                [
                    *with_outbox,
                    *python_module(
                        PRODUCER,
                        str(address),
                        f"producer-{number}",
                        str(payload.rows),
                        "1",
                        rate,
                    ),
                ]
                for number in range(_PRODUCERS)
            ]
            with running(commands):
                return measured(asker, _WARM_S, self.seconds, (GATEWAY, PRODUCER))

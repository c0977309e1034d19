"""Costs of exactly-once delivery and of encryption: the wire with and without each, in turn."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.unacknowledged import unacknowledged_per_s
from bench.wire import SMALL, Payload, WireBench
from vedette.local.daemons import free_port
from vedette_services.net.keys import make_keys

KINDS = ("unacknowledged", "vedette", "unacknowledged_keys", "vedette_keys")


@dataclass(frozen=True, slots=True)
class WireCosts:
    """Measures two producers at full speed into a ring on disk, four ways a round.

    Args:
        payload: of a batch.
        capacity: of the replay.
        seconds: of each way.
        rounds: ratios are taken within a round; every other round goes backwards.
    """

    payload: Payload = SMALL
    capacity: int = 100_000
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure all four in turn."""
        rates_by_kind: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch:
            keys = Path(scratch) / "keys"
            make_keys(keys, [])
            for turn in range(self.rounds):
                for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                    shown = keys if kind.endswith("_keys") else None
                    rates_by_kind[kind].append(self._measure(kind, shown))
        plain, ours, plain_keys, ours_keys = (rates_by_kind[kind] for kind in KINDS)
        return {
            "rows": self.payload.rows,
            "batch_bytes": self.payload.schema.payload_bytes(self.payload.rows),
            "rounds": self.rounds,
            "transitions_per_s": {
                kind: summarize_rounds(rates) for kind, rates in rates_by_kind.items()
            },
            "ratios": {
                "exactly_once": ratio_of_rounds(ours, plain),
                "exactly_once_with_keys": ratio_of_rounds(ours_keys, plain_keys),
                "keys": ratio_of_rounds(ours_keys, ours),
                "keys_unacknowledged": ratio_of_rounds(plain_keys, plain),
            },
        }

    def _measure(self, kind: str, keys: Path | None) -> float:
        if kind.startswith("vedette"):
            return WireBench(self.payload, self.capacity, self.seconds).vedette(keys).per_s
        return unacknowledged_per_s(self.payload, self.capacity, free_port(), self.seconds, keys)

"""The gateway's cost of a sample as managers become more, at the same rate of samples."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from vedette.bench.daemons import (
    GATEWAY,
    PRODUCER,
    Measured,
    ask,
    ingest_run,
    learner_of,
    measured,
    running,
)
from vedette.bench.measuring import summarize_rounds
from vedette_services.host.processes import python_module
from vedette_services.run.status_client import StatusClient

_ROWS = 64
_WARM_S = 2.0
_ASKED = 20
_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class ManagersBench:
    """Measures few managers beside many, which send as much together.

    Args:
        few, many: how many managers; those of one process share a loop.
        samples_per_s: all together; batches have 64 of CartPole's size.
        seconds: of a round.
        rounds: each measures both.
    """

    few: int = 1
    many: int = 64
    samples_per_s: float = 200_000.0
    seconds: float = 5.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure in turn: gateway's µs of processor time a sample, status answers."""
        found: dict[int, list[dict[str, Any]]] = {self.few: [], self.many: []}
        for _ in range(self.rounds):
            for count, rounds in found.items():
                rounds.append(self._play(count))
        few, many = ([r["cost_us"] for r in found[count]] for count in (self.few, self.many))
        return {
            "samples_per_s": self.samples_per_s,
            "managers": {
                str(count): {
                    "inserted_per_s": summarize_rounds([r["per_s"] for r in rounds]),
                    "gateway_us_per_sample": summarize_rounds([r["cost_us"] for r in rounds]),
                    "status_ms": summarize_rounds([ms for r in rounds for ms in r["status_ms"]]),
                    "lost": sum(r["lost"] for r in rounds),
                    "duplicates": sum(r["duplicates"] for r in rounds),
                }
                for count, rounds in found.items()
            },
            "growth": summarize_rounds([b / a for a, b in zip(few, many, strict=True)]),
        }

    def _play(self, managers: int) -> dict[str, Any]:
        config = ingest_run(_ROWS, (4,), "float32", 100_000)
        with learner_of(config) as (address, asker):
            processes = min(_PROCESSES, managers)
            rate = self.samples_per_s / _ROWS / managers
            each, more = divmod(managers, processes)  # the first `more` have one more
            names = [f"process-{number}" for number in range(processes)]
            counts = [each + (number < more) for number in range(processes)]
            producers = [
                python_module(PRODUCER, *map(str, (address, name, _ROWS, count, rate)))
                for name, count in zip(names, counts, strict=True)
            ]
            with running(producers):
                return _figures(measured(asker, _WARM_S, self.seconds, (GATEWAY,)), asker)


def _figures(found: Measured, asker: StatusClient) -> dict[str, Any]:
    answers = []
    for _ in range(_ASKED):
        began = time.monotonic()
        samples = ask(asker)["samples"]
        answers.append(1e3 * (time.monotonic() - began))
    return {
        "per_s": found.per_s,
        "cost_us": 1e6 * found.processor_s / max(1, found.rows),
        "status_ms": answers,
        "lost": samples["lost"] + samples["rejected"] + samples["dropped"],
        "duplicates": samples["duplicates"],
    }

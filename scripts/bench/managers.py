"""The gateway's cost of a sample as managers become more, at the same rate of samples."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.daemons import (
    GATEWAY,
    PRODUCER,
    ask,
    ingest_run,
    learner_of,
    measured,
    running,
)
from bench.measuring import process_ids, resident_bytes, summarize_rounds
from vedette_services.config import RunConfig
from vedette_services.errors import NoAnswerError
from vedette_services.host.processes import python_module
from vedette_services.host.system import raise_file_limit
from vedette_services.status.client import StatusClient

_ROWS = 64
_WARM_S = 2.0
_ASKED = 20
_JOIN_S = 120.0
_LEAST_PROCESSES = 2
_MANAGERS_A_PROCESS = 500


@dataclass(frozen=True, slots=True)
class ManagersBench:
    """Measures fleets of several sizes, which send as much together.

    Args:
        sizes: how many managers; those of one process share a loop.
        samples_per_s: all together; batches have 64 of CartPole's size.
        seconds: of a round.
        rounds: each measures all sizes.
    """

    sizes: tuple[int, ...] = (1, 64)
    samples_per_s: float = 200_000.0
    seconds: float = 5.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure in turn: gateway's µs of processor time a sample, status answers, memory."""
        raise_file_limit()
        by_size: dict[int, list[dict[str, Any]]] = {size: [] for size in self.sizes}
        for _ in range(self.rounds):
            for size, rounds in by_size.items():
                rounds.append(self._play(size))
        first, last = ([r["cost_us"] for r in by_size[self.sizes[at]]] for at in (0, -1))
        return {
            "samples_per_s": self.samples_per_s,
            "managers": {
                str(size): {
                    "inserted_per_s": summarize_rounds([r["per_s"] for r in rounds]),
                    "gateway_us_per_sample": summarize_rounds([r["cost_us"] for r in rounds]),
                    "gateway_cores": summarize_rounds([r["cores"] for r in rounds]),
                    "status_ms": summarize_rounds([ms for r in rounds for ms in r["status_ms"]]),
                    "descriptors": max(r["descriptors"] for r in rounds),
                    "resident_bytes": max(r["resident_bytes"] for r in rounds),
                    "lost": sum(r["lost"] for r in rounds),
                    "duplicates": sum(r["duplicates"] for r in rounds),
                }
                for size, rounds in by_size.items()
            },
            "growth": summarize_rounds([b / a for a, b in zip(first, last, strict=True)]),
        }

    def _play(self, managers: int) -> dict[str, Any]:
        processes = max(_LEAST_PROCESSES, -(-managers // _MANAGERS_A_PROCESS))
        processes = min(processes, managers)
        rate = self.samples_per_s / _ROWS / managers
        each, more = divmod(managers, processes)  # the first `more` have one more
        with learner_of(_run_of(managers)) as (address, asker):
            producers = [
                python_module(
                    PRODUCER, *map(str, (address, f"process-{n}", _ROWS, each + (n < more), rate))
                )
                for n in range(processes)
            ]
            with running(producers):
                _wait_for(managers, asker)
                return _figures(asker, self.seconds)


def _run_of(managers: int) -> RunConfig:
    config = ingest_run(_ROWS, (4,), "float32", 100_000)
    places = max(config.learner.max_managers, managers)
    learner = config.learner.model_copy(update={"max_managers": places})
    return config.model_copy(update={"learner": learner})


def _wait_for(managers: int, asker: StatusClient) -> None:
    deadline = time.monotonic() + _JOIN_S
    while sum(manager.state != "gone" for manager in ask(asker).managers) < managers:
        if time.monotonic() > deadline:
            raise NoAnswerError(f"some of {managers} managers of this measurement", _JOIN_S)
        time.sleep(0.5)


def _figures(asker: StatusClient, seconds: float) -> dict[str, Any]:
    ingest = measured(asker, _WARM_S, seconds, (GATEWAY,))
    answers = []
    for _ in range(_ASKED):
        began = time.monotonic()
        samples = ask(asker)["samples"]
        answers.append(1e3 * (time.monotonic() - began))
    gateways = process_ids(GATEWAY)
    return {
        "per_s": ingest.per_s,
        "cost_us": 1e6 * ingest.processor_s / max(1, ingest.rows),
        "cores": ingest.processor_s / ingest.seconds,
        "status_ms": answers,
        "descriptors": sum(len([*Path(f"/proc/{one}/fd").iterdir()]) for one in gateways),
        "resident_bytes": sum(resident_bytes(GATEWAY)),
        "lost": samples["lost"] + samples["rejected"] + samples["dropped"],
        "duplicates": samples["duplicates"],
    }

"""Ray: producers are actors, and call the actor that holds the ring; a few calls in flight."""

from __future__ import annotations

import time
from typing import Any

import ray
from workload import FIRST_S, PRODUCERS, Load, Ring, asked, count_for

IN_FLIGHT = 8


@ray.remote(num_cpus=0)
class Replay:
    def __init__(self, load: Load) -> None:
        self._ring = Ring(load)

    def insert(self, batch: Any) -> None:
        self._ring.insert(batch)

    def inserted(self) -> int:
        return self._ring.inserted


@ray.remote(num_cpus=0)
def produce(replay: Any, load: Load, until: float) -> None:
    batches = load.batches()
    waiting: list[Any] = []
    turn = 0
    while time.time() < until:
        waiting.append(replay.insert.remote(batches[turn % len(batches)]))
        turn += 1
        if len(waiting) >= IN_FLIGHT:
            _, waiting = ray.wait(waiting, num_returns=1)


def main() -> None:
    load, seconds = asked()
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    replay: Any = Replay.remote(load)
    until = time.time() + seconds + FIRST_S
    for _ in range(PRODUCERS):
        produce.remote(replay, load, until)
    count_for(seconds, lambda: int(ray.get(replay.inserted.remote())))
    ray.shutdown()


if __name__ == "__main__":
    main()

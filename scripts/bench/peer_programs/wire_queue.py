"""multiprocessing.Queue: one for both producers, batches pickled by its feeder threads."""

from __future__ import annotations

import multiprocessing as mp
import queue
from typing import Any

from workload import PRODUCERS, Load, Ring, asked, receive_for


def produce(batches_up: Any, load: Load) -> None:  # a queue of batches
    batches = load.batches()
    turn = 0
    while True:
        batches_up.put(batches[turn % len(batches)])
        turn += 1


def main() -> None:
    load, seconds = asked()
    ring = Ring(load)
    up: Any = mp.Queue(maxsize=64)
    for _ in range(PRODUCERS):
        mp.Process(target=produce, args=(up, load), daemon=True).start()

    def receive() -> None:
        try:
            ring.insert(up.get(timeout=0.1))
        except queue.Empty:
            return

    receive_for(seconds, ring, receive)


if __name__ == "__main__":
    main()

"""torch.multiprocessing: a queue of tensors in shared memory, one packed tensor a batch."""

from __future__ import annotations

import queue
from typing import Any

import torch
import torch.multiprocessing as mp
from workload import PRODUCERS, Load, Ring, asked, packed, receive_for, unpacked


def produce(up: Any, load: Load) -> None:  # a queue of tensors
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(packed(batch)) for batch in load.batches()]
    turn = 0
    while True:
        up.put(tensors[turn % len(tensors)].clone())  # into shared memory of its own
        turn += 1


def main() -> None:
    load, seconds = asked()
    ring = Ring(load)
    example = load.batches()[0]
    up: Any = mp.Queue(maxsize=64)
    for _ in range(PRODUCERS):
        mp.Process(target=produce, args=(up, load), daemon=True).start()

    def receive() -> None:
        try:
            flat = up.get(timeout=0.1).numpy()
        except queue.Empty:
            return
        ring.insert(unpacked(flat, example))

    receive_for(seconds, ring, receive)


if __name__ == "__main__":
    main()

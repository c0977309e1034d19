"""TorchRL: producers extend one replay buffer on a memory-mapped storage that all share."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
import torch.multiprocessing as mp
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer
from workload import FIRST_S, PRODUCERS, WARM_S, Load, asked, tell

CAPACITY = {"float32": 100_000, "uint8": 10_000}


def produce(buffer: Any, load: Load, inserted: Any) -> None:
    torch.set_num_threads(1)
    batches = [
        TensorDict({name: torch.from_numpy(c) for name, c in batch.items()}, [load.rows])
        for batch in load.batches()
    ]
    turn = 0
    while True:
        buffer.extend(batches[turn % len(batches)])
        turn += 1
        inserted.value += load.rows


def main() -> None:
    load, seconds = asked()
    with tempfile.TemporaryDirectory() as scratch:
        storage = LazyMemmapStorage(CAPACITY[load.dtype], scratch_dir=scratch)
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=256, shared=True)
        first = {name: torch.from_numpy(c) for name, c in load.batches()[0].items()}
        buffer.extend(TensorDict(first, [load.rows]))
        spawn = mp.get_context("spawn")  # torch's threads do not survive a fork
        counts = [spawn.Value("q", 0, lock=False) for _ in range(PRODUCERS)]
        producers = [
            spawn.Process(target=produce, args=(buffer, load, count), daemon=True)
            for count in counts
        ]
        for producer in producers:
            producer.start()
        deadline = time.monotonic() + FIRST_S
        while not all(count.value for count in counts) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(WARM_S)
        before, began = sum(count.value for count in counts), time.monotonic()
        time.sleep(seconds)
        tell((sum(count.value for count in counts) - before) / (time.monotonic() - began))
        for producer in producers:
            producer.kill()


if __name__ == "__main__":
    main()

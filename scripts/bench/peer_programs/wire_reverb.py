"""dm-reverb: each producer appends transitions to a writer, every one of them an item."""

from __future__ import annotations

import multiprocessing as mp

import numpy as np
import reverb
from workload import PRODUCERS, Load, asked, count_for


def produce(port: int, load: Load) -> None:
    batches = load.batches()
    client = reverb.Client(f"localhost:{port}")
    turn = 0
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        while True:
            batch = batches[turn % len(batches)]
            turn += 1
            for row in range(load.rows):
                writer.append({name: np.asarray(column[row]) for name, column in batch.items()})
                item = {name: writer.history[name][-1:] for name in batch}
                writer.create_item("replay", priority=1.0, trajectory=item)
            writer.flush(block_until_num_items=load.rows)


def main() -> None:
    load, seconds = asked()
    table = reverb.Table(
        name="replay",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=100_000 if load.dtype == "float32" else 10_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    for _ in range(PRODUCERS):
        spawn = mp.get_context("spawn")
        spawn.Process(target=produce, args=(server.port, load), daemon=True).start()

    def inserted() -> int:
        return int(table.info.rate_limiter_info.insert_stats.completed)

    count_for(seconds, inserted)


if __name__ == "__main__":
    main()

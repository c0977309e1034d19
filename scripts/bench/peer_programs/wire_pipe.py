"""multiprocessing.Pipe: a pipe for each producer, batches pickled by `send`."""

from __future__ import annotations

import multiprocessing as mp
from multiprocessing.connection import Connection, wait

from workload import PRODUCERS, Load, Ring, asked, receive_for


def produce(pipe: Connection, load: Load) -> None:
    batches = load.batches()
    turn = 0
    while True:
        pipe.send(batches[turn % len(batches)])
        turn += 1


def main() -> None:
    load, seconds = asked()
    ring = Ring(load)
    ends = []
    for _ in range(PRODUCERS):
        ours, theirs = mp.Pipe(duplex=False)
        mp.Process(target=produce, args=(theirs, load), daemon=True).start()
        theirs.close()
        ends.append(ours)

    def receive() -> None:
        for end in wait(ends, timeout=0.1):
            assert isinstance(end, Connection)
            ring.insert(end.recv())

    receive_for(seconds, ring, receive)


if __name__ == "__main__":
    main()

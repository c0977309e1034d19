"""`vedette.Replay` beside cpprb, TorchRL and Reverb, each fed by other processes, in one run.

`python -m bench.remote_replays ROUNDS SECONDS NAME=PYTHON ...` prints the rates as one JSON object;
each system runs in the environment of its interpreter. Two processes insert batches of 64 rows
without pause, and the loop draws batches of 256 without pause: rows a second of both. All hold 4
floats seen, an action, a reward, 4 floats seen next and two flags, in `CAPACITY` rows. Each as its
users run it:

* `vedette`: `vedette.Replay`, durable and acknowledged; `queue`: a `multiprocessing.Queue`, a
  thread and numpy arrays in the loop's process (`scripts/bench/run loops`);
* `cpprb`: `MPReplayBuffer`, in memory that the processes share, on this machine only;
* `torchrl`: a `TensorDictReplayBuffer` in the loop's process, `extend` by `torch.distributed.rpc`;
* `reverb`: a server in the loop's process, a writer of single steps in each of the others, and a
  `TimestepDataset` to draw from.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CAPACITY = 20_000
ROWS_IN = 64
ROWS_OUT = 256
PRODUCERS = 2
WARM_S = 1.0
MODULE = "bench.remote_replays"


def batch_of(rows: int) -> dict[str, Any]:
    return {
        "obs": np.ones((rows, 4), np.float32),
        "action": np.ones(rows, np.int64),
        "reward": np.ones(rows, np.float32),
        "next_obs": np.ones((rows, 4), np.float32),
        "terminated": np.zeros(rows, np.bool_),
        "truncated": np.zeros(rows, np.bool_),
    }


def measure(
    seconds: float, sample: Callable[[], object], inserted: Callable[[], int]
) -> dict[str, float]:
    """Draw for `seconds`, once the buffer is full and `WARM_S` are over."""
    while inserted() < CAPACITY:
        time.sleep(0.01)
    warm = time.monotonic() + WARM_S
    while time.monotonic() < warm:
        sample()
    began = time.monotonic()
    first = inserted()
    drawn = 0
    while (now := time.monotonic()) < began + seconds:
        sample()
        drawn += ROWS_OUT
    return {"inserted": (inserted() - first) / (now - began), "drawn": drawn / (now - began)}


def of_loops(name: str, seconds: float) -> dict[str, float]:
    from bench.daemons import ingest_run
    from bench.loops import LoopBench

    bench = LoopBench(ROWS_IN, ROWS_OUT, CAPACITY, seconds)
    if name == "queue":
        return bench._plain()._asdict()
    config = ingest_run(ROWS_IN, (4,), "float32", CAPACITY)
    replay = config.replay.model_copy(update={"samples_per_insert": 0.0})
    learner = config.learner.model_copy(update={"warmup_period": ROWS_OUT})
    return bench._vedette(
        config.model_copy(update={"replay": replay, "learner": learner})
    )._asdict()


# cpprb


def cpprb(_: str, seconds: float) -> dict[str, float]:
    from cpprb import MPReplayBuffer

    context = multiprocessing.get_context("fork")
    batch = batch_of(1)
    columns = {
        name: {"shape": column.shape[1:] or 1, "dtype": column.dtype.type}
        for name, column in batch.items()
    }
    buffer = MPReplayBuffer(CAPACITY, columns, ctx=context)
    count = context.Array("q", PRODUCERS, lock=False)
    children = [
        context.Process(target=_feed_cpprb, args=(buffer, count, n), daemon=True)
        for n in range(PRODUCERS)
    ]
    for child in children:
        child.start()
    try:
        return measure(seconds, lambda: buffer.sample(ROWS_OUT), lambda: sum(count))
    finally:
        for child in children:
            child.kill()


def _feed_cpprb(buffer: Any, count: Any, number: int) -> None:
    batch = batch_of(ROWS_IN)
    while True:
        buffer.add(**batch)
        count[number] += ROWS_IN


# TorchRL

_BUFFER: Any = None
_EXTENDED = 0


def _extend(batch: Any) -> None:
    global _EXTENDED
    _BUFFER.extend(batch)
    _EXTENDED += ROWS_IN


def torchrl(_: str, seconds: float) -> dict[str, float]:
    global _BUFFER
    from torch.distributed import rpc
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    _BUFFER = TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=ROWS_OUT)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871"}
    context = multiprocessing.get_context("spawn")
    children = [
        context.Process(target=_feed_torchrl, args=(n,), daemon=True)
        for n in range(1, PRODUCERS + 1)
    ]
    for child in children:
        child.start()
    rpc.init_rpc("loop", rank=0, world_size=PRODUCERS + 1)
    try:
        return measure(seconds, lambda: _BUFFER.sample(), lambda: _EXTENDED)
    finally:
        for child in children:
            child.kill()


def _feed_torchrl(rank: int) -> None:
    import torch
    from tensordict import TensorDict
    from torch.distributed import rpc

    rpc.init_rpc(f"actor{rank}", rank=rank, world_size=PRODUCERS + 1)
    columns = {name: torch.from_numpy(column) for name, column in batch_of(ROWS_IN).items()}
    batch = TensorDict(columns, batch_size=[ROWS_IN])
    while True:
        rpc.rpc_sync("loop", _extend, args=(batch,))


# Reverb


def reverb(_: str, seconds: float) -> dict[str, float]:
    import reverb
    import tensorflow as tf

    signature = {
        name: tf.TensorSpec(column.shape[1:], tf.as_dtype(column.dtype))
        for name, column in batch_of(1).items()
    }
    table = reverb.Table(
        "rows",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=CAPACITY,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )
    server = reverb.Server(tables=[table])
    address = f"localhost:{server.port}"
    children = [
        subprocess.Popen([sys.executable, "-m", MODULE, "feed-reverb", address])
        for _ in range(PRODUCERS)
    ]
    data = reverb.TimestepDataset.from_table_signature(
        server_address=address, table="rows", max_in_flight_samples_per_worker=2 * ROWS_OUT
    )
    batches = iter(data.batch(ROWS_OUT).prefetch(2))
    try:
        return measure(
            seconds,
            lambda: next(batches),
            lambda: table.info.rate_limiter_info.insert_stats.completed,
        )
    finally:
        for child in children:
            child.kill()


def feed_reverb(address: str) -> None:
    import reverb

    client = reverb.Client(address)
    step = {name: column[0] for name, column in batch_of(1).items()}
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        while True:
            for _ in range(ROWS_IN):
                writer.append(step)
                row = {name: column[-1] for name, column in writer.history.items()}
                writer.create_item("rows", priority=1.0, trajectory=row)
            writer.flush()


SYSTEMS: dict[str, Callable[[str, float], dict[str, float]]] = {
    "vedette": of_loops,
    "queue": of_loops,
    "cpprb": cpprb,
    "torchrl": torchrl,
    "reverb": reverb,
}


def main(pythons: dict[str, str], rounds: int, seconds: float) -> None:
    """Measure the systems in turn.

    Args:
        pythons: of each system.
    """
    by_system: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for number in range(rounds):
        names = list(pythons) if number % 2 == 0 else list(pythons)[::-1]
        for name in names:
            command = [pythons[name], "-m", MODULE, "one", name, str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            lines = done.stdout.strip().splitlines()
            if done.returncode and not lines:
                print(f"{name} failed: {done.stderr[-600:]}", file=sys.stderr)
                continue
            by_system[name].append(json.loads(lines[-1]))
            print(number, name, lines[-1], file=sys.stderr, flush=True)
    print(
        json.dumps({name: _compared(by_system["vedette"], by_system[name]) for name in by_system})
    )


def _compared(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the rates of one system, and the ratios of ours to them, a round at a time."""
    figures: dict[str, Any] = {"rounds": len(theirs)}
    for what in ("inserted", "drawn") if theirs and ours else ():
        figures[f"{what}_rows_per_s"] = _spread([each[what] for each in theirs])
        ratios = [a[what] / b[what] for a, b in zip(ours, theirs, strict=False)]
        figures[f"vedette_{what}_ratio"] = _spread(ratios)
    return figures


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["one", name, seconds]:
            print(json.dumps(SYSTEMS[name](name, float(seconds))), flush=True)
            os._exit(0)  # servers and rpc would wait for their peers, which are gone
        case ["feed-reverb", address]:
            feed_reverb(address)
        case [rounds, seconds, *pythons]:
            main(dict(text.split("=", 1) for text in pythons), int(rounds), float(seconds))

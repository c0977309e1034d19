"""`vedette.Replay` under a training loop of a user's own, beside a plain buffer in its memory.

The plain one is fed as loops without a library are: processes put batches into a
`multiprocessing.Queue`, and a thread of the loop moves them into numpy arrays. Nothing of it is
durable, acknowledged, numbered or checked. Both loops draw batches without pause meanwhile.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.daemons import PRODUCER, ingest_run, running
from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette.local.daemons import free_port
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns
from vedette_rl.envs.make import probe_environment
from vedette_services.config.run_config import RunConfig
from vedette_services.host.processes import python_module
from vedette_services.learner.remote_replay import RemoteReplay
from vedette_services.net.addresses import Address
from vedette_services.run.start import Start
from vedette_services.run.start_planning import plan_start

_PRODUCERS = 2
_WARM_S = 1.0
_QUEUED = 64  # batches


class Rates(NamedTuple):
    """Rows per second."""

    inserted: float
    drawn: float


@dataclass(frozen=True, slots=True)
class LoopBench:
    """Measures both loops in turn.

    Args:
        rows_in, rows_out: of a batch that comes, and of one that is drawn.
        capacity: of both buffers.
        seconds: of a round.
        rounds: each measures both.
    """

    rows_in: int = 64
    rows_out: int = 256
    capacity: int = 100_000
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure."""
        config = ingest_run(self.rows_in, (4,), "float32", self.capacity)
        config = config.model_copy(
            update={
                "replay": config.replay.model_copy(update={"samples_per_insert": 0.0}),
                "learner": config.learner.model_copy(update={"warmup_period": self.rows_out}),
            }
        )
        ours, plain = [], []
        for _ in range(self.rounds):
            plain.append(self._plain())
            ours.append(self._vedette(config))
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rounds": self.rounds,
            **{
                f"{what}_rows_per_s": {
                    "vedette": summarize_rounds([getattr(x, what) for x in ours]),
                    "plain": summarize_rounds([getattr(x, what) for x in plain]),
                    "ratio": ratio_of_rounds(
                        [getattr(x, what) for x in ours], [getattr(x, what) for x in plain]
                    ),
                }
                for what in Rates._fields
            },
        }

    def _vedette(self, config: RunConfig) -> Rates:
        address = Address("127.0.0.1", free_port())
        spaces = probe_environment(config.env)
        agent = agent_kind("dqn").build_agent(config.agent, spaces, device="cpu", seed=0)
        producers = [
            python_module(PRODUCER, str(address), f"p{n}", str(self.rows_in), "1", "inf")
            for n in range(_PRODUCERS)
        ]
        with (
            tempfile.TemporaryDirectory(prefix="vedette-bench-") as place,
            RemoteReplay(
                plan_start(config, Path(place) / "run", Start(custom_loop=True)), address
            ) as replay,
        ):
            replay.publish(agent.model_info().arrays)
            with running(producers):
                return self._measure(lambda: replay.sample(self.rows_out), lambda: replay.inserted)

    def _plain(self) -> Rates:
        context = multiprocessing.get_context("spawn")
        queue = context.Queue(_QUEUED)
        buffer = PlainBuffer(self.capacity)
        children = [
            context.Process(target=_feed, args=(queue, self.rows_in), daemon=True)
            for _ in range(_PRODUCERS)
        ]
        for child in children:
            child.start()
        taking = threading.Thread(target=buffer.take_all, args=(queue,), daemon=True)
        taking.start()
        try:
            return self._measure(lambda: buffer.sample(self.rows_out), lambda: buffer.inserted)
        finally:
            buffer.closed = True
            taking.join()
            for child in children:
                child.kill()
                child.join()

    def _measure(self, sample: Callable[[], object], inserted: Callable[[], int]) -> Rates:
        """Draw until the buffer is full and `_WARM_S` are over, then for the time of a round."""
        while inserted() < max(self.rows_out, self.capacity):
            time.sleep(0.01)
        began = time.monotonic()
        drawn = 0
        while (now := time.monotonic()) < began + _WARM_S:
            sample()
        began = now
        first = inserted()
        while (now := time.monotonic()) < began + self.seconds:
            sample()
            drawn += self.rows_out
        return Rates((inserted() - first) / (now - began), drawn / (now - began))


class PlainBuffer:
    """Numpy arrays, and a lock between the thread that inserts and the loop that draws."""

    def __init__(self, capacity: int) -> None:
        self._arrays = {
            name: np.empty((capacity, *column.shape[1:]), column.dtype)
            for name, column in _batch(1).items()
        }
        self._capacity = capacity
        self._lock = threading.Lock()
        self._rng = np.random.default_rng(0)
        self.inserted = 0
        self.closed = False

    def take_all(self, queue: multiprocessing.queues.Queue[Columns]) -> None:
        while not self.closed:
            batch = queue.get()
            rows = len(batch["reward"])
            with self._lock:
                places = np.arange(self.inserted, self.inserted + rows) % self._capacity
                for name, column in batch.items():
                    self._arrays[name][places] = column
                self.inserted += rows

    def sample(self, rows: int) -> Columns:
        with self._lock:
            places = self._rng.integers(min(self.inserted, self._capacity), size=rows)
            return {name: array[places] for name, array in self._arrays.items()}


def _feed(queue: multiprocessing.queues.Queue[Columns], rows: int) -> None:
    batch = _batch(rows)
    while True:
        queue.put(batch)


def _batch(rows: int) -> Columns:
    return {
        "obs": np.ones((rows, 4), np.float32),
        "action": np.ones(rows, np.int64),
        "reward": np.ones(rows, np.float32),
        "next_obs": np.ones((rows, 4), np.float32),
        "terminated": np.zeros(rows, np.bool_),
        "truncated": np.zeros(rows, np.bool_),
    }

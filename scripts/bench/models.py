"""From a sync to the last actor that acts on it, beside the bare copies that this needs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from bench.daemons import ask, check_actors, learner_of, run_actors
from bench.measuring import summarize_rounds
from bench.stamped_agent import STAMPED, StampedAgent, StampedConfig
from vedette_protocol.schema import Schema
from vedette_services.config.loading import load_config
from vedette_services.errors import ServicesError
from vedette_services.learner.trainer.background import BackgroundPublisher
from vedette_services.run.model_map import ModelMapWriter

_FIRST_MODELS = 3  # everything is warm after them
_TIMES = 5
_CHUNK_BYTES = 1 << 20
_COPIES = 5
"""Off the weights, into the trainer's map, out of it, together on the other side, into its map."""


class NoMeasurementError(ServicesError):
    """A measurement saw too little to say anything."""


@dataclass(frozen=True, slots=True)
class ModelsBench:
    """Measures models of a size, published at an interval, to actors of one manager.

    The actors' environment sleeps, so that what is measured is the way and not the wait for a core.

    Args:
        model_bytes: of a model.
        actors: actor processes.
        interval_s: from sync to sync.
        step_s: of an environment: an actor looks for a newer model at every step.
        seconds: how long.
    """

    model_bytes: int = 1 << 20
    actors: int = 8
    interval_s: float = 0.05
    step_s: float = 0.001
    seconds: float = 10.0

    def run(self) -> dict[str, Any]:
        """Measure; milliseconds of the models that every actor acted on, and their number."""
        bare = [self._bare_s() for _ in range(_TIMES)]
        waits, copies = self._publishing_s()
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as notes:
            published = self._play(Path(notes))
            delays = self._delays(Path(notes))
        if not delays:
            raise NoMeasurementError(
                f"of {published} models too few reached all {self.actors} actors: {_FIRST_MODELS} "
                "are left out, and one must be left; give it more --seconds"
            )
        return {
            "model_bytes": self.model_bytes,
            "actors": self.actors,
            "interval_s": self.interval_s,
            "published": published,
            "everywhere": len(delays),
            "loop_waits_ms": summarize_rounds([1e3 * seconds for seconds in waits]),
            "loop_copies_ms": summarize_rounds([1e3 * seconds for seconds in copies]),
            "delay_ms": summarize_rounds([1e3 * delay for delay in delays]),
            "bare_copies_ms": summarize_rounds([1e3 * seconds for seconds in bare]),
            "ratio": summarize_rounds([delay / sorted(bare)[len(bare) // 2] for delay in delays]),
        }

    def _play(self, notes: Path) -> int:
        config = load_config(
            env="vedette_rl.testing:Synthetic",
            agent=STAMPED.name,
            settings=[
                f"agent.model_bytes={self.model_bytes}",
                f"agent.opt_s={self.interval_s}",
                f"agent.notes={notes}",
                f"env.kwargs.sleep_s={self.step_s}",
                "actors.envs_per_actor=1",
                "actors.n_buffer=100",
                "replay.capacity=10000",
                "replay.samples_per_insert=0",
                "learner.warmup_period=1",
                "learner.sync_interval=1",
                "learner.eval_interval=0",
                "learner.save_interval=0",
                "learner.device=cpu",
                "stop.max_seconds=600",
            ],
        ).config
        with learner_of(config) as (address, asker):
            imports = ("--allow-import", "vedette_rl", "--allow-import", "bench")
            with run_actors(address, self.actors, *imports):
                self._wait_for_actors(notes)
                before = ask(asker)["opt_steps"]
                time.sleep(self.seconds)
                status = ask(asker)
                check_actors(status)
        return int(status["opt_steps"] - before)

    def _wait_for_actors(self, notes: Path) -> None:
        deadline = time.monotonic() + 120
        while len(_acted(notes)) < self.actors:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(_acted(notes))} of {self.actors} actors play after 120 s")
            time.sleep(0.1)

    def _delays(self, notes: Path) -> list[float]:
        """Of each model that all acted on: how long after its sync the last did."""
        published: dict[int, float] = {}
        acted: dict[int, list[float]] = defaultdict(list)
        for lines in _acted(notes).values():
            for version, at, when in lines:
                published[int(version)] = at
                acted[int(version)].append(when)
        everywhere = [v for v, times in sorted(acted.items()) if len(times) == self.actors]
        return [max(acted[v]) - published[v] for v in everywhere[_FIRST_MODELS:]]

    def _publishing_s(self) -> tuple[list[float], list[float]]:
        """Seconds that a training loop waits for a sync, and for a bare copy of its weights."""
        agent = StampedAgent(StampedConfig(name=STAMPED.name, model_bytes=self.model_bytes))
        schema = Schema.from_arrays(agent.model_info().arrays)
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as place:
            publisher = BackgroundPublisher(ModelMapWriter(Path(place) / "models", schema), epoch=1)
            other = np.ones(self.model_bytes, np.uint8)
            waits, copies = [], []
            for _ in range(_FIRST_MODELS + _TIMES):
                weights = agent.train(self.interval_s / 2)
                began = time.perf_counter()
                publisher.publish(agent.model_info())
                waits.append(time.perf_counter() - began)
                agent.train(self.interval_s / 2)  # it is written meanwhile
                began = time.perf_counter()
                other[: weights.nbytes] = weights.view(np.uint8)
                copies.append(time.perf_counter() - began)
            publisher.close(60.0)
        return waits[_FIRST_MODELS:], copies[_FIRST_MODELS:]

    def _bare_s(self) -> float:
        """Seconds for the copies alone: in memory, through one socket, and out for every actor, as
        many at a time as there are processors."""
        body, other = np.ones(self.model_bytes, np.uint8), np.empty(self.model_bytes, np.uint8)
        other[...] = body  # its memory is there
        began = time.perf_counter()
        waves = -(-self.actors // (os.cpu_count() or 1))
        for _ in range(_COPIES + waves):
            other[...] = body
        copied = time.perf_counter() - began
        return copied + _through_a_socket_s(memoryview(body.tobytes()))


def _through_a_socket_s(body: memoryview) -> float:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    push.set_hwm(0)
    pull.set_hwm(0)
    port = pull.bind_to_random_port("tcp://127.0.0.1")
    push.connect(f"tcp://127.0.0.1:{port}")
    push.send(b"connected")
    pull.recv()

    def send() -> None:
        for start in range(0, len(body), _CHUNK_BYTES):
            push.send(body[start : start + _CHUNK_BYTES], copy=False)

    sender = threading.Thread(target=send)
    began = time.perf_counter()
    sender.start()
    for _ in range(0, len(body), _CHUNK_BYTES):
        pull.recv(copy=False)
    took = time.perf_counter() - began
    sender.join()
    context.destroy(linger=0)
    return took


def _acted(notes: Path) -> dict[str, list[tuple[float, float, float]]]:
    """By actor: (version, published, acted) of each model; a last line may be half written."""
    by_actor = {}
    for file in notes.iterdir():
        lines = [line.split() for line in file.read_text().split("\n")[:-1]]
        if lines:
            by_actor[file.name] = [(float(a), float(b), float(c)) for a, b, c in lines]
    return by_actor

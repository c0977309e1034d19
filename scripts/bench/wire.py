"""The wire with all its guarantees beside plain PUSH/PULL, in turn, in one run.

The bound is PUSH/PULL of packed frames into numpy arrays: nothing is acknowledged, numbered or
checked. `python -m bench.wire ENDPOINT ROWS SHAPE DTYPE` is its producer.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import zmq

from bench.daemons import (
    GATEWAY,
    PRODUCER,
    Measured,
    ingest_run,
    learner_of,
    measured,
    running,
)
from bench.measuring import processor_s, ratio_of_rounds, summarize_rounds
from bench.producer import payloads_of
from vedette.local.daemons import free_port
from vedette_protocol.schema import Schema
from vedette_rl.core import empty_columns
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_services.host.processes import die_with_parent, python_module

_MODULE = "bench.wire"
_PRODUCERS = 2
_WARM_S = 1.0
_MOST_WAITING = 1000
_WAITING_BYTES = 32 << 20
"""Maximum of a queue. A thousand large batches would all lie in memory that was not used before,
and cost three times as much."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A batch of `rows` transitions with observations of `shape` and `dtype`."""

    rows: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_stack(self) -> bool:
        """An observation is a stack of images."""
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def most_waiting(self) -> int:
        """Batches that may wait in a socket's queue."""
        batch_bytes = self.schema.payload_bytes(self.rows)
        return max(2, min(_MOST_WAITING, _WAITING_BYTES // batch_bytes))

    @property
    def schema(self) -> Schema:
        """Schema of the synthetic environment's transitions."""
        high = 255 if self.dtype == "uint8" else 1
        box = gym.spaces.Box(0, high, self.shape, np.dtype(self.dtype).type)
        spaces = Spaces(box, gym.spaces.Discrete(2))
        return Schema.from_dtype(transition_dtype(spaces), column_bounds(spaces))


SMALL = Payload(64, (4,), "float32")
ATARI = Payload(32, (4, 84, 84), "uint8")


def load_of(*, atari: bool) -> tuple[Payload, int]:
    """Return a payload and the rows of the replay that it is measured with."""
    return (ATARI, 4_000) if atari else (SMALL, 100_000)


@dataclass(frozen=True, slots=True)
class WireBench:
    """Measures two producers at full speed into a learner's replay.

    Stacks of images are measured whole, as plain PUSH/PULL sends them, and as our actors send them:
    each frame of a batch once.

    Args:
        payload: of a batch.
        capacity: of the replay, and of the bound's arrays.
        seconds: of a round.
        rounds: each measures both; the ratio is taken within a round.
    """

    payload: Payload = SMALL
    capacity: int = 100_000
    seconds: float = 4.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure both in turn."""
        ours, bound, once = [], [], []
        for _ in range(self.rounds):
            bound.append(bare(self.payload, self.capacity, free_port(), self.seconds))
            ours.append(self.vedette())
            if self.payload.is_stack:
                once.append(self.vedette(frames_once=True))
        rate, bound_rate = [x.per_s for x in ours], [x.per_s for x in bound]
        cost, bound_cost = [self._batch_us(x) for x in ours], [self._batch_us(x) for x in bound]
        figures = {
            "rows": self.payload.rows,
            "shape": list(self.payload.shape),
            "dtype": self.payload.dtype,
            "batch_bytes": self.payload.schema.payload_bytes(self.payload.rows),
            "transitions_per_s": summarize_rounds(rate),
            "bare_transitions_per_s": summarize_rounds(bound_rate),
            "ratio": ratio_of_rounds(rate, bound_rate),
            "processor_us_per_batch": summarize_rounds(cost),
            "bare_processor_us_per_batch": summarize_rounds(bound_cost),
            "processor_ratio": ratio_of_rounds(cost, bound_cost),
        }
        if once:
            once_rate = [x.per_s for x in once]
            once_cost = [self._batch_us(x) for x in once]
            figures |= {
                "frames_once_transitions_per_s": summarize_rounds(once_rate),
                "frames_once_ratio": ratio_of_rounds(once_rate, bound_rate),
                "frames_once_processor_us_per_batch": summarize_rounds(once_cost),
            }
        return figures

    def _batch_us(self, ingest: Measured) -> float:
        """Processor time of a batch, in all processes that handle it."""
        return 1e6 * ingest.processor_s / max(1, ingest.rows) * self.payload.rows

    def vedette(self, keys: Path | None = None, *, frames_once: bool = False) -> Measured:
        """Measure two producers and a learner's replay.

        Args:
            keys: a learner's folder of keys; None: neither encrypt nor authenticate.
            frames_once: observations are stacks of frames, and each frame is sent once.
        """
        payload = self.payload
        stack = 0
        shape = self.payload.shape
        if frames_once:
            stack, *frame = payload.shape
            shape = tuple(frame)
        config = ingest_run(payload.rows, shape, payload.dtype, self.capacity, frame_stack=stack)
        with learner_of(config, keys) as (address, asker):
            arguments = (str(payload.rows), "1", "inf", *([str(keys)] if keys else []))
            commands = [
                python_module(PRODUCER, str(address), f"producer-{number}", *arguments)
                for number in range(_PRODUCERS)
            ]
            with running(commands):
                return measured(asker, _WARM_S, self.seconds, (GATEWAY, PRODUCER))


def bare(payload: Payload, capacity: int, port: int, seconds: float) -> Measured:
    """Measure two producers, plain PUSH/PULL and arrays of `capacity` rows."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull = context.socket(zmq.PULL)
    pull.set_hwm(payload.most_waiting)
    endpoint = f"tcp://127.0.0.1:{port}"
    pull.bind(endpoint)
    shape = ",".join(map(str, payload.shape))
    command = python_module(_MODULE, endpoint, str(payload.rows), shape, payload.dtype)
    try:
        with running([command] * _PRODUCERS):
            return _receive(pull, payload, capacity, seconds)
    finally:
        context.destroy(linger=0)


def _receive(pull: zmq.Socket[bytes], payload: Payload, capacity: int, seconds: float) -> Measured:
    schema = payload.schema
    rows = payload.rows
    capacity = max(rows, capacity // rows * rows)
    ring = empty_columns(schema.row_dtype, capacity)
    at = inserted = 0
    spent: float | None = None
    if not pull.poll(30_000):
        raise TimeoutError("no producer sent anything for 30 s")
    begin = time.monotonic() + _WARM_S
    finish = begin + seconds
    while (now := time.monotonic()) < finish:
        if spent is None and now >= begin:
            spent = _processor_s()
        if not pull.poll(100):
            continue
        for _ in range(64):
            try:
                frame = pull.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            for name, column in schema.views(frame.buffer, rows).items():
                ring[name][at : at + rows] = column
            at = (at + rows) % capacity
            inserted += rows if now >= begin else 0
    took = time.monotonic() - begin
    return Measured(inserted, took, _processor_s() - (spent or 0.0))


def _processor_s() -> float:
    """Processor seconds of the producers and of this process, which does nothing else."""
    return processor_s(_MODULE) + time.process_time()


def main() -> None:
    """Push batches until this process is ended."""
    die_with_parent()
    endpoint, rows, shape, dtype = sys.argv[1:]
    payload = Payload(int(rows), tuple(map(int, shape.split(","))), dtype)
    payloads = payloads_of(payload.schema, payload.rows)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.set_hwm(payload.most_waiting)
    push.connect(endpoint)
    turn = 0
    while True:
        push.send(payloads[turn % len(payloads)], copy=False)
        turn += 1


if __name__ == "__main__":
    main()

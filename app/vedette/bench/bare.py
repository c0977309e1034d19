"""The bound of the wire: plain PUSH/PULL of packed frames, and a numpy ring at the end.

Nothing is acknowledged, numbered or checked.
`python -m vedette.bench.bare push ENDPOINT ROWS SHAPE DTYPE`
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import zmq

from vedette.bench.daemons import Measured
from vedette.bench.measuring import processor_s
from vedette.bench.producer import payloads_of
from vedette_protocol.schema import Schema
from vedette_rl.core import empty_columns
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_services.host.processes import die_with_parent, end_children, python_module, spawn

_MOST_WAITING = 1000
_WAITING_BYTES = 32 << 20
"""Of a queue, at most: with a thousand large batches every one comes into memory that was not used
before, and costs three times as much."""

_WARM_S = 1.0
_PRODUCERS = 2
_MODULE = "vedette.bench.bare"


@dataclass(frozen=True, slots=True)
class Payload:
    """What a batch is made of: `rows` transitions with observations of `shape` and `dtype`."""

    rows: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_stack(self) -> bool:
        """Whether an observation is a stack of images."""
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def most_waiting(self) -> int:
        """Batches that may wait in a socket's queue."""
        batch_bytes = self.schema.payload_bytes(self.rows)
        return max(2, min(_MOST_WAITING, _WAITING_BYTES // batch_bytes))

    @property
    def schema(self) -> Schema:
        """Of the synthetic environment's transitions."""
        high = 255 if self.dtype == "uint8" else 1
        box = gym.spaces.Box(0, high, self.shape, np.dtype(self.dtype).type)
        spaces = Spaces(box, gym.spaces.Discrete(2))
        return Schema.from_dtype(transition_dtype(spaces), column_bounds(spaces))


def bare(payload: Payload, capacity: int, port: int, seconds: float) -> Measured:
    """What two producers bring through plain PUSH/PULL into arrays of `capacity` rows."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull = context.socket(zmq.PULL)
    pull.set_hwm(payload.most_waiting)
    endpoint = f"tcp://127.0.0.1:{port}"
    pull.bind(endpoint)
    shape = ",".join(map(str, payload.shape))
    arguments = ("push", endpoint, str(payload.rows), shape, payload.dtype)
    command = python_module(_MODULE, *arguments)
    producers = [spawn(command) for _ in range(_PRODUCERS)]
    try:
        return _receive(pull, payload, capacity, seconds)
    finally:
        end_children(producers, term_s=5.0)
        context.destroy(linger=0)


def _receive(pull: zmq.Socket[bytes], payload: Payload, capacity: int, seconds: float) -> Measured:
    schema, rows = payload.schema, payload.rows
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
    """The producers' and ours: nothing else is done here meanwhile."""
    return processor_s(_MODULE) + time.process_time()


def main() -> None:
    """Push batches without end."""
    die_with_parent()
    endpoint, rows, shape, dtype = sys.argv[2:6]
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

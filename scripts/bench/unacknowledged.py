"""The learner's work on samples without what makes it exactly once: no window, ledger or acks.

Everything else is the same: the frames, every check, the ring on disk and its commits. With keys,
frames are encrypted besides, and nobody is asked who may come in.
`python -m bench.unacknowledged ADDRESS ROWS SHAPE DTYPE [KEYS]`
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import zmq

from bench.daemons import running
from bench.producer import payloads_of
from bench.wire import Payload
from vedette_protocol.codec import BatchReader, encode
from vedette_protocol.messages import Batch
from vedette_rl.replay.ring import RingWriter
from vedette_services.host.processes import die_with_parent, python_module
from vedette_services.learner.gateway.intake import Intake
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys, LearnerKeys
from vedette_services.net.sockets import samples_push
from vedette_services.run.replay_layout import ring_dtype

_WARM_S = 1.0
_PRODUCERS = 2
_DRAIN_MESSAGES = 256  # as the gateway
_RUN = "bench"


def unacknowledged_per_s(
    payload: Payload, capacity: int, port: int, seconds: float, keys: Path | None = None
) -> float:
    """Transitions a second from two producers into a ring on disk.

    Args:
        keys: a learner's folder: encrypt.
    """
    address = Address("127.0.0.1", port)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull = context.socket(zmq.PULL)
    pull.setsockopt(zmq.RCVHWM, 1000)
    if keys is not None:
        pull.setsockopt(zmq.CURVE_SERVER, 1)
        pull.setsockopt(zmq.CURVE_SECRETKEY, LearnerKeys.read(keys).pair.secret)
    pull.bind(address.samples)
    shape = ",".join(map(str, payload.shape))
    secured = [str(keys)] if keys else []
    arguments = (str(address), str(payload.rows), shape, payload.dtype, *secured)
    command = python_module("bench.unacknowledged", *arguments)
    try:
        with (
            running([command] * _PRODUCERS),
            tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch,
        ):
            return _receive(pull, payload, capacity, Path(scratch), seconds)
    finally:
        context.destroy(linger=0)


def _receive(
    pull: zmq.Socket[bytes], payload: Payload, capacity: int, place: Path, seconds: float
) -> float:
    schema = payload.schema
    ring = RingWriter.open(place, ring_dtype(schema.row_dtype), capacity, run_id=_RUN)
    if not pull.poll(30_000):
        raise TimeoutError("no producer sent anything for 30 s")
    begin = time.monotonic() + _WARM_S
    inserted = 0
    reader = BatchReader()
    intake = Intake(schema, payload.rows, payload.rows, lambda manager: 0, None)
    while (now := time.monotonic()) < begin + seconds:
        if not pull.poll(100):
            continue
        for _ in range(min(_DRAIN_MESSAGES, ring.room // payload.rows)):
            try:
                frames = pull.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            header, body = frames
            batch = reader.read([header.bytes, body.buffer])
            assert isinstance(batch, Batch), "producers send nothing else"
            intake.add(batch)
            inserted += batch.rows if now >= begin else 0
        for block in intake.validate_held().blocks:
            block.append_to(ring)
        ring.commit()
    ring.close()
    return inserted / (time.monotonic() - begin)


def main() -> None:
    """Push numbered batches without end."""
    die_with_parent()
    address, rows, shape, dtype, *keys = sys.argv[1:]
    payload = Payload(int(rows), tuple(map(int, shape.split(","))), dtype)
    schema = payload.schema
    payloads = payloads_of(schema, payload.rows)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    shown = ClientKeys.read(Path(keys[0])) if keys else None
    push = samples_push(context, Address.parse(address), shown)
    push.setsockopt(zmq.SNDHWM, 1000)
    seq = 0
    while True:
        body = payloads[seq % len(payloads)]
        batch = Batch(_RUN, "m", 1, seq, 0, 1, 0, schema.hash, payload.rows, body)
        push.send_multipart(encode(batch), copy=False)
        seq += 1


if __name__ == "__main__":
    main()

"""A manager that makes up its batches: as fast as window and credit let it.

`python -m vedette_services.bench.producer ADDRESS ID ROWS [KEYS]`
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path

import numpy as np
import zmq

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.messages import Ack, Run
from vedette_protocol.schema import Schema
from vedette_protocol.window import Window
from vedette_services.addresses import Address
from vedette_services.keys import ClientKeys
from vedette_services.processes import die_with_parent
from vedette_services.sockets import control_sub, manager_subscriptions, samples_push, send_now

_WINDOW_BATCHES = 1024
_WINDOW_BYTES = 128 << 20
_PAYLOADS = 8
_POLL_MS = 5
_REPORT_EVERY_S = 0.5


def payloads_of(schema: Schema, rows: int) -> list[bytes]:
    """A few batches of noise that the schema accepts."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(_PAYLOADS):
        columns = {}
        for column in schema.columns:
            shape = (rows, *column.shape)
            if column.name == "n_steps":
                columns[column.name] = np.ones(shape, column.numpy_dtype)
            elif column.numpy_dtype.kind == "f":
                columns[column.name] = rng.random(shape, np.float32)
            else:
                columns[column.name] = rng.integers(0, 2, shape).astype(column.numpy_dtype)
        made.append(bytes(schema.pack(columns, rows)))
    return made


class Producer:
    """Sockets and a window, without actors."""

    def __init__(
        self, address: Address, manager: str, rows: int, keys: ClientKeys | None = None
    ) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._manager, self._rows = manager, rows
        self._incarnation = secrets.randbits(64)
        self._push = samples_push(context, address, keys)
        topics = manager_subscriptions(manager)
        self._control = control_sub(context, address, *topics, keys=keys)
        self._window: Window | None = None
        self._payloads: list[bytes] = []
        self._turn = 0
        self._report_at = 0.0

    def run(self) -> None:
        """Produce until somebody ends this process."""
        while True:
            now = time.monotonic()
            self._listen(now, 0 if self._produce(now) else _POLL_MS)

    def _listen(self, now: float, wait_ms: int) -> None:
        while self._control.poll(wait_ms):
            wait_ms = 0
            message = decode_control(self._control.recv_multipart()[1:])
            if isinstance(message, Run) and self._window is None:
                self._payloads = payloads_of(message.schema, self._rows)
                self._window = Window(
                    self._manager,
                    self._incarnation,
                    message.run_id,
                    message.schema.hash,
                    max_batches=_WINDOW_BATCHES,
                    max_bytes=_WINDOW_BYTES,
                )
            elif isinstance(message, Ack) and self._window is not None:
                self._window.on_ack(message, now)

    def _produce(self, now: float) -> bool:
        """Offer and send what fits; False where nothing does."""
        window = self._window
        if window is None:
            return False
        if now >= self._report_at:
            self._report_at = now + _REPORT_EVERY_S
            report = window.report(host="bench", state="running", actors=())
            self._push.send_multipart(encode(report))
        for _ in range(64):
            payload = self._payloads[self._turn % _PAYLOADS]
            if not window.has_room(len(payload)):
                break
            self._turn += 1
            window.offer(0, 1, 0, self._rows, payload)
        batches = window.take(now)
        for sent, batch in enumerate(batches):
            try:
                send_now(self._push, encode(batch))
            except zmq.Again:
                window.put_back(batches[sent:])
                return False
        return bool(batches)


def main() -> None:
    """Produce for the learner at the address given, as the manager given."""
    die_with_parent()
    address, manager, rows, *folder = sys.argv[1:]
    keys = ClientKeys.read(Path(folder[0])) if folder else None
    Producer(Address.parse(address), manager, int(rows), keys).run()


if __name__ == "__main__":
    main()

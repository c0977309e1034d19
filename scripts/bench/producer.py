"""Managers that send noise: as fast as window and credit allow, or at a rate.

`python -m bench.producer ADDRESS ID ROWS COUNT BATCHES_PER_S [KEYS]`, with `VEDETTE_BENCH_OUTBOX`
set to a folder and `VEDETTE_BENCH_SYNC_S` to seconds: with an outbox.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.column import Column, Columns
from vedette_protocol.frame_sharing import Sharing
from vedette_protocol.messages import Ack, Run
from vedette_protocol.schema import Schema
from vedette_protocol.send_window import Window
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.actors.outbox.outbox import Outbox
from vedette_services.actors.outbox.window import OutboxWindow
from vedette_services.host.processes import die_with_parent
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.net.sockets import control_sub, manager_subscriptions, samples_push, send_now

_WINDOW_BATCHES = 1024
_WINDOW_BYTES = 128 << 20
_PAYLOADS = 8
_POLL_MS = 5
_REPORT_EVERY_S = 0.5
_REPORT_UNANSWERED_S = 1.5  # as managers do: so reports do not pile up at a gateway that is behind


def payloads_of(schema: Schema, rows: int) -> list[bytes]:
    """Make a few batches of noise that the schema accepts."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(_PAYLOADS):
        columns = {column.name: _noise(column, rows, rng) for column in schema.columns}
        if schema.sharing is not None:
            columns |= _episode(schema.sharing, rows, rng)
        made.append(bytes(schema.pack(columns, rows)))
    return made


def _noise(column: Column, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    shape = (rows, *column.shape)
    if column.name == "n_steps":
        return np.ones(shape, column.numpy_dtype)
    if column.numpy_dtype.kind == "f":
        return rng.random(shape, np.float32)
    return rng.integers(0, 2, shape).astype(column.numpy_dtype)


def _episode(sharing: Sharing, rows: int, rng: np.random.Generator) -> Columns:
    """Make the frames of one episode: each row's stacks begin one frame after the row's before,
    and those of its next observation one frame after its own."""
    stack = sharing.places_per_row // len(sharing.pointing)
    first = np.arange(rows, dtype=np.uint32)
    oldest = first[:, np.newaxis] + np.arange(stack, dtype=np.uint32) if stack > 1 else first
    columns = {name: oldest + np.uint32(after) for after, name in enumerate(sharing.pointing)}
    entries = int(columns[sharing.pointing[-1]].max()) + 1
    return columns | {column.name: _noise(column, entries, rng) for column in sharing.columns}


class Producer:
    """Sockets and a window, without actors.

    Args:
        manager: its id.
        rows: of a batch.
        batches_per_s: batches that it sends; `math.inf`: as many as there is room for.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        manager: str,
        rows: int,
        batches_per_s: float,
        keys: ClientKeys | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self._manager = manager
        self._rows = rows
        self._batches_per_s = batches_per_s
        self._due = 0.0
        self._due_at = time.monotonic()
        self._incarnation = secrets.randbits(64)
        self._push = samples_push(context, address, keys)
        topics = manager_subscriptions(manager)
        self._control = control_sub(context, address, *topics, keys=keys)
        self._outbox = outbox
        self._window: Window | OutboxWindow | None = None
        self._payloads: list[bytes] = []
        self._turn = 0
        self._reported_at = self._acked_at = 0.0

    def turn(self, wait_ms: int = 0) -> None:
        """Send the batches that are due, and receive; wait at most so long if none is."""
        now = time.monotonic()
        self._listen(now, 0 if self._produce(now) else wait_ms)

    @property
    def due_in_s(self) -> float:
        """Seconds until its next batch; one for which there is no room waits for acks."""
        return _POLL_MS / 1e3 if self._due >= 1 else (1.0 - self._due) / self._batches_per_s

    def _listen(self, now: float, wait_ms: int) -> None:
        while self._control.poll(wait_ms):
            wait_ms = 0
            message = decode_control(self._control.recv_multipart()[1:])
            if isinstance(message, Run) and self._window is None:
                self._payloads = payloads_of(message.schema, self._rows)
                self._window = self._make_window(message)
            elif isinstance(message, Ack) and self._window is not None:
                if isinstance(self._window, Window):
                    self._window.on_ack(message, now)
                else:
                    self._window.on_ack(message, now, is_current=True)
                self._acked_at = now

    def _make_window(self, run: Run) -> Window | OutboxWindow:
        if self._outbox is not None:
            return self._outbox.begin(run, self._manager, self._incarnation, "block")
        return Window(
            self._manager,
            self._incarnation,
            run.run_id,
            run.schema.hash,
            max_batches=_WINDOW_BATCHES,
            max_bytes=_WINDOW_BYTES,
        )

    def _produce(self, now: float) -> bool:
        """Send the batches that fit; False if there are none."""
        window = self._window
        if window is None:
            return False
        answered = self._acked_at > self._reported_at
        if now >= self._reported_at + (_REPORT_EVERY_S if answered else _REPORT_UNANSWERED_S):
            self._reported_at = now
            report = window.make_report(host="bench", state="running", actors=())
            self._push.send_multipart(encode(report))
        self._due = min(64.0, self._due + (now - self._due_at) * self._batches_per_s)
        self._due_at = now
        while self._due >= 1:
            payload = self._payloads[self._turn % _PAYLOADS]
            if not window.has_room(len(payload)) or window.batches >= _WINDOW_BATCHES:
                break
            self._turn += 1
            self._due -= 1
            window.add_batch(0, 1, 0, self._rows, payload)
        batches = window.next_batches(now)
        for sent, batch in enumerate(batches):
            try:
                send_now(self._push, encode(batch))
            except zmq.Again:
                window.put_back(batches[sent:])
                return False
        return bool(batches)


def _open_outbox(manager: str) -> Outbox | None:
    """Open the outbox of a producer, which is one manager, and sync it in a thread."""
    folder = os.environ.get("VEDETTE_BENCH_OUTBOX")
    if not folder:
        return None
    files = OutboxFiles(Path(folder) / manager, max_bytes=4 << 30)
    interval_s = float(os.environ["VEDETTE_BENCH_SYNC_S"])

    def sync_often() -> None:
        while True:
            time.sleep(interval_s)
            files.sync()

    threading.Thread(target=sync_often, daemon=True).start()
    return Outbox(files)


def main() -> None:
    """Send to the learner at the address given until this process is ended.

    It is one manager of the id given, or several whose ids begin with it.
    """
    die_with_parent()
    address, manager, rows, count, rate, *folder = sys.argv[1:]
    keys = ClientKeys.read(Path(folder[0])) if folder else None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4 * int(count) + 16)
    names = [manager] if int(count) == 1 else [f"{manager}-{n}" for n in range(int(count))]
    outbox = _open_outbox(manager)
    producers = [
        Producer(context, Address.parse(address), name, int(rows), float(rate), keys, outbox)
        for name in names
    ]
    while math.isinf(float(rate)):
        producers[0].turn(_POLL_MS)
    while True:
        # Each batch at its time, however few managers there are: bursts would cost the gateway less
        for producer in producers:
            producer.turn()
        time.sleep(min(_POLL_MS / 1e3, *(producer.due_in_s for producer in producers)))


if __name__ == "__main__":
    main()

"""A small client of the wire that is right, unless it is told to be wrong in one way.

    python wire_client.py HOST:PORT KEYS [FAULT]

Its rows are drawn from the schema's types, but for its actions.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_protocol.codec import decode_control, decode_model, encode
from vedette_protocol.errors import AckError, ProtocolError
from vedette_protocol.messages import FEATURES, Ack, Batch, Refusal, Report, Run, Stop
from vedette_protocol.model import CompleteModel, ModelAssembler, unpack_model
from vedette_protocol.schema import Schema
from vedette_protocol.send_window import Window
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.core.columns import select_part
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import environment_spaces
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import EVENTS
from vedette_services.net.keys import ClientKeys

ID = "t-1"
ROWS = 8


class Client:
    def __init__(self, address: Address, keys: ClientKeys, fault: str) -> None:
        self.address = address
        self.fault = fault
        self.keys: ClientKeys | None = keys
        self.context: Any = zmq.Context()
        self.run: Run | None = None
        self.window: Window | None = None
        self.model = (0, 0)
        self.policy: Any = None
        self.complete: CompleteModel | None = None
        self.leaving = False
        self.produce_at = 0.0
        self.open()

    def open(self) -> None:
        subscriptions = sockets.manager_subscriptions(ID)
        self.samples = sockets.samples_push(self.context, self.address, self.keys, EVENTS)
        self.monitor = self.samples.get_monitor_socket()
        to = self.context, self.address
        self.control = sockets.control_sub(*to, *subscriptions, keys=self.keys)
        self.models = sockets.models_sub(*to, *subscriptions, keys=self.keys)
        self.assembler = ModelAssembler()
        self.up = False
        self.resend = True
        self.report_at = 0.0
        self.heard_at = time.monotonic()

    def close(self, linger: int = 0) -> None:
        self.samples.disable_monitor()
        for socket in (self.monitor, self.control, self.models):
            socket.close(linger=0)
        self.samples.close(linger=linger)

    def play(self) -> int:
        while True:
            status = self.turn(time.monotonic())
            if status is not None:
                self.close(1000)
                self.context.term()
                return status
            time.sleep(0.002)

    def turn(self, now: float) -> int | None:
        if now - self.heard_at > 3.2 and self.fault != "silence":
            self.close()
            if self.fault == "in plain" and self.keys is not None:
                self.keys = None
            self.open()
        while self.monitor.poll(0):
            self.on_event(recv_monitor_message(self.monitor)["event"])
        while self.control.poll(0):
            self.heard_at = now
            status = self.on_control(self.control.recv_multipart()[1:], now)
            if status is not None:
                return status
        while self.models.poll(0):
            self.on_chunk(self.models.recv_multipart()[1:])
        if self.window is None:
            return 0 if self.leaving else None
        self.produce(now)
        if self.up:
            self.send(now)
        if self.leaving and (not self.window.batches or self.fault == "end"):
            self.window.drop_unsent()
            self.report("gone")
            return 0
        return None

    def on_event(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.up = True
            self.resend = True
            self.report_at = 0.0
            if self.fault == "new incarnation" and self.run is not None:
                self.join(self.run)
            if self.fault == "eager":
                self.resend = False
                if self.window is not None:
                    self.window.resend_all()
        elif event == zmq.EVENT_DISCONNECTED:
            self.up = False

    def on_control(self, frames: list[bytes], now: float) -> int | None:
        try:
            message = decode_control(frames)
        except ProtocolError:
            return None
        if isinstance(message, Run):
            if {*message.features} - {*FEATURES} and self.fault == "unknown keys":
                sys.exit("what is this?")
            if self.run is None or message.run_id != self.run.run_id:
                self.join(message)
            elif message.epoch > self.run.epoch and self.fault == "forgets":
                self.forget()
            self.run = message
            self.take_model()  # it may have come before
        elif isinstance(message, Ack) and self.window is not None:
            self.on_ack(message, now)
        elif isinstance(message, Stop) and self.is_of_our_start(message):
            self.leaving = message.final or self.fault == "stop"
            if self.fault == "stop":
                return 0
        elif isinstance(message, Refusal) and self.fault != "refusal":
            return 3
        return None

    def is_of_our_start(self, stop: Stop) -> bool:
        run = self.run
        if run is None or self.fault == "earlier stop":
            return True
        return stop.run_id == run.run_id and stop.epoch >= run.epoch

    def join(self, run: Run) -> None:
        kind = agent_kind(str(run.agent["name"]))
        spaces = environment_spaces(EnvConfig.model_validate(dict(run.env)))
        agent = kind.config.model_validate(dict(run.agent))
        self.policy = kind.build_policy(agent, spaces, ranks=np.zeros(1), seed=0)
        self.model = (0, 0)
        incarnation = self.window.incarnation if self.window else secrets.randbits(62)
        if self.window is not None and self.fault != "same incarnation":
            incarnation += 1
        limits: Any = {"max_batches": 64, "max_bytes": 1 << 24}
        self.window = Window(ID, incarnation, run.run_id, run.schema.hash, **limits)
        self.report_at = 0.0

    def forget(self) -> None:
        """Everything sent is taken for settled."""
        assert self.window is not None
        self.window._free(list(self.window._numbered))

    def on_ack(self, ack: Ack, now: float) -> None:
        window = self.window
        assert window is not None
        if self.fault == "foreign ack":
            ack = replace(ack, incarnation=window.incarnation, run_id=window.run_id, epoch=99)
        if self.fault == "wrong ack" and ack.beyond > window.sequenced:
            self.forget()
        if self.fault == "older ack" and ack.contiguous < window.base:
            window.resend_all()
        try:
            window.on_ack(ack, now)
        except AckError:
            return
        if self.fault == "older ack":
            window._sent.limit = ack.limit
        if self.resend and ack.incarnation == window.incarnation:
            self.resend = False
            window.resend_all()

    def on_chunk(self, frames: list[bytes]) -> None:
        try:
            chunk = decode_model(frames)
            if self.fault == "any model":
                self.model = chunk.epoch, chunk.version
            self.complete = self.assembler.add_chunk(chunk) or self.complete
        except ProtocolError:
            return
        self.take_model()

    def take_model(self) -> None:
        complete = self.complete
        run = self.run
        if complete is None or run is None or complete.spec != run.model.hash:
            return
        try:
            arrays = unpack_model(complete.body, run.model)
        except ProtocolError:
            return
        if self.fault == "old model" and self.model != (0, 0):
            return
        if (complete.epoch, complete.version) >= self.model:
            self.model = complete.epoch, complete.version
            self.policy.sync_model(ModelInfo(*arrays))

    def produce(self, now: float) -> None:
        window = self.window
        run = self.run
        assert window is not None
        assert run is not None
        may = self.model != (0, 0) and not self.leaving
        if may and now >= self.produce_at and window.unsent < 2:
            self.produce_at = now + 0.02
            payload = drawn(run.schema, self.act, nan=self.fault == "nan")
            window.add_batch(0, *self.model, ROWS, payload, ROWS)

    def act(self, obs: Any) -> Any:
        if self.fault == "always left":
            return np.zeros(ROWS, np.int64)
        return self.policy.act(obs, explore=False)

    def send(self, now: float) -> None:
        window = self.window
        assert window is not None
        if self.fault not in ("mute", "no report"):
            self.report("draining" if self.leaving else "running")
        elif self.fault == "no report" and self.report_at == 0.0:
            self.report_at = now + 1.0
            self.resend = False
            window._sent.limit = 1
        if self.fault == "no credit":
            window._sent.limit = 1 << 30
        if self.resend:
            return
        if self.fault == "impatient":
            window._sent._acked_at = now
            window.resend_stalled(now, 2.0)
        elif self.fault != "never again":
            window.resend_stalled(now)
        for batch in window.next_batches(now):
            if not self.push(self.spoilt(batch)):
                window.put_back([batch])

    def spoilt(self, batch: Batch) -> Batch:
        assert self.run is not None
        if self.fault == "other rows":
            return batch._replace(payload=drawn(self.run.schema, self.act))
        if self.fault == "gap" and batch.seq >= 3:
            return batch._replace(seq=batch.seq + 1)
        if self.fault == "base":
            return batch._replace(base=batch.seq)
        return batch

    def report(self, state: Any) -> None:
        now = time.monotonic()
        if now < self.report_at and state != "gone":
            return
        self.report_at = now + (5.0 if self.fault == "rare reports" else 0.5)
        assert self.window is not None
        report = self.window.make_report("here", state)
        if self.fault == "limit":
            report = replace(report, limit=report.limit + 1)
        self.push(report)

    def push(self, message: Batch | Report) -> bool:
        try:
            sockets.send_now(self.samples, encode(message))
        except zmq.Again:
            return False
        return True


def drawn(schema: Schema, act: Callable[[Any], Any], *, nan: bool = False) -> bytes:
    """Rows of random values within the schema's bounds, and the actions for them."""
    rng = np.random.default_rng()
    columns = {}
    for column in schema.columns:
        shape = (ROWS, *column.shape)
        kind = column.numpy_dtype.kind
        low, high = column.low or 0, 1 if column.high is None else column.high
        values = rng.normal(size=shape) if kind == "f" else rng.integers(low, high + 1, shape)
        columns[column.name] = values.astype(column.numpy_dtype)
    columns["action"] = act(select_part(columns, "obs"))
    if nan:
        columns["reward"][0] = np.nan
    return bytes(schema.pack(columns, ROWS))


if __name__ == "__main__":
    wrong = sys.argv[3] if len(sys.argv) > 3 else ""
    own = ClientKeys.read(Path(sys.argv[2]))
    sys.exit(Client(Address.parse(sys.argv[1]), own, wrong).play())

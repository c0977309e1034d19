"""A learner's sockets and ledger without the rest, which a client in another language plays for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import zmq
from foreign_run import CARTPOLE, make_run

from vedette_protocol import topics
from vedette_protocol.codec import decode_up, encode
from vedette_protocol.messages import Ack, Batch, Report, Run, Stop
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.schema import Schema
from vedette_rl.core.learning import ModelInfo

Kept = dict[int, tuple[int, bytes]]
"""Rows and payload of the batches that a learner committed, by number."""


class ScriptedLearner:
    """A learner's sockets and ledger; it grants credit and keeps rows by sequence number."""

    def __init__(self, port: int, run: Run, model: ModelInfo, kept: Kept) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.samples = self._context.socket(zmq.PULL)
        self.control, self.models = (self._context.socket(zmq.XPUB) for _ in range(2))
        for offset, socket in enumerate((self.samples, self.control, self.models)):
            socket.setsockopt(zmq.LINGER, 0)
            if offset:
                socket.setsockopt(zmq.XPUB_VERBOSE, 1)
            socket.bind(f"tcp://127.0.0.1:{port + offset}")
        self.run = run
        self.model = model
        self.kept = kept
        self.report: Report | None = None
        self.incarnations: set[int] = set()
        self.former: set[int] = set()  # incarnations that may still send columns of before
        self.again = 0
        self.settings: dict[str, Any] = {}  # more of the run's payload
        self.asks: dict[str, Any] = {}  # more of each ack
        self.reported: dict[str, Any] = {}  # the last report's payload

    def close(self) -> None:
        self._context.destroy(linger=0)

    def serve(self, batches: int, *, limit: int, acks: bool = True, stop: bool = False) -> bool:
        """Until so many batches are kept, or the client is gone; False: neither within 20 s."""
        poller = zmq.Poller()
        for socket in (self.samples, self.control, self.models):
            poller.register(socket, zmq.POLLIN)
        for _ in range(4000):
            ready = dict(poller.poll(5))
            if self.control in ready:
                topic = self.control.recv()[1:]
                if topic.startswith(b"m/"):
                    header, payload = encode(self.run)
                    whole = {**msgpack.unpackb(payload), **self.settings}
                    self.control.send_multipart([topic, header, msgpack.packb(whole)])
            if self.models in ready:
                self._send_model(self.models.recv()[1:])
            if self.samples in ready:
                self._receive()
            if acks and self.report is not None:
                self._acknowledge(limit)
            if stop:
                over = Stop("run-1", self.run.epoch, "test", final=True)
                self.control.send_multipart([topics.ALL, *encode(over)])
                if self.report is not None and self.report.state == "gone":
                    return True
            elif len(self.kept) >= batches:
                return True
        return False

    def until(self, condition: Callable[[], bool], *, limit: int) -> bool:
        """Serve until something holds; False: it does not within 20 s."""
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:
            self.serve(0, limit=limit)
        return condition()

    def publish(self, model: ModelInfo) -> None:
        """Send a newer model to all."""
        self.model = model
        self._send(topics.ALL)

    def _send_model(self, topic: bytes) -> None:
        if topic.startswith(b"m/"):
            self._send(topic)

    def _send(self, topic: bytes) -> None:
        body = pack_model(self.model.version, self.model.arrays, self.run.model)
        schema = self.run.model.hash
        for chunk in split_into_chunks("run-1", self.run.epoch, schema, body):
            self.models.send_multipart([topic, *encode(chunk)])

    def _receive(self) -> None:
        frames = [bytes(frame) for frame in self.samples.recv_multipart()]
        message = decode_up(frames)
        if isinstance(message, Report):
            self.reported = msgpack.unpackb(frames[1])
            self.report = message
            self.incarnations.add(message.incarnation)
        elif isinstance(message, Batch):
            if message.incarnation in self.former:
                return  # sent before the run was announced
            assert message.schema == self.run.schema.hash
            self.again += message.seq in self.kept
            batch = message.rows, bytes(message.payload)
            assert self.kept.setdefault(message.seq, batch) == batch, "a number means one batch"

    def _acknowledge(self, limit: int) -> None:
        assert self.report is not None
        first = next(n for n in range(len(self.kept) + 1) if n not in self.kept)
        extras = sum(1 << seq - first for seq in self.kept if seq > first)
        ack = Ack(
            "run-1",
            self.run.epoch,
            self.run.learner,
            "c-1",
            self.report.incarnation,
            first,
            extras,
            0,
            0,
            limit,
            1,
            0,
        )
        header = msgpack.packb({**msgpack.unpackb(encode(ack)[0]), **self.asks})
        self.control.send_multipart([topics.manager_topic("c-1"), header])


def assert_every_row_is_delivered_once(program: Path, port: int) -> None:
    """Play CartPole for a learner that loses acks, is killed, commits less than it read, ends."""
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    kept: Kept = {}
    learner = ScriptedLearner(port, run, model, kept)
    client = subprocess.Popen(
        [program, "127.0.0.1", str(port), "c-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert learner.serve(20, limit=40)
        assert learner.serve(30, limit=40, acks=False)  # committed, and never acknowledged
        learner.close()
        del kept[28]  # a batch that the learner received and did not commit
        again = Run(**{f: getattr(run, f) for f in Run.__slots__} | {"epoch": 2, "learner": 12})
        learner = ScriptedLearner(port, again, model, kept)
        assert learner.serve(40, limit=40)
        assert max(kept) == 39, "nothing above the limit"
        assert learner.serve(60, limit=60)
        assert learner.serve(0, limit=10_000, stop=True)
        out, errors = client.communicate(timeout=20)
        assert client.returncode == 0, errors
        assert len(learner.incarnations) == 1
        assert sorted(kept) == list(range(len(kept)))
        report = learner.report
        assert report is not None
        rows = sum(check_rows(run.schema, *kept[seq]) for seq in kept)
        assert (report.produced, report.dropped, report.window_rows) == (rows, 0, 0)
        assert b"all settled" in out
    finally:
        client.kill()
        client.communicate()
        learner.close()


def check_rows(schema: Schema, rows: int, payload: bytes) -> int:
    """The number of a batch's rows, whose values are those of the schema and of CartPole."""
    columns = schema.views(payload, rows)
    schema.check_values(columns)
    assert (columns["reward"] == 1.0).all()
    assert (columns["n_steps"] == 1).all()
    return rows

"""A real gateway process with nothing that learns behind it, and an honest manager of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from daemons import START_S, environment, free_address
from starts import spec_of  # of tests/support

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.messages import Ack, Batch, ControlMessage, Refusal, Report, Run
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import column_bounds, transition_dtype
from vedette_services.config.loading import load_config
from vedette_services.host.processes import WakeupEvent
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.directory import RunDirectory
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.status.client import StatusClient
from vedette_services.status.records import StatusRecordWriter, TrainerStatus

N_BUFFER = 20
SETTINGS = [
    f"actors.n_buffer={N_BUFFER}",
    "replay.capacity=5000",
    "learner.warmup_period=100",
    "agent.batch_size=32",
    "replay.samples_per_insert=0",  # nothing is drawn here
]
MODEL = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}


class GatewayProcess:
    """The gateway on a run of CartPole, as the supervisor starts it. As a context, it is ended.

    Args:
        keys: the learner's folder; `client` of it asks for the status.
        model: its arrays.
        settings: of the run, besides those that make it small.
        address: where it listens, if not on three free ports of loopback.
    """

    def __init__(
        self,
        root: Path,
        keys: Path | None = None,
        model: dict[str, Any] | None = None,
        settings: tuple[str, ...] = (),
        address: Address | None = None,
    ) -> None:
        self.address = address or free_address()
        self.config = load_config(
            None, env="CartPole-v1", agent="dqn", settings=[*SETTINGS, *settings]
        ).config
        self.run = RunDirectory(root / "run")
        self.run.make()
        self.run_id = self.run.ensure_id()
        self.keys = ClientKeys.read(keys) if keys else None
        spec = spec_of(self.run, self.run_id, self.config, self.address, keys)
        spec.write()
        self._model = MODEL if model is None else model
        self._wakeup = WakeupEvent()
        self._stop = WakeupEvent()
        self._models = ModelMapWriter(self.run.model_map, Schema.from_arrays(self._model))
        self.publish(0)
        self._board: StatusRecordWriter[TrainerStatus] = StatusRecordWriter(
            self.run.learning_map, TrainerStatus
        )
        self._board.write(TrainerStatus(epoch=1, phase="training"))
        spaces = probe_environment(self.config.env)
        self.schema = Schema.from_dtype(transition_dtype(spaces), column_bounds(spaces))
        self.log_file = root / "gateway.log"
        self.start()

    def start(self) -> None:
        events = (self._wakeup, self._stop)
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "vedette_services.learner.gateway.process"),
                    *(str(self.run.root), *(event.argument for event in events)),
                ],
                pass_fds=[one for event in events for one in event.descriptors],
                env=environment(""),
                stdout=out,
                stderr=out,
            )

    def publish(self, version: int) -> None:
        """Another version of the model, as the trainer would."""
        self._models.write(1, ModelInfo(version, self._model))
        self._wakeup.set()

    def stop(self) -> int:
        """As the supervisor stops it; its exit status."""
        self._stop.set()
        return self.process.wait(START_S)

    def finish(self, reason: str) -> None:
        """The trainer is done."""
        self._board.write(TrainerStatus(epoch=1, phase="done", exit_reason=reason))

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def status(self, timeout_s: float = START_S) -> dict[str, Any]:
        with StatusClient(self.address, self.keys) as asker:
            found = asker.ask(timeout_s)
        assert found is not None, self.log
        return found.as_dict()

    def resident_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def alive(self) -> bool:
        return self.process.poll() is None

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self.alive():
            self.process.kill()
        self.process.wait(10)


class HonestManager:
    """Sends sound batches one after the other and hears the learner.

    ::

        honest = HonestManager(gateway)
        honest.send_some(10)      # ... and waits until they are acknowledged
    """

    def __init__(
        self,
        gateway: GatewayProcess,
        manager: str = "honest",
        keys: ClientKeys | None = None,
        to: Address | None = None,
    ) -> None:
        self.gateway = gateway
        self.manager = manager
        self.incarnation = int.from_bytes(os.urandom(7))
        self.sent = 0
        self.acks: list[Ack] = []
        self.refusals: list[Refusal] = []
        self.runs: list[Run] = []
        keys = keys or gateway.keys
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.samples = sockets.samples_push(self._context, to or gateway.address, keys)
        topics = sockets.manager_subscriptions(manager)
        address = to or gateway.address
        self.control = sockets.control_sub(self._context, address, *topics, keys=keys)

    def batch(self, **changes: object) -> Batch:
        """The next sound batch, with these fields changed."""
        rows = N_BUFFER
        columns = {
            "obs": np.full((rows, 4), self.sent, np.float32),
            "action": np.zeros(rows, np.int64),
            "reward": np.ones(rows, np.float32),
            "next_obs": np.zeros((rows, 4), np.float32),
            "terminated": np.zeros(rows, np.bool_),
            "truncated": np.zeros(rows, np.bool_),
            "n_steps": np.ones(rows, np.uint8),
        }
        batch = Batch(
            run_id=self.gateway.run_id,
            manager=self.manager,
            incarnation=self.incarnation,
            seq=self.sent,
            actor=0,
            epoch=1,
            version=0,
            schema=self.gateway.schema.hash,
            rows=rows,
            payload=bytes(self.gateway.schema.pack(columns, rows)),
        )
        return batch._replace(**changes)

    def report(self, **changes: object) -> Report:
        fields: dict[str, Any] = {
            "manager": self.manager,
            "incarnation": self.incarnation,
            "host": "test",
            "state": "running",
            "run_id": self.gateway.run_id,
            "produced": self.sent * N_BUFFER,
            "dropped": 0,
            "window_batches": 0,
            "window_rows": 0,
            "window_bytes": 0,
            "sequenced": self.sent,
        }
        return Report(**{**fields, **changes})

    def push(self, message: Batch | Report) -> None:
        self.samples.send_multipart(encode(message))

    def send_some(self, batches: int, timeout_s: float = START_S) -> None:
        """Send so many batches, again and again until all are settled, and fail if they are not."""
        first = self.sent
        self.sent = self.sent + batches
        deadline = time.monotonic() + timeout_s
        while self.settled < self.sent:
            told = f"{self.settled} of {self.sent} settled\n{self.gateway.log}"
            assert self.gateway.process.poll() is None, f"{self.gateway.process.poll()}, {told}"
            assert time.monotonic() < deadline, told
            begin = max(first, self.settled)
            try:
                report = self.report(limit=self.limit)
                self.samples.send_multipart(encode(report), zmq.NOBLOCK)
                self.hear_until(lambda: self.limit > begin, 1.0)  # noqa: B023 - called at once
                for seq in range(begin, min(self.sent, self.limit)):
                    self.samples.send_multipart(encode(self.batch(seq=seq)), zmq.NOBLOCK)
            except zmq.Again:  # not connected yet
                self.hear_until(lambda: False, 0.05)
                continue
            self.hear_until(lambda: self.settled >= self.sent, 1.0)
        self.push(self.report())

    @property
    def settled(self) -> int:
        own = [a.contiguous for a in self.acks if a.incarnation == self.incarnation]
        return max(own, default=0)

    @property
    def limit(self) -> int:
        return max((a.limit for a in self.acks if a.incarnation == self.incarnation), default=0)

    def hear_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Take control messages until something holds; False if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            if self.control.poll(20):
                self._hear(decode_control(self.control.recv_multipart()[1:]))
        return True

    def _hear(self, message: ControlMessage) -> None:
        match message:
            case Ack():
                self.acks.append(message)
            case Refusal():
                self.refusals.append(message)
            case Run():
                self.runs.append(message)
            case _:
                pass

    def close(self) -> None:
        self.samples.close(linger=0)
        self.control.close(linger=0)
        self._context.term()

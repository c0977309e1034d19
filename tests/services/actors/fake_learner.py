"""A learner of the tests: the same sockets and the same ledger, and nothing that learns."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
import zmq

from vedette.local.daemons import free_port
from vedette_protocol import topics
from vedette_protocol.codec import decode_up, encode
from vedette_protocol.column import Columns
from vedette_protocol.ledger import Ledger
from vedette_protocol.messages import Batch, Message, Report, Run, Stop
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.spaces import Spaces, action_bounds, transition_dtype
from vedette_services.config.parts import ActorsConfig
from vedette_services.net import sockets
from vedette_services.net.addresses import Address

T = TypeVar("T")


def wait_for(what: Callable[[], T | None]) -> T:
    """Poll until `what` returns something that is true."""
    deadline = time.monotonic() + 60.0
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
    return found


def free_address() -> Address:
    """Three free ports in a row on loopback, below those that the system gives out."""
    return Address("127.0.0.1", free_port())


def spaces_of(env: dict[str, object]) -> Spaces:
    """The spaces of an environment that the tests play."""
    from vedette_rl.envs.make import probe_environment

    return probe_environment(EnvConfig.model_validate(env))


def a_run(
    env: dict[str, object] | None = None,
    *,
    epoch: int = 1,
    run_id: str = "run",
    spaces_from: dict[str, object] | None = None,
    **actors: object,
) -> Run:
    """A run of DQN, on CartPole if nothing else is said, with the model of its agent."""
    env = env or {"id": "CartPole-v1"}
    agent = {"name": "dqn", "hidden_sizes": [8]}
    spaces = spaces_of(spaces_from or env)
    model = first_model(agent, spaces)
    return Run(
        run_id=run_id,
        epoch=epoch,
        learner=secrets.randbits(63),
        schema=Schema.from_dtype(transition_dtype(spaces), action_bounds(spaces)),
        model=Schema.from_arrays(model),
        env=env,
        agent=agent,
        actors=ActorsConfig.model_validate(
            {"envs_per_actor": 2, "n_buffer": 20, **actors}
        ).model_dump(mode="json"),
        seed=3,
        batch_rows=1000,
        batch_env_steps=10_000,
    )


def first_model(agent: dict[str, object], spaces: Spaces) -> Columns:
    """The arrays of an agent that has learnt nothing."""
    kind = agent_kind(str(agent["name"]))
    config = kind.config.model_validate(agent)
    built = kind.build_agent(config, spaces, device="cpu", seed=0)
    return {name: np.asarray(array) for name, array in built.model_info().arrays.items()}


def a_model(run: Run) -> Columns:
    """Small numbers in the run's model's arrays."""
    rng = np.random.default_rng(0)
    return {
        column.name: rng.normal(0, 0.1, column.shape).astype(column.numpy_dtype)
        for column in run.model.columns
    }


class FakeLearner:
    """Binds, admits managers, takes their batches, acknowledges.

    ::

        learner = FakeLearner(address, run)
        learner.until(lambda: learner.rows() > 1000, timeout_s=60)
        learner.close()

    Args:
        ledger: of the learner before this one, to go on with.
        credit: batches that may be outstanding.
    """

    open: ClassVar[set[FakeLearner]] = set()
    """Those that a test has not closed: a context with sockets blocks whoever collects it."""

    def __init__(
        self, address: Address, run: Run, *, ledger: Ledger | None = None, credit: int = 64
    ) -> None:
        self.address = address
        self.run = run
        self.credit = credit
        self.ledger = ledger or Ledger(run.run_id)
        self.batches: list[Batch] = []
        self.reports: dict[str, Report] = {}
        self.states: list[str] = []
        self.version = 0
        self.asks = 0
        """Number of the evaluation that is wanted; 0: none."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._samples = sockets.samples_pull(self._context, address)
        self._control = sockets.control_xpub(self._context, address)
        self._models = sockets.models_xpub(self._context, address)
        self.open.add(self)
        self._ack_at = 0.0
        self._body = pack_model(0, a_model(run), run.model)

    # What a test looks at

    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def column(self, name: str) -> np.ndarray:
        """One column of everything inserted."""
        parts = [self.run.schema.views(b.payload, b.rows)[name] for b in self.batches]
        return np.concatenate(parts)

    def report(self) -> Report:
        """The last report of the only manager."""
        (report,) = self.reports.values()
        return report

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Serve until something holds, or fail."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s; {self.reports}"
            self.turn()

    def serve(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.turn()

    # What it does

    def turn(self) -> None:
        """One round over the sockets."""
        if self._samples.poll(5):
            self._on_samples(self._samples.recv_multipart())
        for joined, answer in (
            (self._control, lambda topic: self._send(self._control, topic, self.run)),
            (self._models, lambda topic: self.publish(topic)),
        ):
            while joined.poll(0):
                event = topics.parse_subscription(joined.recv())
                if event.subscribed and event.audience == "manager":
                    answer(event.topic)
        now = time.monotonic()
        if now >= self._ack_at:
            self._ack_at = now + 0.02
            self._acknowledge()

    def publish(self, topic: bytes = topics.ALL, version: int | None = None) -> None:
        """Send the model out, as of `version` if one is given."""
        if version is not None:
            self.version = version
            self._body = version.to_bytes(8, "little") + self._body[8:]
        for chunk in split_into_chunks(
            self.run.run_id, self.run.epoch, self.run.model.hash, self._body
        ):
            self._send(self._models, topic, chunk)

    def stop(self, *, final: bool) -> None:
        stop = Stop(self.run.run_id, self.run.epoch, "test", final)
        self._send(self._control, topics.ALL, stop)

    def tell(self, message: Message) -> None:
        """Send something to everybody on the control channel."""
        self._send(self._control, topics.ALL, message)

    def say_raw(self, channel: str, frames: list[bytes]) -> None:
        """Send frames, whatever they are, on "control" or "models"."""
        socket = self._control if channel == "control" else self._models
        socket.send_multipart(frames)

    def close(self) -> None:
        """Vanish, with everything that was not yet read."""
        self._context.destroy(linger=0)
        self.open.discard(self)

    def _send(self, socket: zmq.Socket[bytes], topic: bytes, message: Message) -> None:
        socket.send_multipart([topic, *encode(message)])

    def _on_samples(self, frames: list[bytes]) -> None:
        message = decode_up(frames)
        now = time.monotonic()
        if isinstance(message, Report):
            self.reports[message.manager] = message
            self.states.append(message.state)
            if message.run_id == self.run.run_id:
                self.ledger.on_report(message, now, claims_max=1024)
            return
        if message.run_id != self.run.run_id:
            return
        self.ledger.mark_alive(message.manager, message.incarnation, now)
        if self.ledger.record_batch(message, now) != "new":
            return
        columns = self.run.schema.views(message.payload, message.rows)
        self.run.schema.check_values(columns)
        self.batches.append(message)

    def _acknowledge(self) -> None:
        for manager, report in self.reports.items():
            if self.credit and self.ledger.has_account(manager, report.incarnation):
                self.ledger.account(manager, report.incarnation).grant(self.credit)
            ack = self.ledger.make_ack(
                manager,
                report.incarnation,
                epoch=self.run.epoch,
                learner=self.run.learner,
                version=self.version,
                first_actor=0,
                reason="" if self.credit else "the test says so",
            )
            wants = replace(ack, evaluate=self.asks)
            self._send(self._control, topics.manager_topic(manager), wants)

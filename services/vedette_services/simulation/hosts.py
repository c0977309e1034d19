"""The daemons without sockets and processes, on an in-memory network.

::

    clock = VirtualClock()
    network = MemoryNetwork(clock)
    gateway = GatewayHost(GatewayState(...), ring, network, rows_per_batch)
    managers = [ManagerHost(name, network, start_actor, seed=n) for n, name in enumerate(names)]
    gateway.publish(run, version, body)             # the model as it travels
    while ...: clock.advance(0.1)
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from vedette_protocol.codec import decode_control, decode_model, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Buffer, EvaluationReport, Run
from vedette_protocol.model import ModelAssembler
from vedette_rl.replay.rows import MemoryRing
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.connection import Identity
from vedette_services.actors.handover import AllowedRuns, FinishedBatch
from vedette_services.actors.instructions import (
    AllowRuns,
    Exit,
    InspectActor,
    Instruction,
    KillActor,
    PlayEvaluation,
    PrepareRun,
    RemakeModels,
    RemakeSockets,
    SendBatches,
    SendReport,
    StartActor,
    StopActors,
    StopEvaluation,
    StoreModel,
    WriteLog,
)
from vedette_services.actors.manager_state import ManagerState
from vedette_services.learner.gateway.actor_evaluations import CheckedEvaluation, PublishedModel
from vedette_services.learner.gateway.model_publisher import ModelPublisher, PackedModel
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.simulation.network import Channel, Frames, MemoryNetwork
from vedette_services.status.records import GatewayStatus

log = logging.getLogger("vedette.in_memory")

_GATEWAY_TICK_S = 0.2


class HostedActor(Protocol):
    """An actor of a `ManagerHost`; it calls `ManagerHost.offer` and `on_exited`."""

    def store(self, model: StoreModel) -> None:
        """Act on this model from now on."""
        ...

    def allow_runs(self, allowed: AllowedRuns) -> None:
        """Play so many runs on a model."""
        ...

    def stop(self) -> None:
        """Hand over all batches, then end."""
        ...

    def kill(self) -> None:
        """End at once."""
        ...


A = TypeVar("A", bound=HostedActor)


class ManagerHost(Generic[A]):
    """An actor manager: executes the instructions of a `ManagerState`.

    Args:
        name: the manager's id.
        start: makes an actor; None where it is not made now.
        seed: the seed of its incarnations and of its jitter.
        who: its host, and the learner's address, for its log.
        count, allow_import: arguments of `ManagerState`.
        tick_s: the time from one tick of the state to the next.
        evaluate: plays an evaluation, and calls `on_evaluation`; None: this host plays none.
    """

    def __init__(
        self,
        name: str,
        network: MemoryNetwork,
        start: Callable[[ManagerHost[A], StartActor], A | None],
        *,
        seed: int,
        who: tuple[str, str] = ("memory", "memory"),
        count: int | None = None,
        allow_import: Collection[str] = (),
        tick_s: float = 0.05,
        evaluate: Callable[[ManagerHost[A], PlayEvaluation], None] | None = None,
    ) -> None:
        rng = random.Random(seed)
        self.clock = network.clock
        self.name = name
        self.state = ManagerState(
            Identity(name, *who),
            count=count,
            allow_import=allow_import,
            incarnation=lambda: rng.getrandbits(64),
            jitter=rng.random,
            now=self.clock.now,
            evaluates=evaluate is not None,
        )
        self._evaluate = evaluate
        self.actors: dict[int, A] = {}
        self.exit: Exit | None = None
        self._network = network
        self._start = start
        self._tick_s = tick_s
        self._assembler = ModelAssembler()
        self._model: StoreModel | None = None
        self._allowed = AllowedRuns()
        self._open()
        self._tick()

    # From its actors

    def offer(self, index: int, run: Run, batch: FinishedBatch) -> bool:
        """Take a batch of an actor; False if the actor has to wait."""
        if not self.state.has_room_for(len(batch.payload)):
            return False
        self._execute_all(self.state.on_batch(index, run, batch, self.clock.now))
        return True

    def on_stats(self, index: int, stats: ActorStats) -> None:
        """Take the statistics of an actor."""
        self.state.on_stats(index, stats, self.clock.now)

    def on_exited(self, index: int, code: int = 0, cause: str = "") -> None:
        """Note that an actor has ended."""
        if self.actors.pop(index, None) is not None:
            self._execute_all(self.state.on_actor_exited(index, code, cause, "", self.clock.now))

    def on_evaluation(self, progress: EvaluationReport) -> None:
        """Take the progress of the evaluation."""
        self._execute_all(self.state.on_evaluation(progress, self.clock.now))

    # From its owner

    def report(self) -> None:
        """Send a report to the learner at once."""
        self._execute_all(self.state.send_report(self.clock.now))

    def leave(self, why: str) -> None:
        """Send all batches and end; then `exit` is set."""
        self._execute_all(self.state.leave(why, self.clock.now))

    def kill(self) -> None:
        """End at once, without a last report."""
        self.exit = self.exit or Exit(-9, "killed")
        self._network.close(self.name)
        for actor in list(self.actors.values()):
            actor.kill()
        self.actors.clear()

    # From the network

    def on_connected(self) -> None:
        self._execute_all(self.state.on_connected(self.clock.now))

    def on_disconnected(self) -> None:
        self.state.on_disconnected()

    def on_control(self, frames: Frames) -> None:
        now = self.clock.now
        try:
            message = decode_control(frames[1:])
        except ProtocolError as error:
            self._execute_all(self.state.on_invalid_message(error, now))
        else:
            self._execute_all(self.state.on_control(message, now))

    def on_model_chunk(self, frames: Frames) -> None:
        model = self._assembler.add_chunk(decode_model(frames[1:]))
        if model is not None:
            self._execute_all(self.state.on_model(model, self.clock.now))

    # Timers and instructions

    def _open(self) -> None:
        if self.exit is None:
            self.state.on_opened()
            self._network.open(self.name, self)

    def _tick(self) -> None:
        if self.exit is None:
            self.clock.call_at(self.clock.now + self._tick_s, self._tick)
            self._execute_all(self.state.on_tick(self.clock.now))

    def _execute_all(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        network = self._network
        now = self.clock.now
        match instruction:
            case SendReport(report):
                network.send_up(self.name, encode(report))
            case SendBatches(batches):
                for sent, batch in enumerate(batches):
                    if not network.send_up(self.name, encode(batch)):
                        self.state.on_unsent(batches[sent:])
                        return
            case WriteLog(level, text, index):
                number = logging.getLevelNamesMapping()[level.upper()]
                log.log(number, "%s", text, extra={"actor": index})
            case PrepareRun():
                self._model = None
                self._allowed = AllowedRuns()
            case StoreModel():
                self._model = instruction
                for actor in self.actors.values():
                    actor.store(instruction)
            case AllowRuns(allowed):
                self._allowed = allowed
                for actor in self.actors.values():
                    actor.allow_runs(allowed)
            case StartActor(index):
                started = self._start(self, instruction)
                if started is None:
                    why = f"actor {index} is not started"
                    self._execute_all(self.state.on_start_refused(index, why, now))
                    return
                self.actors[index] = started
                started.allow_runs(self._allowed)
                if self._model is not None:
                    started.store(self._model)
            case PlayEvaluation():
                assert self._evaluate is not None, "it plays evaluations"
                self._evaluate(self, instruction)
            case StopEvaluation():
                pass  # whatever it still reports is of no request
            case StopActors():
                for actor in list(self.actors.values()):
                    actor.stop()
            case InspectActor(index):
                self._execute_all(self.state.on_inspected(index, []))
            case KillActor(index):
                if index in self.actors:
                    self.actors[index].kill()
                    self.on_exited(index, -9)
            case RemakeSockets(delay_s):
                network.close(self.name)
                self._assembler.reset()
                self.clock.call_at(now + delay_s, self._open)
            case RemakeModels():
                self._assembler.reset()
                network.ask_for_models(self.name)
            case Exit():
                self.exit = self.exit or instruction


@dataclass(slots=True)
class GatewayHost:
    """The gateway: a `GatewayState`, its ring and its models.

    Args:
        state: made from the ring's stamp.
        rows_per_batch: the most rows of a batch.
        turn_s: the time from one turn to the next, if nothing comes in between.
        is_queue: rows without room are refused, and come again.
    """

    state: GatewayState
    ring: MemoryRing
    network: MemoryNetwork
    rows_per_batch: int
    turn_s: float = 0.02
    is_queue: bool = False
    commits: int = 0
    ended: bool = False
    evaluations: list[CheckedEvaluation] = field(default_factory=list)
    _publisher: ModelPublisher = field(default_factory=ModelPublisher)
    _held: int = 0  # batches since the last commit
    _turning: bool = False  # a turn is due at this moment
    _next_tick: float = 0.0

    def __post_init__(self) -> None:
        self.network.attach(self)
        self._turn_regularly()

    def publish(self, run: Run, version: int, body: Buffer) -> None:
        """Publish a newer model of the trainer.

        Args:
            run: the run, with the epoch of the model.
            body: packed by `vedette_protocol.model`.
        """
        for frames in self.state.on_model(run, version, self.network.clock.now):
            self.network.publish("control", frames)
        self._publisher.publish(PackedModel(run.run_id, run.epoch, run.model.hash, body))
        env_steps = self.state.ledger.env_steps
        self.state.evaluations.on_model(PublishedModel(run.epoch, version, env_steps, body))
        self._schedule_turn()

    def tick(self) -> None:
        """Mark silent managers as gone, and write due log lines."""
        now = self.network.clock.now
        self._next_tick = now + _GATEWAY_TICK_S
        self.state.tick(now)
        if (evaluated := self.state.evaluations.pop_finished()) is not None:
            self.evaluations.append(evaluated)
        for line in self.state.pop_log_lines(now):
            log.log(logging.getLevelNamesMapping()[line.level.upper()], "%s", line.text)

    def status(self) -> GatewayStatus:
        """Return the gateway's status record."""
        ring = self.ring
        return self.state.status(ring, ring.total_bytes, self.network.clock.now)

    def kill(self) -> None:
        """End at once."""
        self.ended = True
        self.network.detach()

    def follow_queue(self, place: QueuePlace) -> None:
        """Take over how far the trainer is in a queue; see `GatewayState.on_place`."""
        self.state.on_place(place)
        if place.kept is not None:
            self.ring.keep_from(place.kept)

    # From the network

    def on_samples(self, frames: Frames) -> None:
        if self.is_queue and not self._held:
            self.state.limit_room(self.ring.room)
        self.state.on_samples(frames, self.network.clock.now)
        self._held += 1
        if (self._held + 1) * self.rows_per_batch > self.ring.room:
            self._commit()  # never hold more than the ring has room for
        else:
            self._schedule_turn()

    def on_subscription(self, channel: Channel, event: bytes) -> None:
        if channel == "control":
            for frames in self.state.on_subscription(event, b"{}"):
                self.network.publish("control", frames)
        elif topic := self.state.on_model_subscription(event):
            self._publisher.on_subscribed(topic)
            self._schedule_turn()

    # Timers

    def _schedule_turn(self) -> None:
        """Schedule a turn now, behind the other calls of this moment."""
        if not self._turning:
            self._turning = True
            self.network.clock.call_at(self.network.clock.now, self._turn)

    def _turn_regularly(self) -> None:
        if not self.ended:
            clock = self.network.clock
            clock.call_at(clock.now + self.turn_s, self._turn_regularly)
            self._turn()

    def _turn(self) -> None:
        self._turning = False
        if self.ended:
            return
        now = self.network.clock.now
        state = self.state
        self._commit()
        while self._publisher.busy:
            for frames in self._publisher.next_messages():
                self.network.publish("models", frames)
        for frames in state.acks_due(now, self.ring.inserted):
            self.network.publish("control", frames)
        if now >= self._next_tick:
            self.tick()

    def _commit(self) -> None:
        for block in self.state.blocks(self.network.clock.now):
            block.append_to(self.ring)
        self._held = 0
        if self.state.dirty or self.ring.pending:
            self.ring.commit(self.state.stamp())
            self.commits += 1

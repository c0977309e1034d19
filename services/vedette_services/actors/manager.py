"""The actor manager daemon: sockets, processes and a clock around a `ManagerState`."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_protocol.codec import decode_control
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Ack, Batch, Buffer, EvaluationReport, Report, Run
from vedette_services.actors.actor_process import ActorProcesses
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
from vedette_services.actors.learner_lookup import LearnerLookup
from vedette_services.actors.manager_sockets import ManagerSockets
from vedette_services.actors.manager_state import ManagerState
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.actors.outbox.settings import OutboxSettings
from vedette_services.actors.outbox.syncing import synced_at_intervals
from vedette_services.errors import (
    FAILED,
    REFUSED,
    RUN_OVER,
    AddressError,
    HandoverError,
    RefusedError,
    RunOverError,
    ServicesError,
    StartRefusedError,
)
from vedette_services.host.logs import set_log_context
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.processes import PrivateDirectory, StopSignals
from vedette_services.host.stack_request import StackFrame
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import HandshakeMonitor
from vedette_services.net.keys import ClientKeys
from vedette_services.run.directory import host_for_manager_id
from vedette_services.run.learner_location import find_learner

log = logging.getLogger("vedette.actors")

_STATS_EVERY_S = 0.2
_MESSAGES_A_TURN = 256
_LAST_REPORT_MS = 1000  # for the report that says we are gone
_KILL_WAIT_S = 2.0
_HEALTH_EVERY_S = 10.0
_FIND_EVERY_S = 1.0  # while the file that names the learner is not there


class HandedOver(Protocol):
    """The manager's end of a handover."""

    @property
    def ended(self) -> bool: ...
    @property
    def ready_batches(self) -> int: ...
    @property
    def next_bytes(self) -> int: ...
    def fileno(self) -> int: ...
    def receive(self) -> FinishedBatch: ...
    def order_stop(self) -> None: ...
    def allow_runs(self, allowed: AllowedRuns) -> None: ...
    def discard(self) -> None: ...


class ManagedActor(Protocol):
    """An actor as its manager holds it: a process, or a part of a program that plays by itself."""

    @property
    def index(self) -> int: ...
    @property
    def run(self) -> Run: ...
    @property
    def handover(self) -> HandedOver: ...
    def poll(self) -> None: ...
    def stats(self) -> ActorStats | None: ...
    def inspect(self) -> list[StackFrame]: ...
    def kill(self) -> None: ...
    def exit_code(self) -> int | None: ...
    def wait(self, timeout_s: float) -> None: ...
    def read_exit_report(self) -> tuple[str, str]: ...
    def close(self) -> None: ...


A = TypeVar("A", bound=ManagedActor)


class ManagedEvaluation(Protocol):
    """Plays evaluations: a process, or a custom loop between its episodes."""

    def play(self, order: PlayEvaluation) -> None: ...
    def progress(self) -> EvaluationReport | None: ...
    def kill(self, wait_s: float) -> None: ...


class Actors(Protocol[A]):
    """Starts actors and gives them models: `ActorProcesses`, or `CustomLoop` without a process.

    Args:
        poll_ms: the manager looks so often, whatever happens.
    """

    @property
    def poll_ms(self) -> int: ...
    def pause(self) -> None: ...
    def prepare(self, run: Run) -> None: ...
    def store_model(self, epoch: int, version: int, body: Buffer, actors: Iterable[A]) -> None: ...
    def start(self, order: StartActor) -> A: ...
    def start_evaluation(self, run: Run) -> ManagedEvaluation | None: ...


class StopRequest(Protocol):
    """True once the manager is asked to stop; its descriptor is readable then."""

    def __bool__(self) -> bool: ...
    def fileno(self) -> int: ...


class Manager(Generic[A]):
    """Executes the instructions of its state.

    Args:
        find: gives the learner's address, asked whenever the sockets are made again.
        host: starts the actors.
        keys: ours and the learner's; None: neither encrypt nor authenticate.
        health_file: touched while the learner acknowledges us; None: none is.
        on_run: told the run that is played, and its epoch, with each message.
    """

    def __init__(
        self,
        find: Callable[[], Address],
        manager: str,
        state: ManagerState,
        host: Actors[A],
        keys: ClientKeys | None = None,
        health_file: Path | None = None,
        on_run: Callable[[str, int], None] = lambda run, epoch: None,
    ) -> None:
        self._lookup = LearnerLookup(find)
        self._manager = manager
        self._keys = keys
        self._health_file = health_file
        self._health_at = 0.0
        self._handshake: HandshakeMonitor | None = None
        self._lost = ""  # why the learner's address is not known
        self._state = state
        self._host = host
        self._context: sockets.Context = zmq.Context()
        self._manager_sockets: ManagerSockets | None = None
        self._open_at = 0.0  # when sockets that were closed are made again
        self._actors: dict[int, A] = {}
        self._allowed = AllowedRuns()
        self._evaluation: ManagedEvaluation | None = None
        self._stats_at = 0.0
        self._unsent_report: Report | None = None  # the last one, where the socket did not take it
        self._exit: Exit | None = None
        self._memory_kills = MemoryKills()
        self._on_run = on_run

    def run(self, signals: StopRequest) -> None:
        """Serve until the state says that it is over.

        Raises:
            RefusedError, ServicesError: it ends badly.
        """
        try:
            while self._exit is None:
                self._run_once(signals)
        finally:
            self._end()
        if self._exit.code:
            kind = RefusedError if self._exit.code == REFUSED else ServicesError
            raise kind(self._exit.reason)

    # One round

    def _run_once(self, signals: StopRequest) -> None:
        self._host.pause()
        ready = self._wait(signals)
        now = time.monotonic()
        if signals:
            self._execute_all(self._state.leave("asked to stop", now))
        if self._manager_sockets is None and now >= self._open_at:
            self._open_sockets(now)
        self._receive(ready, now)
        self._poll_actors(ready, now)
        self._poll_evaluation(now)
        self._execute_all(self._state.on_tick(now))

    def _open_sockets(self, now: float) -> None:
        try:
            address = self._lookup.poll()
        except RunOverError as error:
            self._open_at = now + _FIND_EVERY_S
            self._execute_all(self._state.on_run_over(error.reason, now))
            return
        except AddressError as error:
            if self._lost != str(error):
                log.warning("waiting for the learner's address: %s", error)
            self._lost = str(error)
            self._open_at = now + _FIND_EVERY_S
            self._state.on_unknown_address(error.why)
            return
        if address is None:
            return
        self._lost = ""
        self._handshake = HandshakeMonitor(address, self._keys)
        self._manager_sockets = ManagerSockets(
            self._context, address, self._manager, self._keys, self._state.other_ids
        )
        self._state.on_opened()

    def _wait(self, signals: StopRequest) -> set[Any]:
        poller = zmq.Poller()
        if not signals:
            poller.register(signals.fileno(), zmq.POLLIN)
        for actor in self._actors.values():
            if not actor.handover.ended:
                poller.register(actor.handover.fileno(), zmq.POLLIN)
        if self._manager_sockets is not None:
            poller.register(self._manager_sockets.control, zmq.POLLIN)
            poller.register(self._manager_sockets.monitor, zmq.POLLIN)
            poller.register(self._manager_sockets.models.fileno(), zmq.POLLIN)
        return {socket for socket, _ in poller.poll(self._host.poll_ms)}

    def _receive(self, ready: set[Any], now: float) -> None:
        """Handle all that has come in; instructions may close the sockets meanwhile."""
        if (opened := self._manager_sockets) is not None and opened.monitor in ready:
            self._poll_monitor(opened, now)
        if (opened := self._manager_sockets) is not None and opened.control in ready:
            self._receive_control(opened, now)
        if (opened := self._manager_sockets) is not None and opened.models.fileno() in ready:
            model = opened.models.pop_model()
            if model is not None:
                self._execute_all(self._state.on_model(model, now))

    def _poll_monitor(self, manager_sockets: ManagerSockets, now: float) -> None:
        while manager_sockets.monitor.poll(0):
            event = recv_monitor_message(manager_sockets.monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._execute_all(self._state.on_connected(now))
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._state.on_disconnected()
            assert self._handshake is not None, "made with the links"
            refused = self._handshake.on_event(event["event"], event["value"])
            if refused:
                self._execute_all(self._state.on_refused(refused))

    def _receive_control(self, manager_sockets: ManagerSockets, now: float) -> None:
        for _ in range(_MESSAGES_A_TURN):
            try:
                frames = manager_sockets.control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = decode_control(frames[1:])
            except ProtocolError as error:
                self._execute_all(self._state.on_invalid_message(error, now))
            else:
                self._lookup.on_answer()
                if isinstance(message, Ack):
                    self._touch_health_file(now)
                instructions = self._state.on_control(message, now)
                self._on_run(*self._state.current_run)
                self._execute_all(instructions)

    def _touch_health_file(self, now: float) -> None:
        """Show those who look at us from outside that the learner hears us."""
        if self._health_file is None or now < self._health_at:
            return
        self._health_at = now + _HEALTH_EVERY_S
        try:
            self._health_file.touch()
        except OSError as error:
            log.warning("--health-file %s: %s", self._health_file, error.strerror or error)

    # Actors

    def _poll_actors(self, ready: set[Any], now: float) -> None:
        poll_stats = now >= self._stats_at
        if poll_stats:
            self._stats_at = now + _STATS_EVERY_S
        for actor in list(self._actors.values()):
            code = actor.exit_code()
            if code is not None or actor.handover.fileno() in ready:
                actor.poll()
            self._take_batches(actor, now)
            stats = actor.stats() if poll_stats or code is not None else None
            if stats is not None:
                self._state.on_stats(actor.index, stats, now)
            if code is not None and actor.handover.ready_batches == 0:
                self._remove_ended_actor(actor, code, now)

    def _take_batches(self, actor: A, now: float) -> None:
        try:
            while actor.handover.ready_batches and self._state.has_room_for(
                actor.handover.next_bytes
            ):
                batch = actor.handover.receive()
                self._execute_all(self._state.on_batch(actor.index, actor.run, batch, now))
                # Where there is room for few, an actor that was served comes last: all play.
                self._actors[actor.index] = self._actors.pop(actor.index)
            if actor.handover.ready_batches:
                self._execute_all(self._state.on_no_room(actor.handover.next_bytes, now))
        except HandoverError as error:
            extra = {"actor": actor.index}
            log.error("actor %d is killed: %s", actor.index, error, extra=extra)
            actor.handover.discard()
            actor.kill()

    def _remove_ended_actor(self, actor: A, code: int, now: float) -> None:
        del self._actors[actor.index]
        cause, traceback = actor.read_exit_report()
        cause = cause or self._memory_kills.explain(code)
        actor.close()
        self._execute_all(self._state.on_actor_exited(actor.index, code, cause, traceback, now))

    # Evaluations

    def _poll_evaluation(self, now: float) -> None:
        if self._evaluation is None or (progress := self._evaluation.progress()) is None:
            return
        if progress.failed:
            self._stop_evaluation()
        self._execute_all(self._state.on_evaluation(progress, now))

    def _play_evaluation(self, order: PlayEvaluation, run: Run) -> None:
        try:
            self._evaluation = self._evaluation or self._host.start_evaluation(run)
        except StartRefusedError as error:
            model = order.model
            failed = EvaluationReport(order.request, model.epoch, model.version, failed=str(error))
            self._execute_all(self._state.on_evaluation(failed, time.monotonic()))
            return
        if self._evaluation is not None:
            self._evaluation.play(order)

    def _stop_evaluation(self) -> None:
        if self._evaluation is not None:
            self._evaluation.kill(_KILL_WAIT_S)
            self._evaluation = None

    # Instructions

    def _execute_all(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case SendReport(report):
                sent = self._manager_sockets is not None and self._manager_sockets.send(report)
                self._unsent_report = None if sent else report
            case SendBatches(batches):
                self._send(batches)
            case WriteLog(level, text, index):
                number = logging.getLevelNamesMapping()[level.upper()]
                log.log(number, "%s", text, extra={"actor": index})
            case PrepareRun(run):
                self._allowed = AllowedRuns()
                self._host.prepare(run)
            case StoreModel(epoch, version, body):
                self._host.store_model(epoch, version, body, self._actors.values())
            case AllowRuns(allowed):
                self._allowed = allowed
                for actor in self._actors.values():
                    actor.handover.allow_runs(allowed)
            case StartActor(index):
                try:
                    self._actors[index] = actor = self._host.start(instruction)
                    actor.handover.allow_runs(self._allowed)
                except StartRefusedError as error:
                    now = time.monotonic()
                    self._execute_all(self._state.on_start_refused(index, str(error), now))
            case PlayEvaluation(run):
                self._play_evaluation(instruction, run)
            case StopEvaluation():
                self._stop_evaluation()
            case StopActors():
                for actor in self._actors.values():
                    actor.handover.order_stop()
            case InspectActor(index):
                frames = self._actors[index].inspect() if index in self._actors else []
                self._execute_all(self._state.on_inspected(index, frames))
            case KillActor(index):
                if index in self._actors:
                    self._actors[index].kill()
            case RemakeSockets(delay_s):
                self._close_sockets()
                self._open_at = time.monotonic() + delay_s
            case RemakeModels():
                if self._manager_sockets is not None:
                    self._manager_sockets.remake_models()
            case Exit():
                self._exit = self._exit or instruction

    def _send(self, batches: Sequence[Batch]) -> None:
        for sent, batch in enumerate(batches):
            if self._manager_sockets is None or not self._manager_sockets.send(batch):
                self._state.on_unsent(batches[sent:])
                return

    # The end

    def _send_last_report(self) -> None:
        """Sends a last report that the socket did not take: it may not be connected yet."""
        manager_sockets = self._manager_sockets
        report = self._unsent_report
        if manager_sockets is not None and report is not None:
            manager_sockets.samples.poll(_LAST_REPORT_MS, zmq.POLLOUT)
            manager_sockets.send(report)

    def _close_sockets(self, linger_ms: int = 0) -> None:
        if self._manager_sockets is not None:
            self._manager_sockets.close(linger_ms)
            self._manager_sockets = None

    def _end(self) -> None:
        self._stop_evaluation()
        for actor in self._actors.values():
            actor.kill()
        for actor in self._actors.values():
            actor.wait(_KILL_WAIT_S)
            actor.close()
        self._send_last_report()
        self._close_sockets(_LAST_REPORT_MS)
        self._context.term()


def run_manager(
    address: Address | str,
    *,
    count: int | None = None,
    manager_id: str | None = None,
    allow_import: Collection[str] = (),
    keys: ClientKeys | None = None,
    gives_up: bool = False,
    wait_s: float = 0.0,
    health_file: Path | None = None,
    evaluates: bool = True,
    outbox: OutboxSettings | None = None,
) -> str:
    """Run actors for the learner at `address` until the run is over or a signal comes.

    Args:
        address: the learner's, or where it stands (see `find_learner`).
        count: actors to run here; None: as many as the run's ``actors.count``.
        manager_id: 1 to 64 of ``A-Z a-z 0-9 . _ -``; made from the host's name where None.
        allow_import: top packages that the learner's run may import here.
        keys: ours and the learner's; None: neither encrypt nor authenticate.
        gives_up: end once every actor has died of an exception soon after its start.
        wait_s: the longest wait for a learner that does not answer; 0: no limit.
        health_file: touched while the learner acknowledges us; None: none is.
        evaluates: play evaluations for a learner that asks for them.
        outbox: where batches are kept until they are safe; None: in memory, until they are stored.

    Returns:
        Why it ended; it begins with `RUN_OVER` unless a signal came.

    Raises:
        RefusedError: the learner refused this manager, or this host the run.
        ServicesError: no actor can play here, or no learner answers.
        UsageError: the outbox cannot be used.
    """
    where = str(address)
    if not where.startswith("@"):
        Address.parse(where)
    host = socket.gethostname()
    files = None if outbox is None else outbox.open()
    manager = manager_id or default_manager_id(host, files)
    directory = PrivateDirectory()

    def exit_at_once() -> None:
        directory.remove()
        os._exit(FAILED)  # the actors die with us

    signals = StopSignals(leave=exit_at_once)
    state = ManagerState(
        Identity(manager, host, where),
        count=count,
        allow_import=frozenset(allow_import),
        gives_up=gives_up,
        incarnation=lambda: secrets.randbits(64),
        jitter=random.random,
        now=time.monotonic(),
        wait_s=wait_s,
        evaluates=evaluates,
        outbox=files,
    )
    set_log_context(manager=manager)
    with ExitStack() as held:
        held.callback(directory.remove)
        if outbox is not None and files is not None:
            held.enter_context(synced_at_intervals(files, outbox.sync_s))
        log.info("manager %s, for the learner at %s", manager, where)
        find = partial(find_learner, where)
        actors = ActorProcesses(directory.ensure)
        Manager(find, manager, state, actors, keys, health_file, _update_log_context).run(signals)
    return f"{RUN_OVER} ({state.run_over})" if state.run_over else "a signal asked it to stop"


def _update_log_context(run: str, epoch: int) -> None:
    """Put the run that is played, and its epoch, into the context of the log."""
    if run:
        set_log_context(run=run, epoch=epoch)


def default_manager_id(host: str, outbox: OutboxFiles | None = None) -> str:
    """An id for a manager that was given none: its host, and something of its own.

    With an outbox it is the same at each start: what it holds is of that id.
    """
    made = f"{host_for_manager_id(host)[:40] or 'host'}-{secrets.token_hex(2)}"
    return made if outbox is None else outbox.manager_id(made)

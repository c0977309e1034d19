"""The manager's thinking: what happened, and what is to be done about it. No socket, no clock.

::

    state = ManagerState(identity, count=2, allow_import=(), jitter=random.random, now=now)
    for instruction in state.on_control(message, now): ...
    if state.takes(payload_bytes): state.on_batch(index, run, batch, now)
    state.on_tick(now)                       # several times a second
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

from vedette_protocol.errors import AckError, ModelError, ProtocolError, VersionError
from vedette_protocol.messages import (
    Ack,
    Batch,
    ControlMessage,
    Refusal,
    Report,
    ReportedState,
    Run,
    Status,
    Stop,
)
from vedette_protocol.model import CompleteModel
from vedette_protocol.window import Window
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import (
    Exit,
    Instruction,
    KillActor,
    PrepareRun,
    RemakeModels,
    RemakeSockets,
    Say,
    SendBatches,
    SendReport,
    StartActor,
    StopActors,
    StoreModel,
)
from vedette_services.actors.link import Link
from vedette_services.actors.model_gate import ModelGate
from vedette_services.actors.roster import Backoff, Roster
from vedette_services.actors.run_terms import accept_run, plays_like, title_of
from vedette_services.actors.stats import ActorStats
from vedette_services.actors.voice import Voice
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import DONE, FAILED, REFUSED, RefusedError

REPORT_EVERY_S = 0.5
DRAIN_S = 10.0

_COUNTS = (
    "produced",
    "dropped",
    "window_batches",
    "window_rows",
    "window_bytes",
    "sequenced",
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this manager is.

    Args:
        learner: the learner's address, as the log names it.
    """

    manager: str
    host: str
    learner: str


class ManagerState:
    """Events in, instructions out. Times are the caller's `now`, in seconds.

    Args:
        count: actors to run here; None: as many as the first run says.
        allow_import: top packages that a run may import here.
        incarnation: gives 64 random bits, for every run that is joined.
        jitter: gives a random number in [0, 1).
    """

    def __init__(
        self,
        identity: Identity,
        *,
        count: int | None,
        allow_import: Collection[str],
        incarnation: Callable[[], int],
        jitter: Callable[[], float],
        now: float,
    ) -> None:
        self._who = identity
        self._allow_import = allow_import
        self._new_incarnation = incarnation
        self._incarnation = incarnation()
        self._link = Link(jitter, now)
        self._models = ModelGate(now)
        self._count = count
        self._roster = Roster(count or 0)
        self._voice = Voice(identity.learner, now)
        self._run: Run | None = None
        self._step_timeout_s = 0.0  # of the run
        self._window: Window | None = None  # of the run
        self._first_actor: int | None = None
        self._report_at = now
        self._leaving: str = ""  # why, once it is decided
        self._leave_by = 0.0
        self._done = False

    # What the daemon asks

    def takes(self, payload_bytes: int) -> bool:
        """Whether a batch of this size may be taken from an actor now; else it waits there."""
        window = self._window
        assert window is not None, "an actor plays a run"
        if window.on_full == "drop_oldest":
            return True
        # No hoard while the learner gives no credit: what waits here only grows older.
        return window.unsent < len(self._roster.seats) and window.has_room(payload_bytes)

    @property
    def playing(self) -> tuple[str, int]:
        """The run that is played and its epoch; "" and 0 before the first."""
        return ("", 0) if self._run is None else (self._run.run_id, self._run.epoch)

    # The learner's voice

    def on_control(self, message: ControlMessage, now: float) -> list[Instruction]:
        """A message of the control channel, for everybody or for this manager."""
        match message:
            case Run():
                done = self._on_run(message, now)
            case Ack():
                done = self._on_ack(message, now)
            case Stop():
                done = self._on_stop(message, now)
            case Refusal(manager=self._who.manager, incarnation=self._incarnation):
                done = [Exit(REFUSED, f"refused by the learner: {message.reason}")]
            case Refusal() | Status():
                done = []
            case _:
                assert_never(message)
        return done

    def _heard(self, now: float) -> list[Instruction]:
        if not self._link.beat.heard(now):
            return []
        return [*self._voice.in_touch()]

    def _on_run(self, run: Run, now: float) -> list[Instruction]:
        heard = self._heard(now)
        old = self._run
        if self._leaving:
            return heard
        if old is None or run.run_id != old.run_id:
            return [*heard, *self._join(run, now)]
        if run.epoch < old.epoch:
            text = f"a learner announces epoch {run.epoch} of a run that is at {old.epoch}: ignored"
            return [*heard, *self._voice.say("warning", "epoch", text, now)]
        if (run.epoch, run.learner) == (old.epoch, old.learner):
            return heard
        if plays_like(run, old):
            self._run = run
            text = f"the learner is back (epoch {run.epoch}); the actors go on"
            return [*heard, Say("info", text), *self._report(now)]
        try:
            config = accept_run(run, self._allow_import)
        except RefusedError as error:
            return [*heard, *self._give_up(REFUSED, str(error), str(error), now)]
        text = f"the learner is back (epoch {run.epoch}) with other settings"
        return [*heard, Say("info", text), *self._play(run, config, now)]

    def _join(self, run: Run, now: float) -> list[Instruction]:
        """Take part in a run that is new here, with a window, an incarnation and actors anew."""
        try:
            config = accept_run(run, self._allow_import)
        except RefusedError as error:
            return self._give_up(REFUSED, str(error), str(error), now)
        done: list[Instruction] = []
        if self._window is not None:
            text = f"another run begins: {self._window.rows} samples of the last are dropped"
            done.append(Say("warning", text))
            self._incarnation = self._new_incarnation()
        elif self._count is None:
            # Another incarnation: what was acknowledged to a manager without actors gave none a
            # number.
            self._roster = Roster(config.count)
            self._incarnation = self._new_incarnation()
        done.append(Say("info", f"run {run.run_id}, epoch {run.epoch}: {title_of(run)}"))
        self._window = Window(
            self._who.manager,
            self._incarnation,
            run.run_id,
            run.schema.hash,
            max_batches=config.window_batches,
            max_bytes=config.window_bytes,
            on_full=config.on_full,
        )
        return [*done, *self._play(run, config, now)]

    def _play(self, run: Run, config: ActorsConfig, now: float) -> list[Instruction]:
        """Actors on this run as it is now: those of another one go first."""
        self._run, self._first_actor = run, None
        self._step_timeout_s = config.step_timeout_s
        done: list[Instruction] = [PrepareRun(run)]
        backoff = Backoff(config.restart_min_s, config.restart_max_s)
        done += [KillActor(seat.index) for seat in self._roster.replace(now, backoff)]
        done += self._store(lambda: self._models.open(run, now), now)
        return [*done, *self._report(now)]

    def _on_ack(self, ack: Ack, now: float) -> list[Instruction]:
        done = self._heard(now)
        window, run = self._window, self._run
        # Of a run that was not announced to us: its learner is starting, or we missed that.
        announced = run is not None and ack.run_id == run.run_id
        self._link.acknowledged(now, announced=announced)
        if window is None and not self._leaving:
            return [*done, *self._voice.starting(ack, now)]
        if window is None or not announced or ack.incarnation != self._incarnation:
            return done
        try:
            freed = window.on_ack(ack, now)
        except AckError as error:
            return [*done, *self._voice.say("error", "ack", str(error), now)]
        if freed or not window.batches or not ack.credit_batches:
            self._link.progressed(now)
        self._first_actor = ack.first_actor
        if self._link.resend:
            self._link.resend = False
            window.resend_all()
        done += self._voice.credit(ack, now)
        return [*done, *self._start_due(now), *self._pump(now), *self._drained(now)]

    def _on_stop(self, stop: Stop, now: float) -> list[Instruction]:
        heard = self._heard(now)
        if self._run is not None and stop.run_id != self._run.run_id:
            return heard
        if stop.final:
            return [*heard, *self.leave(f"the run is over ({stop.reason})", now)]
        text = f"the learner was stopped ({stop.reason}); waiting for it to come back"
        return [*heard, *self._voice.say("info", "stop", text, now)]

    # Sockets

    def on_opened(self) -> None:
        """The sockets are new. Their connection may be made before anybody watches for it, so that
        sending is tried from now on."""
        self._link.fresh()

    def on_connected(self, now: float) -> list[Instruction]:
        """The samples' connection is made: what went before it may be lost."""
        self._link.fresh()
        self._link.connected = True
        return self._report(now)

    def on_disconnected(self) -> None:
        """The samples' connection is gone."""
        self._link.down()

    def on_refused(self, why: str) -> list[Instruction]:
        """The learner's side will never let us in.

        Args:
            why: a sentence that names the learner and the mend.
        """
        return [Exit(REFUSED, why)]

    # Models

    def on_model(self, model: CompleteModel, now: float) -> list[Instruction]:
        """A model is complete."""
        return self._store(lambda: self._models.offer(model), now)

    def _store(self, admit: Callable[[], CompleteModel | None], now: float) -> list[Instruction]:
        try:
            model = admit()
        except ModelError as error:
            return [*self._voice.say("error", "spec", f"not acted on: {error}", now)]
        return [] if model is None else [StoreModel(model.epoch, model.version, model.body)]

    # Actors

    def on_batch(self, index: int, run: Run, batch: FinishedBatch, now: float) -> list[Instruction]:
        """An actor handed a batch over that it made for `run`. Ask `takes` before."""
        if self._window is None or self._run is None or not plays_like(run, self._run):
            return []  # its run is no longer played: nobody would take it
        self._window.offer(index, batch.epoch, batch.version, batch.rows, batch.payload)
        return self._pump(now)

    def on_stats(self, index: int, stats: ActorStats, now: float) -> None:
        """What an actor tells of itself."""
        self._roster.on_stats(index, stats, now)

    def on_actor_exited(
        self, index: int, code: int, cause: str, traceback: str, now: float
    ) -> list[Instruction]:
        """An actor's process is gone, and every batch it finished was taken.

        Args:
            cause: the exception that ended it, in one line; "" where it left no word.
        """
        why = self._roster.vacate(index, code, cause, now)
        done: list[Instruction] = []
        if why and code == REFUSED:
            return self._give_up(REFUSED, why, why, now)
        if why:
            done += self._voice.death(index, why, traceback, now)
        if self._roster.hopeless and not self._leaving:
            text = f"no actor can play here:\n{traceback or why}".rstrip()
            return [*done, *self._give_up(FAILED, text, f"no actor can play here: {why}", now)]
        return [*done, *self._start_due(now), *self._report(now), *self._drained(now)]

    def _start_due(self, now: float) -> list[Instruction]:
        if self._run is None or self._first_actor is None:
            return []
        done: list[Instruction] = []
        for seat in self._roster.due(now):
            number = self._first_actor + seat.index
            done.append(StartActor(seat.index, number, seat.processes, self._run))
            self._roster.started(seat, now)
        return done

    # Time

    def on_tick(self, now: float) -> list[Instruction]:
        """Several times a second, after everything that has come was handled."""
        done: list[Instruction] = []
        self._roster.on_tick(now)
        done += self._remake(now)
        for seat in self._roster.hung(now, self._step_timeout_s):
            text = f"actor {seat.index} {seat.why_killed}"
            done += [Say("warning", text, seat.index), KillActor(seat.index)]
        done += self._ask_for_model(now)
        done += self._start_due(now)
        if self._window is not None and self._link.up:
            self._window.resend_stalled(now)
        done += self._pump(now)
        if now >= self._report_at + REPORT_EVERY_S:
            done += self._report(now)
        return [*done, *self._drained(now)]

    def _remake(self, now: float) -> list[Instruction]:
        holds = self._window is not None and self._window.batches > 0
        connected = self._link.connected
        delay_s = self._link.remake(now, holds=holds)
        if delay_s is None:
            return []
        said = self._voice.remaking(self._link.beat, now, connected=connected)
        return [*said, RemakeSockets(delay_s)]

    def _ask_for_model(self, now: float) -> list[Instruction]:
        if self._link.beat.silent or not self._models.should_ask(now):
            return []
        text = "actors wait for the learner's first model"
        return [*self._voice.say("info", "model", text, now), RemakeModels()]

    # Leaving

    def leave(self, why: str, now: float) -> list[Instruction]:
        """End well: actors hand over what they have, the window drains, a last report goes out."""
        if self._leaving:
            return []
        self._leaving, self._leave_by = why, now + DRAIN_S
        self._roster.close()
        done: list[Instruction] = [Say("info", f"ending: {why}"), StopActors()]
        return [*done, *self._report(now), *self._drained(now)]

    def _drained(self, now: float) -> list[Instruction]:
        """Once leaving: the end, if everything is handed over or the time for it is up."""
        if not self._leaving or self._done:
            return []
        held = 0 if self._window is None else self._window.batches
        if (self._roster.alive or held) and now < self._leave_by:
            return []
        self._done = True
        done: list[Instruction] = [KillActor(seat.index) for seat in self._roster.alive]
        if self._window is not None and held:
            rows = self._window.rows
            self._window.abandon()
            text = f"{rows} samples are lost: the learner did not take them within {DRAIN_S:g} s"
            done.append(Say("warning", text))
        return [*done, *self._report(now), Exit(DONE, self._leaving)]

    def _give_up(self, code: int, text: str, why: str, now: float) -> list[Instruction]:
        """Leave at once, and tell the learner why: to it, silence would be all there is.

        Args:
            text: for the log here.
            why: for the learner, as what is wrong with every actor.
        """
        self._done = True
        self._roster.despair(why)
        if self._window is not None:
            self._window.abandon()
        return [*self._report(now), Exit(code, text)]

    # What goes up

    def on_unsent(self, batches: Sequence[Batch]) -> None:
        """The socket did not take these: they wait for the next turn."""
        if self._window is not None:
            self._window.put_back(batches)

    def _pump(self, now: float) -> list[Instruction]:
        """Send what the learner gave credit for."""
        if self._window is None or not self._link.carries:
            return []
        batches = self._window.take(now)
        return [SendBatches(batches)] if batches else []

    def _report(self, now: float) -> list[Instruction]:
        self._report_at = now
        if not self._link.up:
            return []
        state: ReportedState = "gone" if self._done else "draining" if self._leaving else "running"
        actors = self._roster.reports()
        if self._window is not None:
            return [SendReport(self._window.report(self._who.host, state, actors))]
        who = self._who
        none = dict.fromkeys(_COUNTS, 0)
        nothing = Report(who.manager, self._incarnation, who.host, state, "", **none, actors=actors)
        return [SendReport(nothing)]

    # What is said

    def on_garbage(self, error: ProtocolError, now: float) -> list[Instruction]:
        """Something came on the control channel that is no message."""
        if isinstance(error, VersionError):
            return [Exit(REFUSED, f"the learner at {self._who.learner}: {error}")]
        return [*self._voice.say("warning", "garbage", f"refused a control message: {error}", now)]

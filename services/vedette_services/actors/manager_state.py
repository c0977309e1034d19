"""The manager's state machine: events in, instructions out. No socket, no clock.

::

    state = ManagerState(identity, count=2, allow_import=(), incarnation=draw_incarnation,
                         jitter=random.random, now=now)
    for instruction in state.on_control(message, now): ...
    if state.has_room_for(payload_bytes): state.on_batch(index, run, batch, now)
    state.on_tick(now)                       # several times a second
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import assert_never

from vedette_protocol.errors import AckError, ModelError, ProtocolError, VersionError
from vedette_protocol.messages import (
    NO_PLACE,
    Ack,
    Batch,
    ControlMessage,
    EvaluationReport,
    Refusal,
    Report,
    ReportedState,
    Run,
    Status,
    Stop,
)
from vedette_protocol.model import CompleteModel
from vedette_protocol.send_window import OnFull, Window
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.connection import Connection, Identity
from vedette_services.actors.evaluation_state import EvaluationState
from vedette_services.actors.handover import AllowedRuns, FinishedBatch
from vedette_services.actors.instructions import (
    AllowRuns,
    Exit,
    InspectActor,
    Instruction,
    KillActor,
    PrepareRun,
    RemakeModels,
    RemakeSockets,
    SendBatches,
    SendReport,
    StartActor,
    StopActors,
    StoreModel,
    WriteLog,
)
from vedette_services.actors.manager_log import ManagerLog
from vedette_services.actors.model_filter import ModelFilter
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.actors.outbox.outbox import Outbox
from vedette_services.actors.outbox.window import OutboxWindow
from vedette_services.actors.roster import Backoff, Roster
from vedette_services.actors.run_validation import (
    can_continue,
    describe_run,
    ignored_settings,
    is_newer,
    takes_batches_of,
    validate_run,
)
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import DONE, FAILED, NO_ACTOR, REFUSED, NoAnswerError, RefusedError
from vedette_services.host.stack_request import StackFrame

REPORT_EVERY_S = 0.5
REPORT_UNANSWERED_S = 1.5  # without an ack since the last one: reports do not pile up at a learner
DRAIN_S = 10.0

PAUSE_S = 1.0
"""A tick that comes so late after the one before: this process was stopped, or got no processor."""

FOLLOW_S = 60.0
"""A learner with an older epoch of the run is followed once no other was heard of for so long. One
that was replaced has stopped by then; one of a run that was put back from an older copy goes on."""


class ManagerState:
    """Events in, instructions out. Times are the caller's `now`, in seconds.

    Args:
        count: actors to run here; None: as many as the first run says.
        allow_import: top packages that a run may import here.
        gives_up: end once every actor has died of an exception soon after its start; otherwise they
            are started for ever, as on a host whose simulator may come back.
        incarnation: gives 64 random bits, for every run that is joined.
        jitter: gives a random number in [0, 1).
        wait_s: the longest wait for a learner that does not answer; 0: no limit.
        custom_loop: a program steps environments of its own: it is never killed for standing still,
            and its batches are kept while the learner is away.
        on_full: what the window does when it is full; None: the run's setting.
        evaluates: play evaluations for a learner that asks for them.
        outbox: the files that batches are kept in until they are safe; None: they are kept in
            memory until they are stored.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        count: int | None,
        allow_import: Collection[str],
        gives_up: bool = False,
        incarnation: Callable[[], int],
        jitter: Callable[[], float],
        now: float,
        wait_s: float = 0.0,
        custom_loop: bool = False,
        on_full: OnFull | None = None,
        evaluates: bool = False,
        outbox: OutboxFiles | None = None,
    ) -> None:
        self._outbox = None if outbox is None else Outbox(outbox)
        self._evaluation = EvaluationState(plays=evaluates)
        self._identity = identity
        self._custom_loop = custom_loop
        self._on_full = on_full
        self.run_over = ""
        """Why the run ended, once it has."""
        self._wait_s = wait_s
        self._allow_import = allow_import
        self._new_incarnation = incarnation
        self._incarnation = incarnation()
        self._connection = Connection(jitter, now)
        self._models = ModelFilter(now)
        self._count = count
        self._gives_up = gives_up
        self._roster = Roster(count or 0, gives_up=gives_up)
        self._log = ManagerLog(identity.learner, now)
        self._run: Run | None = None
        # An earlier start of the run, whose actors continue: their batches still belong to it.
        self._played_too: Run | None = None
        # What a learner with an older epoch has announced, while no newer one is heard of.
        self._older: Run | None = None
        self._older_since = now
        self._step_timeout_s = 0.0  # of the run
        self._window: Window | OutboxWindow | None = None  # of the run
        self._first_actor: int | None = None  # its number; None: no ack since the run was announced
        self._report_at = self._ticked_at = now
        self._leaving = ""  # why, once it is decided
        self._leave_by = 0.0
        self._done = False
        self._allowed = AllowedRuns()
        self._kept_batches = 0  # unsent ones that may wait here, where a program owns the loop

    # What the daemon asks

    def has_room_for(self, payload_bytes: int) -> bool:
        """Return whether a batch of this size may be taken now; else it waits at its actor."""
        window = self._window
        assert window is not None, "an actor plays a run"
        if window.on_full == "drop_oldest":
            return True
        is_away = self._connection.silent or not self._connection.up
        if isinstance(window, OutboxWindow) and (is_away or self._custom_loop):
            return window.has_room(payload_bytes)
        # No hoard while the learner gives no credit: what waits here only grows older.
        most = max(len(self._roster.actors), self._kept_batches)
        return window.unsent < most and window.has_room(payload_bytes)

    def stats(self, now: float) -> dict[str, float]:
        """Return counts of the window, and its delay in seconds; with an outbox also the bytes of
        its files, the rows that these lack, and those that processes before this one have left."""
        window = self._window
        if window is None:
            return {}
        counts = {**window.stats(), "delay_s": window.delay_s(now)}
        if self._outbox is not None:
            counts["from_before"] = self._outbox.ended_rows
            counts["outbox_bytes"] = self._outbox.files.bytes
            counts["memory_rows"] = self._outbox.files.rows_in_memory_alone
        return counts

    @property
    def current_run(self) -> tuple[str, int]:
        """The run that is played and its epoch; "" and 0 before the first."""
        return ("", 0) if self._run is None else (self._run.run_id, self._run.epoch)

    @property
    def other_ids(self) -> set[str]:
        """The ids, other than this manager's, under which its outbox holds sessions."""
        if self._outbox is None:
            return set()
        sessions = self._outbox.files.sessions
        return {session.manager for session in sessions} - {self._identity.manager}

    # The learner's messages

    def on_control(self, message: ControlMessage, now: float) -> list[Instruction]:
        """A message of the control channel, for everybody or for this manager."""
        done: list[Instruction] = []
        if isinstance(message, Run | Ack | Stop) and self._connection.on_message(now):
            done += self._log.log_reconnected()
        match message:
            case Run():
                done += self._on_run(message, now)
            case Ack():
                done += self._on_ack(message, now)
            case Stop():
                done += self._on_stop(message, now)
            case Refusal(manager=self._identity.manager, incarnation=self._incarnation):
                why = f"refused by the learner: {message.reason}{self._describe_loss()}"
                # A place may be free when its service manager starts it again.
                done.append(Exit(FAILED if message.code == NO_PLACE else REFUSED, why))
            case Refusal():
                done += self._on_other_refusal(message, now)
            case Status():
                pass
            case _:
                assert_never(message)
        return done

    def _on_other_refusal(self, refusal: Refusal, now: float) -> list[Instruction]:
        """A refusal of a session that has ended: what is left of it stays in its files."""
        window = None if self._outbox is None else self._outbox.on_refusal(refusal, now)
        if window is None:
            return []
        text = (
            f"the learner refuses what the outbox holds of a session before this one: "
            f"{refusal.reason}; its {window.rows:,} samples stay there"
        )
        return self._log.log("warning", f"refused {window.incarnation}", text, now)

    def _on_run(self, run: Run, now: float) -> list[Instruction]:
        old = self._run
        if self._leaving:
            return []
        if old is None or run.run_id != old.run_id:
            return self._play(run, now)
        if run.epoch < old.epoch:
            if self._older is None:
                self._older_since = now
            self._older = run
            text = (
                f"a learner announces epoch {run.epoch} of a run that is at {old.epoch}: ignored "
                f"unless no other is heard of for {FOLLOW_S:g} s"
            )
            return self._log.log("warning", "epoch", text, now)
        self._older = None
        if (run.epoch, run.learner) == (old.epoch, old.learner):
            return []
        if self._outbox is not None:
            self._outbox.on_run(run)
        if can_continue(run, old):
            self._run = run
            self._played_too = None
            text = f"the learner is back (epoch {run.epoch}); the actors go on"
            back = self._log.log("info", "back", text, now)
            if run.epoch == old.epoch:
                # Of a copy of the run that was behind, the versions may be lower ones.
                back += [
                    *self._store(lambda: self._models.begin_run(run, now), now),
                    RemakeModels(),
                ]
            return [*back, *self._evaluation.continue_run(run), *self.send_report(now)]
        return self._play(run, now)

    def _follow_older(self, ack: Ack, now: float) -> list[Instruction]:
        """Follow the learner of an older epoch, once it has long been the only one."""
        run = self._run
        older = self._older
        if run is None or older is None or ack.run_id != run.run_id:
            return []
        if ack.epoch >= run.epoch:
            self._older = None
            return []
        is_it = (ack.epoch, ack.learner) == (older.epoch, older.learner)
        if not is_it or now - self._older_since < FOLLOW_S:
            return []
        self._older = None
        text = (
            f"no other learner was heard of for {FOLLOW_S:g} s: following epoch {older.epoch} of "
            f"the run, which was at {run.epoch}; it was put back from an older copy"
        )
        done: list[Instruction] = [WriteLog("warning", text)]
        if self._outbox is not None:
            self._outbox.follow_older()
            self._outbox.on_run(older)
        elif isinstance(self._window, Window):
            self._window.follow_older()
        if not can_continue(older, run):
            return [*done, *self._play(older, now)]
        self._run = older
        self._played_too = None
        done += self._store(lambda: self._models.begin_run(older, now), now)
        return [*done, *self._evaluation.continue_run(older), *self.send_report(now)]

    def _play(self, run: Run, now: float) -> list[Instruction]:
        """Play a run that is new here, or has other settings now: earlier actors end first."""
        try:
            config = validate_run(run, self._allow_import, makes_envs=not self._custom_loop)
        except RefusedError as error:
            return self._give_up(REFUSED, str(error), now)
        if self._run is None or not takes_batches_of(run, self._run):
            done = self._join(run, config)
        else:
            text = f"the learner is back (epoch {run.epoch}) with other settings"
            done = [WriteLog("info", text)]
        if self._custom_loop and (ignored := ignored_settings(run)):
            text = f"ignored, because no environment is made here: {', '.join(ignored)}"
            done.append(WriteLog("info", text))
        self._run = run
        self._allowed = AllowedRuns()
        self._played_too = None
        self._first_actor = None
        self._step_timeout_s = math.inf if self._custom_loop else config.step_timeout_s
        done += [PrepareRun(run), *self._evaluation.begin_run(run)]
        backoff = Backoff(config.restart_min_s, config.restart_max_s)
        done += [KillActor(actor.index) for actor in self._roster.begin_run(now, backoff)]
        done += self._store(lambda: self._models.begin_run(run, now), now)
        return [*done, *self.send_report(now)]

    def _join(self, run: Run, config: ActorsConfig) -> list[Instruction]:
        """Take part in a run that is new here, or whose columns are, with a new window and a new
        incarnation."""
        done: list[Instruction] = []
        if self._window is not None:
            other = self._run is None or run.run_id != self._run.run_id
            why = "another run begins" if other else "the run has other columns now"
            fate = "dropped" if self._outbox is None else "left in the outbox"
            text = f"{why}: {self._window.rows} samples of the last are {fate}"
            done.append(WriteLog("warning", text))
            self._incarnation = self._new_incarnation()
        elif self._count is None:
            # Another incarnation: acks to a manager without actors gave none a number.
            self._roster = Roster(config.count, gives_up=self._gives_up)
            self._incarnation = self._new_incarnation()
        on_full = self._on_full or config.on_full
        done.append(WriteLog("info", f"run {run.run_id}, epoch {run.epoch}: {describe_run(run)}"))
        if self._outbox is not None:
            who = self._identity.manager
            self._window = self._outbox.begin(run, who, self._incarnation, on_full)
            return [*done, *self._log.log_outbox(self._outbox, run)]
        self._window = Window(
            self._identity.manager,
            self._incarnation,
            run.run_id,
            run.schema.hash,
            max_batches=config.window_batches,
            max_bytes=config.window_bytes,
            on_full=on_full,
            max_age_s=config.window_s if on_full == "drop_oldest" else math.inf,
        )
        return done

    def _on_ack(self, ack: Ack, now: float) -> list[Instruction]:
        followed = self._follow_older(ack, now)
        return followed if self._done else [*followed, *self._take_ack(ack, now)]

    def _take_ack(self, ack: Ack, now: float) -> list[Instruction]:
        window = self._window
        run = self._run
        # Of a run, or a start of the learner, that was not announced to us: it is starting, or we
        # missed that.
        announced = run is not None and ack.run_id == run.run_id
        current = announced and run is not None and not is_newer(ack, run)
        self._connection.on_ack(now, announced=current)
        if window is None and not self._leaving:
            return self._log.log_starting(ack, now)
        if window is None or run is None or not announced:
            return []
        if ack.incarnation != self._incarnation:
            return self._on_ack_of_ended(ack, run, now)
        try:
            if isinstance(window, OutboxWindow):
                freed = window.on_ack(ack, now, is_current=_is_of(ack, run))
            else:
                freed = window.on_ack(ack, now)
        except AckError as error:
            told = self._log.log("error", "ack", str(error), now)
            return [*told, *self._leave_session(run, window, now)]
        # No progress, though there is credit, means a dead socket (`Connection.poll_remake`).
        if freed or not window.batches or ack.reason:
            self._connection.on_progress(now)
        self._first_actor = ack.first_actor
        if self._connection.resend:
            self._connection.resend = False
            if isinstance(window, Window):
                window.resend_all()
        return [
            *self._evaluate(self._evaluation.on_ack(ack) if current else [], now),
            *self._allow_runs(ack, run, now),
            *self._log.log_no_credit(ack, now),
            *self._log.log_rejected(ack, now),
            *self._start_due_actors(now),
            *self._send_batches(now),
            *self._drained(now),
        ]

    def _allow_runs(self, ack: Ack, run: Run, now: float) -> list[Instruction]:
        """Pass on how many runs actors may play, where the learner says so. A gateway that has
        started again may have allowed more of this model before."""
        allowed = AllowedRuns(ack.epoch, ack.version, ack.runs)
        is_same = allowed[:2] == self._allowed[:2]
        if not ack.runs or not _is_of(ack, run) or (is_same and ack.runs <= self._allowed.runs):
            return []
        self._allowed = allowed
        self._models.expect(ack.epoch, ack.version, now)
        return [AllowRuns(allowed)]

    def _leave_session(
        self, run: Run, window: Window | OutboxWindow, now: float
    ) -> list[Instruction]:
        """Begin another session in the outbox: this one was numbered further elsewhere, after this
        machine was put back or copied with its memory."""
        if self._outbox is None:
            return []
        text = (
            "another process has sent more of this manager's session than it has: was this machine "
            "put back, or copied, with its memory? It begins another session; samples of the last "
            "whose numbers were used there are lost"
        )
        return [WriteLog("error", text), *self._begin_session(self._outbox, run, window, now)]

    def _begin_session(
        self, outbox: Outbox, run: Run, window: Window | OutboxWindow, now: float
    ) -> list[Instruction]:
        self._incarnation = self._new_incarnation()
        who = self._identity.manager
        self._window = outbox.begin(run, who, self._incarnation, window.on_full)
        return self.send_report(now)

    def _pass_unreadable(self, outbox: Outbox, now: float) -> list[Instruction]:
        """Begin another session where the files of this one cannot be read for now: a learner takes
        no more than so many numbers above a gap, and live samples are not to wait for a disk."""
        window = outbox.own
        if self._run is None or window is None or not window.has_unreadable:
            return []
        return self._begin_session(outbox, self._run, window, now)

    def _on_ack_of_ended(self, ack: Ack, run: Run, now: float) -> list[Instruction]:
        """An ack of a session in the outbox whose process has ended."""
        if self._outbox is None:
            return []
        before = self._outbox.ended_rows
        if self._outbox.on_ack(ack, now, is_current=_is_of(ack, run)):
            self._connection.on_progress(now)
        # Where the learner sees one session at a time, this manager's own comes last.
        if self._outbox.shows_one_session and ack.manager == self._identity.manager:
            self._first_actor = ack.first_actor
        done = [*self._start_due_actors(now), *self._send_batches(now)]
        if before and not self._outbox.ended_rows:
            done.append(
                WriteLog("info", "the learner has what processes before this one have left")
            )
        return done

    def _on_stop(self, stop: Stop, now: float) -> list[Instruction]:
        run = self._run
        ours = run is None or (stop.run_id == run.run_id and stop.epoch >= run.epoch)
        if not ours and (not stop.final or self._connection.is_acknowledged(now)):
            return []
        if stop.final:
            return self.on_run_over(stop.reason, now)
        text = f"the learner was stopped ({stop.reason}); waiting for it to come back"
        return self._log.log("info", "stop", text, now)

    def on_run_over(self, reason: str, now: float) -> list[Instruction]:
        """The run is over: its learner said so, or its directory."""
        self.run_over = reason or "its learner says so"
        return self.leave(f"the run is over ({reason})", now)

    # Sockets

    def on_opened(self) -> None:
        """The sockets are new. Their connection may be made before anybody watches for it, so that
        sending is tried from now on."""
        self._log.address_error = ""
        self._on_new_connection()

    def on_unknown_address(self, why: str) -> None:
        """The learner's address cannot be determined now: the log says so while this lasts."""
        self._log.address_error = why

    def on_connected(self, now: float) -> list[Instruction]:
        """The samples' connection is made: what went before it may be lost."""
        self._on_new_connection()
        self._connection.connected = True
        return self.send_report(now)

    def _on_new_connection(self) -> None:
        self._connection.on_new_sockets()
        if self._outbox is not None:
            self._outbox.on_new_sockets()

    def on_disconnected(self) -> None:
        """The samples' connection is gone."""
        self._connection.on_disconnected()

    def on_refused(self, why: str) -> list[Instruction]:
        """The learner's side will never let us in.

        Args:
            why: a sentence that names the learner and the fix.
        """
        return [Exit(REFUSED, why)]

    # Models

    def on_model(self, model: CompleteModel, now: float) -> list[Instruction]:
        """A model is complete."""
        return self._store(lambda: self._models.accept_model(model), now)

    def _store(self, admit: Callable[[], CompleteModel | None], now: float) -> list[Instruction]:
        try:
            model = admit()
        except ModelError as error:
            return self._log.log("error", "spec", f"not acted on: {error}", now)
        if model is None:
            return []
        stored = StoreModel(model.epoch, model.version, model.body)
        return [stored, *self._evaluate(self._evaluation.on_model(stored), now)]

    def _evaluate(self, orders: list[Instruction], now: float) -> list[Instruction]:
        """Report the model that is played from now on: the learner keeps it for that."""
        return [*orders, *self.send_report(now)] if orders else []

    def on_evaluation(self, progress: EvaluationReport, now: float) -> list[Instruction]:
        """The evaluation's process reports, or has ended by itself."""
        if not self._evaluation.on_progress(progress):
            return []
        text = f"the evaluation of version {progress.version:,} failed: {progress.failed}"
        failed = self._log.log("warning", "evaluation", text, now) if progress.failed else []
        return [*failed, *self.send_report(now)]

    # Actors

    def on_batch(self, index: int, run: Run, batch: FinishedBatch, now: float) -> list[Instruction]:
        """An actor handed a batch over that it made for `run`. Ask `has_room_for` before."""
        if self._window is None or not self._is_played(run):
            return []  # its run is no longer played, and no learner would take it
        self._window.add_batch(
            index,
            batch.epoch,
            batch.version,
            batch.rows,
            batch.payload,
            batch.env_steps,
            now,
        )
        return self._send_batches(now)

    def on_no_room(self, payload_bytes: int, now: float) -> list[Instruction]:
        """A batch of this size waits at its actor: `has_room_for` says so."""
        if self._outbox is None or self._run is None:
            return []  # the learner says why a window is full
        if self._outbox.files.has_room(payload_bytes):
            return []  # it waits for the learner's credit
        return self._log.log_outbox_full(self._outbox, self._run, payload_bytes, now)

    def _is_played(self, run: Run) -> bool:
        """Return whether what actors of `run` made belongs to the run that is played now. Asked for
        every batch, and a comparison takes as long as all else that is done with one."""
        if run is self._run or run is self._played_too:
            return True
        if self._run is None or not can_continue(run, self._run):
            return False
        self._played_too = run
        return True

    def on_stats(self, index: int, stats: ActorStats, now: float) -> None:
        """An actor published its statistics."""
        self._roster.on_stats(index, stats, now)

    def on_actor_exited(
        self, index: int, code: int, cause: str, traceback: str, now: float
    ) -> list[Instruction]:
        """An actor's process is gone, and every batch it finished was taken.

        Args:
            cause: the exception that ended it, in one line; "" where it left no word.
        """
        why = self._roster.on_exited(index, code, cause, now)
        # Without a cause, an environment's code has ended the process with the same exit status.
        if why and cause and code == REFUSED:
            return self._give_up(REFUSED, why, now)
        done = self._log.log_actor_death(index, why, traceback, now) if why else []
        if self._roster.is_hopeless and not self._leaving:
            return [*done, *self._give_up(FAILED, f"{NO_ACTOR}: {why}", now)]
        return [*done, *self._start_due_actors(now), *self.send_report(now), *self._drained(now)]

    def on_inspected(self, index: int, frames: Sequence[StackFrame]) -> list[Instruction]:
        """An actor that makes no step was seen to stand there: it is killed.

        Args:
            frames: its stack, the innermost call first; empty where that is not known.
        """
        text = f"actor {index} {self._roster.on_inspected(index, frames)}"
        return [WriteLog("warning", text, index), KillActor(index)]

    def on_start_refused(self, index: int, why: str, now: float) -> list[Instruction]:
        """The system started no process for an actor: it is tried again, ever more rarely."""
        again_s = self._roster.on_start_refused(index, why, now)
        text = f"{why} (tried again in {again_s:g} s)"
        told = self._log.log("warning", f"start of actor {index}", text, now)
        return [*told, *self.send_report(now), *self._drained(now)]

    def _start_due_actors(self, now: float) -> list[Instruction]:
        if self._run is None or self._first_actor is None:
            return []
        done: list[Instruction] = []
        for actor in self._roster.due_actors(now):
            number = self._first_actor + actor.index
            done.append(StartActor(actor.index, number, actor.processes, self._run))
            self._roster.on_started(actor, now)
        return done

    # Time

    def on_tick(self, now: float) -> list[Instruction]:
        """Several times a second, after everything that has come was handled."""
        self._leave_out_pause(now)
        if self._custom_loop and isinstance(self._window, Window):
            kept = max(self._connection.kept_share(now), self._evaluation.kept_share)
            self._kept_batches = int(self._window.max_batches * kept)
        done = [*self._stop_waiting(now), *self._remake(now)]
        hung = self._roster.find_hung(now, self._step_timeout_s)
        done += [InspectActor(actor.index) for actor in hung]
        done += self._ask_for_model(now)
        done += self._start_due_actors(now)
        done += self._tend_outbox(now)
        if self._window is not None:
            self._window.drop_old(now)
            if self._connection.up:
                self._window.resend_stalled(now)
            done += self._log.log_delay(self._window, now)
        done += self._send_batches(now)
        answered = self._connection.is_answered(self._report_at, now)
        if now >= self._report_at + (REPORT_EVERY_S if answered else REPORT_UNANSWERED_S):
            done += self.send_report(now)
        return [*done, *self._drained(now)]

    def _leave_out_pause(self, now: float) -> None:
        """Hold nobody to the time in which this process itself stood still."""
        seconds = now - self._ticked_at
        self._ticked_at = now
        if seconds <= PAUSE_S:
            return
        self._roster.on_paused(seconds, now)
        self._connection.on_paused(seconds, now)
        self._older_since = min(self._older_since + seconds, now)
        self._leave_by = min(self._leave_by + seconds, now + DRAIN_S)

    def _tend_outbox(self, now: float) -> list[Instruction]:
        if self._outbox is None:
            return []
        files = self._outbox.files
        files.poll(now)
        if self._connection.up:
            self._outbox.resend_stalled(now)
        done = self._log.log_outbox_state(files, now)
        if files.away is not None:
            done += self._pass_unreadable(self._outbox, now)
        return [*done, *self._log.log_upload(self._outbox, now)]

    def _remake(self, now: float) -> list[Instruction]:
        holds = self._window is not None and self._window.batches > 0
        connected = self._connection.connected
        delay_s = self._connection.poll_remake(now, holds=holds)
        if delay_s is None:
            return []
        reconnecting = self._log.log_reconnecting(self._connection, now, connected=connected)
        return [*reconnecting, RemakeSockets(delay_s)]

    def _stop_waiting(self, now: float) -> list[Instruction]:
        """Give up on a learner that has not answered for `wait_s`."""
        waited = self._wait_s and self._connection.silence_s(now) >= self._wait_s
        if not waited or self._leaving or self._done:
            return []
        silent = NoAnswerError(self._identity.learner, self._wait_s, self._log.address_error)
        return self._give_up(FAILED, f"{silent}{self._describe_loss()}", now)

    def _describe_loss(self) -> str:
        held = 0 if self._window is None else self._window.rows
        if self._outbox is not None:
            return f"; {held} samples stay in the outbox" if held else ""
        return f"; {held} samples are lost" if held else ""

    def _ask_for_model(self, now: float) -> list[Instruction]:
        if self._connection.silent or not self._models.waits_long(now):
            return []
        asked: list[Instruction] = []
        if self._models.should_resubscribe(now):
            asked.append(RemakeModels())
        if other := self._models.other_run:
            text = (
                f"actors wait for the run's first model, and those of run {other} come: perhaps a "
                "tunnel leads the three ports to two learners; `vedette doctor` tests that"
            )
            return [*self._log.log("warning", "model", text, now), *asked]
        text = f"actors wait for the learner's {self._models.missing} model"
        return [*self._log.log("info", "model", text, now), *asked]

    # Leaving

    def leave(self, why: str, now: float) -> list[Instruction]:
        """End well: actors hand over what they have, the window drains, a last report goes out."""
        if self._leaving:
            return []
        self._leaving = why
        self._leave_by = now + DRAIN_S
        self._roster.close()
        done: list[Instruction] = [WriteLog("info", f"ending: {why}"), StopActors()]
        return [*done, *self.send_report(now), *self._drained(now)]

    def _drained(self, now: float) -> list[Instruction]:
        """Once leaving: the end, if everything is handed over or the time for it is up."""
        if not self._leaving or self._done:
            return []
        held = 0 if self._window is None else self._window.batches
        # Nothing makes it safe later: the run is over.
        unsafe = bool(self.run_over) and self._outbox is not None and not self._outbox.is_empty
        if (self._roster.alive_actors or held or unsafe) and now < self._leave_by:
            return []
        self._done = True
        done: list[Instruction] = [KillActor(actor.index) for actor in self._roster.alive_actors]
        if self._outbox is not None:
            self._outbox.files.poll(math.inf)  # what could not be written is tried once more
            done += self._log.log_left(self._outbox)
        elif isinstance(self._window, Window) and held:
            rows = self._window.rows
            self._window.drop_unsent()
            text = f"{rows} samples are lost: the learner did not take them within {DRAIN_S:g} s"
            done.append(WriteLog("warning", text))
        return [*done, *self.send_report(now), Exit(DONE, self._leaving)]

    def _give_up(self, code: int, why: str, now: float) -> list[Instruction]:
        """Leave at once. The log says why, and so does the report of every actor: without it the
        learner would only see this manager fall silent."""
        self._done = True
        self._roster.mark_all_failed(why)
        if isinstance(self._window, Window):
            self._window.drop_unsent()
        return [*self.send_report(now), Exit(code, why)]

    # What goes up

    def on_unsent(self, batches: Sequence[Batch]) -> None:
        """The socket did not take these: they wait for the next turn."""
        if self._outbox is not None:
            self._outbox.put_back(batches)
        elif self._window is not None:
            self._window.put_back(batches)

    def _send_batches(self, now: float) -> list[Instruction]:
        """Send what the learner gave credit for."""
        if self._outbox is not None:
            batches = self._outbox.next_batches(now) if self._connection.up else []
        elif self._window is None or not self._connection.can_send:
            return []
        else:
            batches = self._window.next_batches(now)
        return [SendBatches(batches)] if batches else []

    def send_report(self, now: float) -> list[Instruction]:
        """Report to the learner, if there is a connection."""
        self._report_at = now
        if not self._connection.up:
            return []
        state: ReportedState = "gone" if self._done else "draining" if self._leaving else "running"
        actors = self._roster.reports()
        if self._window is not None:
            counted = self._window.make_report(
                self._identity.host,
                state,
                actors,
                delay_s=round(self._window.delay_s(now), 3) or None,
                failures=self._roster.failures,
            )
            if self._outbox is None:
                return [SendReport(self._evaluation.complete(counted))]
            ended = self._outbox.ended_reports(self._identity.host, now, actors)
            if self._outbox.may_report_own(now):
                return [*map(SendReport, ended), SendReport(self._evaluation.complete(counted))]
            return [SendReport(each) for each in ended]
        who = self._identity
        counts = (0, 0, 0, 0, 0, 0)
        nothing = Report(
            who.manager, self._incarnation, who.host, state, "", *counts, actors=actors
        )
        return [SendReport(self._evaluation.complete(nothing))]

    # Reports

    def on_invalid_message(self, error: ProtocolError, now: float) -> list[Instruction]:
        """Something came on the control channel that is no message."""
        if isinstance(error, VersionError):
            return [Exit(REFUSED, f"the learner at {self._identity.learner}: {error}")]
        return self._log.log("warning", "garbage", f"refused a control message: {error}", now)


def _is_of(ack: Ack, run: Run) -> bool:
    """Return whether an ack is of the start of the learner that has announced this run."""
    return (ack.epoch, ack.learner) == (run.epoch, run.learner)

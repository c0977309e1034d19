"""The learner daemon starts, watches and ends its processes, and writes the summary."""

from __future__ import annotations

import errno
import logging
import math
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_rl.errors import LatestValueFormatError
from vedette_rl.replay.commits import last_commit
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.loading import read_config
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    LIMIT_SIGNALS,
    ChildFailedError,
    ChildHungError,
    RunTakenOverError,
    SamplesRejectedError,
    ServicesError,
    StartRefusedError,
    UnsavedEndError,
    UsageError,
    describe_exit,
)
from vedette_services.host.exit_report import ExitReportReader
from vedette_services.host.limits import describe_limit
from vedette_services.host.logs import set_log_context
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.processes import (
    StopSignals,
    WakeupEvent,
    end_children,
    pause,
    python_module,
    spawn,
    wait_all,
)
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.started_programs import end_programs_of
from vedette_services.host.system import private_bytes, process_state, raise_file_limit
from vedette_services.learner.heartbeat import TurnRecord, announce_start
from vedette_services.learner.snapshot.keeper import SnapshotKeeper
from vedette_services.learner.standstill_watch import StandstillWatch
from vedette_services.net.addresses import Address, check_ports
from vedette_services.run.active_time import training_time_before
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.events import FleetSizeCheck, RunEventLog
from vedette_services.run.hold import log_loss
from vedette_services.run.learner_location import publish_location
from vedette_services.run.limiter_record import remaining_draws
from vedette_services.run.model_map import holds_model
from vedette_services.run.outcome import (
    describe_loss,
    describe_unsaved,
    exit_at_once,
    read_summary,
    write_summary,
)
from vedette_services.run.prepare import begin_balance, prepare_start
from vedette_services.run.provenance import record_provenance
from vedette_services.run.queue_place import kept_at_start
from vedette_services.run.recovery import recover_once_released
from vedette_services.run.replay_hold import ReplayHold
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.replay_starts import STARTS, mark_start
from vedette_services.run.resume import begins_new_best
from vedette_services.run.ring_stamp import count_lost, read_env_steps
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.status_files import StatusReader, clear_status_records, read_best
from vedette_services.status import stop_conditions
from vedette_services.status.heartbeats import OwnPauses
from vedette_services.status.records import (
    IngestProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.snapshot import snapshot_status
from vedette_services.status.status import Checkpoint, Eval, Status
from vedette_services.status.text import final_report_lines

if TYPE_CHECKING:  # an extra
    from vedette_services.prometheus import MetricsAddress

from vedette_services.learner.gateway.flow_control import gateway_memory_limit

log = logging.getLogger("vedette.learner")

_POLL_S = 0.2
_POLL_MAX_S = 1.0  # a longer time between two of them was not this process's own
_SUMMARY_EVERY_S = 5.0
_TRAINER_END_S = 90.0  # its last checkpoint may be large
_SAY_WAIT_S = 10.0
_GATEWAY_END_S = 15.0  # managers send their last batches
_GATEWAY_POLL_S = 0.05
_RESTARTS = 3  # of one process within _RESTART_WINDOW_S, before the learner gives up
_RESTART_WINDOW_S = 300.0
_REFUSED_STARTS = 12  # of a process by the system, before the learner gives up: 2 minutes
_REFUSED_WAIT_S = 15.0  # the longest wait between two of them
_STARTING_S = 20.0  # a process that crashes so early would crash again
_STANDSTILLS = 3  # restarts of one process for standing still, before the learner gives up
_STANDSTILL_WINDOW_S = 6 * 3600.0
_REPLACE_S = 5.0  # for a killed process to end

_MODULES = {
    "gateway": "vedette_services.learner.gateway.process",
    "trainer": "vedette_services.learner.trainer.process",
    "evaluator": "vedette_services.learner.evaluator",
}
"""What each process runs, by its name."""

OnStatus = Callable[[Status], None]
_Restart = tuple[float, int]  # when, and from which checkpoint


@dataclass(slots=True)
class _Child:
    """One of the three processes."""

    name: str
    process: subprocess.Popen[bytes]
    exit_report: ExitReportReader
    started: float
    restarts: list[_Restart] = field(default_factory=list)
    standstills: list[_Restart] = field(default_factory=list)  # restarts for standing still
    killed: bool = False  # by us, to be started again once it has ended

    def recent_standstills(self, now: float, saved: int) -> list[_Restart]:
        """Return the restarts for standing still of the last hours; of a trainer also those that
        began at the checkpoint `saved`, from which it has come no further."""
        stuck = saved if self.name == "trainer" else None
        return [r for r in self.standstills if now - r[0] < _STANDSTILL_WINDOW_S or r[1] == stuck]

    def recent_restarts(self, now: float, saved: int, *, comes_again: bool) -> list[_Restart]:
        """Return the restarts of the last minutes.

        For a trainer also those that began at the checkpoint `saved`, if what has ended it, an
        error or a limit of memory, may come again from there (`comes_again`).
        """
        stuck = saved if self.name == "trainer" and comes_again else None
        return [r for r in self.restarts if now - r[0] < _RESTART_WINDOW_S or r[1] == stuck]


class Supervisor:
    """Starts gateway, trainer and evaluator of one run, and restarts those that die."""

    processes: tuple[str, ...] = ("trainer", "gateway", "evaluator")

    def __init__(
        self,
        spec: LearnerSpec,
        on_status: OnStatus | None,
        linger_s: float = 0.0,
        *,
        on_loaded: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._on_status = on_status
        self._linger_s = linger_s
        self._on_loaded = on_loaded
        self._has_loaded = False
        run = spec.run
        clear_status_records(run, new_best=begins_new_best(spec.config, run.root))
        self._records = StatusReader(spec)
        self._evaluation: Eval | None = None  # the evaluator's last record
        self._stood_s = 0.0
        self._polled_at = 0.0
        self._patience_s = max(spec.config.evaluation.episode_timeout_s, _STARTING_S)
        self._children: dict[str, _Child] = {}
        # When a process that the system would not start is tried again, and how.
        self._refused: dict[str, tuple[float, Callable[[], None]]] = {}
        self._turns = TurnRecord(run.heartbeat_map("supervisor"))
        self._pauses = OwnPauses()
        self._watches = {name: StandstillWatch(name) for name in self.processes}
        self._wakeup = WakeupEvent()  # set by the trainer, cleared by the gateway: there is a model
        # No signal: those that others send to all processes at once must not end the trainer.
        self._stops = {"trainer": WakeupEvent(), "gateway": WakeupEvent()}
        fleet = spec.config.actors
        size = FleetSizeCheck(fleet.count, fleet.envs_per_actor)
        self._event_log = RunEventLog(run.events_file, size)
        self._summary_due = 0.0
        self._failures = RateLimitedLog()
        self._memory_kills = MemoryKills()
        self._replay: ReplayHold | None = None  # once the gateway has opened it
        self._snapshot: SnapshotKeeper | None = None

    def run(self, stop: StopSignals) -> int:
        """Serve to the end of the run; returns the exit status."""
        try:
            self._begin()
            if self._spec.config.learner.snapshot is not None:
                self._snapshot = SnapshotKeeper(self._spec)
                self._snapshot.begin(stop)
            for name in self.processes:
                self._start(name)
            while self._watch(stop):
                self._publish_status()
                pause(stop, _POLL_S)
            self._end(stop)
            if not stop:
                self._answer_late_managers(stop)
            return 0
        except RunTakenOverError:
            for child in self._children.values():
                child.process.kill()  # nothing of theirs may be written any more
            raise
        except ServicesError as error:
            if self._spec.run.find_loss() is None:
                self._event_log.log("failed", "learner", str(error))
            raise
        finally:
            self._end_children()
            for event in (self._wakeup, *self._stops.values()):
                event.close()
            self._turns.close()
            if self._replay is not None:
                self._replay.close()
            if self._snapshot is not None:
                self._snapshot.close()

    def _begin(self) -> None:
        """Log the start; before the trainer maps the replay, recover it where its rows are lost."""
        spec = self._spec
        run = self._spec.run
        directory = replay_directory(spec.config, run.root)
        recovery = recover_once_released(directory, partial(count_lost, spec.run_id, directory))
        env_steps = read_env_steps(spec.run_id, directory)
        progress = StatusRecordWriter(run.progress_map, IngestProgress)
        progress.write(IngestProgress(env_steps))  # for the trainer until the gateway writes it
        progress.close()
        where = f"on {socket.gethostname()} at {spec.address}"
        if run.taken_from is not None:
            where += f", in place of {run.taken_from}, which still ran"
        self._event_log.log_start(where, run.newest_checkpoint() or 0, env_steps)
        if recovery is not None:
            run.remove_models()  # as much lost as the replay's rows
            log.warning("the replay: %s", recovery)
            self._event_log.log("recovered", "replay", str(recovery))
        begin_balance(run, spec.config, self._draws_before)
        if spec.config.learner.snapshot is None and (directory / STARTS).exists():
            # It had a snapshot, which must know rows that are written without it.
            mark_start(directory, last_commit(directory).inserted)

    def _draws_before(self, inserted: int) -> int:
        """Return the samples that earlier starts drew, as far as they count for the limiter."""
        newest = Checkpoints(self._spec.run.checkpoints, keep=1).newest_readable()
        return remaining_draws(newest[1], inserted) if newest else 0

    # Children

    def _start(self, name: str) -> None:
        self._spec.run.check_held()
        if self._replay is not None and name != "evaluator":
            self._replay.check()  # another process still has the one mapped that was there
        arguments = [str(self._spec.run.root)]
        if name == "trainer":
            # every start of the trainer is an epoch: its models are newer than all before
            if self._snapshot is not None:
                self._snapshot.check_epoch(self._spec.run.identity().epoch + 1)
            epoch = self._spec.run.begin_epoch().epoch
            set_log_context(run=self._spec.run_id, epoch=epoch)
            self._announce(epoch)
            arguments.append(str(epoch))
        events = [self._wakeup, self._stops[name]] if name in self._stops else []
        descriptors = [one for event in events for one in event.descriptors]
        arguments += [event.argument for event in events]
        self._spawn(name, python_module(_MODULES[name], *arguments), descriptors)

    def _spawn(self, name: str, command: list[str], descriptors: list[int], tries: int = 0) -> None:
        """Start a process; where the system refuses to start it again, try that later.

        Args:
            tries: refused before.
        """
        child = self._children.get(name)
        announce_start(self._spec.run.heartbeat_map(name))
        report = ExitReportReader()
        try:
            process = spawn(
                command,
                name=f"the {name}",
                environment=report.environment,
                pass_fds=[*descriptors, report.fileno()],
            )
        except StartRefusedError as error:
            report.close_child_end()
            report.close()
            if child is None or tries == _REFUSED_STARTS:
                raise
            wait_s = min(2.0**tries, _REFUSED_WAIT_S)
            log.warning("%s (tried again in %g s)", error, wait_s)
            again = partial(self._spawn, name, command, descriptors, tries + 1)
            self._refused[name] = time.monotonic() + wait_s, again
            return
        report.close_child_end()
        if child:
            child.exit_report.close()
        if child and name == "evaluator":
            end_programs_of([child.process])
        before = (child.restarts, child.standstills) if child else ()
        self._children[name] = _Child(name, process, report, time.monotonic(), *before)

    def _start_refused(self, name: str) -> bool:
        """Return True for a process that the system would not start, and try it when it is due."""
        if name not in self._refused:
            return False
        due, again = self._refused[name]
        if time.monotonic() >= due:
            del self._refused[name]
            again()
        return True

    def _hold_replay(self) -> None:
        """Know the replay again from now on, once the gateway has opened it."""
        if self._replay is None and self._gateway_is_open():
            with suppress(OSError):
                directory = replay_directory(self._spec.config, self._spec.run.root)
                self._replay = ReplayHold(directory)

    def _announce(self, epoch: int) -> None:
        """Write the trainer's first status record, from its checkpoint, for its starting time."""
        before = StatusRecordReader(self._spec.run.learning_map, TrainerStatus).read()
        # The records are empty before the first trainer of this start.
        trained = before.trained if before.epoch else training_time_before(self._spec.run)
        record = StatusRecordWriter(self._spec.run.learning_map, TrainerStatus)
        checkpoint = Checkpoint(self._spec.run.newest_checkpoint())
        opt_steps = checkpoint.opt_steps or 0
        status = TrainerStatus(
            epoch=epoch,
            opt_steps=opt_steps,
            checkpoint=checkpoint,
            trained=trained,
            device=before.device,
        )
        if self._spec.config.replay.is_queue:  # the gateway writes nothing before it knows
            kept = kept_at_start(self._spec.config, self._spec.run)
            status = replace(status, taken=kept or 0, kept=kept)
        record.write(status)
        record.close()
        self._event_log.log_epoch(epoch, opt_steps)

    def _watch(self, stop: StopSignals) -> bool:
        """Restart processes that died; False when the run is over or is to end.

        Raises:
            RunTakenOverError: another learner has claimed the run.
            SamplesRejectedError: most of what actors send is rejected.
            ReplayGoneError: a process died, and the replay is not where it was.
            SnapshotTakenError: another learner has taken the snapshot.
        """
        log_loss(self._spec.run.loss, log, self._failures)
        self._turns.mark_turn()
        self._pauses.note(time.monotonic())
        self._hold_replay()
        if self._snapshot is not None:
            self._snapshot.watch()
        phase = self._records.learning.read().phase
        if phase != "starting" and not self._has_loaded:
            self._has_loaded = True
            self._on_loaded()
        if phase == "done":
            return False
        if why := self._records.ingest.read().unusable:
            raise SamplesRejectedError(why)
        for name, child in list(self._children.items()):
            if self._start_refused(name):
                continue
            code = child.process.poll()
            if code is None:
                if not child.killed:
                    self._limit(child)
                continue
            if child.killed:
                self._start(name)
                continue
            if name == "trainer" and code == 0:
                return False
            if name == "evaluator" and code == 0:
                continue  # evaluation is switched off, or it has played the last model
            self._restart(child, code)
        return not stop

    def _limit(self, child: _Child) -> None:
        """Restart a process that holds too much memory, or stands still for too long."""
        if child.name == "evaluator":
            if not self._spec.config.evaluates_on_actors:
                self._limit_evaluation(child)
            return
        if child.name == "gateway" and self._limit_memory(child):
            return
        self._limit_standstill(child)

    def _limit_standstill(self, child: _Child) -> None:
        """Say that a trainer or a gateway stands still, and restart it if that is more than it
        rightly may. This does not count as a crash.

        Raises:
            ChildHungError: restarts bring nothing.
        """
        now = time.monotonic()
        saved = self._spec.run.newest_checkpoint() or 0 if child.standstills else 0
        recent = child.recent_standstills(now, saved)
        still = self._records.heartbeats.standstill(child.name, now, self._pauses.since)
        verdict = self._watches[child.name].judge(still, len(recent))
        for line in verdict.lines:
            log.log(line.level, "%s", line.text)
        if not verdict.restart:
            return
        if len(recent) >= _STANDSTILLS:
            child.process.kill()
            raise ChildHungError(child.name, len(recent), verdict.restart)
        log.error("%s; starting it again", verdict.restart)
        self._event_log.log("died", child.name, f"{verdict.restart}; it is started again")
        saved = self._spec.run.newest_checkpoint() or 0
        child.standstills[:] = [*recent, (now, saved)]
        self._replace(child)

    def _limit_memory(self, gateway: _Child) -> bool:
        """Restart a gateway that holds too much memory; this does not count as a crash."""
        held = private_bytes(gateway.process.pid)
        models = self._spec.run.model_map
        limit = gateway_memory_limit(models.stat().st_size if models.exists() else 0)
        if held <= limit:
            return False
        text = "the gateway holds %d MiB, more than its %d: starting it again"
        log.warning(text, held >> 20, limit >> 20)
        self._replace(gateway)
        return True

    def _limit_evaluation(self, evaluator: _Child) -> None:
        """Restart an evaluator that stands still, unless a debugger holds it.

        This does not count as a crash. The limit doubles each time, as environments may be slow to
        make; a pause of this process does not count.
        """
        seen = self._records.evaluations.read()
        now = time.monotonic()
        if seen is not self._evaluation or not self._has_loaded:
            self._evaluation = seen
            self._stood_s = 0.0
        self._stood_s += min(now - self._polled_at, _POLL_MAX_S)
        self._polled_at = now
        if self._stood_s <= self._patience_s or self._is_debugged(evaluator):
            return
        why = f"no step for {self._patience_s:g} s (evaluation.episode_timeout_s)"
        self._patience_s = 2.0 * self._patience_s
        self._stood_s = 0.0
        log.warning("the evaluator stands still, %s; starting it again", why)
        self._event_log.log("died", "evaluator", f"it stood still, {why}; it is started again")
        self._replace(evaluator)

    def _is_debugged(self, child: _Child) -> bool:
        debugged = self._records.heartbeats.read(child.name).debugged
        return debugged or process_state(child.process.pid) == "traced"

    def _replace(self, child: _Child) -> None:
        """Kill a process and start it again; one that does not end yet, once it has."""
        child.process.kill()
        child.killed = True
        if wait_all([child.process], _REPLACE_S):
            text = "the %s does not end: it waits for a disk or a driver that does not answer"
            log.error(text, child.name)
            return
        self._start(child.name)

    def _restart(self, child: _Child, code: int) -> None:
        """Restart a process that died, unless it would die again.

        Raises:
            RunTakenOverError: it has died because another learner has claimed the run.
            ChildFailedError: it would die again.
        """
        loss = self._spec.run.find_loss()
        if isinstance(loss, RunTakenOverError):
            raise loss  # a child may see it first
        now = time.monotonic()
        cause = child.exit_report.read()
        no_memory = self._memory_kills.explain(code)
        cause = cause or no_memory
        saved = self._spec.run.newest_checkpoint() or 0
        comes_again = code > 0 or bool(no_memory) or -code in LIMIT_SIGNALS
        recent = child.recent_restarts(now, saved, comes_again=comes_again)
        crashed_early = now - child.started < _STARTING_S and code > 0
        if crashed_early or len(recent) >= _RESTARTS:
            raise ChildFailedError(child.name, code, cause)
        if code == -signal.SIGINT and not cause:  # which they ignore, but not OpenBLAS's own
            cause = f"perhaps it may start no thread: {describe_limit(errno.EAGAIN)}"
        how = describe_exit(code) + (f": {cause}" if cause else "")
        log.warning("the %s died (%s); starting it again", child.name, how)
        self._event_log.log("died", child.name, f"{how}; it is started again")
        child.restarts[:] = [*recent, (now, saved)]
        self._start(child.name)

    # The end

    def _end_children(self) -> None:
        """End what is left of them, after a failure: with a checkpoint where that takes no time."""
        for stop in self._stops.values():
            stop.set()
        if evaluator := self._children.get("evaluator"):
            evaluator.process.kill()
        end_children([child.process for child in self._children.values()], term_s=2.0)
        if evaluator:
            end_programs_of([evaluator.process])
        for child in self._children.values():
            child.exit_report.close()

    def _end(self, stop: StopSignals) -> None:
        """End the trainer with its last checkpoint, then the gateway with the last batches."""
        if stop and (self._records.learning.read().phase == "starting" or not self._has_loaded):
            self._end_unbegun()
            return
        trainer = self._children["trainer"].process
        gateway = self._children["gateway"].process
        evaluator = self._children["evaluator"].process
        if stop:
            log.info("stopping: writing a checkpoint and telling the actors")
        unevaluated = self._wait_for_evaluation(evaluator, stop)
        self._stops["trainer"].set()  # one that is done records the last evaluation
        self._wait_for_trainer(trainer)
        if self._records.learning.read().phase != "done":
            self._stops["gateway"].set()  # the trainer died: the gateway does not know of the end
        self._wait_for_gateway(gateway)
        self._end_snapshot()
        # A trainer that was stopped before it began has no exit reason.
        reason = self._records.learning.read().exit_reason or "interrupted"
        status = stop_conditions.ended_status(self._records.read(), reason, unevaluated)
        self._log_end(reason)
        self._write_summary(status, ended=True)
        if self._on_status:
            self._on_status(status)
        for line in final_report_lines(status):
            log.info(line)
        loss = describe_loss(self._spec.run.find_loss())
        if why := loss or describe_unsaved(self._spec.run.root, status):
            raise UnsavedEndError(why, status)

    def _end_unbegun(self) -> None:
        """End a start whose trainer still loads: there is nothing to wait for, and to save."""
        log.info("stopped while the trainer loads: there is nothing new to save")
        gateway = self._children["gateway"].process
        is_open = self._gateway_is_open()
        for child in self._children.values():
            if child.process is not gateway or not is_open:
                child.process.kill()
        self._stops["gateway"].set()
        self._wait_for_gateway(gateway)
        self._end_snapshot()
        status = replace(self._records.read(), exit_reason="interrupted")
        if not self._has_loaded:  # the best model of the earlier start still counts
            status = replace(status, eval=read_best(self._spec.run.best))
        self._log_end(status.exit_reason)
        if is_open or not self._spec.run.summary_file.exists():
            self._write_summary(status, ended=True)
        if self._on_status:
            self._on_status(status)

    def _end_snapshot(self) -> None:
        """Have the last rows copied, once the gateway has brought them to the disk."""
        if self._snapshot is not None:
            self._snapshot.end()

    def _wait_for_evaluation(self, evaluator: subprocess.Popen[bytes], stop: StopSignals) -> str:
        """Wait for the last evaluation where there is one; return why the last model has none."""
        timeout_s = self._spec.config.evaluation.end_timeout_s
        deadline = time.monotonic() + timeout_s
        why = ""
        if stop_conditions.is_evaluated(self._records.learning.read().exit_reason or "interrupted"):
            while not why and wait_all([evaluator], _POLL_S):
                self._turns.mark_turn()
                self._publish_status()
                if stop:
                    why = self._unfinished_evaluation(stop_conditions.STOPPED)
                elif time.monotonic() >= deadline:
                    why = self._unfinished_evaluation(stop_conditions.late_end(timeout_s))
            why = why or self._missing_evaluation()
        if why:
            log.warning("%s", why)
        evaluator.kill()  # an evaluation that is still playing is not needed
        if stop and self._spec.config.evaluates_on_actors:
            self._stops["gateway"].set()  # it waits for a manager that plays
        return why

    def _unfinished_evaluation(self, how: str) -> str:
        """Return the sentence about the evaluation, or the confirmation, that is played."""
        reported = self._records.ingest.read().confirms
        confirming = reported or bool(self._records.read().eval.confirming)
        return stop_conditions.unfinished_evaluation(how, confirming=confirming)

    def _missing_evaluation(self) -> str:
        """Return why the last model has no evaluation though no evaluator plays any more."""
        status = self._records.read()
        learning = self._records.learning.read()
        due = learning.evaluates and learning.opt_steps > 0
        if not due or status.eval.version == learning.opt_steps:
            return ""
        by_managers = self._spec.config.evaluates_on_actors
        ingest = self._records.ingest.read()
        if ingest.confirms:  # the gateway was the first to end
            timeout_s = self._spec.config.evaluation.end_timeout_s
            return self._unfinished_evaluation(stop_conditions.late_end(timeout_s))
        evaluator = self._children.get("evaluator")
        cause = evaluator.exit_report.read() if evaluator and not by_managers else ""
        cause = cause or ingest.unevaluated
        return stop_conditions.missing_evaluation(by_managers=by_managers, cause=cause)

    def _wait_for_trainer(self, trainer: subprocess.Popen[bytes]) -> None:
        """Wait for the last checkpoint, and say now and then that, or why, it takes long."""
        began = time.monotonic()
        say_at = began + _SAY_WAIT_S
        while wait_all([trainer], _POLL_S):
            self._turns.mark_turn()
            now = time.monotonic()
            stands = self._records.heartbeats.standstill("trainer", now)
            why = str(stands or "it writes its last checkpoint")
            if now - began >= _TRAINER_END_S:
                log.warning("the trainer did not end within %.0f s: %s", _TRAINER_END_S, why)
                return
            if now >= say_at:
                say_at += _SAY_WAIT_S
                log.warning("waiting for the end of the trainer (process %d): %s", trainer.pid, why)

    def _wait_for_gateway(self, gateway: subprocess.Popen[bytes]) -> None:
        """Wait until the gateway has the last batches; it may continue to answer late managers."""
        deadline = time.monotonic() + _GATEWAY_END_S
        while wait_all([gateway], _GATEWAY_POLL_S) and time.monotonic() < deadline:
            self._turns.mark_turn()
            if self._records.ingest.read().ended:
                return

    def _answer_late_managers(self, stop: StopSignals) -> None:
        """Stay, so that managers that come late are told that the run is over."""
        gateway = self._children["gateway"].process
        deadline = time.monotonic() + self._linger_s
        if self._linger_s:
            how_long = "" if math.isinf(self._linger_s) else f" {self._linger_s:g} s"
            log.info("waiting%s for late actor hosts, to tell them; Ctrl-C exits now", how_long)
        while not stop and time.monotonic() < deadline and gateway.poll() is None:
            self._turns.mark_turn()
            pause(stop, min(_POLL_S, deadline - time.monotonic()))

    # The status

    def _log_end(self, reason: str) -> None:
        if self._spec.run.find_loss() is None:
            self._log_events()
            self._event_log.log("ended", "learner", reason)

    def _log_events(self) -> None:
        if self._spec.run.loss is not None:
            return
        ingest = self._records.ingest.read()
        self._event_log.log_changes(self._records.learning.read(), ingest)
        if self._snapshot is not None:
            progress = self._records.snapshot.read()
            config = self._spec.config.learner
            now = time.monotonic()
            self._event_log.log_snapshot(snapshot_status(config, progress, ingest, now))

    def _publish_status(self) -> None:
        self._log_events()
        now = time.monotonic()
        due = now >= self._summary_due and self._gateway_is_open()
        if not due and self._on_status is None:
            return
        status = self._records.read()
        if self._on_status is not None:
            self._on_status(status)
        if due:
            self._summary_due = now + _SUMMARY_EVERY_S
            self._write_summary(status)

    def _gateway_is_open(self) -> bool:
        """True once it has opened its accounting; until then the last start's summary stays."""
        return self._records.ingest.read().samples is not None

    def _write_summary(self, status: Status, *, ended: bool = False) -> None:
        if self._spec.run.loss is not None:
            return  # it is said already
        why = write_summary(self._spec.run.summary_file, status, ended=ended)
        if not why:
            self._failures.reset("summary")
        elif self._failures.first("summary"):
            log.warning("summary.json not written: %s", why)


def run_learner(
    plan: StartPlan,
    address: Address,
    *,
    keys: Path | None = None,
    on_status: OnStatus | None = None,
    metrics: MetricsAddress | None = None,
    linger_s: float = 0.0,
    advertise: str | None = None,
) -> int:
    """Run the learner daemon on a run directory until the run is over or a signal comes.

    Args:
        plan: the plan of this start.
        address: the address to bind.
        keys: folder with the learner's key pair and the keys that it admits; None: everybody.
        on_status: called with the status a few times a second.
        metrics: the address that serves metrics to Prometheus; None: off.
        linger_s: how long to keep telling late managers that the run is over.
        advertise: the name by which other hosts reach this one, for ``RUN/learner.json``; None:
            its full name.

    Returns:
        The exit status: 0 done or stopped on request.

    Raises:
        RunInUseError: another learner runs here.
        PortInUseError: the address is taken.
        ChildFailedError: a process died and would die again.
        SamplesRejectedError: most of what actors send is rejected.
        RunMovedError: one died, and the run's directory is not where it was.
        ReplayGoneError: one died, and the replay is not where it was.
        RunTakenOverError: another learner has claimed the run.
        SnapshotTakenError: another learner goes on from the snapshot.
        SnapshotAwayError: the snapshot's directory cannot be written at the first start.
        UnsavedEndError: the run has ended, and its end could not be written.
        ServicesError: the port for metrics is taken.
    """
    stop = StopSignals(leave=lambda: exit_at_once(plan.out))
    run = RunDirectory(plan.out)
    with ExitStack() as ending_with_us:
        ending_with_us.callback(run.unlock)
        spec, on_loaded = prepare_run(plan, run, address, keys, stop)
        supervisor = Supervisor(spec, on_status, linger_s, on_loaded=on_loaded)
        ending_with_us.enter_context(record_provenance(plan.config, run, plan.packages))
        ending_with_us.enter_context(publish_location(run, address, advertise))
        if metrics is not None:
            from vedette_services.prometheus import serve_metrics

            ending_with_us.callback(serve_metrics(metrics, StatusReader(spec).read_known))
        try:
            status = supervisor.run(stop)
        except ServicesError as error:
            # Of an end that could not be written, the records are all that tells.
            if not isinstance(error, UnsavedEndError) and run.find_loss() is None:
                run.empty_live(*run.model_maps)
            raise
    is_over = read_summary(run.root).exit_reason != "interrupted"
    # A stopped run keeps the room of what a start writes, and so starts again on a full disk.
    run.empty_live(*(() if is_over else (*run.model_maps, *run.record_maps, run.spec_file)))
    return status


def prepare_run(
    plan: StartPlan,
    run: RunDirectory,
    address: Address,
    keys: Path | None,
    stop: StopSignals | None = None,
) -> tuple[LearnerSpec, Callable[[], None]]:
    """Lock a run's directory, and make it ready for the processes of a start.

    Args: as `run_learner` takes them; `stop` ends a wait for the previous learner.

    Returns:
        What the processes are given; and what saves the settings, once the checkpoint has loaded.
    """
    raise_file_limit()
    run.make()
    run.lock(lambda: bool(stop))
    check_ports(address)
    goes_on = _continues_run(plan.config, run)
    prepared = prepare_start(plan, run)
    if not goes_on:
        run.remove_models()
    folder = keys.absolute() if keys else None
    spec = LearnerSpec(
        run, prepared.run_id, plan.config, plan.spaces, address, folder, run.claim_token
    )
    spec.write()
    return spec, prepared.save_settings


def _continues_run(config: RunConfig, run: RunDirectory) -> bool:
    """Return True if the last start of this run had the same configuration and left a model.

    With it the gateway can serve seconds before the trainer, which loads torch, publishes one.
    """
    try:
        maps = {run.model_map, run.sent_map(config)}
        return read_config(run.config_file) == config and all(map(holds_model, maps))
    except (UsageError, LatestValueFormatError, OSError):
        return False

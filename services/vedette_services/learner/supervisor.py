"""The learner daemon: starts its processes, watches them, ends them, and writes the summary."""

from __future__ import annotations

import errno
import logging
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_rl.errors import LatestValueFormatError
from vedette_rl.storage.atomic_files import write_json
from vedette_services.config.loading import read_config
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import publish_config
from vedette_services.errors import (
    ChildFailedError,
    PortInUseError,
    ServicesError,
    UnsavedEndError,
    UsageError,
    describe_exit,
)
from vedette_services.host.exit_report import ExitReportReader
from vedette_services.host.logs import set_log_context
from vedette_services.host.processes import (
    StopSignals,
    WakeupEvent,
    end_children,
    pause,
    python_module,
    spawn,
    wait_all,
)
from vedette_services.host.rate_limited import RateLimitedLog
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.events import RunEventLog
from vedette_services.run.model_map import holds_model
from vedette_services.run.outcome import describe_unsaved, exit_at_once
from vedette_services.run.resume import erase_run
from vedette_services.run.status import Status
from vedette_services.run.status_records import StatusReader, StatusRecordWriter, TrainerStatus
from vedette_services.run.status_text import final_report_lines

if TYPE_CHECKING:  # an extra
    from vedette_services.prometheus import MetricsAddress

from vedette_services.learner.flow_control import FlightLimits

log = logging.getLogger("vedette.learner")

_LOOK_S = 0.2
_SUMMARY_EVERY_S = 5.0
_PORT_WAIT_S = 5.0
_TRAINER_END_S = 90.0  # its last checkpoint may be large
_GATEWAY_END_S = 15.0  # managers hand in what they have
_EVALUATOR_END_S = 60.0  # the last model is played to the end
_RESTARTS = 3  # of one process within _RESTART_WINDOW_S, before the learner gives up
_RESTART_WINDOW_S = 300.0
_STARTING_S = 20.0  # a process that dies so early would die again


OnStatus = Callable[[Status], None]


@dataclass(slots=True)
class _Child:
    """One of the three processes."""

    name: str
    process: subprocess.Popen[bytes]
    exit_report: ExitReportReader
    started: float
    restarts: list[float] = field(default_factory=list)


class Supervisor:
    """Starts gateway, trainer and evaluator on one run, and holds them together."""

    def __init__(self, spec: LearnerSpec, on_status: OnStatus | None) -> None:
        self._spec, self._on_status = spec, on_status
        run = spec.run
        for path in (run.learning_map, run.ingest_map, run.evaluation_map):
            path.unlink(missing_ok=True)  # of an earlier start: its last phase was "done"
        self._records = StatusReader(spec)
        self._children: dict[str, _Child] = {}
        self._wakeup = WakeupEvent()  # set by the trainer, cleared by the gateway: there is a model
        self._event_log = RunEventLog(run.events_file)
        self._summary_due = 0.0
        self._failures = RateLimitedLog()

    def run(self, stop: StopSignals) -> int:
        """Serve to the end of the run; the exit status."""
        self._event_log.log(
            "started", "learner", f"on {socket.gethostname()} at {self._spec.address}"
        )
        try:
            for name in ("trainer", "gateway", "evaluator"):
                self._start(name)
            while self._watch(stop):
                self._publish_status()
                pause(stop, _LOOK_S)
            self._end(stop)
            return 0
        except ServicesError as error:
            self._event_log.log("failed", "learner", str(error))
            raise
        finally:
            end_children([child.process for child in self._children.values()], term_s=2.0)
            for child in self._children.values():
                child.exit_report.close()
            self._wakeup.close()

    # Children

    def _start(self, name: str) -> None:
        arguments = [str(self._spec.run.root)]
        if name == "trainer":
            # every start of the trainer is an epoch: its models are newer than all before
            epoch = self._spec.run.begin_epoch().epoch
            set_log_context(run=self._spec.run_id, epoch=epoch)
            self._announce(epoch)
            arguments.append(str(epoch))
        wakeup = [self._wakeup.fileno()] if name in ("trainer", "gateway") else []
        arguments += map(str, wakeup)
        child = self._children.get(name)
        command = python_module(f"vedette_services.learner.{name}", *arguments)
        words = ExitReportReader()
        fds = [*wakeup, words.fileno()]
        process = spawn(command, environment=words.environment, pass_fds=fds)
        words.close_child_end()
        if child:
            child.exit_report.close()
        restarts = child.restarts if child else []
        self._children[name] = _Child(name, process, words, time.monotonic(), restarts)

    def _announce(self, epoch: int) -> None:
        """Where the trainer will go on, for whoever asks before it has got there."""
        board = StatusRecordWriter(self._spec.run.learning_map, TrainerStatus)
        opt_steps = self._spec.run.newest_checkpoint() or 0
        board.write(TrainerStatus(epoch=epoch, opt_steps=opt_steps))
        board.close()
        self._event_log.log_epoch(epoch, opt_steps)

    def _watch(self, stop: StopSignals) -> bool:
        """Look after the children; False when the run is over or is to end."""
        if self._records.learning.read().phase == "done":
            return False
        for name, child in list(self._children.items()):
            code = child.process.poll()
            if code is None:
                if name == "gateway":
                    self._limit_memory(child)
                continue
            if name == "trainer" and code == 0:
                return False
            if name == "evaluator" and code == 0:
                continue  # evaluation is switched off, or it has played the last model
            self._restart(child, code)
        return not stop

    def _limit_memory(self, gateway: _Child) -> None:
        """End and start anew a gateway that somebody fills up; that does not count as a crash."""
        held = private_bytes(gateway.process.pid)
        limit = gateway_memory_limit(file_bytes(self._spec.run.model_map))
        if held <= limit:
            return
        text = "the gateway holds %d MiB, more than its %d: starting it again"
        log.warning(text, held >> 20, limit >> 20)
        gateway.process.kill()
        wait_all([gateway.process], 5.0)
        self._start(gateway.name)

    def _restart(self, child: _Child, code: int) -> None:
        """A process died: start it again, unless that would only repeat."""
        now, words = time.monotonic(), child.exit_report.read()
        recent = [t for t in child.restarts if now - t < _RESTART_WINDOW_S]
        crashed_early = now - child.started < _STARTING_S and code > 0
        if crashed_early or len(recent) >= _RESTARTS:
            raise ChildFailedError(child.name, code, words)
        how = describe_exit(code) + (f": {words}" if words else "")
        log.warning("the %s died (%s); starting it again", child.name, how)
        self._event_log.log("died", child.name, f"{how}; it is started again")
        child.restarts[:] = [*recent, now]
        self._start(child.name)

    # The end

    def _end(self, stop: StopSignals) -> None:
        """Trainer first: its last checkpoint. Then the gateway: everybody is told, and drained."""
        trainer, gateway = self._children["trainer"].process, self._children["gateway"].process
        if stop:
            log.info("stopping: writing a checkpoint and telling the actors")
            trainer.terminate()
        evaluator = self._children["evaluator"].process
        if stop or self._records.learning.read().exit_reason == "target_return":
            evaluator.kill()  # nobody waits for what it plays; what it has written is whole
        if wait_all([trainer], _TRAINER_END_S):
            log.warning("the trainer did not end within %.0f s", _TRAINER_END_S)
        if self._records.learning.read().phase != "done":
            gateway.terminate()  # the trainer died, so the gateway does not know of the end
        wait_all([gateway], _GATEWAY_END_S)
        if wait_all([evaluator], _EVALUATOR_END_S):
            log.warning("the last evaluation did not end within %.0f s", _EVALUATOR_END_S)
        self._log_events()
        # A trainer that was stopped before it began has no exit reason.
        reason = self._records.learning.read().exit_reason or "interrupted"
        status = replace(self._records.read(), exit_reason=reason)
        self._event_log.log("ended", "learner", reason)
        self._write_summary(status)
        if self._on_status:
            self._on_status(status)
        for line in final_report_lines(status):
            log.info(line)
        if why := describe_unsaved(self._spec.run.root, status):
            raise UnsavedEndError(why, status)

    # The status

    def _log_events(self) -> None:
        """Keep what has happened."""
        self._event_log.log_changes(self._records.learning.read(), self._records.ingest.read())

    def _publish_status(self) -> None:
        self._log_events()
        now = time.monotonic()
        # Accounting that nobody has opened yet must not be written over that of the last start.
        due = now >= self._summary_due and bool(self._records.ingest.read().samples)
        if not due and self._on_status is None:
            return
        status = self._records.read()
        if self._on_status is not None:
            self._on_status(status)
        if due:
            self._summary_due = now + _SUMMARY_EVERY_S
            self._write_summary(status)

    def _write_summary(self, status: Status) -> None:
        try:
            write_json(self._spec.run.summary_file, status.as_dict())
        except OSError as error:  # a full disk: what matters more is still running
            if self._failures.first("summary"):
                log.warning("summary.json not written: %s", error.strerror or error)
        else:
            self._failures.reset("summary")


def run_learner(
    config: RunConfig,
    out: Path,
    address: Address,
    *,
    keys: Path | None = None,
    fresh: bool = False,
    note: str = "",
    on_status: OnStatus | None = None,
    metrics: MetricsAddress | None = None,
) -> int:
    """Run the learner daemon on a run directory until the run is over or a signal comes.

    Args:
        config: what to run; saved as `config.toml`.
        out: the run directory; one with a run in it goes on.
        fresh: erase such a run instead.
        note: where the configuration comes from: a comment in `config.toml`.
        address: where to bind.
        keys: folder with the learner's pair and those whom it lets in; None: everybody.
        on_status: called with the status a few times a second.
        metrics: where to serve them to Prometheus; None: off.

    Returns:
        The exit status: 0 done or stopped on request.

    Raises:
        RunInUseError: another learner runs here.
        PortInUseError: the address is taken.
        ChildFailedError: a process died and would die again.
        UnsavedEndError: the run has ended, and its end could not be written.
        MetricsError: the port for metrics is taken.
    """
    stop = StopSignals(leave=lambda: exit_at_once(out))
    run = RunDirectory(out)
    run.make()
    run.lock()
    check_ports(address)
    if fresh:
        erase_run(run)
        run.make()
    if not _continues_run(config, run):
        run.model_map.unlink(missing_ok=True)
    publish_config(config, run.config_file, note)
    spec = LearnerSpec(run, run.ensure_id(), config, address, keys.absolute() if keys else None)
    spec.write()
    supervisor = Supervisor(spec, on_status)
    with ExitStack() as ending_with_us:
        if metrics is not None:
            from vedette_services.prometheus import serve_metrics

            ending_with_us.callback(serve_metrics(metrics, StatusReader(spec).read))
        return supervisor.run(stop)


def _continues_run(config: RunConfig, run: RunDirectory) -> bool:
    """Whether the last start of this run had the same configuration, and left a model.

    With that the gateway can serve at once: samples flow again seconds before the trainer, which
    has torch to load, publishes a newer one.
    """
    try:
        return read_config(run.config_file) == config and holds_model(run.model_map)
    except (UsageError, LatestValueFormatError, OSError):
        return False


def check_ports(address: Address, wait_s: float = _PORT_WAIT_S) -> None:
    """See that the three ports can be bound, before anything is started.

    Raises:
        PortInUseError: one of them is still taken after `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for port in (address.port, address.port + 1, address.port + 2):
        while True:
            try:
                with socket.socket(family) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((address.host, port))
                    break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                    why = error.strerror or str(error)
                    raise PortInUseError(address, why, error.errno) from error
                time.sleep(0.1)


# libzmq bounds a frame and the number of messages, not the frames of one message. Nothing in
# the gateway can: whoever it serves is answered only between messages. Ending it costs nothing
# but the moment of its restart, because it keeps no state that it could not reread.

_OWN_BYTES = 512 << 20  # interpreter, libraries, connections, statuses on their way
_MODELS = 8  # bodies: the map's copy, the one going out, and those queued for slow readers


def gateway_memory_limit(model_map_bytes: int) -> int:
    """Return the bytes that a gateway may hold: twice what managers may have in flight, and more.

    Args:
        model_map_bytes: of the map that models come in, which has room for three.
    """
    return _OWN_BYTES + 2 * FlightLimits().payload_bytes + _MODELS * model_map_bytes // 3


def private_bytes(pid: int) -> int:
    """Bytes in memory that are a process's own, without the files that it maps.

    0 where the system does not say (it is not Linux), or the process is gone.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def file_bytes(path: Path) -> int:
    """The size of a file, 0 while there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

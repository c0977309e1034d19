"""Runs the learner and one actor manager on this machine, as child processes over loopback."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vedette.live import View
from vedette.local.log_files import LogFiles
from vedette_services.config import RunConfig
from vedette_services.config.imported_names import imported_names, package_of
from vedette_services.config.settings import ENVIRONMENT
from vedette_services.errors import (
    DONE,
    IN_THE_LOG,
    NO_ACTOR,
    REFUSED,
    RUN_OVER,
    USAGE,
    DaemonFailedError,
    ServicesError,
    UnsavedEndError,
    describe_exit,
)
from vedette_services.host.exit_report import ExitReportReader
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.processes import (
    StopSignals,
    end_children,
    python_module,
    spawn,
    was_stopped,
)
from vedette_services.host.system import anonymous_file
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.outcome import exit_at_once, last_status, startup_stage, status_at_end
from vedette_services.run.provenance import COMMAND, command_line, record_failure
from vedette_services.run.start_plan import StartPlan
from vedette_services.status.status import Status
from vedette_services.status.text import path_argument

ASK_EVERY_S = 0.5
STOP_S = 60.0  # for the learner's last checkpoint
ACTORS_STOP_S = 15.0  # a manager drains for 10 s at most and sends a last report
CRASH_STOP_S = 2.0
RESTARTS = 5
RESTART_WINDOW_S = 60.0
_MANAGER = "actor manager"
_STOPPED = "a signal that this run did not send has stopped it"
MANAGER_ID = "local"
"""The same at every start: a new incarnation means that the earlier one is dead."""

READ_ALREADY = (
    ENVIRONMENT,
    "VEDETTE_ENV",
    "VEDETTE_AGENT",
    "VEDETTE_OUT",
    "VEDETTE_BIND",
    "VEDETTE_KEYS",
    "VEDETTE_LOG_FORMAT",  # `run` reads its daemons' logs itself
)
"""Variables that are in the resolved configuration already, and not passed on."""

Child = subprocess.Popen[bytes]
AskStatus = Callable[[float], Status | None]
"""Asks for the learner's status and waits for at most this many seconds."""


def run_locally(plan: StartPlan, *, view: View | None = None, signals: bool = False) -> Status:
    """Train with a learner and one actor manager on this machine, until it is over.

    The daemons end before this returns or raises, and also if this process is killed.

    Args:
        plan: the plan of this start.
        view: shows the run.
        signals: handle stop signals (`stop_signals`): the first asks the learner to stop, a second
            kills all daemons and ends this process. Without it, KeyboardInterrupt ends the daemons
            and is raised again.

    Returns:
        The last status, as in ``summary.json``; empty if it was stopped before it had begun.

    Raises:
        DaemonFailedError: a daemon ended badly.
        UnsavedEndError: the run has ended, and its end could not be written.
    """
    from vedette_services.status.client import StatusClient

    view = view or View()
    run = LocalRun(plan, view=view)

    def leave() -> None:
        run.kill()
        view.release()
        exit_at_once(plan.out)

    stop = StopSignals(leave=leave) if signals else None
    with run, StatusClient(run.address) as asker:
        return run.watch(asker.ask, stop)


def daemon_command(*arguments: str) -> list[str]:
    """Return the command line of one of our daemons."""
    return python_module("vedette.cli", *arguments)


class LocalRun:
    """The daemons of one run on this machine; as a context manager, it ends them all.

    Args:
        command: turns a daemon's arguments into the command line that starts it. The others are
            those of `run_locally`.
    """

    def __init__(
        self,
        plan: StartPlan,
        *,
        view: View,
        command: Callable[..., list[str]] = daemon_command,
    ) -> None:
        self._plan = plan
        self._config = plan.config
        self._out = plan.out
        self._view = view
        self._command = command
        self._logs = plan.out / "log"
        self._log_files = LogFiles(view.print_line)
        self.address = Address("127.0.0.1", free_port())
        self._children: dict[str, Child] = {}
        self._exit_reports: dict[str, ExitReportReader] = {}
        self._manager_ends: list[float] = []
        self._manager_due = 0.0
        self._began = time.time()
        self._last: Status | None = None  # the learner's last answer
        self._events_bytes = 0
        self._events_seen = self._read_events()
        self._memory_kills = MemoryKills()

    def __enter__(self) -> LocalRun:
        RunDirectory(self._out).make()
        self._view.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if learner := self._children.get("learner"):
                end_children([learner], term_s=STOP_S)
            if actors := self._children.get("actors"):
                # After a crash, no learner takes the batches that they still hold.
                end_children([actors], term_s=CRASH_STOP_S if error[0] else ACTORS_STOP_S)
            failed = error[1] if error else None
            if isinstance(failed, DaemonFailedError) and failed.name == _MANAGER:
                record_failure(RunDirectory(self._out), str(failed), self._began)
        finally:
            for report in self._exit_reports.values():
                report.close()
            self._view.__exit__(*error)

    def kill(self) -> None:
        """End every daemon at once."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()

    def watch(self, ask: AskStatus, stop: StopSignals | None) -> Status:
        """Start both daemons, show the run until the learner ends, then end the actors.

        Returns:
            The last status; empty if it was stopped before it had begun.

        Raises:
            DaemonFailedError: one of them ended badly.
            UnsavedEndError: the end could not be written.
        """
        self._start_learner()
        if self._config.actors.count:  # else it trains offline
            self._start_manager()
        named = path_argument(str(self._out))
        self._view.print_line(f"in another terminal: vedette status {named}")
        learner = self._children["learner"]
        deadline: float | None = None
        while True:
            if stop and deadline is None:
                self._view.print_line(f"stopping: {self._describe_saving()}")
                learner.terminate()
                # The learner waits for their last batches and reports.
                self._end_actors()
                deadline = time.monotonic() + STOP_S
            if deadline is not None and time.monotonic() > deadline:
                learner.kill()
            if _ended(learner, ASK_EVERY_S if deadline is None else 0.1):
                break
            self._show(ask(ASK_EVERY_S))
            self._print_deaths()
            self._log_files.check(self._log(name) for name in self._children)
            if deadline is None:
                self._restart_manager()
        return self._close(learner.returncode, stopped=bool(stop))

    def _show(self, status: Status | None) -> None:
        self._last = status or self._last
        if self._last is None:
            status = Status(waits=startup_stage(RunDirectory(self._out), self._began))
        elif status is None:
            status = status_at_end(self._out, self._last)
        self._view.show(status)

    def _read_events(self) -> list[RunEvent]:
        """What earlier starts have logged."""
        with suppress(OSError):
            return read_events(RunDirectory(self._out).events_file)[0]
        return []

    def _print_deaths(self) -> None:
        """Print a line for each of the learner's processes that died, from the log of events."""
        path = RunDirectory(self._out).events_file
        with suppress(OSError):
            if (size := path.stat().st_size) == self._events_bytes:
                return
            self._events_bytes = size
            events, _ = read_events(path)
            for event in events:
                if event.kind == "died" and event not in self._events_seen:
                    self._view.print_line(f"the {event.who} died: {event.text}")
            self._events_seen = events

    def _describe_saving(self) -> str:
        if self._last is None:
            return "the learner has not begun, there is nothing to save"
        if not self._last.time.training_s:
            return "nothing was trained since the start, there is nothing new to save"
        return "the learner writes a checkpoint"

    def _close(self, learner: int, *, stopped: bool) -> Status:
        """Return the last status, or raise the learner's failure, given its exit status."""
        if stopped and was_stopped(learner):
            if self._last is None:
                return Status()  # before it had begun
            learner = 0  # it had ended: it answers signals from before its first answer on
        status = last_status(self._out, self._last, since=self._began, stopped=stopped)
        message = self._exit_reports["learner"].read()
        if message.startswith(UnsavedEndError.begins):
            raise UnsavedEndError(message.removeprefix(UnsavedEndError.begins), status)
        if learner != 0:
            raise self._failed("learner", learner)
        if status.exit_reason == "interrupted":  # they would wait for it to come back
            self._end_actors()
        # Else they end by themselves: the learner has sent them the end of the run.
        if actors := self._children.get("actors"):
            _ended(actors, ACTORS_STOP_S)
        return status

    def _end_actors(self) -> None:
        if actors := self._children.get("actors"):
            actors.terminate()

    def _start_learner(self) -> None:
        # The directory is for people, who see it in lists of processes; its only manager is ours.
        arguments = ["--out", str(self._out), "--bind", str(self.address), "--linger", "0"]
        plan = anonymous_file("plan.json")  # a file would need room on a disk that may be full
        try:
            with os.fdopen(os.dup(plan), "w", encoding="utf-8") as file:
                file.write(self._plan.to_json())
            os.lseek(plan, 0, os.SEEK_SET)  # macOS opens /dev/fd where the descriptor stands
            self._start("learner", "learner", "--plan", f"/dev/fd/{plan}", *arguments, plan=plan)
        finally:
            os.close(plan)

    def _start_manager(self) -> None:
        allowed = [f"--allow-import={name}" for name in configured_packages(self._config)]
        count = str(self._config.actors.count)
        arguments = ["--learner", str(self.address), "--count", count, "--id", MANAGER_ID]
        arguments.append("--give-up")  # an environment is not mended meanwhile
        self._start("actors", "actors", *arguments, *allowed)

    def _start(self, name: str, *arguments: str, plan: int | None = None) -> None:
        environment = {**dict.fromkeys(READ_ALREADY, ""), "PYTHONUNBUFFERED": "1"}
        environment[COMMAND] = os.environ.get(COMMAND) or command_line()
        argv = self._command(*arguments)
        self._logs.mkdir(exist_ok=True)  # somebody may have removed it
        report = ExitReportReader()
        environment.update(report.environment)
        self._children[name] = spawn(
            argv,
            name=f"the {name}",
            environment=environment,
            log=self._log(name),
            pass_fds=[report.fileno(), *([] if plan is None else [plan])],
            own_group=True,
        )
        report.close_child_end()
        if before := self._exit_reports.get(name):
            before.close()
        self._exit_reports[name] = report

    def _restart_manager(self) -> None:
        """Restart a manager that crashed or that a signal from elsewhere has stopped, a few times,
        unless that would only repeat."""
        actors = self._children.get("actors")
        if actors is None or (status := actors.poll()) is None:
            return
        if status == DONE and self._exit_reports["actors"].read().startswith(RUN_OVER):
            return
        now = time.monotonic()
        if not self._manager_due:
            ends = [at for at in self._manager_ends if now - at < RESTART_WINDOW_S]
            hopeless = self._exit_reports["actors"].read().startswith(NO_ACTOR)
            if hopeless or status in (USAGE, REFUSED) or len(ends) >= RESTARTS:
                raise self._failed(_MANAGER, status)
            self._manager_ends = [*ends, now]
            self._manager_due = now + 0.25 * 2 ** len(ends)
            why = _STOPPED if status == DONE else self._memory_kills.explain(status)
            how = describe_exit(status) + (f" ({why})" if why else "")
            self._view.print_line(f"the actor manager ended with {how}: starting it again")
        elif now >= self._manager_due:
            self._manager_due = 0.0
            self._start_manager()

    def _failed(self, name: str, status: int) -> ServicesError:
        child = "learner" if name == "learner" else "actors"
        log = self._log(child)
        message = self._exit_reports[child].read() or self._memory_kills.explain(status)
        if status == DONE:
            message = _STOPPED
        lines = last_lines(log, 10) if status > 0 else []  # a signal is not logged
        if not message or message.endswith(IN_THE_LOG):  # its exit report has no reason
            if status not in (USAGE, REFUSED):
                for line in lines[:-1]:
                    self._view.print_line(line)
            message = message or (lines[-1] if lines else "")
        return DaemonFailedError(name, status, log, message.removeprefix("vedette: "))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def configured_packages(config: RunConfig) -> list[str]:
    """Return the packages named in the configuration, which local actors may import."""
    parts = config.model_dump(mode="json", include={"env", "agent", "actors"})
    return sorted({package_of(name) for name in imported_names(parts)})


def free_port() -> int:
    """Find a port of this machine that is free with the two above it, below the ephemeral ones.

    Raises:
        ServicesError: none was found.
    """
    rng = random.Random()
    for _ in range(200):
        port = rng.randrange(15_000, 32_000)
        if all(_is_free(port + above) for above in range(3)):
            return port
    raise ServicesError("no three free ports in a row between 15000 and 32000 on 127.0.0.1")


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log that are not blank."""
    try:
        with log.open("rb") as f:
            f.seek(max(0, log.stat().st_size - 16_384))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ended(child: Child, wait_s: float) -> bool:
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True

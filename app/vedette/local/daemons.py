"""A whole run on this machine: the same daemons as anywhere, as child processes over loopback."""

from __future__ import annotations

import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vedette.live import View
from vedette_services.actors.run_validation import imported_names
from vedette_services.config import RunConfig, write_config
from vedette_services.config.settings import ENVIRONMENT
from vedette_services.errors import (
    IN_THE_LOG,
    REFUSED,
    USAGE,
    DaemonFailedError,
    ServicesError,
    UnsavedEndError,
    describe_exit,
)
from vedette_services.host.exit_report import ExitReportReader
from vedette_services.host.processes import StopSignals, end_children, python_module, spawn
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import exit_at_once, last_status, startup_stage
from vedette_services.run.status import Status

ASK_EVERY_S = 0.5
STOP_S = 60.0  # for the learner's last checkpoint
ACTORS_STOP_S = 15.0  # a manager drains for 10 s at most, and sends a last report
CRASH_STOP_S = 2.0
RESTARTS = 5
RESTART_WINDOW_S = 60.0
MANAGER_ID = "local"
"""The same at every start: a new incarnation of it means that the one before it is dead."""

READ_ALREADY = (
    ENVIRONMENT,
    "VEDETTE_ENV",
    "VEDETTE_AGENT",
    "VEDETTE_OUT",
    "VEDETTE_BIND",
    "VEDETTE_KEYS",
    "VEDETTE_LOG_FORMAT",  # `run` reads its daemons' logs itself
)
"""Variables that the command line read: they are in the resolved configuration already."""

Child = subprocess.Popen[bytes]
AskStatus = Callable[[float], Status | None]
"""The learner's status, waiting so many seconds at most."""


def run_locally(
    config: RunConfig,
    out: Path,
    *,
    fresh: bool = False,
    note: str = "",
    view: View | None = None,
    signals: bool = False,
) -> Status:
    """Train with a learner and one actor manager on this machine, until it is over.

    The children end before this returns or raises; should this process be killed, they die too.

    Args:
        config: a checked configuration.
        out: the run's directory; one with a checkpoint resumes.
        fresh: begin anew; a run that is there is erased.
        note: where the configuration comes from: a comment in `config.toml`.
        view: what shows it.
        signals: take SIGTERM and Ctrl-C: the first asks the learner to stop, a second kills all
            and leaves. Without, KeyboardInterrupt ends the daemons and is raised again.

    Returns:
        The last status, as ``summary.json`` has it; empty where it was stopped before it had begun.

    Raises:
        DaemonFailedError: a daemon ended badly.
        UnsavedEndError: the run has ended, and its end could not be written.
    """
    from vedette_services.run.status_client import StatusClient

    run = LocalRun(config, out, fresh=fresh, note=note, view=view or View())

    def leave() -> None:
        run.kill()
        exit_at_once(out)

    stop = StopSignals(leave=leave) if signals else None
    with run, StatusClient(run.address) as asker:
        return run.watch(asker.ask, stop)


def daemon_command(*arguments: str) -> list[str]:
    """The command line of one of our daemons."""
    return python_module("vedette.cli", *arguments)


class LocalRun:
    """The daemons of one run on this machine. As a context, it leaves none of them behind.

    Args:
        config: a checked configuration.
        out: the run's directory.
        fresh: begin anew; a run that is there is erased.
        view: what shows it.
        note: where the configuration comes from.
        command: from a daemon's arguments to the command line that starts it.
    """

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        *,
        fresh: bool,
        view: View,
        note: str = "",
        command: Callable[..., list[str]] = daemon_command,
    ) -> None:
        self._config, self._out, self._fresh, self._view = config, out, fresh, view
        self._command, self._logs, self._note = command, out / "log", note
        # Another start may be on its way in this directory; one of the two will be refused.
        self._handed_over = self._logs / f"config-{secrets.token_hex(4)}.toml"
        self.address = Address("127.0.0.1", free_port())
        self._children: dict[str, Child] = {}
        self._words: dict[str, ExitReportReader] = {}
        self._manager_ends: list[float] = []
        self._manager_due = 0.0
        self._began = time.time()
        self._heard: Status | None = None  # what the learner answered last

    def __enter__(self) -> LocalRun:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._view.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if learner := self._children.get("learner"):
                end_children([learner], term_s=STOP_S)
            if actors := self._children.get("actors"):
                # After a crash nobody takes what they still hold.
                end_children([actors], term_s=CRASH_STOP_S if error[0] else ACTORS_STOP_S)
        finally:
            for words in self._words.values():
                words.close()
            self._handed_over.unlink(missing_ok=True)
            self._view.__exit__(*error)

    def kill(self) -> None:
        """End every daemon at once."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()

    def watch(self, ask: AskStatus, stop: StopSignals | None) -> Status:
        """Start both daemons and show the run until the learner ends; then see the actors off.

        Returns:
            The last status; empty where it was stopped before it had begun.

        Raises:
            DaemonFailedError: one of them ended badly.
            UnsavedEndError: the end could not be written.
        """
        self._start_learner()
        self._start_manager()
        self._view.print_line(f"in another terminal: vedette status --learner {self.address}")
        learner = self._children["learner"]
        deadline: float | None = None
        while True:
            if stop and deadline is None:
                self._view.print_line(f"stopping: {self._to_save()}")
                learner.terminate()
                # They hand in what they have and say so, for which the learner waits.
                self._children["actors"].terminate()
                deadline = time.monotonic() + STOP_S
            if deadline is not None and time.monotonic() > deadline:
                learner.kill()
            if _ended(learner, ASK_EVERY_S if deadline is None else 0.1):
                break
            self._show(ask(ASK_EVERY_S))
            if deadline is None:
                self._look_after_manager()
        return self._close(learner.returncode, stopped=bool(stop))

    def _show(self, status: Status | None) -> None:
        self._heard = status or self._heard
        if self._heard is None:
            status = Status(waits=startup_stage(RunDirectory(self._out), self._began))
        self._view.show(status)

    def _to_save(self) -> str:
        """What there is to save when it is stopped now."""
        if self._heard is None:
            return "the learner has not begun, there is nothing to save"
        if not self._heard.time.training_s:
            return "nothing was trained since the start, there is nothing new to save"
        return "the learner writes a checkpoint"

    def _close(self, learner: int, *, stopped: bool) -> Status:
        """What the run came to, by the learner's exit status; at once, before another start."""
        if stopped and learner == -signal.SIGTERM:
            return Status()  # before it had begun
        status = last_status(self._out, self._heard, since=self._began, stopped=stopped)
        message = self._words["learner"].read()
        if message.startswith(UnsavedEndError.begins):
            raise UnsavedEndError(message.removeprefix(UnsavedEndError.begins), status)
        if learner != 0:
            raise self._failed("learner", learner)
        # They end by themselves: the learner has told them that the run is over.
        _ended(self._children["actors"], ACTORS_STOP_S)
        return status

    def _start_learner(self) -> None:
        write_config(self._config, self._handed_over, "what `vedette run` gave to the learner")
        arguments = [str(self._handed_over), "--out", str(self._out), "--bind", str(self.address)]
        arguments += ["--fresh", "--force"] if self._fresh else []
        arguments += ["--note", self._note] if self._note else []
        self._start("learner", "learner", *arguments)

    def _start_manager(self) -> None:
        allowed = [f"--allow-import={name}" for name in configured_packages(self._config)]
        count = str(self._config.actors.count)
        arguments = ["--learner", str(self.address), "--count", count, "--id", MANAGER_ID]
        self._start("actors", "actors", *arguments, *allowed)

    def _start(self, name: str, *arguments: str) -> None:
        environment = {**dict.fromkeys(READ_ALREADY, ""), "PYTHONUNBUFFERED": "1"}
        argv, words = self._command(*arguments), ExitReportReader()
        environment.update(words.environment)
        self._children[name] = spawn(
            argv,
            environment=environment,
            log=self._log(name),
            pass_fds=[words.fileno()],
            own_group=True,
        )
        words.close_child_end()
        if before := self._words.get(name):
            before.close()
        self._words[name] = words

    def _look_after_manager(self) -> None:
        """Start the manager again where it crashed, a few times; 2 and 3 would only repeat."""
        status = self._children["actors"].poll()
        if status is None or status == 0:
            return
        now = time.monotonic()
        if not self._manager_due:
            ends = [at for at in self._manager_ends if now - at < RESTART_WINDOW_S]
            if status in (USAGE, REFUSED) or len(ends) >= RESTARTS:
                raise self._failed("actor manager", status)
            self._manager_ends = [*ends, now]
            self._manager_due = now + 0.25 * 2 ** len(ends)
            self._view.print_line(
                f"the actor manager ended with {describe_exit(status)}: starting it again"
            )
        elif now >= self._manager_due:
            self._manager_due = 0.0
            self._start_manager()

    def _failed(self, name: str, status: int) -> ServicesError:
        child = "learner" if name == "learner" else "actors"
        log, message = self._log(child), self._words[child].read()
        lines = last_lines(log, 10) if status > 0 else []  # a signal is not told of in a log
        if not message or message.endswith(IN_THE_LOG):  # it could not say why itself
            if status not in (USAGE, REFUSED):
                for line in lines[:-1]:
                    self._view.print_line(line)
            message = message or (lines[-1] if lines else "")
        return DaemonFailedError(name, status, log, message.removeprefix("vedette: "))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def configured_packages(config: RunConfig) -> list[str]:
    """The packages that the operator named in the configuration: local actors may import them."""
    agent, actors = config.agent.model_dump(mode="json"), config.actors.model_dump(mode="json")
    names = imported_names(config.env, agent, actors)
    return sorted({name.partition(":")[0].partition(".")[0] for name in names})


def free_port(rng: random.Random | None = None) -> int:
    """A port of this machine that is free with the two above it, below the ephemeral ones.

    Raises:
        ServicesError: none was found.
    """
    rng = rng or random.Random()
    for _ in range(200):
        port = rng.randrange(15_000, 32_000)
        if all(_is_free(port + above) for above in range(3)):
            return port
    raise ServicesError("no three free ports in a row between 15000 and 32000 on 127.0.0.1")


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log that say something."""
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

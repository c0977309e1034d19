"""Runs trials as ``vedette run`` would, each in a child process, several at a time."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vedette.local.daemons import READ_ALREADY, STOP_S, daemon_command, last_lines
from vedette_rl.number_format import format_clock, format_number
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import (
    DONE,
    FAILED,
    REFUSED,
    USAGE,
    SettingError,
    describe_exit,
)
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.output import Say
from vedette_services.host.processes import StopSignals, end_children, pause, spawn, was_stopped
from vedette_services.host.system import count_cores
from vedette_services.run.outcome import read_summary
from vedette_services.run.provenance import COMMAND, command_line
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.sweep_files import CONFIGURED, JOBS, is_trial_config
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import describe_missed_target, describe_outcome
from vedette_services.status.text import status_line

LINE_EVERY_S = 10.0
_LOOK_S = 0.2
_STOP_S = STOP_S + 10.0  # a run gives its own learner STOP_S


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a sweep.

    Args:
        name: ``seed-3``, or ``agent.learning_rate=0.001/seed-3``.
        config: its complete configuration.
        out: its run directory: the folder `name` in the sweep's directory.
        changes: the swept keys and their values in this trial.
        notes: what was decided while its configuration was loaded, a line each.
        plan: what its start does; None: it is not planned yet.
    """

    name: str
    config: RunConfig
    out: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    plan: StartPlan | None = None


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial.

    Args:
        trial: the trial.
        status: exit status of ``vedette run``; 0 also if it was over already or has not begun.
        message: the outcome in a line.
    """

    trial: Trial
    status: int
    message: str


@dataclass(slots=True)
class _Running:
    trial: Trial
    process: subprocess.Popen[bytes]
    before_s: float | None  # the time of the status that it found
    kill_at: float | None = None  # monotonic, once it was asked to stop


class Jobs:
    """The trials that run now; none is left once `end` has returned.

    ::

        if jobs.has_room:
            jobs.start(trial)
        for outcome in jobs.collect():      # of those that have ended
            ...
        jobs.wait(stop)
        jobs.end()

    Args:
        out: the sweep's directory.
        count: number of trials at a time.
        start: the kind of start of each trial; a fresh one erases runs that exist.
        say: called with each line of progress.
        command: returns the command line for a command's arguments.
        known: what a probe knows of the trials' environments (`EnvironmentProbe.known`), so that
            none of them makes one to learn of it.
    """

    def __init__(
        self,
        out: Path,
        count: int,
        start: Start,
        say: Say,
        command: Callable[..., list[str]] = daemon_command,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self._out = out
        self._count = max(1, count)
        self._say = say
        self._command = command
        self._options = start.options
        self._known = known
        self._running: list[_Running] = []
        self._memory_kills = MemoryKills()
        self._began = time.monotonic()
        self._next_lines = self._began + LINE_EVERY_S

    @property
    def has_room(self) -> bool:
        """True if another trial may start."""
        return len(self._running) < self._count

    @property
    def running(self) -> list[Trial]:
        """The trials that run."""
        return [running.trial for running in self._running]

    def start(self, trial: Trial) -> None:
        """Start a trial, which resumes a run that exists."""
        config = self._out / JOBS / f"{_slug(trial)}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        if config.exists() and not is_trial_config(config):
            fix = "rename it, or name another folder"
            raise SettingError(f"--out {self._out}", f"{config} is not of a sweep", fix)
        write_config(trial.config, config, f"{CONFIGURED} {trial.name}")
        argv = self._command(
            "run",
            str(config),
            "--complete",
            "--out",
            str(trial.out),
            *self._options,
            *self._hand_on(config.with_suffix(".known.json")),
        )
        environment = {**dict.fromkeys(READ_ALREADY, ""), "PYTHONUNBUFFERED": "1"}
        environment[COMMAND] = command_line()
        before_s = read_summary(trial.out).time_s
        process = spawn(argv, environment=environment, log=self._log(trial), own_group=True)
        self._running.append(_Running(trial, process, before_s))

    def _hand_on(self, file: Path) -> list[str]:
        """Write what is known of environments; return the options that name the file."""
        if not self._known:
            return []
        replace_file(file, json.dumps(self._known).encode())
        return ["--known", str(file)]

    def collect(self) -> Iterator[TrialOutcome]:
        """Yield the outcomes of the trials that have ended since the last call."""
        for running in list(self._running):
            status = running.process.poll()
            if status is not None:
                self._running.remove(running)
                yield self._outcome(running, status)
            elif running.kill_at is not None and time.monotonic() > running.kill_at:
                running.process.kill()

    def _outcome(self, running: _Running, status: int) -> TrialOutcome:
        trial = running.trial
        unready = running.kill_at is not None and was_stopped(status)
        if status == DONE or unready:
            return TrialOutcome(trial, DONE, describe_result(trial))
        lines = last_lines(self._log(trial), 1)
        last = lines[-1].removeprefix("vedette: ") if lines and status > 0 else ""
        last = last or self._memory_kills.explain(status)
        last = f": {last}" if last else ""
        message = f"failed with {describe_exit(status)}{last} (its log: {self._log(trial)})"
        return TrialOutcome(trial, status if status in (USAGE, REFUSED) else FAILED, message)

    def stop(self, *trials: Trial) -> None:
        """Ask trials to stop, once each; their learners write a checkpoint first."""
        for running in self._running:
            if running.trial in trials and running.kill_at is None:
                running.kill_at = time.monotonic() + _STOP_S
                running.process.terminate()

    def stop_all(self) -> None:
        """Ask each trial to stop, and wait."""
        if self._running:
            self.line(f"stopping: {len(self._running)} running, each writes a checkpoint")
        self.stop(*self.running)
        self.end()

    def end(self) -> None:
        """End every process, and wait for it."""
        end_children([running.process for running in self._running], term_s=_STOP_S)

    def kill(self) -> None:
        """End every process at once."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()

    def wait(self, stop: StopSignals | None) -> None:
        """Print what is due of each trial's progress, and wait a little."""
        if time.monotonic() >= self._next_lines:
            self._next_lines = time.monotonic() + LINE_EVERY_S
            self._print_progress()
        if stop is None:
            time.sleep(_LOOK_S)  # several processes have no event in common to wait for
        else:
            pause(stop, 0.0 if stop else _LOOK_S)

    def line(self, text: str) -> None:
        """Print a line, with the time since the sweep began."""
        self._say(f"{format_clock(time.monotonic() - self._began)}  {text}")

    def _print_progress(self) -> None:
        """Print a line for each trial that runs."""
        for running in self._running:
            trial = running.trial
            status = read_summary(trial.out)
            new = status.time_s != running.before_s
            self.line(f"{trial.name}: {status_line(status) if new else 'starting'}")

    def _log(self, trial: Trial) -> Path:
        return self._out / JOBS / f"{_slug(trial)}.log"


def jobs_within(config: RunConfig, *, in_process: bool) -> int:
    """Return the number of such runs that the cores suffice for: a learner and its actors each."""
    return max(1, count_cores() // (1 if in_process else 1 + config.actors.count))


def describe_result(trial: Trial) -> str:
    """Describe the result of a run that has ended."""
    summary = read_summary(trial.out)
    if summary == Status():
        return "stopped before it had begun"
    best = format_number(summary.eval.best_return_mean, 1)
    steps = format_number(summary.env_steps)
    outcome = describe_outcome(summary) or "stopped"
    missed = describe_missed_target(summary) if summary.exit_reason else ""
    end = f"; {missed}" if missed else ""
    return f"{outcome} after {steps} env steps, best evaluation {best}{end}"


def _slug(trial: Trial) -> str:
    return trial.name.replace("/", "-")

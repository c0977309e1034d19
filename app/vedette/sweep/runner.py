"""Running the trials of a sweep, so many side by side, as ``vedette run`` would each."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vedette.local.daemons import READ_ALREADY, STOP_S, daemon_command, last_lines
from vedette.reports.record import is_run
from vedette.reports.writing import write_report
from vedette.sweep.trials import Trial
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import DONE, FAILED, REFUSED, USAGE, describe_exit
from vedette_services.host.processes import StopSignals, count_cores, end_children, pause, spawn
from vedette_services.run.number_format import format_clock, format_number
from vedette_services.run.outcome import is_over, read_summary
from vedette_services.run.status import Status
from vedette_services.run.status_text import status_line

LINE_EVERY_S = 10.0
_LOOK_S = 0.2
_TRIAL_STOP_S = STOP_S + 10.0  # a run gives its own learner STOP_S
_UNREADY = (-signal.SIGTERM, -signal.SIGINT)  # stopped before it could put anything in order
_PAPERS = "sweep"
"""Folder in the sweep's directory with each trial's configuration and what it said."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of a trial.

    Args:
        trial: which.
        status: of ``vedette run``; 0 also where it was over already, or has not begun.
        message: in a line.
    """

    trial: Trial
    status: int
    message: str


@dataclass(slots=True)
class _Running:
    trial: Trial
    process: subprocess.Popen[bytes]
    began_s: float  # since 1970


class Sweep:
    """The trials of a sweep.

    Args:
        trials: checked.
        out: the sweep's directory.
        jobs: that many at a time.
        fresh: begin each anew; runs that are there are erased.
        in_process: each in one process, in lock step.
        say: takes lines for people.
        command: from a command's arguments to the command line that starts it.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        out: Path,
        *,
        jobs: int = 1,
        fresh: bool = False,
        in_process: bool = False,
        say: Callable[[str], None] = lambda _: None,
        command: Callable[..., list[str]] = daemon_command,
    ) -> None:
        self._trials, self._out, self._jobs, self._say = trials, out, max(1, jobs), say
        self._options = [*(["--fresh", "--force"] if fresh else [])]
        self._options += ["--in-process"] if in_process else []
        self._fresh, self._command = fresh, command
        self._running: list[_Running] = []
        self._outcomes: dict[str, TrialOutcome] = {}
        self._stopping = False
        self._began = time.monotonic()

    def run(self, stop: StopSignals | None = None) -> list[TrialOutcome]:
        """Run what is not over, to the end of all or until asked to stop; then report on all.

        None of the processes is left when this returns or raises.

        Args:
            stop: becomes true when all are to end, each with a checkpoint. None: they end with
                `KeyboardInterrupt`, which is raised again.

        Returns:
            What came of each trial, in their order.
        """
        waiting = list(self._left())
        next_lines = time.monotonic() + LINE_EVERY_S
        try:
            while (waiting and not stop) or self._running:
                while waiting and len(self._running) < self._jobs and not stop:
                    self._start(waiting.pop(0))
                if stop:
                    self._stop_all()
                self._collect()
                if time.monotonic() >= next_lines:
                    next_lines = time.monotonic() + LINE_EVERY_S
                    self._print_progress()
                _wait(stop)
        finally:
            end_children([running.process for running in self._running], term_s=_TRIAL_STOP_S)
        for trial in waiting:
            self._outcomes[trial.name] = TrialOutcome(trial, DONE, "has not begun")
        return [self._outcomes[trial.name] for trial in self._trials]

    def kill(self) -> None:
        """End every process at once."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()

    def _left(self) -> list[Trial]:
        left = []
        for trial in self._trials:
            if not self._fresh and is_over(read_summary(trial.out), trial.config.stop):
                self._end(TrialOutcome(trial, DONE, f"over already: {_result(trial)}"))
            else:
                left.append(trial)
        return left

    def _start(self, trial: Trial) -> None:
        papers = self._out / _PAPERS
        papers.mkdir(parents=True, exist_ok=True)
        config = papers / f"{_slug(trial)}.toml"
        write_config(trial.config, config, f"what the sweep gave to {trial.name}")
        argv = self._command("run", str(config), "--out", str(trial.out), *self._options)
        environment = {**dict.fromkeys(READ_ALREADY, ""), "PYTHONUNBUFFERED": "1"}
        process = spawn(argv, environment=environment, log=self._log(trial), own_group=True)
        self._running.append(_Running(trial, process, time.time()))
        begun = len(self._outcomes) + len(self._running)
        self._line(f"{trial.name}: begins, {begun} of {len(self._trials)}, in {trial.out}")

    def _stop_all(self) -> None:
        """Ask each to stop, and wait; a learner writes a checkpoint first."""
        self._stopping = True
        if self._running:
            self._line(f"stopping: {len(self._running)} running, each writes a checkpoint")
        end_children([running.process for running in self._running], term_s=_TRIAL_STOP_S)

    def _collect(self) -> None:
        """Take note of those that have ended."""
        for running in list(self._running):
            status = running.process.poll()
            if status is None:
                continue
            self._running.remove(running)
            trial = running.trial
            if status == DONE or (self._stopping and status in _UNREADY):
                self._end(TrialOutcome(trial, DONE, _result(trial)))
                continue
            words = last_lines(self._log(trial), 1)
            last = f": {words[-1].removeprefix('vedette: ')}" if words and status > 0 else ""
            message = f"failed with {describe_exit(status)}{last} (its log: {self._log(trial)})"
            known = status if status in (USAGE, REFUSED) else FAILED
            self._end(TrialOutcome(trial, known, message))

    def _end(self, outcome: TrialOutcome) -> None:
        self._outcomes[outcome.trial.name] = outcome
        self._line(f"{outcome.trial.name}: {outcome.message}")

    def _print_progress(self) -> None:
        """A line for each that runs."""
        for running in self._running:
            trial = running.trial
            status = read_summary(trial.out)
            new = (status.time_s or 0.0) >= running.began_s
            self._line(f"{trial.name}: {status_line(status) if new else 'starting'}")

    def _line(self, text: str) -> None:
        self._say(f"{format_clock(time.monotonic() - self._began)}  {text}")

    def _log(self, trial: Trial) -> Path:
        return self._out / _PAPERS / f"{_slug(trial)}.log"


def report_on(trials: Sequence[Trial], out: Path) -> Path | None:
    """The page about a sweep, ``report.html`` in its directory; None where nothing has begun.

    Runs of an earlier sweep in the same directory are on it, too.
    """
    return write_report([out]) if any(is_run(trial.out) for trial in trials) else None


def jobs_within(config: RunConfig, *, in_process: bool) -> int:
    """How many runs of this kind the cores can carry: a learner and its actors each."""
    return max(1, count_cores() // (1 if in_process else 1 + config.actors.count))


def exit_status(outcomes: Sequence[TrialOutcome]) -> int:
    """Of the first that failed; 0 where none has."""
    return next((outcome.status for outcome in outcomes if outcome.status), DONE)


def _result(trial: Trial) -> str:
    """What a run that has ended came to."""
    summary = read_summary(trial.out)
    if summary == Status():
        return "stopped before it had begun"
    best, steps = format_number(summary.eval.best_return_mean, 1), format_number(summary.env_steps)
    reason = summary.exit_reason or "interrupted"
    return f"{reason} after {steps} env steps, best evaluation {best}"


def _slug(trial: Trial) -> str:
    return trial.name.replace("/", "-")


def _wait(stop: StopSignals | None) -> None:
    if stop is None:
        time.sleep(_LOOK_S)  # several processes have no event in common to wait for
    else:
        pause(stop, 0.0 if stop else _LOOK_S)

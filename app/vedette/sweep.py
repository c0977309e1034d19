"""Sweeps: planning their trials, and running them, several at a time, as ``vedette run`` would.

A trial is a run of its own: settings from every combination of the swept values, and a seed.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from vedette.local.daemons import READ_ALREADY, STOP_S, daemon_command, last_lines
from vedette.reports.writing import write_report
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import DONE, FAILED, REFUSED, USAGE, UsageError, describe_exit
from vedette_services.host.processes import StopSignals, count_cores, end_children, pause, spawn
from vedette_services.run.number_format import format_clock, format_number
from vedette_services.run.outcome import read_summary
from vedette_services.run.overview import is_run
from vedette_services.run.provenance import COMMAND, command_line
from vedette_services.run.resume import saved_config
from vedette_services.run.status import Status
from vedette_services.run.status_text import status_line
from vedette_services.run.stop_conditions import is_over

TRIALS_MAX = 1000
LINE_EVERY_S = 10.0
_LOOK_S = 0.2
_TRIAL_STOP_S = STOP_S + 10.0  # a run gives its own learner STOP_S
_UNREADY = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)  # stopped before it had begun
_LOGS = "sweep"
"""Folder in the sweep's directory with the configuration and the log of each trial."""

Changes = Mapping[str, Any]
"""Dotted keys of the configuration and their values in one trial."""


class StartOptions(TypedDict):
    """How each trial starts, as `run_locally` and ``--in-process`` have it."""

    fresh: bool
    new_replay: bool
    in_process: bool


Configure = Callable[[Changes, Path | None], RunConfig]
"""Returns the configuration with changes; the file is a run's own, which it goes on with."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a sweep.

    Args:
        name: ``seed-3``, or ``agent.learning_rate=0.001/seed-3``.
        config: its complete configuration.
        out: its run directory: the folder `name` in the sweep's directory.
    """

    name: str
    config: RunConfig
    out: Path


def plan_trials(
    configure: Configure,
    out: Path,
    *,
    seeds: int = 1,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    fresh: bool = False,
) -> list[Trial]:
    """List every combination of settings with every seed, in the order of the seeds.

    Args:
        out: the sweep's directory.
        seeds: number of seeds, counted from the configured one.
        sweep: the values of each key.
        fresh: no run of before goes on.

    Raises:
        UsageError: a key has no values, there are more than `TRIALS_MAX` trials, or `out` is a run.
        ConfigError: a combination is wrong.
    """
    if is_run(out):
        raise UsageError(f"--out {out}: holds a run of its own; name another for several")
    axes = [[(key, value) for value in values] for key, values in (sweep or {}).items()]
    empty = [key for key, values in (sweep or {}).items() if not values]
    if empty:
        raise UsageError(f"--sweep {empty[0]}: write KEY=VALUE,VALUE")
    combinations = [dict(combination) for combination in itertools.product(*axes)]
    if len(combinations) * seeds > TRIALS_MAX:
        count = len(combinations) * seeds
        raise UsageError(f"{count:,} runs are more than {TRIALS_MAX:,}; sweep less")
    first = [configure(changes, None) for changes in combinations]
    names = list(_unique(_combination_name(changes) for changes in combinations))
    trials = []
    for number in range(seeds):
        for changes, config, name in zip(combinations, first, names, strict=True):
            seed = config.seed + number
            place = out / f"{name}seed-{seed}"
            saved = saved_config(place, fresh=fresh)
            same = not number and saved is None
            own = config if same else configure({**changes, "seed": seed}, saved)
            trials.append(Trial(f"{name}seed-{seed}", own, place))
    return trials


def parse_sweep(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse ``KEY=V1,V2`` texts; a comma in brackets or quotes separates nothing.

    Raises:
        UsageError: a text has another form, or two have one key.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise UsageError(
                f"--sweep {text}: write KEY=VALUE,VALUE, such as agent.learning_rate=1e-3,3e-4"
            )
        if key.strip() in found:
            raise UsageError(f"--sweep {text}: {key.strip()} is swept twice; name all its values")
        found[key.strip()] = [part for part in _parts(values) if part]
    return found


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets and quotes."""
    depth, quote, begin = 0, "", 0
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:index].strip()
            begin = index + 1
    yield text[begin:].strip()


def _combination_name(changes: Changes) -> str:
    message = ",".join(f"{key}={value}" for key, value in changes.items())
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", message)[:120]


def _unique(names: Iterator[str]) -> Iterator[str]:
    """Make each a folder's name, and number those that repeat."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        again = f"-{seen[name]}" if seen[name] > 1 else ""
        yield f"{name}{again}/" if name else ""


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
    began_s: float  # since 1970


class Sweep:
    """Runs the trials of a sweep.

    Args:
        trials: the trials, whose configurations were checked.
        out: the sweep's directory.
        jobs: number of trials at a time.
        fresh: start each anew; runs that exist are erased.
        in_process: run each in one process, in lock step.
        new_replay: begin the replay of runs that exist anew.
        say: called with each line of progress.
        command: returns the command line for a command's arguments.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        out: Path,
        *,
        jobs: int = 1,
        fresh: bool = False,
        in_process: bool = False,
        new_replay: bool = False,
        say: Callable[[str], None] = lambda _: None,
        command: Callable[..., list[str]] = daemon_command,
    ) -> None:
        self._trials, self._out, self._jobs, self._say = trials, out, max(1, jobs), say
        self._options = ["--fresh", "--force"] if fresh else []
        self._options += ["--in-process"] * in_process + ["--new-replay"] * new_replay
        self._fresh, self._command = fresh, command
        self._running: list[_Running] = []
        self._outcomes: dict[str, TrialOutcome] = {}
        self._stopping = False
        self._began = time.monotonic()

    def run(self, stop: StopSignals | None = None) -> list[TrialOutcome]:
        """Run the trials that are not over, until all are or a stop is requested.

        No process is left when this returns or raises.

        Args:
            stop: becomes true when all are to end, each with a checkpoint. None: they end with
                `KeyboardInterrupt`, which is raised again.

        Returns:
            The outcome of each trial, in their order.
        """
        waiting = self._unfinished()
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

    def _unfinished(self) -> list[Trial]:
        left = []
        for trial in self._trials:
            if not self._fresh and is_over(read_summary(trial.out), trial.config.stop):
                self._end(TrialOutcome(trial, DONE, f"over already: {_result(trial)}"))
            else:
                left.append(trial)
        return left

    def _start(self, trial: Trial) -> None:
        config = self._out / _LOGS / f"{_slug(trial)}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        write_config(trial.config, config, f"what the sweep gave to {trial.name}")
        argv = self._command(
            "run", str(config), "--complete", "--out", str(trial.out), *self._options
        )
        environment = {**dict.fromkeys(READ_ALREADY, ""), "PYTHONUNBUFFERED": "1"}
        environment[COMMAND] = command_line()
        process = spawn(argv, environment=environment, log=self._log(trial), own_group=True)
        self._running.append(_Running(trial, process, time.time()))
        begun = len(self._outcomes) + len(self._running)
        self._line(f"{trial.name}: begins, {begun} of {len(self._trials)}, in {trial.out}")

    def _stop_all(self) -> None:
        """Ask each trial to stop, and wait; its learner writes a checkpoint first."""
        self._stopping = True
        if self._running:
            self._line(f"stopping: {len(self._running)} running, each writes a checkpoint")
        end_children([running.process for running in self._running], term_s=_TRIAL_STOP_S)

    def _collect(self) -> None:
        """Record the outcomes of the trials that have ended."""
        for running in list(self._running):
            status = running.process.poll()
            if status is None:
                continue
            self._running.remove(running)
            trial = running.trial
            if status == DONE or (self._stopping and status in _UNREADY):
                self._end(TrialOutcome(trial, DONE, _result(trial)))
                continue
            lines = last_lines(self._log(trial), 1)
            last = f": {lines[-1].removeprefix('vedette: ')}" if lines and status > 0 else ""
            message = f"failed with {describe_exit(status)}{last} (its log: {self._log(trial)})"
            known = status if status in (USAGE, REFUSED) else FAILED
            self._end(TrialOutcome(trial, known, message))

    def _end(self, outcome: TrialOutcome) -> None:
        self._outcomes[outcome.trial.name] = outcome
        self._line(f"{outcome.trial.name}: {outcome.message}")

    def _print_progress(self) -> None:
        """Print a line for each trial that runs."""
        for running in self._running:
            trial = running.trial
            status = read_summary(trial.out)
            new = (status.time_s or 0.0) >= running.began_s
            self._line(f"{trial.name}: {status_line(status) if new else 'starting'}")

    def _line(self, text: str) -> None:
        self._say(f"{format_clock(time.monotonic() - self._began)}  {text}")

    def _log(self, trial: Trial) -> Path:
        return self._out / _LOGS / f"{_slug(trial)}.log"


def report_on(trials: Sequence[Trial], out: Path) -> Path | None:
    """Write ``report.html`` in a sweep's directory; None where no trial has begun.

    The page includes runs of an earlier sweep in the same directory.
    """
    return write_report([out]) if any(is_run(trial.out) for trial in trials) else None


def jobs_within(config: RunConfig, *, in_process: bool) -> int:
    """Return the number of such runs that the cores suffice for: a learner and its actors each."""
    return max(1, count_cores() // (1 if in_process else 1 + config.actors.count))


def exit_status(outcomes: Sequence[TrialOutcome]) -> int:
    """Return the exit status of the first trial that failed; 0 if none has."""
    return next((outcome.status for outcome in outcomes if outcome.status), DONE)


def _result(trial: Trial) -> str:
    """Describe the result of a run that has ended."""
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

"""Runs a study: Optuna proposes the settings of each trial and stops those that fall behind.

All that is known of a study is in its journal, which several processes may share, also on several
hosts. A trial whose process has died continues in the next one that has room.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from vedette.local.daemons import daemon_command
from vedette.reports.record import EVALUATION
from vedette.sweep.jobs import Jobs, Trial, TrialOutcome
from vedette.sweep.study import Study
from vedette.sweep.study_journal import POINTS, Workers, locked, open_study
from vedette_rl.number_format import format_number
from vedette_rl.recording.reading import read_curves
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import DONE, FAILED, ConfigError, SettingError
from vedette_services.host.output import Say
from vedette_services.host.processes import StopSignals
from vedette_services.run.outcome import read_summary
from vedette_services.run.prepare import settings_to_resume
from vedette_services.run.start import RESUME, Start
from vedette_services.run.sweep_files import BEST, JOURNAL, STUDY_LOCK, WORKERS
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import is_over, stop_progress

if TYPE_CHECKING:
    import optuna

_STATES = {
    "COMPLETE": "complete",
    "PRUNED": "stopped early",
    "FAIL": "failed",
    "RUNNING": "not over",
    "WAITING": "waiting",
}
_LOOK_EVERY_S = 2.0
_TABLE_MAX = 20
_ATTEMPTS_MAX = 3
_FAILED_MAX = 3
"""A study ends where so many trials have failed and none has not."""


@dataclass(slots=True)
class _Active:
    """A trial that this process runs.

    Args:
        earlier: the last point that an earlier process has reported.
        left: its runs that are not over; the first one runs.
        values: the objective of each of its runs that are over.
        reported: the last point reported of the run that runs.
        taken: another process, which held this one for dead, has taken it over.
    """

    trial: optuna.Trial
    earlier: int = 0
    left: list[Trial] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    reported: int = 0
    pruned: bool = False
    taken: bool = False

    @property
    def name(self) -> str:
        """Its folder."""
        return _name(self.trial.number)

    def report(self, point: int, value: float) -> bool:
        """Report the mean of the runs so far at all points up to this one; False if none is new."""
        from optuna.exceptions import UpdateFinishedTrialError

        new = range(self.reported + 1, point + 1)
        mean = (sum(self.values) + value) / (len(self.values) + 1)
        for number in new:
            self.reported = number
            at = len(self.values) * POINTS + number
            if at > self.earlier:
                with suppress(UpdateFinishedTrialError):  # it was taken over a moment ago
                    self.trial.report(mean, at)
        return bool(new)


class StudyRunner:
    """Runs trials of a study until there are enough, or a stop is requested.

    Args:
        study: its file.
        out: its directory: the journal, a folder for each trial, ``best.toml``.
        jobs: number of trials at a time.
        start: the kind of start of each run.
        say: called with each line of progress.
        command: returns the command line for a command's arguments.
        known: what a probe knows of its environments (`EnvironmentProbe.known`).

    Raises:
        UsageError: the directory holds another study.
    """

    def __init__(
        self,
        study: Study,
        out: Path,
        *,
        jobs: int,
        start: Start = RESUME,
        say: Say = lambda _: None,
        command: Callable[..., list[str]] = daemon_command,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        if (out / BEST).exists() and not (out / JOURNAL).exists():
            fix = "rename it, or name another folder"
            raise SettingError(f"--out {out}", f"{out / BEST} is of no study", fix)
        out.mkdir(parents=True, exist_ok=True)
        self._file = study
        self._out = out
        self._start = start
        self._jobs = Jobs(out, jobs, start, say, command, known)
        self._study = open_study(study, out)
        self._workers = Workers(out / WORKERS)
        self._active: list[_Active] = []
        self._next_look = 0.0

    def run(self, stop: StopSignals | None = None) -> int:
        """Run trials; no process is left when this returns or raises.

        Args:
            stop: becomes true when all are to end, each with a checkpoint.

        Returns:
            The exit status: 0 if a trial has a value, or a stop was requested.
        """
        try:
            while not stop:
                while self._jobs.has_room and self._begin_next():
                    pass
                if not self._jobs.running:
                    break
                self._jobs.wait(stop)
                self._workers.beat()
                self._look()
            self._jobs.stop_all()
            self._collect(stopping=True)
        finally:
            self._jobs.end()
            self._workers.close()
        return DONE if stop or self.best() is not None else FAILED

    def kill(self) -> None:
        """End every process at once."""
        self._jobs.kill()

    def best(self) -> optuna.trial.FrozenTrial | None:
        """Return the best trial of all processes; None before one has ended with a value."""
        return best_trial(self._study)

    def lines(self) -> Iterator[str]:
        """Yield the result of the study, a line each."""
        states = [trial.state.name for trial in self._study.get_trials(deepcopy=False)]
        counts = {state: states.count(state) for state in sorted(set(states))}
        said = ", ".join(f"{count} {_STATES[state]}" for state, count in counts.items())
        yield f"{len(states)} trials: {said}"
        if best := self.best():
            yield f"best: {_name(best.number)}, {format_number(best.value, 1)}"
            yield from (f"  {setting}" for setting in _settings(best))
            yield f"vedette run {shlex.quote(str(self._out / BEST))}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows of the trials, the best first, then those without a result; at
        most `_TABLE_MAX` rows."""
        trials = sorted(
            self._study.get_trials(deepcopy=False),
            # Optuna gives one that was stopped early its last report as its value.
            key=lambda one: (one.state.name != "COMPLETE", -(one.value or 0.0), one.number),
        )
        keys = list(dict.fromkeys(key for trial in trials for key in trial.params))
        heads = ["trial", self._file.config.objective, "state", *keys]
        rows = []
        for trial in trials[:_TABLE_MAX]:
            values = dict(setting.split("=", 1) for setting in _settings(trial))
            state = _STATES[trial.state.name]
            value = format_number(trial.value if trial.state.name == "COMPLETE" else None, 1)
            rows.append([_name(trial.number), value, state, *(values.get(k, "-") for k in keys)])
        return heads, rows

    # Trials

    def _begin_next(self) -> bool:
        """Start a run of the next trial; False if there is nothing more to do here."""
        while (active := self._take_trial()) is not None:
            try:
                active.left = self._runs_of(active)
            except ConfigError as error:
                self._fail(active, str(error))
                continue
            settings = ", ".join(_settings(active.trial))
            count = self._file.config.trials
            self._jobs.line(f"{active.name} of {count}: begins, {settings}")
            if self._begin_run(active):
                return True
        return False

    def _take_trial(self) -> _Active | None:
        """Take over a trial whose process has died, or ask for a new one; None if all are taken."""
        import optuna

        with locked(self._out / STUDY_LOCK):
            trials = self._study.get_trials(deepcopy=False)
            for one in trials:
                worker = str(one.user_attrs.get("worker", ""))
                if one.state.name == "RUNNING" and not self._workers.is_alive(worker):
                    # there is no other way to a trial that another process has asked for
                    trial = optuna.Trial(self._study, one._trial_id)
                    return self._claim(_Active(trial, max(one.intermediate_values, default=0)))
            if len(trials) >= self._file.config.trials or self._is_hopeless(trials):
                return None
            return self._claim(_Active(self._study.ask(self._file.space)))

    def _claim(self, active: _Active) -> _Active:
        attempts = int(active.trial.user_attrs.get("attempts", 0))
        active.trial.set_user_attr("worker", self._workers.name)
        active.trial.set_user_attr("attempts", attempts + 1)
        self._active.append(active)
        return active

    def _is_hopeless(self, trials: list[optuna.trial.FrozenTrial]) -> bool:
        ended = [trial.state.name for trial in trials if trial.state.is_finished()]
        return len(ended) >= _FAILED_MAX and set(ended) == {"FAIL"}

    def _runs_of(self, active: _Active) -> list[Trial]:
        """Return the runs of a trial, a seed each.

        Raises:
            ConfigError: its settings contradict each other, or its process has died too often.
        """
        params = active.trial.params
        attempts = int(active.trial.user_attrs["attempts"])
        if attempts > _ATTEMPTS_MAX:
            raise ConfigError(f"its process has died {attempts - 1} times")
        first = self._file.configure(params).seed
        seeds = self._file.config.seeds
        runs = []
        for seed in range(first, first + seeds):
            name = active.name if seeds == 1 else f"{active.name}/seed-{seed}"
            config = self._file.configure(
                params, seed, settings_to_resume(self._out / name, self._start)
            )
            runs.append(Trial(name, config, self._out / name))
        return runs

    def _begin_run(self, active: _Active) -> bool:
        """Start the next run of a trial; False if none is left and the trial has its value."""
        while active.left:
            run = active.left[0]
            if not is_over(read_summary(run.out), run.config.stop):
                self._jobs.start(run)
                return True
            if not self._end_run(active):
                return False
        value = float(np.mean(active.values))
        if self._tell(active, value):
            self._jobs.line(f"{active.name}: {format_number(value, 1)}{self._publish_best()}")
        return False

    def _end_run(self, active: _Active) -> bool:
        """Take the value of the first run that is left; False if it has none: the trial fails."""
        run = active.left.pop(0)
        value = run_value(run, self._file.config.objective)
        if value is None:
            self._fail(active, "no evaluation of it has ended")
            return False
        active.report(POINTS, value)
        active.values.append(value)
        active.reported = 0
        return True

    def _fail(self, active: _Active, why: str) -> None:
        if self._tell(active, "FAIL", why):
            self._jobs.line(f"{active.name}: {why}")

    def _tell(self, active: _Active, result: float | str, failure: str = "") -> bool:
        """End a trial with a value or a state; False if another process has taken it over."""
        from optuna.trial import TrialState

        self._active.remove(active)
        with locked(self._out / STUDY_LOCK):  # trials are taken over under it
            if not self._is_taken(active):
                if failure:
                    active.trial.set_user_attr("failure", failure)
                value = None if isinstance(result, str) else result
                state = TrialState[result] if isinstance(result, str) else None
                self._study.tell(active.trial, value, state, skip_if_finished=True)
                return True
        self._jobs.line(f"{active.name}: another process has taken it over")
        return False

    def _is_taken(self, active: _Active) -> bool:
        """Return True if another process, which held this one for dead, has taken a trial over."""
        known = self._study.get_trials(deepcopy=False)[active.trial.number]
        ours = known.user_attrs["worker"] == self._workers.name
        active.taken |= not ours or known.state.is_finished()
        return active.taken

    # Runs

    def _look(self) -> None:
        """Take what has ended, and every few seconds stop what falls behind."""
        self._collect()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            for active in self._active:
                self._prune(active)

    def _collect(self, *, stopping: bool = False) -> None:
        for outcome in self._jobs.collect():
            active = next(one for one in self._active if one.left[0] is outcome.trial)
            if self._is_taken(active) or active.pruned:
                if self._tell(active, "PRUNED"):
                    self._jobs.line(f"{active.name}: stopped early: {outcome.message}")
            elif outcome.status:
                self._fail(active, outcome.message)
            elif stopping:  # the next start resumes it; its process has not died
                active.trial.set_user_attr("attempts", active.trial.user_attrs["attempts"] - 1)
                self._jobs.line(f"{active.name}: {outcome.message}")
            else:
                self._go_on(active, outcome)

    def _go_on(self, active: _Active, outcome: TrialOutcome) -> None:
        """Start a trial's next run, or end the trial."""
        run = outcome.trial
        if is_over(read_summary(run.out), run.config.stop):
            self._begin_run(active)
        else:
            self._fail(active, f"stopped by another process: {outcome.message}")

    def _prune(self, active: _Active) -> None:
        """Report how far a run is; stop it if it falls behind."""
        run = active.left[0]
        if self._is_taken(active):
            self._jobs.stop(run)
            return
        summary = read_summary(run.out)
        value = _evaluated(summary, self._file.config.objective)
        point = int(POINTS * progress(summary))
        if active.pruned or value is None or not active.report(point, value):
            return
        if point < POINTS and active.trial.should_prune():  # else it is over anyway
            active.pruned = True
            self._jobs.stop(run)

    def _publish_best(self) -> str:
        """Write the best settings so far; returns the end of a line about them."""
        objective = self._file.config.objective
        seeds = self._file.config.seeds
        with locked(self._out / STUDY_LOCK):  # no process replaces it by an older best
            best = self.best()
            if best is None:
                return ""
            comment = (
                f"# {_name(best.number)} of {self._file.path}: {objective} evaluation "
                f"{format_number(best.value, 1)} over {seeds} seed{'s' * (seeds > 1)}\n"
            )
            replace_file(self._out / BEST, comment + tomli_w.dumps(self._file.table(best.params)))
        return f"; the best is {_name(best.number)} with {format_number(best.value, 1)}"


def best_trial(study: optuna.Study) -> optuna.trial.FrozenTrial | None:
    """Return the best trial that has ended with a value; None if there is none."""
    ended = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return max(ended, key=lambda trial: trial.value or 0.0, default=None)


def progress(summary: Status) -> float:
    """Return the share of a run's budget that is used up, from 0 to 1."""
    return min(1.0, max((now / goal for _, now, goal in stop_progress(summary)), default=0.0))


def run_value(run: Trial, objective: str) -> float | None:
    """Return the value of a run that has ended; None if no evaluation of it has."""
    if objective != "area":
        return _evaluated(read_summary(run.out), objective)
    curve = read_curves(run.out).curves.get(EVALUATION)
    if curve is None or not len(curve.values):
        return None
    grid = np.linspace(0.0, run.config.stop.max_env_steps, 20 * POINTS)
    return float(np.interp(grid, curve.steps, curve.values).mean())


def _evaluated(summary: Status, objective: str) -> float | None:
    evaluation = summary.eval
    return evaluation.best_return_mean if objective == "best" else evaluation.return_mean


def _name(number: int) -> str:
    return f"trial-{number:04d}"


def _settings(trial: optuna.Trial | optuna.trial.FrozenTrial) -> list[str]:
    return [
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in trial.params.items()
    ]

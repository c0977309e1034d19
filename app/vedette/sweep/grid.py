"""Sweeps over a grid: every combination of the swept values, with every seed.

A trial is a run of its own: settings from every combination of the swept values, and a seed.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vedette.local.daemons import daemon_command
from vedette.reports.configurations import Configuration
from vedette.reports.writing import write_comparison
from vedette.sweep.directory import check_sweep_directory
from vedette.sweep.jobs import Jobs, Trial, TrialOutcome, describe_result
from vedette_services.config.loading import LoadedConfig
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.config.saving import config_text
from vedette_services.errors import DONE, ArgumentError, SettingError, UsageError
from vedette_services.host.output import Say
from vedette_services.host.processes import StopSignals
from vedette_services.run.finding import is_run
from vedette_services.run.outcome import describe_not_applied, read_summary
from vedette_services.run.prepare import settings_to_resume
from vedette_services.run.queued_runs import QueuedRuns, open_queue
from vedette_services.run.start import RESUME, Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.start_planning import plan_start
from vedette_services.status.stop_conditions import is_over

TRIALS_MAX = 1000

Changes = Mapping[str, Any]
"""Dotted keys of the configuration and their values in one trial."""


Configure = Callable[[Changes, Path | None], LoadedConfig]
"""Returns the configuration with changes; the file is a run's own, which is resumed."""


def plan_trials(
    configure: Configure,
    out: Path,
    start: Start = RESUME,
    *,
    seeds: int = 1,
    sweep: Mapping[str, Sequence[Any]] | None = None,
) -> list[Trial]:
    """List every combination of settings with every seed, in the order of the seeds.

    Args:
        out: the sweep's directory.
        start: the kind of start of each trial.
        seeds: number of seeds, counted from the configured one.
        sweep: the values of each key.

    Raises:
        ArgumentError: `seeds` is no number of them, or a key has no list of values.
        UsageError: there are more than `TRIALS_MAX` trials, two of them are the same, or `out` is a
            run or holds files of somebody else.
        ConfigError: a combination is wrong.
    """
    check_sweep_directory(out)
    _check_seeds(seeds)
    _check_values(sweep)
    axes = [[(key, value) for value in values] for key, values in (sweep or {}).items()]
    combinations = [dict(combination) for combination in itertools.product(*axes)]
    if len(combinations) * seeds > TRIALS_MAX:
        count = len(combinations) * seeds
        raise UsageError(f"{count:,} runs are more than {TRIALS_MAX:,}; sweep less")
    first = [configure(changes, None) for changes in combinations]
    folders = _folders(combinations)
    trials = []
    for number in range(seeds):
        for changes, begun, folder in zip(combinations, first, folders, strict=True):
            seed = begun.config.seed + number
            name = f"{folder}seed-{seed}"
            place = out / name
            saved = settings_to_resume(place, start)
            same = not number and saved is None
            own = begun if same else configure({**changes, "seed": seed}, saved)
            notes = tuple(filter(None, (*own.decided, own.note)))
            trials.append(Trial(name, own.config, place, changes, notes))
    _check_different(trials)
    return trials


def _check_different(trials: Sequence[Trial]) -> None:
    """Check that no two trials would train the same: values that differ in their writing alone, and
    seeds that are swept and counted, make such ones.

    Raises:
        UsageError: names two that would, and the fix.
    """
    known: dict[str, Trial] = {}
    first_seeds: dict[str, int] = {}
    for trial in trials:
        same, seed = _describe_changes(trial.changes), trial.config.seed
        is_counted = seed != first_seeds.setdefault(same, seed)
        # what the process of a trial reads; JSON would have null for both infinities
        other = known.setdefault(config_text(trial.config), trial)
        if other is trial:
            continue
        one = _describe_changes(other.changes)
        if one == same:
            raise UsageError(f"sweep: with seed {seed}, {one} is there twice; leave one out")
        if is_counted and "seed" in trial.changes:
            what = f"{one} and a further seed of {same} are both seed {seed}"
            raise UsageError(f"sweep: {what}; sweep seed or give a number of seeds, not both")
        what = f"{one} and {same} are the same"
        raise UsageError(f"sweep: with seed {seed}, {what}; leave one out")


def plan_starts(
    trials: Sequence[Trial], start: Start, probe: EnvironmentProbe | None = None
) -> list[Trial]:
    """Plan the start of each trial, of which nothing changes yet; return the trials with the plans.

    Args:
        start: the kind of start of each trial.
        probe: as `plan_start` takes it.

    Raises:
        UsageError: a trial cannot work.
        SettingError: the folder of a trial holds a run with another value of a swept key.
    """
    planned = []
    for trial in trials:
        plan = plan_start(trial.config, trial.out, start, probe=probe)
        _check_own_folder(trial, plan)
        planned.append(replace(trial, plan=plan))
    return planned


def _check_own_folder(trial: Trial, plan: StartPlan) -> None:
    """Check that a run in a trial's folder has the trial's values of the swept keys: a name may
    stand for several, as signs that no folder has are written as ``_``."""
    for change in plan.changes:
        for key, value in trial.changes.items():
            one, other = f"{key}.", f"{change.key}."
            within = one.startswith(other) or other.startswith(one)
            if within and value != "auto":  # which each start may choose otherwise
                why = f"it holds a run with {change.key}={change.before}, not {change.now}"
                raise SettingError(str(trial.out), why, "rename it, or name another --out")


def _check_seeds(seeds: object) -> None:
    """Check the number of seeds.

    Raises:
        ArgumentError: it is none from 1 on.
    """
    if type(seeds) is not int or seeds < 1:
        why = "the number of runs, from 1 on, whose seeds are counted from the configured one"
        raise ArgumentError(f"seeds={seeds!r}: {why}")


def _check_values(sweep: object) -> None:
    """Check that each key of a sweep has a list of values.

    Raises:
        ArgumentError: one has not.
    """
    form = 'such as {"agent.learning_rate": [1e-3, 3e-4]}'
    if sweep is not None and not isinstance(sweep, Mapping):
        raise ArgumentError(f"sweep={sweep!r}: give lists of values by key, {form}")
    for key, values in (sweep or {}).items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ArgumentError(f"sweep: {key} is {values!r}: give a list of values, [{values!r}]")
        if not values:
            raise ArgumentError(f"sweep: {key} has no values: give some, {form}")


def parse_sweep(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse ``KEY=V1,V2`` texts; a comma in brackets or quotes separates nothing.

    Raises:
        UsageError: a text has another form, or two have one key.
    """
    values_by_key: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise UsageError(
                f"--sweep {text}: write KEY=VALUE,VALUE, such as agent.learning_rate=1e-3,3e-4"
            )
        if key.strip() in values_by_key:
            raise UsageError(f"--sweep {text}: {key.strip()} is swept twice; name all its values")
        values_by_key[key.strip()] = [part for part in _parts(values) if part]
        if not values_by_key[key.strip()]:
            raise UsageError(f"--sweep {text}: write KEY=VALUE,VALUE")
    return values_by_key


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets and quotes."""
    depth = 0
    quote = ""
    begin = 0
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


def describe_starts(trials: Sequence[Trial], out: Path, start: Start) -> Iterator[str]:
    """Yield what the starts of trials say; what all say once, with ``*`` in the place of their own
    folders.

    Args:
        trials: with their plans; of those that are over nothing is said.
        out: the sweep's directory.
        start: the kind of start of each trial.
    """
    begun = [trial for trial in trials if start.fresh or not _is_over(trial)]
    names: dict[str, list[str]] = {}
    own: dict[str, str] = {}
    for trial in begun:
        planned = trial.plan.lines if trial.plan else ()
        for line in dict.fromkeys((*trial.notes, *planned)):
            common = line.replace(str(trial.out), str(out / "*"))
            names.setdefault(common, []).append(trial.name)
            own.setdefault(common, line)
    for common, who in names.items():
        if len(who) == len(begun):
            yield common
        else:
            more = f" and {len(who) - 1} more" if len(who) > 1 else ""
            yield f"{who[0]}{more}: {own[common]}"


def _describe_changes(changes: Changes) -> str:
    return ",".join(f"{key}={value}" for key, value in changes.items())


_NAME_MOST = 120
"""Letters of a combination's folder."""


def _folders(combinations: Sequence[Changes]) -> list[str]:
    """Return the folder of each combination, with a slash behind it; "" where nothing is swept.

    Where its text is cut, or several would have one name, a hash of it tells them apart.
    """
    texts = [_describe_changes(each) for each in combinations]
    names = [re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", text) for text in texts]
    count = Counter(names)
    folders = []
    for text, name in zip(texts, names, strict=True):
        if len(name) > _NAME_MOST or count[name] > 1:
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            name = f"{name[: _NAME_MOST - 9]}-{digest}"
        folders.append(f"{name}/" if name else "")
    return folders


class Sweep:
    """Runs the trials of a sweep.

    Args:
        trials: the trials, whose configurations were checked.
        out: the sweep's directory.
        start: the kind of start of each trial; a fresh one erases runs that exist.
        jobs: number of trials at a time.
        say: called with each line of progress.
        command: returns the command line for a command's arguments.
        known: what a probe knows of their environments (`EnvironmentProbe.known`).
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        out: Path,
        start: Start = RESUME,
        *,
        jobs: int = 1,
        say: Say = lambda _: None,
        command: Callable[..., list[str]] = daemon_command,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self._trials = trials
        self._out = out
        self._fresh = start.fresh
        self._jobs = Jobs(out, jobs, start, say, command, known)
        self._outcomes: list[TrialOutcome] = []

    def run(self, stop: StopSignals | None = None) -> list[TrialOutcome]:
        """Run the trials that are not over, until all are or a stop is requested.

        No process is left when this returns or raises.

        Args:
            stop: becomes true when all are to end, each with a checkpoint. None: they end with
                `KeyboardInterrupt`, which is raised again.

        Returns:
            The outcome of each trial, in their order.
        """
        waiting = []
        for trial in self._trials:
            if not self._fresh and _is_over(trial):
                ignored = describe_not_applied(trial.plan.changes) if trial.plan else ""
                result = f"over already: {describe_result(trial)}"
                self._end(TrialOutcome(trial, DONE, "; ".join(filter(None, [result, ignored]))))
            else:
                waiting.append(trial)
        with open_queue(self._out) as queue:
            try:
                self._run_all(waiting, queue, stop)
            finally:
                self._jobs.end()
        for trial in waiting:
            before = f" again: {describe_result(trial)}" if is_run(trial.out) else ""
            self._outcomes.append(TrialOutcome(trial, DONE, f"has not begun{before}"))
        places = {id(trial): place for place, trial in enumerate(self._trials)}
        return sorted(self._outcomes, key=lambda outcome: places[id(outcome.trial)])

    def _run_all(self, waiting: list[Trial], queue: QueuedRuns, stop: StopSignals | None) -> None:
        """Run the trials that wait; after a request to stop, some of them still do."""
        while (waiting and not stop) or self._jobs.running:
            while waiting and self._jobs.has_room and not stop:
                self._start(waiting.pop(0))
                queue.write(trial.name for trial in waiting)
            if stop:
                self._jobs.stop_all()
            for outcome in self._jobs.collect():
                self._end(outcome)
            self._jobs.wait(stop)

    def kill(self) -> None:
        """End every process at once."""
        self._jobs.kill()

    def _start(self, trial: Trial) -> None:
        self._jobs.start(trial)
        begun = len(self._outcomes) + len(self._jobs.running)
        self._jobs.line(f"{trial.name}: begins, {begun} of {len(self._trials)}, in {trial.out}")

    def _end(self, outcome: TrialOutcome) -> None:
        self._outcomes.append(outcome)
        self._jobs.line(f"{outcome.trial.name}: {outcome.message}")


def _is_over(trial: Trial) -> bool:
    """Return True if a trial has nothing to do, as its start would find: with other evaluations
    than before it begins a new best."""
    new_best = trial.plan is not None and trial.plan.new_best
    return is_over(read_summary(trial.out), trial.config.stop) and not new_best


def report_on(
    trials: Sequence[Trial], out: Path
) -> tuple[Path, list[Configuration]] | tuple[None, None]:
    """Write ``report.html`` in a sweep's directory; return it and what it compares, and None where
    no trial has begun.

    The page includes runs of an earlier sweep in the same directory.
    """
    begun = any(is_run(trial.out) for trial in trials)
    return write_comparison([out]) if begun else (None, None)


def exit_status(outcomes: Sequence[TrialOutcome]) -> int:
    """Return the exit status of the first trial that failed; 0 if none has."""
    return next((outcome.status for outcome in outcomes if outcome.status), DONE)

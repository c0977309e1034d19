"""Reads everything that a run has left in its directory, without starting or importing anything.

Reports are also for runs that failed: each missing or damaged file is a line in `notes`, and the
rest is read.
"""

from __future__ import annotations

import csv
import io
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vedette_protocol.foreign_text import printable
from vedette_rl.number_format import format_time
from vedette_rl.recording.reading import Curve, CurveReader, Floats
from vedette_rl.storage.regular_files import read_bytes
from vedette_services.config.loading import read_toml
from vedette_services.errors import NotARunError, SettingError
from vedette_services.run.active_time import run_seconds, start_spans
from vedette_services.run.certificate import CERTIFICATE_FILE, Certificate
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.finding import check_readable
from vedette_services.run.outcome import read_summary
from vedette_services.run.overview import is_running
from vedette_services.run.provenance import last_failure, read_provenance
from vedette_services.status.schema import declared, is_against_opt_steps
from vedette_services.status.status import Eval, Status
from vedette_services.status.stop_conditions import (
    FAILED_REASON,
    describe_exit,
    describe_outcome,
    return_in_comparisons,
)

EVALUATION = "eval/mean_reward"
RECORDED = "recorded"
"""The `exit_reason` of a curve of another program."""
READ_BYTES = 128 << 20
"""Of larger records parts at even distances are read, and the page says so."""
_STEPS_MAX = 2**53
"""Steps of another program; floats tell all whole numbers up to it apart."""
BASELINE_COLUMNS = ("label", "seed", "env_steps", "opt_steps", "wall_s", "return_mean")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The contents of a run directory.

    Args:
        directory: the run directory.
        config: ``config.toml`` as a table; empty if it cannot be read.
        summary: ``summary.json``; an empty status if it cannot be read. Much of it came over the
            network.
        curves: the curves by name, without values that are not finite.
        events: the events in the order of their times.
        provenance: the software, host and command of its last start: a name and a text each.
        running: True while a learner runs in the directory.
        notes: a sentence for the run's state, and for each missing or damaged file.
        failure: why its last start has failed, "" where that is not known; None: it has not.
        in_process: True if learner and actors took turns in one process; None: that is not known.
        not_finite: the curves of which values that are not finite were left out.
        diverged: True if its last evaluation is one of these.
    """

    directory: Path
    config: dict[str, Any]
    summary: Status
    curves: dict[str, Curve]
    events: tuple[RunEvent, ...]
    provenance: tuple[tuple[str, str], ...]
    running: bool
    notes: tuple[str, ...]
    failure: str | None = None
    in_process: bool | None = None
    not_finite: frozenset[str] = frozenset()
    diverged: bool = False

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.directory.resolve().name

    @property
    def title(self) -> str:
        """The agent, or the baseline's label, and the environment."""
        env = self.configured("env", "id") or self.summary.env
        if label := self.configured("baseline"):
            return f"{label} on {env}" if env else str(label)
        agent = self.configured("agent", "name") or self.summary.agent or "an agent"
        env = env or "an environment"
        return f"{agent} on {env}"

    def configured(self, *path: str) -> Any:  # any value that TOML knows
        """A configured value; None where there is none."""
        here: Any = self.config
        for name in path:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here

    @property
    def target(self) -> float | None:
        """The return at which the environment counts as solved; None where there is none."""
        value = self.configured("stop", "target_return")
        value = self.summary.stop.target_return if value is None else value
        return float(value) if isinstance(value, int | float) and np.isfinite(value) else None

    @property
    def is_offline(self) -> bool:
        """True if it has evaluated, and no environment step came before."""
        known = self.curves.get(EVALUATION)
        return known is not None and not known.steps.any()

    @property
    def changes(self) -> dict[str, str]:
        """The settings that a later start changed after optimization had begun, each with its
        values: ``0.5 -> 0.004``."""
        found: dict[str, str] = {}
        for event in self.events:
            if event.kind == "changed" and event.opt_steps:
                found[event.who] = ", ".join(filter(None, (found.get(event.who), event.text)))
        return found

    @property
    def exit_reason(self) -> str:
        """The reason for its end; "" while it runs, or if it was killed."""
        if self.running:
            return ""
        return self.summary.exit_reason if self.failure is None else FAILED_REASON

    @property
    def stopped_at_target(self) -> bool:
        """True if it stopped at its target."""
        return self.exit_reason == "target_return"

    @property
    def solved(self) -> bool:
        """True if it has ended, and its target is confirmed on fresh episodes."""
        return self.state == "solved"

    @property
    def keeps_return(self) -> bool:
        """True if its return stands for what it learned from its end on: it is solved, or stopped
        at its target."""
        return self.solved or self.stopped_at_target

    @property
    def state(self) -> str:
        """How it ended, or that it runs, in the word of `vedette runs`; ``recorded`` for a curve of
        another program."""
        if self.running:
            return "running"
        if self.exit_reason == RECORDED:
            return RECORDED
        return describe_outcome(self._ended) or "killed"

    @property
    def _ended(self) -> Status:
        """The summary with the reason for its end."""
        return replace(self.summary, exit_reason=self.exit_reason)

    @property
    def last_return(self) -> float | None:
        """Mean return of the last evaluation; of a solved run, of the fresh episodes by which it is
        solved. None: there is none, or it is not finite."""
        if self.diverged:
            return None
        known = self.curves.get(EVALUATION)
        last = return_in_comparisons(self._ended)
        return float(known.values[-1]) if last is None and known else last

    @property
    def best_return(self) -> float | None:
        """Mean return of the best evaluation."""
        known = self.curves.get(EVALUATION)
        best = self.summary.eval.best_return_mean
        return float(known.values.max()) if best is None and known else best

    @property
    def env_steps_to_target(self) -> float | None:
        """Env steps of the first evaluation at the target, or of a run that stopped at it."""
        known = self.curves.get(EVALUATION)
        target = self.target
        if known and target is not None and (at_target := known.steps[known.values >= target]).size:
            return float(at_target[0])
        return self.summary.env_steps if self.exit_reason == "target_return" else None

    @property
    def starts(self) -> list[tuple[float, float]]:
        """Begin and end of each start of the learner. A killed one ends with its last record."""
        times = [curve.times for curve in self.curves.values()]
        return start_spans(self.events, self.summary.time_s or 0.0, times)

    @property
    def seconds(self) -> float | None:
        """Duration of all its starts; that of the last is the learner's own number."""
        return run_seconds(self.starts, self.summary)

    def positions(self, name: str) -> dict[str, Floats]:
        """Return a curve's env steps, optimization steps and seconds of the learner's work.

        What was recorded of an evaluation is at the version that was played.
        """
        curve = self.curves[name]
        own = _kind(name)
        known = {own: curve.steps.astype(np.float64), "s": self.active_seconds(curve.times)}
        other = "env" if own == "opt" else "opt"
        times, steps = self.steps_over_time(other)
        if times.size:
            known[other] = np.interp(curve.times, times, steps)
        if name in _OF_EVALUATIONS and (version := self.curves.get("eval/version")):
            versions = _recorded_with(version, curve)
            known["opt"] = np.where(np.isnan(versions), known.get("opt", versions), versions)
        return known

    def comparable_evaluations(self) -> dict[str, Floats]:
        """Return positions and values ``y`` of the evaluations that a comparison counts.

        Those of a run that `keeps_return` end with the one that reached the target, with the mean
        return of its fresh episodes: the training goes on while these are played, and what is
        evaluated meanwhile decides nothing.
        """
        columns = {**self.positions(EVALUATION), "y": self.curves[EVALUATION].values}
        found = self.summary.eval
        reached = found.reached_return_mean
        if not self.keeps_return or reached is None or "opt" not in columns:
            return columns
        at = np.flatnonzero(columns["opt"] == found.reached_version)
        if not at.size:
            return columns
        columns = {kind: column[: at[-1] + 1].copy() for kind, column in columns.items()}
        columns["y"][-1] = reached
        return columns

    def steps_over_time(self, kind: str) -> tuple[Floats, Floats]:
        """Return all times at which ``env`` or ``opt`` steps are known, in order, and the steps."""
        of_kind = [curve for name, curve in self.curves.items() if _kind(name) == kind]
        # Most curves are recorded together; their arrays differ if a value was not finite.
        ends = {(*c.times[[0, -1]], *c.steps[[0, -1]], c.times.size): c for c in of_kind}
        curves = ends.values()
        times = np.concatenate([np.zeros(0), *(curve.times for curve in curves)])
        steps = np.concatenate([np.zeros(0), *(curve.steps for curve in curves)])
        order = np.argsort(times, kind="stable")
        return times[order], np.maximum.accumulate(steps[order])

    def active_seconds(self, times: Floats) -> Floats:
        """Convert times to seconds of the learner's work: the time between two starts is none."""
        begin = min((float(curve.times[0]) for curve in self.curves.values()), default=0.0)
        spans = self.starts or [(begin, math.inf)]
        clipped = [np.clip(times - first, 0.0, last - first) for first, last in spans]
        worked = np.asarray(np.sum(clipped, axis=0), np.float64)
        before = 0.0
        for first, last in spans:  # in their order: a clock may have been set back between two
            own = (times >= first) & (times <= last)
            worked[own] = before + times[own] - first
            before += last - first
        return worked


_OF_EVALUATIONS = frozenset(
    tag
    for name, number in declared(Eval)
    for tag in number.tags
    if not name.startswith("shown_")  # by a manager that is not trusted: its version is not known
)
"""Names of the curves that are recorded with ``eval/version``."""


def _recorded_with(other: Curve, curve: Curve) -> Floats:
    """The values of another curve that were recorded together with those of a curve; NaN for those
    that were recorded alone."""
    if other.values.size == curve.values.size:
        return other.values
    at = zip(other.steps.tolist(), other.times.tolist(), strict=True)
    values = dict(zip(at, other.values.tolist(), strict=True))
    ours = zip(curve.steps.tolist(), curve.times.tolist(), strict=True)
    return np.array([values.get(place, np.nan) for place in ours])


def _kind(name: str) -> str:
    return "opt" if is_against_opt_steps(name) else "env"


def read_record(
    directory: Path, curves_of: CurveReader | None = None, *, only_finite: bool = True
) -> RunRecord:
    """Read a run.

    Args:
        curves_of: that of the last call for this run, which reads on where it ended.
        only_finite: leave out of its curves what is not finite.

    Raises:
        NotARunError: the directory holds no run.
        OSError: it holds a file that cannot be read.
    """
    run = RunDirectory(directory)
    places = (run.config_file, run.summary_file, run.events_file, run.tensorboard)
    if not run.exists and not any(place.exists() for place in places):
        raise NotARunError(directory, "config.toml, and no run below it")
    check_readable(directory)
    notes: list[str] = []
    config = _config(run, notes)
    summary = read_summary(directory)
    if summary == Status() and run.summary_file.exists():
        notes.append("summary.json holds no summary")
    recorded = (curves_of or CurveReader(directory, bytes_max=READ_BYTES)).read()
    notes += recorded.damage
    events = _events(run, notes)
    provenance = (*_provenance(run, notes), *_certificate(run, summary))
    running = is_running(run)
    broken = _not_finite(recorded.curves)
    if broken:
        notes.append(f"Not finite at times, and left out there: {', '.join(sorted(broken)[:8])}.")
    record = RunRecord(
        directory,
        config,
        summary,
        _finite(recorded.curves) if only_finite else recorded.curves,
        events,
        provenance,
        running,
        (),
        last_failure(run),
        _in_process(run),
        broken,
        _diverged(recorded.curves),
    )
    return replace(record, notes=(*_state(record), *notes))


def read_baseline(
    file: Path, env: str | None, target: float | None = None, *, only_finite: bool = True
) -> list[RunRecord]:
    """Read the evaluations of another program from CSV: a run for each label and seed.

    Its rows may have any order.

    Args:
        env: the environment that it was evaluated on.
        target: the return at which that counts as solved.
        only_finite: leave out of its curves what is not finite.

    Raises:
        SettingError: the file cannot be read, is no table with the columns of `BASELINE_COLUMNS`,
            has no row, a value that its column does not take (it is named, with its line), or two
            evaluations of one seed at the same steps.
    """
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for label, seed, numbers in _baseline_rows(file):
        rows.setdefault((label, seed), []).append(numbers)
    if not rows:
        raise SettingError(str(file), "no evaluation in it", "name a run, or a table with rows")
    records = []
    for (label, seed), table in rows.items():
        env_steps, opt_steps, times, returns = np.array(sorted(table)).T
        again = (np.diff(env_steps) == 0) & (np.diff(opt_steps) == 0)
        if again.any():
            at_step = env_steps[1:][again][0]
            why = f"{label}, seed {seed} is evaluated twice at env step {at_step:,.0f}"
            raise SettingError(str(file), why, "give each run a seed or a label of its own")
        curves = {
            name: Curve(env_steps.astype(np.int64), times, values)
            for name, values in ((EVALUATION, returns), ("eval/version", opt_steps))
        }
        stop = {} if target is None else {"target_return": target}
        records.append(
            RunRecord(
                directory=file,
                config={"baseline": label, "seed": seed, "env": {"id": env}, "stop": stop},
                summary=Status(
                    exit_reason=RECORDED, env_steps=int(env_steps[-1]), seconds=times[-1]
                ),
                curves=_finite(curves) if only_finite else curves,
                events=(RunEvent(0.0, "started"),),
                provenance=(),
                running=False,
                notes=(),
                not_finite=_not_finite(curves),
                diverged=_diverged(curves),
            )
        )
    return records


def _baseline_rows(file: Path) -> Iterator[tuple[str, str, list[float]]]:
    """Yield label, seed and numbers of each row of another program's table.

    Raises:
        SettingError: names the file, and the line and the value that is wrong.
    """
    names = BASELINE_COLUMNS[2:]
    try:
        text = read_bytes(file).decode("utf-8-sig")  # some programs begin with a mark
        lines = csv.reader(io.StringIO(text, newline=""))
        heads = next(filter(None, lines), [])  # the first that is not empty
        places = _baseline_places(file, heads)
        for row in filter(None, lines):
            place = f"{file}, line {lines.line_num}"
            fix = "write numbers with a decimal point, and a text with commas in quotes"
            if any(value.strip() for value in row[len(heads) :]):
                why = f"{len(row)} values under {len(heads)} names: {','.join(row)}"
                raise SettingError(place, why, fix)
            if missing := [name for name, at in places.items() if at >= len(row)]:
                why = f"{len(row)} values under {len(heads)} names, without {missing[0]}"
                raise SettingError(place, f"{why}: {','.join(row)}", "write a value for each name")
            label, seed, *texts = (row[at] for at in places.values())
            numbers = [_number(place, *each) for each in zip(names, texts, strict=True)]
            yield label, seed, numbers
    except FileNotFoundError as error:
        raise SettingError(str(file), "no such file") from error
    except OSError as error:
        raise SettingError(str(file), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingError(str(file), "it is no text in UTF-8", "save it as such") from error
    except csv.Error as error:
        raise SettingError(str(file), f"not a table of evaluations: {error}") from error


def _baseline_places(file: Path, heads: Sequence[str]) -> dict[str, int]:
    """Return the place in a row of each of `BASELINE_COLUMNS`; others may stand between them.

    Raises:
        SettingError: one is not among the names of the table, or is there twice.
    """
    if not set(BASELINE_COLUMNS) <= set(heads):
        fix = f"needs {', '.join(BASELINE_COLUMNS)}, separated by commas"
        raise SettingError(str(file), "not a table of evaluations", fix)
    if twice := [name for name in BASELINE_COLUMNS if heads.count(name) > 1]:
        why = f"{heads.count(twice[0])} columns are named {twice[0]}"
        raise SettingError(str(file), why, "leave one, or name the others differently")
    return {name: heads.index(name) for name in BASELINE_COLUMNS}


def _number(place: str, name: str, text: str) -> float:
    """Return a number of a baseline; a return may be one that is not finite.

    Raises:
        SettingError: the column takes no such number.
    """
    match name:
        case "return_mean":
            wanted, least, most = "a number, with a decimal point", -math.inf, math.inf
        case "wall_s":  # on a chart over time nothing is before the begin
            wanted = "a number from 0 on, with a decimal point; 0 where it is not known"
            least, most = 0.0, sys.float_info.max
        case _:
            wanted, least, most = f"a whole number from 0 to {_STEPS_MAX:,}", 0.0, _STEPS_MAX
    fix = f"write {wanted}"
    try:
        value = float(text)
    except ValueError as error:
        raise SettingError(place, f"{name} is {text!r}", fix) from error
    if value < least or value > most or (math.isnan(value) and name != "return_mean"):
        raise SettingError(place, f"{name} is {text!r}", fix)
    if most == _STEPS_MAX and not value.is_integer():
        raise SettingError(place, f"{name} is {text!r}", fix)
    return value


def _finite(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Curves without what is not finite; those of which nothing is left are not there."""
    kept = {name: np.isfinite(curve.values) for name, curve in curves.items()}
    return {
        name: curve if kept[name].all() else curve.where(kept[name])
        for name, curve in curves.items()
        if kept[name].any()
    }


def _not_finite(curves: Mapping[str, Curve]) -> frozenset[str]:
    return frozenset(n for n, curve in curves.items() if not np.isfinite(curve.values).all())


def _diverged(curves: Mapping[str, Curve]) -> bool:
    known = curves.get(EVALUATION)
    return known is not None and not np.isfinite(known.values[-1:]).all()


def _in_process(run: RunDirectory) -> bool | None:
    try:
        return run.identity().in_process
    except (NotARunError, SettingError):
        return None


def _config(run: RunDirectory, notes: list[str]) -> dict[str, Any]:
    if not run.config_file.exists():
        notes.append("config.toml is not there: what was configured is not known")
        return {}
    try:
        return read_toml(run.config_file)
    except SettingError as error:
        notes.append(f"config.toml: {error.why}")
        return {}


def _events(run: RunDirectory, notes: list[str]) -> tuple[RunEvent, ...]:
    try:
        events, broken = read_events(run.events_file)
    except OSError as error:
        notes.append(f"events.jsonl cannot be read: {error.strerror or error}")
        return ()
    if broken > 1:  # a killed learner leaves one unfinished line
        notes.append(f"events.jsonl: {broken} lines are damaged and left out")
    return tuple(events)


def _provenance(run: RunDirectory, notes: list[str]) -> tuple[tuple[str, str], ...]:
    try:
        lines = [line for start in read_provenance(run)[-1:] for line in start.lines()]
    except (TypeError, AttributeError, ValueError):  # values of other types
        notes.append("provenance.json is damaged")
        return ()
    return tuple((name, text) for name, _, text in (line.partition(": ") for line in lines))


def _certificate(run: RunDirectory, summary: Status) -> Iterator[tuple[str, str]]:
    """Yield what `vedette verify` has found; nothing where its certificate is of another run."""
    found = Certificate.read(run.root / CERTIFICATE_FILE)
    try:
        mine = found is not None and found.run == run.identity().run_id
    except (NotARunError, SettingError):
        mine = False
    if found is not None and mine:
        yield "executed again", printable(found.describe(summary.opt_steps), None)


def _state(record: RunRecord) -> Iterator[str]:
    """Describes whether the run is running, has ended or was killed, and what it lacks."""
    if record.running:
        yield f"It is running (snapshot of {format_time(time.time())})."
    elif record.failure is not None:
        why = f": {record.failure}" if record.failure else ""
        yield f"It has failed{why}. The same command resumes at its last checkpoint."
    elif ended := describe_exit(record.summary):
        yield f"It is {ended}."
    elif record.curves or record.summary != Status():
        yield (
            "It ended without an exit reason (killed, or the machine went down): "
            "the same command resumes at its last checkpoint."
        )
    else:
        yield "It has not begun: nothing was recorded."
    epoch = record.summary.epoch
    if epoch is not None and epoch > 1:
        yield f"It was started {epoch} times; dashed lines in the curves show where it went on."
    for source in record.summary.sources:
        of = "" if source.episodes is None else f" of {source.episodes:,} episodes"
        if source.return_mean is not None:
            of += f" (mean return {source.return_mean:.4g})"
        drawn = "" if source.share is None else f", {100 * source.share:.0f} % of those drawn"
        yield f"Source {source.name}: {source.size or 0:,} samples{of}{drawn}."
    if record.summary != Status():
        if not record.curves:
            yield "No curves: it has recorded nothing yet, or learner.recorders names none of ours."
        if not record.events:
            yield "No timeline: it has no events.jsonl."

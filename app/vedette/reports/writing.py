"""Writes a report: one self-contained page about one run, or about several in comparison."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from vedette.live.fleet import Health, fleet_summary, manager_row
from vedette.reports.charts import GROUPS, page_data
from vedette.reports.configurations import (
    OUTCOME_HEADS,
    Configuration,
    describe_middle,
    flatten,
    group_runs,
    outcome_of,
    spans_of,
    statistics_of,
)
from vedette.reports.raw_numbers import write_numbers
from vedette.reports.record import EVALUATION, RunRecord, read_baseline, read_record
from vedette_protocol.foreign_text import replace_unprintable
from vedette_rl.number_format import (
    format_bytes,
    format_count,
    format_decimal,
    format_duration,
    format_rate,
    format_time,
)
from vedette_rl.recording.reading import CurveReader
from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.atomic_files import replace_file
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.regular_files import open_regular
from vedette_services.errors import SettingError, UsageError, error_message
from vedette_services.host.system import vedette_version
from vedette_services.run.directory import REPORT_FILE, RunDirectory
from vedette_services.run.events import FLEET_KINDS, RunEvent
from vedette_services.run.finding import find_runs
from vedette_services.run.output_files import check_output
from vedette_services.run.run_files import check_report_file
from vedette_services.status.rate_meter import OPT_STEPS_S, SAMPLES_S
from vedette_services.status.schema import numbers
from vedette_services.status.status import ManagerStatus, Status
from vedette_services.status.stop_conditions import FAILED_REASON
from vedette_services.status.text import (
    actor_errors,
    failures_text,
    snapshot_text,
    step_rates,
    wait_reason,
)

log = logging.getLogger("vedette.reports")

VIDEO_BYTES_MAX = 8 << 20
BAD_EVENTS = frozenset({"died", "failed", "silent", "actor", "unevaluated"})
_LEARNERS_EVENTS = ("epoch", "died", "failed", "unevaluated", "snapshot")
MANAGERS_MAX = 500
_HEADS = (
    *("manager", "host", "state", "actors", "restarts", "samples/s", "lag", "window", "last seen"),
    *("env steps", "episodes", "doing, or last error"),
)
_TAB_NAMES = 2
ALL_VIDEOS_BYTES_MAX = 24 << 20
_SYMBOLS = "●■◆▲▼✚✖★"
"""Marks of the configurations, as report.js draws them."""
_LOG_LINES, _LOG_BYTES = 200, 64 << 10
VIDEO_TYPES = {".gif": "image/gif", ".mp4": "video/mp4"}
_ERRORS_MAX = 3
_ACCOUNTED = ("inserted", "dropped", "rejected", "in_flight", "lost")


def write_report(runs: Iterable[str | Path], out: str | Path | None = None) -> Path:
    """Write a page with everything known about one run, or with a comparison of several.

    Args:
        runs: run directories, or folders of them, finished or not; CSV files of other programs'
            evaluations (see `read_baseline`).
        out: the file. None: ``report.html`` in the directory if one is given, else in the current
            directory.

    Returns:
        The file.

    Raises:
        NotARunError: one of them holds no run.
        UsageError: the file is one of the tables, or a run's.
        SettingError: the file cannot be written, or a table has no evaluation.
    """
    return write_comparison(runs, out)[0]


def write_comparison(
    runs: Iterable[str | Path], out: str | Path | None = None
) -> tuple[Path, list[Configuration]]:
    """Write the page as `write_report` does; return its file and what it compares."""
    given = [user_path(run) for run in runs]
    beside = given[0] if len(given) == 1 and given[0].is_dir() else Path()
    path = beside / REPORT_FILE if out is None else user_path(out)
    if out is None:
        check_report_file(path)
    _check_report_output("--out", path, given, path.parent / REPORT_FILE)
    command = shlex.join(["vedette", "report", *map(str, given)])
    configurations = group_runs(_read(given))
    page = _render(configurations, command)
    try:
        replace_file(path, page)
    except OSError as error:
        raise SettingError(
            f"--out {path}", error.strerror or str(error), "name a file in a folder to write to"
        ) from error
    return path, configurations


def report_statistics(runs: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Return the statistics of a report, an object for each configuration.

    Raises:
        NotARunError: one of them holds no run.
    """
    configurations = group_runs(_read([user_path(run) for run in runs]))
    return statistics_of(configurations, spans_of(configurations))


def export_numbers(runs: Iterable[str | Path], out: str | Path) -> int:
    """Write every recorded number of runs as CSV; return how many.

    Raises:
        NotARunError: one of them holds no run.
        UsageError: the file is one of the tables, or a run's.
        SettingError: the file cannot be written.
    """
    path = user_path(out)
    given = [user_path(run) for run in runs]
    _check_report_output("--csv", path, given)
    records = _read(given, read_all=True)
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            return write_numbers(file, records)
    except OSError as error:
        why = error.strerror or str(error)
        raise SettingError(f"--csv {path}", why, "name a file in a folder to write to") from error


def _check_report_output(
    option: str, path: Path, given: Sequence[Path], own: Path | None = None
) -> None:
    """Refuse to write over a file that is read, or that a run writes.

    Args:
        given: the runs and tables that are read.
        own: the one file of a run that may be written; None: there is none.

    Raises:
        UsageError: names the file and the fix.
    """
    if path.is_file() and path.resolve() in [one.resolve() for one in given]:
        raise UsageError(f"{option} {path}: it is one of the tables to read; name another file")
    check_output(option, path, own)


def _read(given: Sequence[Path], *, read_all: bool = False) -> list[RunRecord]:
    """Read runs and tables.

    Args:
        read_all: every recorded number, also those that are not finite.
    """
    tables = [path for path in given if path.suffix.lower() == ".csv" and not path.is_dir()]
    folders = [path for path in given if path not in tables]
    left_out: list[OSError] = []
    # A directory without a run below may be a damaged one.
    runs = [
        run for directory in folders for run in find_runs(directory, None, left_out) or [directory]
    ]
    for error in left_out:
        log.warning("left out: %s", error_message(error))
    distinct = {run.resolve(): run for run in runs}.values()
    records = [
        read_record(run, CurveReader(run) if read_all else None, only_finite=not read_all)
        for run in distinct
    ]
    if tables:
        records += _read_tables(tables, records, only_finite=not read_all)
    if not records:
        raise UsageError("a report is about runs, and none is given: name a run, or a table")
    return records


def _read_tables(
    tables: Sequence[Path], beside: Sequence[RunRecord], *, only_finite: bool
) -> list[RunRecord]:
    """Read the baselines that stand beside runs, whose environment and target are theirs, too."""
    envs = dict.fromkeys(run.configured("env", "id") for run in beside)
    if len(envs) > 1:
        names = " and ".join(map(str, envs))
        why = f"its environment is not known, beside runs of {names}"
        raise SettingError(str(tables[0]), why, "compare one environment at a time")
    known = (*envs, beside[0].target) if beside else (None, None)
    records: list[RunRecord] = []
    files: dict[tuple[str, str], Path] = {}
    for table in dict.fromkeys(path.resolve() for path in tables):
        for run in read_baseline(table, *known, only_finite=only_finite):
            label, seed = run.configured("baseline"), run.configured("seed")
            other = files.setdefault((label, seed), table)
            if other != table:
                why = f"{label}, seed {seed} is in {other}, too"
                fix = "give each a label of its own, and compare one environment at a time"
                raise SettingError(str(table), why, fix)
            records.append(run)
    return records


def _render(configurations: Sequence[Configuration], command: str) -> str:
    """Fill the template. Every text is escaped: names and errors came over the network."""
    here = files(__package__)
    library = (here / "plotly" / "plotly-basic.min.js").read_text("utf-8")
    style, script = ((here / f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    hashes = " ".join(map(_hash, (library, script)))
    code = {"library": library, "style": style, "script": script, "hashes": hashes}
    marked = {name: Markup(text) for name, text in code.items()}  # our own files
    return fill_page("report.html", **page_contents(configurations), **marked, command=command)


def fill_page(template: str, **contents: Any) -> str:
    """Fill a template of this package with what `page_contents` returns."""
    page = _environment().get_template(template)
    return page.render(**contents, version=vedette_version(), now=time.time())


@cache
def _environment() -> Environment:
    loader = PackageLoader("vedette.reports", "")
    environment = Environment(loader=loader, autoescape=True, finalize=_showable, trim_blocks=True)
    environment.filters |= {
        "time": format_time,
        "duration": format_duration,
        "whole": format_count,
        "decimal": format_decimal,
        "is_number": _is_number,
    }
    return environment


_NUMBER = re.compile(r"[-–+]?\d[\d,.]*(e[-+]?\d+)?( %| s)?( \[.*\])?( of .*| \(.*\))?|–|-|")


def _is_number(value: object) -> bool:
    """Return True for what stands at the right of its column: a number, or that there is none."""
    return value is None or _NUMBER.fullmatch(str(value)) is not None


def _showable(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return "–" if value is None else replace_unprintable(str(value))


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def page_contents(
    configurations: Sequence[Configuration], *, videos_at: str = ""
) -> dict[str, Any]:
    """Return what the template shows of one run or of several, at least one.

    Args:
        videos_at: where the videos of a single run are; "": they are part of the page.
    """
    runs = [run for each in configurations for run in each.runs]
    data = page_data(configurations)
    settings: dict[str, list[tuple[str, str]]] = {}
    config = {} if runs[0].configured("baseline") else runs[0].config
    for key, value in flatten(config):
        part, _, name = key.rpartition(".")
        settings.setdefault(part or "run", []).append((name, value))
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    more = _of_one(runs[0]) if len(runs) == 1 else _of_several(configurations, runs)
    return {
        "charts": data["charts"],
        "data": Markup(text),  # JSON without "<"
        "groups": GROUPS,
        "symbols": _SYMBOLS,
        "settings": settings,
        "runs": runs,
        "videos": [*_videos(runs[0].directory, videos_at)] if len(runs) == 1 else [],
        **more,
    }


def _of_one(run: RunRecord) -> dict[str, Any]:
    lanes = fleet_lanes(run) if run.events else []
    spans = [span for lane in lanes for span in lane.spans] or [(0.0, 0.0)]
    begin, end = min(spans)[0], max(end for _, end in spans)
    seed = run.configured("seed")
    place = run.directory
    log_name, log_lines = _log_tail(place)
    known = (
        run.summary.run_id,
        "" if seed is None else f"seed {seed}",
        str(place.resolve() if place.exists() else place),
    )
    return {
        "run": run,
        "title": run.title,
        "tab": f"{_place_of([run])}: {run.title}",
        "subtitle": ", ".join(filter(None, known)),
        "notes": [*_notes(run)],
        "plumbing": [*_plumbing(run)],
        "log_name": log_name,
        "log_lines": log_lines,
        "fleet": fleet_summary(run.summary),
        "managers": manager_table(run.summary),
        "lanes": lanes,
        "bad": BAD_EVENTS,
        "percent": partial(_percent, begin, max(end - begin, 1.0)),
        "checkpoints": [*_checkpoints(place)],
        "accounting": [*numbers(run.summary.samples)],
        "accounted": sum(getattr(run.summary.samples, name) or 0 for name in _ACCOUNTED),
        "parts": _ACCOUNTED,
    }


def _plumbing(run: RunRecord) -> Iterator[str]:
    """The numbers beside the result, each in a few words."""
    status = run.summary
    # of a run that was killed the last seconds say nothing any more
    ended = status if run.running else replace(status, exit_reason=run.exit_reason or "killed")
    rates = step_rates(ended)
    last = SAMPLES_S, OPT_STEPS_S
    spans = ["mean of the training"] * 2 if rates.is_mean else [f"last {s:.0f} s" for s in last]
    named = zip(("env", "optimization"), (rates.env, rates.opt), spans, strict=True)
    for what, per_s, span in named:
        if per_s is not None:
            yield f"{format_rate(per_s).removesuffix('/s')} {what} steps/s ({span})"
    lag = status.lag
    if lag.mean is not None:
        age = "" if lag.seconds_mean is None else f" ({format_decimal(lag.seconds_mean, 2)} s)"
        yield f"policy lag {format_decimal(lag.mean)} versions{age}"
    if status.replay.size is not None:
        of = format_count(status.replay.capacity)
        yield f"replay {format_count(status.replay.size)} of {of} samples"
    if status.checkpoint.opt_steps is not None:
        age = f", {format_duration(status.checkpoint.age_s)} ago" if run.running else ""
        yield f"checkpoint at optimization step {format_count(status.checkpoint.opt_steps)}{age}"
    if status.snapshot.directory:
        yield f"snapshot {snapshot_text(ended)}"


def _log_tail(run: Path) -> tuple[str, list[str]]:
    """Name and last lines of the learner's log, where `vedette run` has written one."""
    logs = sorted((run / "log").glob("learner*"), key=lambda path: path.name)
    for path in reversed(logs):
        with suppress(OSError), open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read().decode("utf-8", "replace")
            return path.name, text.splitlines()[-_LOG_LINES:]
    return "", []


def _notes(run: RunRecord) -> Iterator[tuple[str, str]]:
    """Kind and text of each note: the run's state, who waits, what is wrong."""
    kind = {"": "", "interrupted": "", FAILED_REASON: "bad"}.get(run.exit_reason, "good")
    yield from ((kind if note == run.notes[0] else "", note) for note in run.notes)
    if run.running:
        if waits := wait_reason(run.summary):
            yield "", f"{waits[:1].upper()}{waits[1:]}."
        yield from (("bad", error) for error in actor_errors(run.summary, left=False)[:_ERRORS_MAX])
        if failing := run.summary.checkpoint.failing:
            yield "bad", f"The checkpoint cannot be written: {failing}"
    elif run.failure is None:  # else it is the first note
        yield from (("", error) for error in actor_errors(run.summary)[:_ERRORS_MAX])
    if failing := run.summary.snapshot.failing:
        yield "bad", f"The snapshot is not written: {failing}"
    if unevaluated := run.summary.unevaluated:
        yield "bad", f"{unevaluated[:1].upper()}{unevaluated[1:]}."
    if failures := failures_text(run.summary):
        yield "", f"Failures: {failures}."


def _checkpoints(run: Path) -> Iterator[tuple[int, float]]:
    """Optimization steps and time of each checkpoint, the newest first."""
    for path in reversed(Checkpoints(RunDirectory(run).checkpoints, keep=1).list()):
        with suppress(OSError):  # it has just been replaced by a newer one
            yield int(path.name), path.stat().st_mtime


def _percent(begin: float, width: float, at: float) -> float:
    return round(100 * min(max((at - begin) / width, 0.0), 1.0), 3)


def video_files(run: Path) -> dict[str, Path]:
    """Return the videos in a run's directory, by their names below it."""
    paths = [*run.glob("*"), *run.glob("videos/*")]
    videos = (path for path in paths if path.suffix in VIDEO_TYPES and path.is_file())
    return {path.relative_to(run).as_posix(): path for path in sorted(videos)}


def _videos(run: Path, videos_at: str) -> Iterator[tuple[str, str, str]]:
    """Name and source of each video; else why it is not there."""
    return _served_videos(run, videos_at) if videos_at else _embedded_videos(run)


def _embedded_videos(run: Path) -> Iterator[tuple[str, str, str]]:
    """Name and contents of each video, or why it is not there."""
    room = ALL_VIDEOS_BYTES_MAX
    for name, path in video_files(run).items():
        try:
            count = path.stat().st_size
            if count > min(VIDEO_BYTES_MAX, room):
                yield name, "", f"({format_bytes(count)}) is too large to be part of this page."
                continue
            text = base64.b64encode(path.read_bytes()).decode()
        except OSError as error:
            yield name, "", f"cannot be read: {error.strerror or error}"
            continue
        room -= count
        yield name, f"data:{VIDEO_TYPES[path.suffix]};base64,{text}", ""


def _served_videos(run: Path, place: str) -> Iterator[tuple[str, str, str]]:
    """Name and address of each video, or why it has none. One that is made again has another."""
    for name, path in video_files(run).items():
        with suppress(OSError):  # it was just removed
            found = path.stat()
            if found.st_size > VIDEO_BYTES_MAX:
                yield name, "", f"({format_bytes(found.st_size)}) is too large to be shown here."
            else:
                yield name, f"{place}&name={quote(name)}&version={found.st_mtime_ns}", ""


def _of_several(configurations: Sequence[Configuration], runs: list[RunRecord]) -> dict[str, Any]:
    plural = "" if len(configurations) == 1 else "s"
    title = f"{len(runs)} runs of {len(configurations)} configuration{plural}"
    return {
        "title": title,
        "tab": f"{_place_of(runs)}: {title}",
        "subtitle": ", ".join(dict.fromkeys(run.title for run in runs)),
        "notes": [("", note) for note in remarks(configurations)],
        "configurations": configurations,
        "outcome_heads": OUTCOME_HEADS,
        "outcome": outcome_of(configurations),
        "middle": describe_middle(configurations),
    }


def _place_of(runs: Sequence[RunRecord]) -> str:
    """The folders of runs, in the few words that a browser's tab has room for."""
    places = [run.directory.resolve() for run in runs]
    parents = {place.parent for place in places}
    if len(parents) == 1 and len(runs) > 1:
        return parents.pop().name
    names = list(dict.fromkeys(f"{place.name} in {place.parent.name}" for place in places))
    return ", ".join(names[:_TAB_NAMES]) + " …" * (len(names) > _TAB_NAMES)


def remarks(configurations: Sequence[Configuration]) -> Iterator[str]:
    """Yield what a reader of a comparison has to know of its runs, in sentences."""
    for each in configurations:
        for run in each.runs:
            if run.running:
                yield f"{run.name} is still running."
            elif not run.curves:
                yield f"{run.name} has no curves: {run.notes[0] if run.notes else 'nothing'}"
            elif run.is_offline:
                yield f"{run.name} made no env steps: it has no mean over the curve."
            if EVALUATION in run.not_finite:
                left_out = (
                    "no mean over the curve, and no last one"
                    if run.diverged
                    else ("no mean over the curve")
                )
                yield f"{_of_seed(run)} has evaluations that are not finite: it has {left_out}."
        if len(set(each.seeds)) < len(each.seeds):
            yield f"{each.name}: some runs have the same seed; they count as one."
        if len({repr(run.configured("stop")) for run in each.runs}) > 1:
            yield f"{each.name}: its runs have different stop conditions."


def _of_seed(run: RunRecord) -> str:
    """Name a run, or the seed of another program in its file."""
    label = run.configured("baseline")
    return f"{run.name}: {label}, seed {run.configured('seed')}" if label else run.name


# The fleet: the table of managers, and a lane of time for the learner and each


@dataclass(frozen=True, slots=True)
class Lane:
    """When the learner or a manager was connected, in seconds since 1970, and events."""

    name: str
    spans: list[tuple[float, float]]
    marks: list[RunEvent]


def fleet_lanes(record: RunRecord) -> list[Lane]:
    """Return the learner's lane, then the managers' in the order of their first events.

    A manager's span ends with its next event, or with the end of the learner's start in which
    it began.
    """
    starts = record.starts
    of: dict[str, list[RunEvent]] = {}
    for event in record.events:
        if event.kind in FLEET_KINDS and event.kind not in _LEARNERS_EVENTS:
            name = event.who.rpartition("/")[0] if event.kind == "actor" else event.who
            of.setdefault(name, []).append(event)
    own = [event for event in record.events if event.kind in _LEARNERS_EVENTS]
    lanes = [Lane("learner", starts, own)]
    for name, events in of.items():
        moves = [event for event in events if event.kind != "actor"]
        spans = []
        for event, after in zip_longest(moves, moves[1:]):
            if event.kind in ("joined", "returned"):  # a killed learner logs no end
                ends = [end for _, end in starts if end >= event.time_s]
                ends += [after.time_s] if after else []
                spans.append((event.time_s, min(ends, default=event.time_s)))
        lanes.append(Lane(name, spans, [event for event in events if event.kind in BAD_EVENTS]))
    return lanes


def manager_table(status: Status) -> tuple[list[str], list[tuple[bool, list[str]]]]:
    """Return the headings and the managers, the worst first: True if it needs attention, and cells.

    Columns in which no manager has anything are left out.
    """
    known = [(manager_row(manager, status).health, manager) for manager in status.managers]
    known.sort(key=lambda row: (-row[0], row[1].id))
    rows = [(h >= Health.TROUBLE, _cells(m, status)) for h, m in known[:MANAGERS_MAX]]
    kept = [i for i in range(len(_HEADS)) if any(cells[i] not in ("", "-") for _, cells in rows)]
    shown = [(faulty, [cells[i] for i in kept]) for faulty, cells in rows]
    return [_HEADS[i] for i in kept], shown


def _cells(manager: ManagerStatus, status: Status) -> list[str]:
    """The cells of a manager; of one that is not there, what is known of its past."""
    row = manager_row(manager, status)
    own = manager.actors
    error = next((actor.error for actor in reversed(own) if actor.error), "")
    here = manager.is_present
    return [
        *(row.name, row.host, "left" if manager.left else manager.state),
        row.actors if here else str(len(own)),
        *(row.restarts, row.rate, row.lag, row.window if here else "-", row.seen),
        format_count(sum(actor.env_steps for actor in own)),
        format_count(sum(actor.episodes for actor in own)),
        row.what if here else error,
    ]

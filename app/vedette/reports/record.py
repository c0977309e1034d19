"""Reads everything that a run has left in its directory, without starting or importing anything.

Reports are also for runs that failed: each missing or damaged file is a line in `notes`, and the
rest is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.recording.reading import Curve, read_curves
from vedette_services.config.loading import read_toml
from vedette_services.errors import NotARunError, RunInUseError, SettingError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.number_format import format_time
from vedette_services.run.status import Status
from vedette_services.run.status_fields import decode
from vedette_services.run.status_text import exit_sentence

_JSON_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The contents of a run directory.

    Args:
        directory: the run directory.
        config: ``config.toml`` as a table; empty if it cannot be read.
        summary: ``summary.json``; an empty status if it cannot be read. Much of it came over the
            network.
        curves: by name.
        events: in the order of their times.
        running: True while a learner runs in the directory.
        notes: a sentence for the run's state, and for each missing or damaged file.
    """

    directory: Path
    config: dict[str, Any]
    summary: Status
    curves: dict[str, Curve]
    events: tuple[RunEvent, ...]
    running: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.directory.resolve().name

    @property
    def has_summary(self) -> bool:
        """True if ``summary.json`` holds any value."""
        return self.summary != Status()

    @property
    def title(self) -> str:
        """The agent and the environment."""
        agent = self.configured("agent", "name") or self.summary.agent or "an agent"
        env = self.configured("env", "id") or self.summary.env or "an environment"
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
        return float(value) if isinstance(value, int | float) else None

    @property
    def exit_reason(self) -> str:
        """The reason for its end; "" while it runs, or if it was killed."""
        return "" if self.running else self.summary.exit_reason

    def last_record_s(self, before_s: float = math.inf) -> float | None:
        """Time of the last record before `before_s`, in seconds since 1970; None without any."""
        times = [event.time_s for event in self.events]
        times += [] if self.summary.time_s is None else [self.summary.time_s]
        for curve in self.curves.values():
            earlier = curve.times[curve.times < before_s]
            times += [float(earlier.max())] if earlier.size else []
        return max((time_s for time_s in times if time_s < before_s), default=None)


def read_record(directory: Path) -> RunRecord:
    """Read a run.

    Raises:
        NotARunError: the directory holds no run.
    """
    run = RunDirectory(directory)
    if not is_run(directory):
        raise NotARunError(directory, "config.toml")
    notes: list[str] = []
    config, summary = _config(run, notes), _summary(run, notes)
    recorded = read_curves(directory)
    notes += recorded.damage
    events = _events(run, notes)
    try:
        run.check_free(wait_s=0.0)
        running = False
    except (RunInUseError, OSError):
        running = True
    record = RunRecord(directory, config, summary, recorded.curves, events, running, ())
    return replace(record, notes=(*_state(record), *notes, *_absences(record)))


def is_run(directory: Path) -> bool:
    """Return True if a run has left anything in a directory."""
    run = RunDirectory(directory)
    places = (run.config_file, run.summary_file, run.events_file, run.tensorboard)
    return run.exists or any(place.exists() for place in places)


def runs_below(directory: Path) -> list[Path]:
    """Find the run in a directory, or the runs in its folders, at most two levels deep.

    Raises:
        NotARunError: there is no run.
    """
    if is_run(directory):
        return [directory]
    for pattern in ("*", "*/*"):
        found = sorted(filter(is_run, directory.glob(pattern)), key=_numeric_order)
        if found:
            return found
    raise NotARunError(directory, "config.toml, and no run in it")


def _numeric_order(path: Path) -> tuple[str, str, int]:
    """The key that sorts seed-2 before seed-10."""
    head, _, tail = path.name.rpartition("-")
    if tail.isdecimal() and len(tail) < 16:
        return str(path.parent), head, int(tail)
    return str(path.parent), path.name, 0


def _config(run: RunDirectory, notes: list[str]) -> dict[str, Any]:
    if not run.config_file.exists():
        notes.append("config.toml is not there: what was configured is not known")
        return {}
    try:
        return read_toml(run.config_file)
    except SettingError as error:
        notes.append(f"config.toml: {error.why}")
        return {}


def _summary(run: RunDirectory, notes: list[str]) -> Status:
    try:
        with run.summary_file.open("rb") as file:
            found = decode(Status, file.read(_JSON_BYTES_MAX))
    except FileNotFoundError:
        return Status()
    except OSError as error:
        notes.append(f"summary.json cannot be read: {error.strerror or error}")
        return Status()
    if found is None:
        notes.append("summary.json holds no summary")
    return found or Status()


def _events(run: RunDirectory, notes: list[str]) -> tuple[RunEvent, ...]:
    try:
        events, broken = read_events(run.events_file)
    except OSError as error:
        notes.append(f"events.jsonl cannot be read: {error.strerror or error}")
        return ()
    if broken > 1:  # a killed learner leaves one unfinished line
        notes.append(f"events.jsonl: {broken} lines are damaged and left out")
    return tuple(events)


def _state(record: RunRecord) -> Iterator[str]:
    """Describes whether the run goes on, has ended or was killed."""
    if record.running:
        yield f"It is running: this page is of {format_time(time.time())}."
    elif ended := exit_sentence(record.exit_reason):
        yield f"It is {ended}."
    elif record.has_summary or record.curves:
        yield (
            "It ended without an exit reason (killed, or the machine went down): "
            "the same command goes on from its last checkpoint."
        )
    else:
        yield "It has not begun: nothing was recorded."
    epoch = record.summary.epoch
    if epoch is not None and epoch > 1:
        yield f"It was started {epoch} times; dotted lines in the curves show where it went on."


def _absences(record: RunRecord) -> Iterator[str]:
    """Names the data that the report lacks."""
    if not record.curves and record.has_summary:
        yield "No curves: it has recorded nothing yet, or learner.recorders names none of ours."
    if record.has_summary and not record.events:
        yield "No timeline: it has no events.jsonl (a run of an older version)."
    names = [n for n, curve in record.curves.items() if not np.isfinite(curve.values).all()]
    if names:
        yield f"Not finite at times, and left out there: {', '.join(sorted(names)[:8])}."

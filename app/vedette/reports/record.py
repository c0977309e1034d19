"""Everything that a run has left in its directory, read without starting or importing anything.

A report is wanted most where something went wrong: whatever is missing or damaged is a line in
`notes`, and the rest is read all the same.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.recording.reading import Curve, read_curves
from vedette_services.config.loading import read_toml
from vedette_services.errors import NotARunError, SettingError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.number_format import format_time
from vedette_services.run.status import Status
from vedette_services.run.status_fields import decode
from vedette_services.run.status_text import exit_sentence

_JSON_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as its directory tells it.

    Args:
        directory: the run's.
        config: ``config.toml`` as a table; empty where it cannot be read.
        summary: ``summary.json``; with nothing in it where it cannot be read. Much of it came over
            the network.
        curves: by name.
        events: in their order.
        running: a learner runs in it now.
        notes: a line for everything a reader should know: what is missing, damaged, going on.
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
        """Of its directory."""
        return self.directory.resolve().name

    @property
    def has_summary(self) -> bool:
        """Whether anything was found in ``summary.json``."""
        return self.summary != Status()

    @property
    def title(self) -> str:
        """The agent and the environment."""
        agent = self.configured("agent", "name") or self.summary.agent or "an agent"
        env = self.configured("env", "id") or self.summary.env or "an environment"
        return f"{agent} on {env}"

    def configured(self, *path: str) -> Any:  # any value that TOML knows
        """A configured value; None where there is none."""
        here: Any = self.config  # whatever stands there
        for name in path:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here

    @property
    def target(self) -> float | None:
        """The return at which it counts as solved, if there is one."""
        value = self.configured("stop", "target_return")
        return float(value) if isinstance(value, int | float) else None

    @property
    def exit_reason(self) -> str:
        """Why it ended; "" where it has not, or could not say so."""
        return "" if self.running else self.summary.exit_reason

    @property
    def last_s(self) -> float | None:
        """When something was last heard of it, in seconds since 1970."""
        message = [float(curve.times[-1]) for curve in self.curves.values() if curve.times.size]
        message += [event.time_s for event in self.events]
        message += [self.summary.time_s] if self.summary.time_s is not None else []
        return max(message, default=None)


def read_record(directory: Path) -> RunRecord:
    """Read a run.

    Raises:
        NotARunError: it is none.
    """
    run = RunDirectory(directory)
    if not is_run(directory):
        raise NotARunError(directory, "config.toml")
    notes: list[str] = []
    config, summary = _config(run, notes), _summary(run, notes)
    recorded = read_curves(directory)
    notes += recorded.damage
    events = _events(run, notes)
    running = _in_use(run.root / "lock")
    record = RunRecord(directory, config, summary, recorded.curves, events, running, tuple(notes))
    message = (*_state(record), *notes, *_absences(record))
    return RunRecord(directory, config, summary, recorded.curves, events, running, message)


def is_run(directory: Path) -> bool:
    """Whether a run has left anything in a directory."""
    run = RunDirectory(directory)
    traces = (
        run.config_file,
        run.summary_file,
        run.events_file,
        run.root / "run.json",
        run.tensorboard,
    )
    return any(place.exists() for place in traces)


def runs_below(directory: Path) -> list[Path]:
    """The run that a directory is, or those that are in it, two levels deep at most.

    Raises:
        NotARunError: there is none.
    """
    if is_run(directory):
        return [directory]
    for pattern in ("*", "*/*"):
        found = sorted((path for path in directory.glob(pattern) if is_run(path)), key=_natural)
        if found:
            return found
    raise NotARunError(directory, "config.toml, and no run in it")


def _natural(path: Path) -> tuple[str, str, int]:
    """So that seed-2 comes before seed-10."""
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
    if broken > 1:  # one is what a learner that was killed has not finished
        notes.append(f"events.jsonl: {broken} lines are damaged and left out")
    return tuple(events)


def _state(record: RunRecord) -> Iterator[str]:
    """How it stands, in a sentence."""
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
    """What a reader would look for in vain."""
    if not record.curves and record.has_summary:
        yield "No curves: it has recorded nothing yet, or learner.recorders names none of ours."
    if record.has_summary and not record.events:
        yield "No timeline: it has no events.jsonl (a run of an older version)."
    names = [name for name, curve in record.curves.items() if not _finite(curve)]
    if names:
        yield f"Not finite at times, and left out there: {', '.join(sorted(names)[:8])}."


def _finite(curve: Curve) -> bool:
    return bool(np.isfinite(curve.values).all())


def _in_use(lock: Path) -> bool:
    """Whether a learner holds the run's lock."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False

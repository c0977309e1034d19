"""Reading the curves of a run back, whichever recorder wrote them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vedette_rl.recording.tensorboard import iterate_records, parse_event

_HALF_WRITTEN_BYTES = 64 << 10
"""A writer may not have finished its last bytes; more at the end of a file is damage."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """One name's values in the order of their steps.

    Args:
        steps: env steps or optimization steps, never decreasing.
        times: seconds since 1970.
        values: they may be infinite or NaN.
    """

    steps: NDArray[np.int64]
    times: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class RecordedCurves:
    """The curves that were found.

    Args:
        curves: by name.
        source: the file or folder, relative to the run; "" where nothing was recorded.
        damage: a line for each file that could be read in part only.
    """

    curves: dict[str, Curve] = field(default_factory=dict)
    source: str = ""
    damage: tuple[str, ...] = ()


def read_curves(run: Path) -> RecordedCurves:
    """The curves of a run, from the first of its records that has any.

    A run that went on from an earlier step has recorded some steps twice: the later start counts.

    Args:
        run: the run's directory, with ``tensorboard/``, ``records.jsonl`` or ``records.csv``; it
            may be written to meanwhile.
    """
    damage: list[str] = []
    for source, read in _SOURCES.items():
        if not (run / source).exists():
            continue
        found = _CurveBuilder()
        try:
            read(run / source, found)
        except OSError as error:
            damage.append(f"{source}: cannot be read: {error.strerror or error}")
        damage += [f"{source}: {line}" for line in found.damage]
        if found.columns:
            return RecordedCurves(found.curves(), source, tuple(damage))
    return RecordedCurves(damage=tuple(damage))


class _CurveBuilder:
    """Collects values by name, in the order in which they are read."""

    def __init__(self) -> None:
        self.columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
        self.damage: list[str] = []

    def add(self, name: str, step: int, time_s: float, value: float) -> None:
        """Add a value; what was recorded at later steps is of a start that was gone back behind."""
        steps, times, values = self.columns.setdefault(name, ([], [], []))
        while steps and steps[-1] > step:
            for column in (steps, times, values):
                column.pop()
        steps.append(step)
        times.append(time_s)
        values.append(value)

    def add_broken_lines(self, count: int) -> None:
        """Note lines that could not be read; one may be what a writer has not finished yet."""
        if count > 1:
            self.damage.append(f"{count} lines are damaged and left out")

    def curves(self) -> dict[str, Curve]:
        return {
            name: Curve(np.array(steps, np.int64), np.array(times), np.array(values))
            for name, (steps, times, values) in self.columns.items()
        }


def _read_event_files(directory: Path, into: _CurveBuilder) -> None:
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        whole, broken = 0, 0
        for record in iterate_records(data):
            whole += len(record)
            event = parse_event(record)
            if event is None:
                broken += 1
                continue
            for value in event.summary.value:
                if value.WhichOneof("value") == "simple_value":
                    into.add(value.tag, event.step, event.wall_time, value.simple_value)
        if broken:
            into.damage.append(f"{broken} records of {path.name} are damaged and left out")
        if len(data) - whole > _HALF_WRITTEN_BYTES:
            left = len(data) - whole
            into.damage.append(f"{path.name} is damaged, its last {left:,} bytes are left out")


def _read_jsonl(path: Path, into: _CurveBuilder) -> None:
    broken = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
                if "text" not in record:
                    _add_record(record, into)
            except (ValueError, TypeError, KeyError):
                broken += 1
    into.add_broken_lines(broken)


def _add_record(record: dict[str, object], into: _CurveBuilder) -> None:
    step, time_s = int(str(record["step"])), float(str(record["time_s"]))
    for name, value in record.items():
        if name not in ("step", "time_s"):
            into.add(name, step, time_s, np.nan if value is None else float(str(value)))


def _read_csv(path: Path, into: _CurveBuilder) -> None:
    broken = 0
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(line.replace("\0", "") for line in file)
        next(rows, None)  # the names of the columns
        for row in rows:
            try:
                time_s, step, name, value = row
                into.add(name, int(step), float(time_s), float(value))
            except ValueError:
                broken += 1
    into.add_broken_lines(broken)


_SOURCES: dict[str, Callable[[Path, _CurveBuilder], None]] = {
    "tensorboard": _read_event_files,
    "records.jsonl": _read_jsonl,
    "records.csv": _read_csv,
}

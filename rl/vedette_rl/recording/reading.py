"""Reading the curves of a run back, whichever recorder wrote them."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vedette_rl.number_format import format_bytes
from vedette_rl.recording.spread_reading import iterate_lines, shares, spread_spans
from vedette_rl.recording.tensorboard import ScalarParser, find_record, iterate_records
from vedette_rl.storage.regular_files import open_regular

_HALF_WRITTEN_BYTES = 64 << 10
"""A writer may not have finished its last bytes; more at the end of a file is damage."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False)
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

    def __repr__(self) -> str:
        if not len(self.steps):
            return "Curve(no points)"
        first, last = self.steps[0], self.steps[-1]
        points = f"{len(self.steps):,} points, steps {first:,} to {last:,}"
        return f"Curve({points}, last {self.values[-1]:.4g})"

    def where(self, kept: NDArray[np.bool_]) -> Curve:
        """Return the part for which `kept` is True."""
        return Curve(self.steps[kept], self.times[kept], self.values[kept])


@dataclass(frozen=True, slots=True)
class RecordedCurves:
    """The curves that were read.

    Args:
        curves: the curves by name.
        source: the file or folder, relative to the run; "" where nothing was recorded.
        damage: a line for each file that could be read in part only.
    """

    curves: dict[str, Curve] = field(default_factory=dict)
    source: str = ""
    damage: tuple[str, ...] = ()


def read_curves(run: Path, *, bytes_max: int | None = None) -> RecordedCurves:
    """The curves of a run, from the first of its records that has any.

    A run that went on from an earlier step has recorded some steps twice: the later start counts.

    Args:
        run: the run's directory, with ``tensorboard/``, ``records.jsonl`` or ``records.csv``; it
            may be written to meanwhile.
        bytes_max: as `CurveReader` has it.
    """
    return CurveReader(run, bytes_max=bytes_max).read()


class CurveReader:
    """Reads the curves of a run as `read_curves` does, again and again.

    Of event files it reads only what was added since the last call.

    Args:
        run: the run's directory.
        rows_max: values of a name in event files that are kept in memory; None: all.
        bytes_max: of larger records, parts at even distances are read, so many bytes together;
            None: all. What is left out is in `RecordedCurves.damage`.
    """

    def __init__(
        self, run: Path, rows_max: int | None = None, bytes_max: int | None = None
    ) -> None:
        self._run = run
        self._bytes_max = bytes_max
        self._event_files = _EventFiles(run / "tensorboard", rows_max, bytes_max)

    def read(self) -> RecordedCurves:
        """Return all curves as they are now."""
        damage: list[str] = []
        for source, read in self._sources():
            if not (self._run / source).exists():
                continue
            try:
                table, lines = read(self._run / source)
            except OSError as error:
                damage.append(f"{source}: cannot be read: {error.strerror or error}")
                continue
            damage += [f"{source}: {line}" for line in lines]
            if curves := table.curves():
                return RecordedCurves(curves, source, tuple(damage))
        return RecordedCurves(damage=tuple(damage))

    def _sources(self) -> Iterator[tuple[str, Callable[[Path], tuple[CurveTable, list[str]]]]]:
        yield "tensorboard", lambda _: self._event_files.read()
        yield "records.jsonl", partial(_read_jsonl, bytes_max=self._bytes_max)
        yield "records.csv", partial(_read_csv, bytes_max=self._bytes_max)


@dataclass(slots=True)
class _Rows:
    """The values recorded under the same names: a row of `values` for each step.

    Of `count` rows it keeps every `stride`-th, and the newest.
    """

    places: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    count: int = 0
    stride: int = 1

    def add(self, place: int, step: int, time_s: float, values: Sequence[float]) -> None:
        """Add the newest row, in place of the last one if that is kept no longer."""
        self.steps.append(step)  # first: it may be too large
        if self.count and (self.count - 1) % self.stride:
            del self.steps[-2], self.places[-1], self.times[-1]
            del self.values[len(self.values) - len(values) :]
        self.places.append(place)
        self.times.append(time_s)
        self.values.extend(values)
        self.count += 1

    def halve(self) -> None:
        """Forget every second row, but not the newest; of later ones, keep as few."""
        size = len(self.steps)
        kept = np.union1d(np.arange(0, size, 2), [size - 1])
        values = np.array(self.values).reshape(size, -1)[kept]
        self.values = array("d", values.tobytes())
        self.places = array("q", np.array(self.places)[kept].tobytes())
        self.steps = array("q", np.array(self.steps)[kept].tobytes())
        self.times = array("d", np.array(self.times)[kept].tobytes())
        self.stride *= 2


class CurveTable:
    """Collects values in the order in which they were recorded, and makes curves of them.

    Names that are recorded together share their steps and times.

    Args:
        rows_max: rows of the same names that are kept, at even distances; None: all.
    """

    def __init__(self, rows_max: int | None = None) -> None:
        self._rows_max = rows_max
        self._rows: dict[tuple[str, ...], _Rows] = {}
        self._count = 0

    def add(self, names: Sequence[str], step: int, time_s: float, values: Sequence[float]) -> None:
        """Add a value for each name."""
        rows = self._rows.setdefault(tuple(names), _Rows())
        rows.add(self._count, step, time_s, values)
        self._count += 1
        if self._rows_max is not None and len(rows.steps) > self._rows_max:
            rows.halve()

    def curves(self) -> dict[str, Curve]:
        """Return a curve for each name.

        What was recorded at higher steps before a value is of a start that was gone back behind.
        """
        parts: dict[str, list[tuple[NDArray[np.int64], Curve]]] = {}
        for names, rows in self._rows.items():
            places, steps = np.array(rows.places), np.array(rows.steps)
            times = np.array(rows.times)
            values = np.array(rows.values).reshape(-1, len(names))
            for column, name in enumerate(names):
                curve = Curve(steps, times, values[:, column])
                parts.setdefault(name, []).append((places, curve))
        return {name: _joined(points) for name, points in parts.items()}


def _joined(parts: Sequence[tuple[NDArray[np.int64], Curve]]) -> Curve:
    """Join the parts of a curve in the order of their places, as `CurveTable.curves` says."""
    (_, curve), *others = parts
    if others:
        order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
        curve = Curve(
            np.concatenate([part.steps for _, part in parts])[order],
            np.concatenate([part.times for _, part in parts])[order],
            np.concatenate([part.values for _, part in parts])[order],
        )
    kept = curve.steps <= np.minimum.accumulate(curve.steps[::-1])[::-1]
    return curve if kept.all() else curve.where(kept)


@dataclass(slots=True)
class _EventFile:
    """An event file, as far as it was read: to `offset` of `size` bytes, but for `skipped`."""

    inode: int
    size: int = 0
    offset: int = 0
    broken: int = 0
    skipped: int = 0


class _EventFiles:
    """The event files of a directory, read on from where the last reading ended."""

    def __init__(self, directory: Path, rows_max: int | None, bytes_max: int | None) -> None:
        self._directory = directory
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._files: dict[Path, _EventFile] = {}
        self._found = CurveTable(rows_max)
        self._scalars = ScalarParser()

    def read(self) -> tuple[CurveTable, list[str]]:
        """Read what was added; what was replaced or cut is read again, with all that follows it."""
        failures: list[str] = []
        try:
            self._read_all(sorted(self._directory.glob("events.out.tfevents.*")))
        except OSError as error:
            failures.append(f"cannot be read: {error.strerror or error}")
        damage = [line for path, file in self._files.items() for line in _damage(path, file)]
        skipped = sum(file.skipped for file in self._files.values())
        size = sum(file.size for file in self._files.values())
        return self._found, failures + damage + _describe_skipped(skipped, size)

    def _read_all(self, paths: Sequence[Path]) -> None:
        if not self._goes_on(paths):
            self._files = {}
            self._found = CurveTable(self._rows_max)
        known = [self._files.setdefault(p, _EventFile(p.stat().st_ino)) for p in paths]
        sizes = [path.stat().st_size for path in paths]
        unread = [size - file.offset for file, size in zip(known, sizes, strict=True)]
        parts = shares(unread, self._bytes_max)
        for path, file, size, part in zip(paths, known, sizes, parts, strict=True):
            if size != file.size:
                self._read_on(path, file, size, part)

    def _goes_on(self, paths: Sequence[Path]) -> bool:
        """Return True if nothing but the end of the last file, and new files, have come."""
        known = list(self._files.items())
        if [path for path, _ in known] != [*paths[: len(known)]]:
            return False
        for path, file in known:
            now = path.stat()
            grown = now.st_size > file.size and path == known[-1][0]
            if now.st_ino != file.inode or not (grown or now.st_size == file.size):
                return False
        return True

    def _read_on(self, path: Path, file: _EventFile, size: int, bytes_max: int | None) -> None:
        with open_regular(path) as opened:
            for begin, end in spread_spans(file.offset, size, bytes_max):
                opened.seek(begin)
                data = opened.read(end - begin)
                first = find_record(data) if begin > file.offset else 0
                file.skipped += begin + first - file.offset
                file.offset = begin + first
                file.size = begin + len(data)
                self._add_records(data[first:], file)

    def _add_records(self, data: bytes, file: _EventFile) -> None:
        for record in iterate_records(data):
            file.offset += len(record)
            found = self._scalars.parse(record)
            if found is None:
                file.broken += 1
            elif found.names:
                self._found.add(*found)


def _damage(path: Path, file: _EventFile) -> Iterator[str]:
    if file.broken:
        yield f"{file.broken} records of {path.name} are damaged and left out"
    left = file.size - file.offset
    if left > _HALF_WRITTEN_BYTES:
        yield f"{path.name} is damaged, its last {left:,} bytes are left out"


def _describe_skipped(skipped: int, size: int) -> list[str]:
    """A line on what was left out of large records."""
    if not skipped:
        return []
    percent = max(1.0, 100.0 * (size - skipped) / size)
    return [
        f"{format_bytes(size)} of records: {percent:.0f} % of them are read, in parts at even "
        "distances; curves have gaps between these"
    ]


def _lines_of(path: Path, bytes_max: int | None) -> tuple[Iterator[str], list[str]]:
    """Return the lines of a file, or of parts of a large one, and what is said of that."""
    size = path.stat().st_size
    spans = spread_spans(0, size, bytes_max)

    def lines() -> Iterator[str]:
        with open_regular(path) as file:
            for line in iterate_lines(file, spans):
                yield line.decode("utf-8", "replace")

    return lines(), _describe_skipped(size - sum(end - begin for begin, end in spans), size)


def _read_jsonl(path: Path, bytes_max: int | None) -> tuple[CurveTable, list[str]]:
    table = CurveTable()
    broken = 0
    lines, notes = _lines_of(path, bytes_max)
    for line in lines:
        try:
            record = json.loads(line)
            if "text" not in record:
                _add_record(record, table)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            broken += 1
    return table, _broken_lines(broken) + notes


def _add_record(record: dict[str, object], into: CurveTable) -> None:
    step, time_s = int(str(record.pop("step"))), float(str(record.pop("time_s")))
    values = [np.nan if value is None else float(str(value)) for value in record.values()]
    if values:
        into.add([*record], step, time_s, values)


def _read_csv(path: Path, bytes_max: int | None) -> tuple[CurveTable, list[str]]:
    table = CurveTable()
    broken = 0
    lines, notes = _lines_of(path, bytes_max)
    next(lines, None)  # the names of the columns
    for line in lines:
        try:
            if not line.endswith("\n"):
                raise ValueError("half a number is a number")
            # one by one: an open quote in a broken line would take the next ones with it
            ((time_s, step, name, value),) = csv.reader([line.replace("\0", "")])
            table.add([name], int(step), float(time_s), [float(value)])
        except (ValueError, OverflowError, csv.Error):
            broken += 1
    return table, _broken_lines(broken) + notes


def _broken_lines(count: int) -> list[str]:
    """A line on lines that could not be read; one may be what a writer has not finished yet."""
    return [f"{count} lines are damaged and left out"] if count > 1 else []

"""Reads and writes the data of the curves: evaluations, and a line for each finished run.

docs/curves/data/STUDY/TASK.csv has the evaluations, docs/curves/data/STUDY/runs.csv the runs. A run
is finished when it is in the latter.
"""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

PLACE = Path(__file__).resolve().parent.parent / "docs" / "curves"
DATA = PLACE / "data"


@dataclass(frozen=True)
class Point:
    """One greedy evaluation of one run.

    Args:
        label: the curve that it is on.
        seed: the run's.
        env_steps: environment steps of the model that was played.
        opt_steps: optimization steps of it.
        wall_s: seconds since the run's process was started; a peer's, since it began to train.
        return_mean: over the evaluation's episodes.
    """

    label: str
    seed: int
    env_steps: int
    opt_steps: int
    wall_s: float
    return_mean: float


@dataclass(frozen=True)
class Finished:
    """A run that came to its end.

    Args:
        fingerprint: of its settings.
        code: the commit of our code; "+" behind it if files were changed.
        program: the packages and versions of a peer; "vedette" if it is ours.
        wall_s, cpu_s: of its processes from start to end, evaluations and all.
        environment: the packages and versions that the environment was made of; "" if they were not
            noted, as those of peers, which `scripts/setup_peer` fixes.
    """

    task: str
    label: str
    seed: int
    fingerprint: str
    code: str
    program: str
    env_steps: int
    opt_steps: int
    return_last: float
    return_best: float
    wall_s: float
    cpu_s: float
    environment: str = ""


Row = TypeVar("Row", Point, Finished)


def read_points(file: Path) -> list[Point]:
    """All evaluations in a file; none where there is no file."""
    return _read(file, Point)


def read_finished(folder: Path) -> list[Finished]:
    """All finished runs of a study's folder."""
    return _read(folder / "runs.csv", Finished)


def write_run(folder: Path, points: Iterable[Point], run: Finished) -> None:
    """Add a run, in the place of one that was there; it is finished when this has returned."""
    file = folder / f"{run.task}.csv"
    kept = [p for p in read_points(file) if (p.label, p.seed) != (run.label, run.seed)]
    _write(file, [*kept, *points], lambda p: (p.label, p.seed, p.opt_steps))
    same = (run.task, run.label, run.seed)
    others = [r for r in read_finished(folder) if (r.task, r.label, r.seed) != same]
    _write(folder / "runs.csv", [*others, run], lambda r: (r.task, r.label, r.seed))


def drop_runs(folder: Path, task: str, label: str) -> int:
    """Remove a label's runs on a task, and return how many there were."""
    runs = read_finished(folder)
    points = read_points(folder / f"{task}.csv")
    _write(folder / "runs.csv", [r for r in runs if (r.task, r.label) != (task, label)], None)
    _write(folder / f"{task}.csv", [p for p in points if p.label != label], None)
    return len({point.seed for point in points if point.label == label})


def _read(file: Path, kind: type[Row]) -> list[Row]:
    if not file.exists():
        return []
    types = get_type_hints(kind)
    with file.open(newline="") as lines:
        return [
            kind(**{name: types[name](text) for name, text in row.items()})
            for row in csv.DictReader(lines)
        ]


def _write(file: Path, rows: list[Row], order: Callable[[Row], tuple[Any, ...]] | None) -> None:
    """Write a file whole and rename it to its place; remove it if there are no rows."""
    if not rows:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".new")
    names = [each.name for each in fields(rows[0])]
    with aside.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(names)
        for row in sorted(rows, key=order) if order else rows:
            writer.writerow([_text(name, getattr(row, name)) for name in names])
    aside.replace(file)


def _text(name: str, value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:.1f}" if name.endswith("_s") else f"{value:.2f}"

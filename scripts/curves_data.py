"""The data behind the curves: one CSV a preset, one line an evaluation."""

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

PLACE = Path(__file__).resolve().parent.parent / "docs" / "curves"
DATA = PLACE / "data"


@dataclass(frozen=True)
class Point:
    """One greedy evaluation of one run.

    Args:
        label: how it ran: ``in-process``, ``networked``, or whose run it was.
        seed: the run's.
        env_steps: environment steps when the evaluation was known.
        opt_steps: optimization steps behind the model that was played.
        wall_s: seconds since the run's process was started; a peer's, since it began to train.
        return_mean: over the evaluation's episodes.
    """

    label: str
    seed: int
    env_steps: int
    opt_steps: int
    wall_s: float
    return_mean: float


def read_points(file: Path) -> list[Point]:
    """All lines of a file; none where there is no file."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [
            Point(
                row["label"],
                int(row["seed"]),
                int(row["env_steps"]),
                int(row["opt_steps"]),
                float(row["wall_s"]),
                float(row["return_mean"]),
            )
            for row in csv.DictReader(lines)
        ]


def write_points(file: Path, points: Iterable[Point]) -> None:
    """Put a run's lines in the place of those it had; renamed to `file` when whole."""
    new = list(points)
    runs = {(point.label, point.seed) for point in new}
    kept = [point for point in read_points(file) if (point.label, point.seed) not in runs]
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".new")
    with aside.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([field.name for field in fields(Point)])
        for point in sorted([*kept, *new], key=lambda p: (p.label, p.seed, p.opt_steps)):
            *counts, wall_s, return_mean = astuple(point)
            writer.writerow([*counts, f"{wall_s:.1f}", f"{return_mean:.2f}"])
    aside.replace(file)

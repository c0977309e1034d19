"""Pictures and the table of docs/curves: interquartile means with 95 % intervals, and all seeds."""

import tomllib
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
from curves_data import DATA, PLACE, Point, read_points
from matplotlib import pyplot
from numpy.typing import NDArray

from vedette.reports.statistics import (
    SeedCurve,
    aggregate_curves,
    bootstrap_interval,
    carry,
    interquartile_mean,
)

COLORS = {"in-process": "#1f5fa8", "networked": "#c8102e", "stable-baselines3": "#3a7d34"}
GRID = 200
PRESETS = Path(__file__).resolve().parent.parent / "services/vedette_services/config/presets"

Array = NDArray[np.float64]


def draw_all() -> None:
    """Every file of data as a picture, and the table."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "curves", "svg.fonttype": "none", "font.size": 9})
    lines = [
        "| preset | run | target | seeds | reached it | env steps to it | last evaluation | "
        "best evaluation | mean over the curve | after env steps |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for file in sorted(DATA.glob("*.csv")):
        target = target_of(file.stem)
        labels = by_label(read_points(file))
        draw(file.stem, labels, target)
        lines += [table_line(file.stem, label, runs, target) for label, runs in labels.items()]
    (PLACE / "table.md").write_text("\n".join(lines) + "\n", "utf-8")
    for file in sorted(DATA.glob("*.csv")):
        labels = by_label(read_points(file))
        if {"in-process", "networked"} <= set(labels):
            print(f"{file.stem}: {agreement(labels['in-process'], labels['networked'])}")
    print("\n".join(lines))


def target_of(name: str) -> float | None:
    """What the preset calls solved."""
    stop = tomllib.loads((PRESETS / f"{name}.toml").read_text("utf-8")).get("stop", {})
    return stop.get("target_return")


def by_label(points: list[Point]) -> dict[str, list[list[Point]]]:
    """The runs of each label, each in the order of its evaluations."""
    runs: dict[str, dict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        runs[point.label][point.seed].append(point)
    return {label: list(seeds.values()) for label, seeds in runs.items()}


def seed_curves(runs: list[list[Point]]) -> list[SeedCurve]:
    """Return against env steps of each run."""
    return [
        SeedCurve(
            str(run[0].seed),
            np.array([float(point.env_steps) for point in run]),
            np.array([point.return_mean for point in run]),
        )
        for run in runs
    ]


def agreement(one: list[list[Point]], other: list[list[Point]]) -> str:
    """Whether two ways of running differ by more than seeds do: of each run the mean return over
    the env steps that all have, and an exact permutation test of the difference of their means."""
    curves = seed_curves([*one, *other])
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    means = carry(curves, np.linspace(first, max(first, last), GRID)).mean(axis=1)
    count = len(one)
    whole = set(range(len(means)))

    def difference(chosen: tuple[int, ...]) -> float:
        rest = sorted(whole - set(chosen))
        return abs(float(means[list(chosen)].mean() - means[rest].mean()))

    found = difference(tuple(range(count)))
    splits = [difference(chosen) for chosen in combinations(range(len(means)), count)]
    share = sum(split >= found - 1e-9 for split in splits) / len(splits)
    ours, theirs = means[:count], means[count:]
    return (
        f"in-process {ours.mean():.1f} (deviation of {count} seeds {ours.std(ddof=1):.1f}), "
        f"networked {theirs.mean():.1f} ({len(theirs)} seeds, {theirs.std(ddof=1):.1f}); "
        f"a difference as large comes in {share:.0%} of all ways to deal the runs out"
    )


def draw(name: str, labels: dict[str, list[list[Point]]], target: float | None) -> None:
    figure, axes = pyplot.subplots(figsize=(5.6, 3.2))
    for label, runs in labels.items():
        curves = seed_curves(runs)
        grid, middle, low, high = aggregate_curves(curves, GRID)
        color = COLORS.get(label, "#7a5c00")
        for curve in curves:
            axes.plot(curve.x, curve.y, color=color, lw=0.5, alpha=0.5)
        axes.fill_between(grid, low, high, color=color, alpha=0.2, lw=0)
        axes.plot(grid, middle, color=color, lw=1.6, label=f"{label}, {len(runs)} seeds")
    if target is not None:
        axes.axhline(target, color="#888888", lw=0.8, ls="--", label=f"target {target:g}")
    axes.set(title=name, xlabel="environment steps", ylabel="greedy return, mean of an evaluation")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, framealpha=0.6, edgecolor="none", loc="best")
    figure.tight_layout()
    figure.savefig(PLACE / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def steps_to(run: list[Point], target: float) -> float:
    """Env steps at the first evaluation that reached the target; infinity where none did."""
    return next((float(p.env_steps) for p in run if p.return_mean >= target), np.inf)


def table_line(name: str, label: str, runs: list[list[Point]], target: float | None) -> str:
    curves = seed_curves(runs)
    grid = np.linspace(max(c.x[0] for c in curves), max(c.x[-1] for c in curves), GRID)
    cells = [name, label, "" if target is None else f"{target:g}", str(len(runs))]
    if target is None:
        cells += ["", ""]
    else:
        steps = [steps_to(run, target) for run in runs]
        reached = [count for count in steps if np.isfinite(count)]
        cells += [f"{len(reached)} of {len(runs)}", estimate(reached, 0)]
    cells.append(estimate([curve.y[-1] for curve in curves]))
    cells.append(estimate([curve.y.max() for curve in curves]))
    cells.append(estimate(carry(curves, grid).mean(axis=1)))
    cells.append(f"{min(run[-1].env_steps for run in runs):,}")
    return f"| {' | '.join(cells)} |"


def estimate(scores: Sequence[float] | Array, digits: int = 1) -> str:
    """Interquartile mean over seeds with its 95 % interval."""
    if not len(scores):
        return ""
    array = np.asarray(scores, np.float64)
    low, high = bootstrap_interval(array)
    interval = f" [{low:,.{digits}f}, {high:,.{digits}f}]" if len(array) > 1 else ""
    return f"{interquartile_mean(array, 0):,.{digits}f}{interval}"

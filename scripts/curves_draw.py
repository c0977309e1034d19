"""Pictures and the table of docs/curves: the median of the seeds, the worst, and all in between."""

import tomllib
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
from curves_data import DATA, PLACE, Point, read_points
from matplotlib import pyplot
from numpy.typing import NDArray

COLORS = {"in-process": "#1f5fa8", "networked": "#c8102e", "stable-baselines3": "#3a7d34"}
GRID = 200
PRESETS = Path(__file__).resolve().parent.parent / "services/vedette_services/config/presets"

Array = NDArray[np.float64]


def draw_all() -> None:
    """Every file of data as a picture, and the table."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "curves", "svg.fonttype": "none", "font.size": 9})
    lines = [
        "| preset | run | target | seeds | reached it | env steps to it: median | worst | "
        "last evaluation: median | worst | after env steps |",
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


def on_grid(runs: list[list[Point]]) -> tuple[Array, Array]:
    """Env steps ``(G,)``, and each run's last known return there ``(runs, G)``: from where the last
    of them has its first evaluation to where the first of them ends."""
    first = max(run[0].env_steps for run in runs)
    last = min(run[-1].env_steps for run in runs)
    grid = np.linspace(first, max(first, last), GRID)
    returns = []
    for run in runs:
        at = np.searchsorted([point.env_steps for point in run], grid, side="right") - 1
        returns.append(np.array([point.return_mean for point in run])[at])
    return grid, np.array(returns)


def agreement(one: list[list[Point]], other: list[list[Point]]) -> str:
    """Whether two ways of running differ by more than seeds do: of each run the mean return over
    the env steps that all have, and an exact permutation test of the difference of their means."""
    _, returns = on_grid([*one, *other])
    means = returns.mean(axis=1)
    count = len(one)
    whole = set(range(len(means)))

    def difference(chosen: tuple[int, ...]) -> float:
        rest = sorted(whole - set(chosen))
        return abs(float(means[list(chosen)].mean() - means[rest].mean()))

    found = difference(tuple(range(count)))
    splits = [difference(chosen) for chosen in combinations(range(len(means)), count)]
    share = sum(split >= found - 1e-9 for split in splits) / len(splits)
    first, second = means[:count], means[count:]
    return (
        f"in-process {first.mean():.1f} (deviation of {count} seeds {first.std(ddof=1):.1f}), "
        f"networked {second.mean():.1f} ({len(second)} seeds, {second.std(ddof=1):.1f}); "
        f"a difference as large comes in {share:.0%} of all ways to deal the runs out"
    )


def draw(name: str, labels: dict[str, list[list[Point]]], target: float | None) -> None:
    figure, axes = pyplot.subplots(figsize=(5.6, 3.2))
    for label, runs in labels.items():
        grid, returns = on_grid(runs)
        color = COLORS.get(label, "#7a5c00")
        axes.fill_between(
            grid, *np.quantile(returns, [0.25, 0.75], axis=0), color=color, alpha=0.2, lw=0
        )
        median = np.median(returns, axis=0)
        axes.plot(grid, median, color=color, lw=1.6, label=f"{label}, median of {len(runs)}")
        axes.plot(grid, returns.min(axis=0), color=color, lw=0.8, ls=":", label="worst of them")
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
    last = [run[-1].return_mean for run in runs]
    cells = [name, label, "" if target is None else f"{target:g}", str(len(runs))]
    if target is None:
        cells += ["", "", ""]
    else:
        steps = [steps_to(run, target) for run in runs]
        reached = sum(np.isfinite(steps))
        cells += [f"{reached} of {len(runs)}", counted(np.median(steps)), counted(max(steps))]
    cells += [f"{np.median(last):.1f}", f"{min(last):.1f}"]
    cells.append(counted(min(run[-1].env_steps for run in runs)))
    return f"| {' | '.join(cells)} |"


def counted(steps: float) -> str:
    return f"{steps:,.0f}" if np.isfinite(steps) else "not reached"

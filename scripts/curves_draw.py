"""Pictures and tables of docs/curves from its data, by the code of `vedette report`."""

import tomllib
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from curves_data import DATA, PLACE
from matplotlib import pyplot

from vedette.reports.charts import page_data
from vedette.reports.configurations import Configuration, group_runs
from vedette.reports.record import EVALUATION, read_baseline

COLORS = {"in-process": "#1f5fa8", "networked": "#c8102e", "stable-baselines3": "#3a7d34"}
PRESETS = Path(__file__).resolve().parent.parent / "services/vedette_services/config/presets"
TABLES = {
    "results": "preset | run | target | seeds | reached it | env steps to it | last evaluation | "
    "best evaluation | mean over the curve | env steps",
    "seeds": "preset | run | last evaluation of each seed (its best)",
}


def draw_all() -> None:
    """Every file of data as a picture, and the tables."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "curves", "svg.fonttype": "none", "font.size": 9})
    rows: dict[str, list[list[str]]] = {table: [] for table in TABLES}
    for file in sorted(DATA.glob("*.csv")):
        name, target = file.stem, target_of(file.stem)
        configurations = group_runs(read_baseline(file, name, target))
        draw(name, configurations)
        span = common_steps(configurations)
        rows["results"] += [results_row(name, each, target, span) for each in configurations]
        rows["seeds"] += [seeds_row(name, each) for each in configurations]
    for table, head in TABLES.items():
        rule = "|".join("---" for _ in head.split("|"))
        lines = [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows[table])]
        (PLACE / f"{table}.md").write_text("\n".join(lines) + "\n", "utf-8")
        print("\n".join(lines))


def target_of(name: str) -> float | None:
    """What the preset calls solved."""
    stop = tomllib.loads((PRESETS / f"{name}.toml").read_text("utf-8")).get("stop", {})
    return stop.get("target_return")


def draw(name: str, configurations: list[Configuration]) -> None:
    """Draw the report's first chart: each seed, and the aggregate of each configuration."""
    data = page_data(configurations)
    chart = data["charts"][0]
    figure, axes = pyplot.subplots(figsize=(5.6, 3.2))
    for line in chart["lines"]:
        each = configurations[line["config"]]
        color, label = COLORS[each.name], f"{each.name}, {len(each.runs)} seeds"
        if "aggregate" not in line:
            alone = len(each.runs) == 1
            style = {"lw": 1.6, "label": f"{each.name}, one seed"} if alone else {"lw": 0.5}
            axes.plot(data["xs"][line["x"]]["env"], line["y"], color=color, **style)
            continue
        x, y, low, high = (np.array(column, float) for column in line["aggregate"]["env"].values())
        axes.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
        axes.plot(x, y, color=color, lw=1.6, label=label)
    for level, label in chart["levels"]:
        axes.axhline(level, color="#888888", lw=0.8, ls="--", label=f"{label} {level:g}")
    axes.set(title=name, xlabel="environment steps", ylabel="greedy return, mean of an evaluation")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, framealpha=0.6, edgecolor="none", loc="best")
    figure.tight_layout()
    figure.savefig(PLACE / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def common_steps(configurations: list[Configuration]) -> tuple[float, float]:
    """The env steps that all runs have: over these no run's last value is carried on."""
    steps = [run.curves[EVALUATION].steps for each in configurations for run in each.runs]
    return float(max(each[0] for each in steps)), float(min(each[-1] for each in steps))


def results_row(
    name: str, each: Configuration, target: float | None, span: tuple[float, float]
) -> list[str]:
    found = each.statistics(span)
    reached = ["", "", ""]
    if target is not None:
        count, steps = f"{found['reached']} of {found['seeds']}", found["env_steps_to_target"]
        reached = [f"{target:g}", count, interval(steps, 0)]
    parts = [interval(found[part]) for part in ("eval_last", "eval_best", "eval_area")]
    end = f"{found['env_steps']:,.0f}"
    return [name, each.name, reached[0], str(found["seeds"]), *reached[1:], *parts, end]


def seeds_row(name: str, each: Configuration) -> list[str]:
    runs = [f"{run.last_return:.1f} ({run.best_return:.1f})" for run in each.runs]
    return [name, each.name, ", ".join(runs)]


def interval(found: dict[str, Any], digits: int = 1) -> str:
    """Interquartile mean over seeds with its 95 % interval."""
    middle, low, high = (x if x is None else f"{x:,.{digits}f}" for x in found.values())
    return (middle or "") if low is None else f"{middle} [{low}, {high}]"

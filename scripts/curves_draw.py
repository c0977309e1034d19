"""Draws the pictures of docs/curves from its data, by the code of `vedette report`."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from curves_data import PLACE
from curves_scores import Results, read_results
from curves_studies import Study
from curves_tables import MEASURES, normalized_scores
from matplotlib import pyplot

from vedette.reports.charts import page_data

COLORS = ["#1f5fa8", "#c8102e", "#3a7d34", "#8a4fa3", "#c77800", "#5b5b5b", "#0a8f8f", "#a0522d"]
COLUMNS = 3


def draw_all(studies: Sequence[Study]) -> None:
    """A picture of each study with results: a panel for each task, and the normalized scores."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "curves", "svg.fonttype": "none", "font.size": 9})
    for study in studies:
        if results := read_results(study):
            draw(study, results)


def draw(study: Study, results: Sequence[Results]) -> None:
    names = list(dict.fromkeys(label for each in results for label in each.labels))
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    scores = normalized_scores(study, results)
    panels = len(results) + bool(scores)
    columns = min(COLUMNS, panels)
    rows = -(-panels // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(3.6 * columns, 2.9 * rows), squeeze=False
    )
    for panel, each in zip(axes.flat, results, strict=False):
        draw_task(panel, each, colors)
    for panel in axes.flat[len(results) :]:
        panel.set_axis_off()
    if scores:
        draw_scores(axes.flat[len(results)], study, scores, colors)
    figure.tight_layout()
    figure.savefig(PLACE / f"{study.name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def draw_task(axes: Any, results: Results, colors: dict[str, str]) -> None:
    """Draw the report's first chart: each seed, and the aggregate of each label."""
    configurations = list(results.labels.values())
    data = page_data(configurations)
    chart = data["charts"][0]
    for line in chart["lines"]:
        each = configurations[line["config"]]
        color = colors[each.name]
        count = len(set(each.seeds))
        if "aggregate" not in line:
            alone = {"lw": 1.6, "label": f"{each.name}, one seed"} if count == 1 else {"lw": 0.5}
            axes.plot(data["xs"][line["x"]]["env"], line["y"], color=color, **alone)
            continue
        against = line["aggregate"]["env"]
        x, y, low, high = (np.array(against[name], float) for name in ("x", "y", "low", "high"))
        axes.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
        axes.plot(x, y, color=color, lw=1.6, label=f"{each.name}, {count} seeds")
    for level, label in chart["levels"]:
        axes.axhline(level, color="#888888", lw=0.8, ls="--", label=f"{label} {level:g}")
    axes.set(title=results.task.name, xlabel="environment steps", ylabel="greedy return")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=6, framealpha=0.6, edgecolor="none", loc="best")


def draw_scores(axes: Any, study: Study, scores: dict[str, Any], colors: dict[str, str]) -> None:
    """Draw each label's normalized scores over all tasks with their intervals."""
    axes.set_axis_on()
    offsets = np.linspace(0.3, -0.3, len(MEASURES))
    ticks = {}
    for place, (label, estimates) in enumerate(scores.items()):
        ticks[-place] = label
        for offset, (name, (middle, low, high)) in zip(offsets, estimates.items(), strict=True):
            y = -place + offset
            axes.plot([low, high], [y, y], color=colors[label], lw=2, alpha=0.5)
            axes.plot([middle], [y], "o", ms=3, color=colors[label])
            axes.annotate(name, (middle, y), (0, 3), textcoords="offset points", fontsize=5)
    axes.axvline(1.0, color="#888888", lw=0.8, ls="--")
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set(title=f"all tasks, divided by {study.normalize_by}", xlabel="interquartile mean")
    axes.spines[["top", "right"]].set_visible(False)

"""The charts of a page as data: thinned curves of runs, and the aggregate of each configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vedette.reports.configurations import Configuration
from vedette.reports.record import EVALUATION, RunRecord
from vedette.reports.statistics import Floats, SeedCurve, aggregate_curves
from vedette_services.status.schema import ChartSpec, declared, is_against_opt_steps
from vedette_services.status.status import Status, charts

CURVE_POINTS = 16_000
"""Points of all curves of a page, about 25 bytes each."""
AGGREGATE_POINTS = 200
"""Points of all aggregates of a chart."""
CHART_SPECS = tuple(charts())
GROUPS = ("Returns", "Learning", "Speed", "Lag and replay", "Fleet", "More")
_SIDES = {
    EVALUATION: ("eval/min_reward", "eval/max_reward"),
    "rollout/ep_rew_mean": ("rollout/ep_rew_min", "rollout/ep_rew_max"),
}
_FIRST = frozenset({"train/loss", "train/critic_loss", "train/actor_loss"})

Columns = dict[str, Floats]
Plain = dict[str, list[float | None]]


def page_data(configurations: Sequence[Configuration]) -> dict[str, Any]:
    """Return what the page's script draws: of one run all curves, of several the first of each.

    ``xs`` are columns of x against ``env`` steps, ``opt`` steps and seconds ``s``; curves share
    them. A chart is folded if it is constant or shows the same as earlier ones.
    """
    runs = [run for each in configurations for run in each.runs]
    specs = _specs({name for run in runs for name in run.curves})
    points = max(16, min(400, CURVE_POINTS // max(1, len(specs) * len(runs))))
    xs: list[Plain] = []
    made: list[dict[str, Any]] = []
    drawn: set[tuple[float, ...]] = set()
    for spec in specs:
        names = [curve for curve in spec.curves if any(curve[0] in run.curves for run in runs)]
        names = names if len(runs) == 1 else names[:1]
        lines = list(_lines(xs, configurations, names, min(points, spec.points)))
        columns = {tuple(line["y"]) for line in lines if "y" in line}
        if spec.nonzero and not any(map(any, columns)):
            continue
        levels = {level for run in runs for level in _levels(spec, run)}
        folded = all(len({*column}) == 1 or column in drawn for column in columns)
        drawn |= columns
        made.append(
            {
                "number": len(made),
                "title": spec.title if names == [*spec.curves] else f"{spec.title}: {names[0][1]}",
                "group": spec.group,
                "x": "opt" if is_against_opt_steps(names[0][0]) else "env",
                "lines": lines,
                "levels": [*levels] if len(levels) < 2 else [],
                "folded": folded and bool(made),
            }
        )
    several = len(runs) > 1
    moments = [] if several else [*_moments(runs[0])]
    return {"charts": made, "xs": xs, "moments": moments, "several": several}


def _specs(names: set[str]) -> list[ChartSpec]:
    """The charts of the curves with these names, in the order of their groups."""
    known = {name for spec in CHART_SPECS for name, _ in spec.curves}
    known |= {tag for _, number in declared(Status) for tag in number.tags}
    specs = [spec for spec in CHART_SPECS if any(name in names for name, _ in spec.curves)]
    for name in sorted(names - known, key=lambda name: (name not in _FIRST, name)):
        title = name.removeprefix("train/").replace("_", " ")
        group = "Learning" if is_against_opt_steps(name) else "More"
        specs.append(ChartSpec(group, title, ((name, title),)))
    return sorted(specs, key=lambda spec: GROUPS.index(spec.group))


def _levels(spec: ChartSpec, run: RunRecord) -> Iterator[tuple[float, str]]:
    """The horizontal lines of a chart."""
    if spec.curves[0][0] == EVALUATION and run.target is not None:
        yield run.target, "target"
    for path, label in spec.levels:
        value = run.configured(*path)
        if isinstance(value, int | float) and value and np.isfinite(value):
            yield float(value), label


def _moments(run: RunRecord) -> Iterator[dict[str, float]]:
    """The places at which later starts of the trainer began."""
    for event in run.events:
        if event.kind == "epoch" and event.epoch > 1:
            second = float(run.active_seconds(np.array([event.time_s]))[0])
            yield {"env": event.env_steps, "opt": event.opt_steps, "s": second}


def _lines(
    xs: list[Plain],
    configurations: Sequence[Configuration],
    names: Sequence[tuple[str, str]],
    points: int,
) -> Iterator[dict[str, Any]]:
    """A line for each curve of each run, and behind them the aggregate of several runs."""
    alone = len(configurations) == len(configurations[0].runs) == 1
    first = 0
    for place, each in enumerate(configurations):
        of_seeds: list[tuple[str, Columns]] = []
        for index, run in enumerate(each.runs, first):
            for colour, (name, label) in enumerate(names):
                if name in run.curves:
                    columns = _thinned(run, name, points, alone and len(names) == 1)
                    of_seeds.append((each.seeds[index - first], columns))
                    label = label if alone else f"{each.name}, seed {each.seeds[index - first]}"
                    colour = colour if alone else place
                    marks = {"label": label, "config": place, "run": index, "colour": colour}
                    yield {**marks, **_stored(xs, columns)}
        first += len(each.runs)
        if len(each.runs) > 1 and of_seeds:
            aggregates = _aggregates(of_seeds, max(8, AGGREGATE_POINTS // len(configurations)))
            yield {"label": each.name, "config": place, "colour": place, "aggregate": aggregates}


def _thinned(run: RunRecord, name: str, points: int, band: bool) -> Columns:
    """The means of equal parts of a curve, with their least and greatest values."""
    curve = run.curves[name]
    size = curve.values.size
    edges = np.unique(np.linspace(0, size, points, endpoint=False).astype(np.int64))
    counts = np.diff([*edges, size])
    columns = {**run.positions(name), "y": curve.values}
    means = {kind: np.add.reduceat(column, edges) / counts for kind, column in columns.items()}
    low, high = (run.curves.get(side, curve).values for side in _SIDES.get(name, (name, name)))
    if band and low.size == high.size == size and (name in _SIDES or counts.max() > 1):
        means |= {"low": np.minimum.reduceat(low, edges), "high": np.maximum.reduceat(high, edges)}
    return means


def _stored(xs: list[Plain], columns: Columns) -> dict[str, Any]:
    """A line's numbers; its x is an index of `xs`."""
    numbers = {name: plain(column) for name, column in columns.items()}
    x: Plain = {kind: numbers.pop(kind) for kind in ("env", "opt", "s") if kind in columns}
    if x not in xs:
        xs.append(x)
    return {"x": xs.index(x), **numbers}


def _aggregates(of_seeds: Sequence[tuple[str, Columns]], points: int) -> dict[str, Any]:
    """The interquartile mean against each kind of x that all runs know."""
    aggregates = {}
    for kind in ("env", "opt", "s"):
        if all(kind in columns for _, columns in of_seeds):
            curves = [SeedCurve(seed, columns[kind], columns["y"]) for seed, columns in of_seeds]
            parts = map(plain, aggregate_curves(curves, min(60, points)))
            aggregates[kind] = dict(zip(("x", "y", "low", "high"), parts, strict=True))
    return aggregates


def plain(column: Floats) -> list[float | None]:
    """Return numbers with five digits, as JSON has them."""
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in column.tolist()]

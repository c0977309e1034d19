"""The charts of a page as data: thinned curves of runs, and the aggregate of each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette.reports.configurations import Configuration
from vedette.reports.record import EVALUATION, RunRecord
from vedette.reports.statistics import Floats, SeedCurve, aggregate_curves
from vedette_services.status.learning_charts import LEARNING_CHARTS
from vedette_services.status.schema import ChartSpec, declared, is_against_opt_steps
from vedette_services.status.status import Status, charts

FIRST_POINTS, CURVE_POINTS = 10_000, 16_000
"""Points of all curves of the first chart, and of all others, about 25 bytes each."""
FIRST_POINTS_EACH, POINTS_EACH = 1000, 400
"""Of a longer curve so many points are drawn."""
AGGREGATE_POINTS = 200
"""Points of all aggregates of a chart."""
_POINTS_LEAST = 16
CHART_SPECS = tuple(charts())
GROUPS = ("Returns", "Learning", "Speed", "Lag and replay", "Fleet", "Host", "More")
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
    them. A line of a longer curve has ``of``, the number of its points. A chart is folded if it is
    constant or shows the same as earlier ones.
    """
    runs = [run for each in configurations for run in each.runs]
    specs = _specs({name for run in runs for name in run.curves})
    drawn_names = [_drawn_names(spec, runs) for spec in specs]
    caps = _points_each(runs, drawn_names)
    xs: list[Plain] = []
    made: list[dict[str, Any]] = []
    drawn: set[tuple[float, ...]] = set()
    for spec, names, points in zip(specs, drawn_names, caps, strict=True):
        lines = list(_lines(xs, configurations, names, points, spec.points))
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
                "unit": spec.unit,
                "about": spec.about,
                "tags": [name for name, _ in names],
                "x": "opt" if is_against_opt_steps(names[0][0]) else "env",
                "lines": lines,
                "evaluations": names[0][0] == EVALUATION,
                "levels": [*levels] if len(levels) < 2 else [],
                "folded": folded and bool(made),
                "thinned": _describe_thinned(lines),
            }
        )
    several = len(runs) > 1
    moments = [] if several else [*_moments(runs[0])]
    return {
        "charts": made,
        "xs": xs,
        "moments": moments,
        "several": several,
        "runs": [*_ends(configurations)],
        "settings": _settings(configurations) if several else {},
    }


def _ends(configurations: Sequence[Configuration]) -> Iterator[dict[str, Any]]:
    """What is marked at the end of each run's curves, and its result."""
    for place, each in enumerate(configurations):
        for run in each.runs:
            end = {"name": run.name, "config": place, "state": run.state, "result": run.last_return}
            if run.keeps_return and EVALUATION in run.curves:
                found = run.comparable_evaluations()
                last = {kind: column[-1:] for kind, column in found.items()}
                marked = {kind: _places(kind, last[kind])[0] for kind in last if kind != "y"}
                end["evaluated"] = {**marked, "y": plain(last["y"])[0]}
            yield end


def _settings(configurations: Sequence[Configuration]) -> dict[str, list[str]]:
    """The value of each run, of the settings in which any two configurations differ."""
    keys = configurations[0].differs
    return {key: [c.differs.get(key, "–") for c in configurations for _ in c.runs] for key in keys}


def _drawn_names(spec: ChartSpec, runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """The curves of a chart that are drawn: of one run all, of several the first."""
    names = [curve for curve in spec.curves if any(curve[0] in run.curves for run in runs)]
    return names if len(runs) == 1 else names[:1]


def _points_each(
    runs: Sequence[RunRecord], names: Sequence[Sequence[tuple[str, str]]]
) -> list[int]:
    """The most points of a curve, for each chart: short curves leave their share to long ones."""

    def sizes(charts: Sequence[Sequence[tuple[str, str]]]) -> list[int]:
        of_chart = [name for chart in charts for name, _ in chart]
        return [run.curves[n].values.size for run in runs for n in of_chart if n in run.curves]

    first = _even_share(sizes(names[:1]), FIRST_POINTS, FIRST_POINTS_EACH)
    others = _even_share(sizes(names[1:]), CURVE_POINTS, POINTS_EACH)
    return [first, *[others] * (len(names) - 1)][: len(names)]


def _even_share(sizes: Sequence[int], total: int, most: int) -> int:
    """The largest number of points, at most `most`, that each of these curves may have."""
    left = total
    for done, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - done)
        if size > share:
            return max(_POINTS_LEAST, min(share, most))
        left -= size
    return most


def _describe_thinned(lines: Sequence[dict[str, Any]]) -> str:
    """A sentence on what the lines of a chart leave out; "" where they have every point."""
    averaged = [line for line in lines if "mean_of" in line]
    if averaged:
        return f"Each point is the mean of up to {max(line['mean_of'] for line in averaged):,}."
    thinned = [line for line in lines if "of" in line]
    if not thinned:
        return ""
    most = max(thinned, key=lambda line: line["of"])
    of = f"{len(most['y']):,} of {most['of']:,} points"
    up_to = "up to " if len(thinned) > 1 else ""
    return f"Drawn: {of if not up_to else f'{up_to}{of} of a line'}, the extremes of each part."


def _specs(names: set[str]) -> list[ChartSpec]:
    """The charts of the curves with these names, in the order of their groups."""
    known = {name for spec in CHART_SPECS for name, _ in spec.curves}
    known |= {tag for _, number in declared(Status) for tag in number.tags}
    specs = [spec for spec in CHART_SPECS if any(name in names for name, _ in spec.curves)]
    for name in sorted(names - known, key=lambda name: (name not in _FIRST, name)):
        own = name.removeprefix("train/")
        known_as = LEARNING_CHARTS.get(own) if own != name else None
        title, about = known_as or (own.replace("_", " "), "")
        group = "Learning" if is_against_opt_steps(name) else "More"
        specs.append(ChartSpec(group, title, ((name, title),), about=about))
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
    means: int,
) -> Iterator[dict[str, Any]]:
    """A line for each curve of each run, and behind them the aggregate of several runs.

    Args:
        points: the most of a curve that are drawn.
        means: a curve is averaged to so many points; 0: it is not averaged.
    """
    alone = len(configurations) == len(configurations[0].runs) == 1
    first = 0
    for place, each in enumerate(configurations):
        of_seeds: list[tuple[RunRecord, str, Columns]] = []
        for index, run in enumerate(each.runs, first):
            for colour, (name, label) in enumerate(names):
                if name in run.curves:
                    columns = _columns(run, name, sides=alone and len(names) == 1)
                    drawn, left_out = _drawn(columns, points, means)
                    of_seeds.append((run, each.seeds[index - first], columns))
                    label = label if alone else f"{each.name}, seed {each.seeds[index - first]}"
                    colour = colour if alone else place
                    marks = {"label": label, "config": place, "run": index, "colour": colour}
                    yield {**marks, **left_out, **_stored(xs, drawn)}
        first += len(each.runs)
        if len(each.runs) > 1 and of_seeds:
            share = max(8, AGGREGATE_POINTS // len(configurations))
            without = Counter(each.seeds) - Counter(seed for _, seed, _ in of_seeds)
            if names[0][0] == EVALUATION:
                of_seeds = [(r, seed, r.comparable_evaluations()) for r, seed, _ in of_seeds]
            is_evaluation = names[0][0] == EVALUATION
            aggregates = _aggregates(of_seeds, [*without.elements()], is_evaluation, share)
            if any(aggregate["x"] for aggregate in aggregates.values()):
                marks = {"label": each.name, "config": place, "colour": place}
                yield {**marks, "aggregate": aggregates}


def _columns(run: RunRecord, name: str, *, sides: bool) -> Columns:
    """The positions and values of a curve; with `sides` its least and greatest values, if known."""
    curve = run.curves[name]
    columns = {**run.positions(name), "y": curve.values}
    if sides and name in _SIDES:
        known = [run.curves[side].values for side in _SIDES[name] if side in run.curves]
        if [side.size for side in known] == [curve.values.size] * 2:
            columns |= {"low": known[0], "high": known[1]}
    return columns


def _drawn(columns: Columns, points: int, means: int) -> tuple[Columns, dict[str, int]]:
    """The points of a curve that are drawn, and what is said of the others.

    Of a long curve these are the first, the last, and the extremes of equal parts.
    """
    size = columns["y"].size
    if means and size > means:
        edges = np.unique(np.linspace(0, size, means, endpoint=False).astype(np.int64))
        counts = np.diff([*edges, size])
        averaged = {kind: np.add.reduceat(c, edges) / counts for kind, c in columns.items()}
        return averaged, {"mean_of": int(counts.max())}
    if size <= points:
        return columns, {}
    kept = extreme_points(columns["y"], points)
    return {kind: column[kept] for kind, column in columns.items()}, {"of": size}


def extreme_points(values: Floats, points: int) -> NDArray[np.int64]:
    """Return the places of at most so many values: of the first, the last, and of the least and the
    greatest of equal parts."""
    parts = np.array_split(np.arange(values.size), max(1, (points - 2) // 2))
    kept = {0, values.size - 1}
    for part in parts:
        kept |= {int(part[values[part].argmin()]), int(part[values[part].argmax()])}
    return np.array(sorted(kept), np.int64)


def _stored(xs: list[Plain], columns: Columns) -> dict[str, Any]:
    """A line's numbers; its x is an index of `xs`."""
    x: Plain = {
        kind: _places(kind, columns[kind]) for kind in ("env", "opt", "s") if kind in columns
    }
    values: Plain = {kind: plain(columns[kind]) for kind in ("y", "low", "high") if kind in columns}
    if x not in xs:
        xs.append(x)
    return {"x": xs.index(x), **values}


def _aggregates(
    of_seeds: Sequence[tuple[RunRecord, str, Columns]],
    without: Sequence[str],
    is_evaluation: bool,
    points: int,
) -> dict[str, Any]:
    """The interquartile mean against each kind of x that all runs know.

    Args:
        without: the seed of each run that has no such curve.
        is_evaluation: the last value of a run that `keeps_return` stands for it later.
    """
    aggregates: dict[str, Any] = {}
    for kind in ("env", "opt", "s"):
        if not all(kind in columns for _, _, columns in of_seeds):
            continue
        curves = [
            SeedCurve(seed, columns[kind], columns["y"], is_evaluation and run.keeps_return)
            for run, seed, columns in of_seeds
        ]
        found = aggregate_curves(curves, min(60, points), without)
        aggregates[kind] = {
            "x": _places(kind, found.x),
            "y": plain(found.y),
            "low": plain(found.low),
            "high": plain(found.high),
            "live": found.live.tolist(),
            "counted": found.counted.tolist(),
            "seeds": found.seeds,
        }
        if found.runs > found.seeds:
            aggregates[kind] |= {
                "live_runs": found.live_runs.tolist(),
                "counted_runs": found.counted_runs.tolist(),
                "runs": found.runs,
            }
    return aggregates


def _places(kind: str, column: Floats) -> list[float | None]:
    """Return steps as whole numbers, seconds to the hundredth."""
    return [round(x, 2) if kind == "s" else round(x) for x in column.tolist()]


def plain(column: Floats) -> list[float | None]:
    """Return numbers with six digits, as JSON has them."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in column.tolist()]

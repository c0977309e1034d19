"""The page about several runs: one line a configuration, its seeds as a mean with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vedette_rl.evaluation.confidence import confidence_interval
from vedette_services.report.chart import Chart
from vedette_services.report.figures import decimal, lasted, whole
from vedette_services.report.groups import Group, grouped
from vedette_services.report.lines import Line, mean_line
from vedette_services.report.markup import Markup, element
from vedette_services.report.one_run import seconds_of
from vedette_services.report.page import chart_groups, notes, page, section
from vedette_services.report.record import RunRecord
from vedette_services.report.selection import Spec, levels_of, main_line, specs_for, x_ends, x_label
from vedette_services.report.tables import configuration, row, table

COLOURS = 8


def comparison_page(records: Sequence[RunRecord], command: str) -> str:
    """The page about several runs, as HTML.

    Args:
        command: what writes it again.
    """
    groups = grouped(records)
    count = f"{len(records)} runs of {_counted(len(groups), 'configuration')}"
    return page(
        f"{count}: {', '.join(dict.fromkeys(group.runs[0].title for group in groups))}",
        element("h1", count),
        element("p", _titles(groups), class_="soft"),
        notes(_remarks(groups)),
        section("Outcome", table(_OUTCOME, (_outcome(group) for group in groups))),
        section("What differs", _differences(groups)),
        section("Curves", chart_groups(_charts(groups))),
        section("The runs", table(_RUNS, _runs(groups))),
        section("Configuration of the first", *configuration(records[0].config)),
        command=command,
    )


def _titles(groups: Sequence[Group]) -> str:
    return ", ".join(dict.fromkeys(group.runs[0].title for group in groups))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _remarks(groups: Sequence[Group]) -> Iterator[str]:
    """What a reader should know before believing a line."""
    for group in groups:
        for run in group.runs:
            if run.running:
                yield f"{run.name} is still running."
            elif not run.curves:
                yield f"{run.name} has no curves: {run.notes[0] if run.notes else 'nothing'}"
    if any(len(group.runs) > 1 for group in groups):
        yield (
            "Thin lines are single seeds; the thick line is their mean with its 95 % interval "
            "(Student's t), drawn as far as every seed has come. Of two or three seeds it is wide."
        )


_OUTCOME = ("configuration", "seeds", "best evaluation", "solved", "env steps", "time")


def _outcome(group: Group) -> Markup:
    """One configuration: means over its seeds, with intervals where there are several."""
    runs = group.runs
    best = [run.number("eval", "best_return_mean") for run in runs]
    solved = sum(run.exit_reason == "target_return" for run in runs)
    aims = any(run.target is not None for run in runs)
    return row(
        group.label,
        str(len(runs)),
        _mean(best, 1),
        f"{solved} of {len(runs)}" if aims else "–",
        _mean([run.number("env_steps") for run in runs], 0),
        lasted(_average([seconds_of(run) for run in runs])),
    )


def _mean(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = sum(known) / len(known)
    low, high = confidence_interval(known)
    half = (high - low) / 2
    return decimal(mean, digits) + (f" ± {decimal(half, digits)}" if math.isfinite(half) else "")


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _differences(groups: Sequence[Group]) -> Markup | None:
    """A row a key, a column a configuration; None where there is one only."""
    if len(groups) < 2:
        return None
    names = list(groups[0].differs)
    rows = [row(name, *(group.differs[name] for group in groups)) for name in names]
    return table(("key", *(group.label for group in groups)), rows)


def _charts(groups: Sequence[Group]) -> Iterator[tuple[str, Chart]]:
    """The charts of any run, each of its first curve that any of them has."""
    names: dict[str, None] = {}
    for group in groups:
        for run in group.runs:
            names |= dict.fromkeys(run.curves)
    ends = x_ends([run for group in groups for run in group.runs])
    for spec in specs_for(names):
        chart = _chart(spec, groups, names)
        if chart is not None:
            yield spec.group, replace(chart, x_max=ends[chart.x_label])


def _chart(spec: Spec, groups: Sequence[Group], names: dict[str, None]) -> Chart | None:
    name, label = next((name, label) for name, label in spec.curves if name in names)
    lines: list[Line] = []
    for number, group in enumerate(groups):
        lines += _lines(name, group, number % COLOURS, spec.points)
    if not lines or (spec.nonzero and not any(line.y.any() for line in lines)):
        return None
    title = spec.title if len(spec.curves) == 1 else f"{spec.title}: {label}"
    levels = {level for group in groups for run in group.runs for level in levels_of(spec, run)}
    return Chart(title, x_label(name), tuple(lines), tuple(levels) if len(levels) == 1 else ())


def _lines(name: str, group: Group, colour: int, points: int) -> Iterator[Line]:
    """A configuration's seeds, thinly, and their mean."""
    found = [main_line(run.curves[name], points) for run in group.runs if name in run.curves]
    seeds = [line for line in found if line is not None]
    if len(seeds) > 1:
        yield from (replace(line, colour=colour, faint=True) for line in seeds)
    if seeds:
        yield mean_line(seeds, group.label, colour=colour)


_RUNS = ("run", "configuration", "seed", "state", "best evaluation", "env steps", "time", "where")


def _runs(groups: Sequence[Group]) -> Iterator[Markup]:
    for group in groups:
        for run in group.runs:
            yield element(
                "tr",
                element("th", run.name),
                element("td", group.label),
                *(element("td", cell, class_="number") for cell in _run(run)),
                element("td", str(run.directory), class_="note"),
            )


def _run(run: RunRecord) -> tuple[str, ...]:
    seed = run.configured("seed")
    return (
        "–" if seed is None else str(seed),
        "running" if run.running else run.exit_reason or "no last word",
        decimal(run.number("eval", "best_return_mean")),
        whole(run.number("env_steps")),
        lasted(seconds_of(run)),
    )

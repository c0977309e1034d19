"""The page about several runs: one line a configuration, its seeds as a mean with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vedette.reports.chart import Chart
from vedette.reports.lines import ChartLine, mean_line
from vedette.reports.markup import Markup, element
from vedette.reports.one_run import seconds_of
from vedette.reports.page import chart_groups, html_notes, html_page, html_section
from vedette.reports.record import RunRecord
from vedette.reports.selection import levels_of, main_line, specs_for, x_ends, x_label
from vedette.reports.tables import (
    configuration_tables,
    flatten_keys,
    format_setting,
    html_table,
    table_row,
)
from vedette_rl.evaluation.evaluator import confidence_interval
from vedette_services.run.number_format import format_count, format_decimal, format_duration
from vedette_services.run.status_fields import ChartSpec

COLOURS = 8


def comparison_page(records: Sequence[RunRecord], command: str) -> str:
    """The page about several runs, as HTML.

    Args:
        command: what writes it again.
    """
    groups = group_runs(records)
    count = f"{len(records)} runs of {_counted(len(groups), 'configuration')}"
    return html_page(
        f"{count}: {', '.join(dict.fromkeys(group.runs[0].title for group in groups))}",
        element("h1", count),
        element("p", _titles(groups), class_="soft"),
        html_notes(_remarks(groups)),
        html_section("Outcome", html_table(_OUTCOME, (_outcome(group) for group in groups))),
        html_section("What differs", _differences(groups)),
        html_section("Curves", chart_groups(_charts(groups))),
        html_section("The runs", html_table(_RUNS, _runs(groups))),
        html_section("Configuration of the first", *configuration_tables(records[0].config)),
        command=command,
    )


def _titles(groups: Sequence[RunGroup]) -> str:
    return ", ".join(dict.fromkeys(group.runs[0].title for group in groups))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _remarks(groups: Sequence[RunGroup]) -> Iterator[str]:
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


def _outcome(group: RunGroup) -> Markup:
    """One configuration: means over its seeds, with intervals where there are several."""
    runs = group.runs
    best = [run.summary.eval.best_return_mean for run in runs]
    solved = sum(run.exit_reason == "target_return" for run in runs)
    aims = any(run.target is not None for run in runs)
    return table_row(
        group.label,
        str(len(runs)),
        _mean(best, 1),
        f"{solved} of {len(runs)}" if aims else "–",
        _mean([run.summary.env_steps for run in runs], 0),
        format_duration(_average([seconds_of(run) for run in runs])),
    )


def _mean(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = sum(known) / len(known)
    low, high = confidence_interval(known)
    half = (high - low) / 2
    return format_decimal(mean, digits) + (
        f" ± {format_decimal(half, digits)}" if math.isfinite(half) else ""
    )


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _differences(groups: Sequence[RunGroup]) -> Markup | None:
    """A row a key, a column a configuration; None where there is one only."""
    if len(groups) < 2:
        return None
    names = list(groups[0].differs)
    rows = [table_row(name, *(group.differs[name] for group in groups)) for name in names]
    return html_table(("key", *(group.label for group in groups)), rows)


def _charts(groups: Sequence[RunGroup]) -> Iterator[tuple[str, Chart]]:
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


def _chart(spec: ChartSpec, groups: Sequence[RunGroup], names: dict[str, None]) -> Chart | None:
    name, label = next((name, label) for name, label in spec.curves if name in names)
    lines: list[ChartLine] = []
    for number, group in enumerate(groups):
        lines += _lines(name, group, number % COLOURS, spec.points)
    if not lines or (spec.nonzero and not any(line.y.any() for line in lines)):
        return None
    title = spec.title if len(spec.curves) == 1 else f"{spec.title}: {label}"
    levels = {level for group in groups for run in group.runs for level in levels_of(spec, run)}
    return Chart(title, x_label(name), tuple(lines), tuple(levels) if len(levels) == 1 else ())


def _lines(name: str, group: RunGroup, colour: int, points: int) -> Iterator[ChartLine]:
    """A configuration's seeds, thinly, and their mean."""
    found = [main_line(run.curves[name], points) for run in group.runs if name in run.curves]
    seeds = [line for line in found if line is not None]
    if len(seeds) > 1:
        yield from (replace(line, colour=colour, faint=True) for line in seeds)
    if seeds:
        yield mean_line(seeds, group.label, colour=colour)


_RUNS = ("run", "configuration", "seed", "state", "best evaluation", "env steps", "time", "where")


def _runs(groups: Sequence[RunGroup]) -> Iterator[Markup]:
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
        "running" if run.running else run.exit_reason or "no exit reason",
        format_decimal(run.summary.eval.best_return_mean),
        format_count(run.summary.env_steps),
        format_duration(seconds_of(run)),
    )


_OF_A_SEED = ("seed", "preset", "replay.directory", "stop.")
"""Keys, and beginnings of keys, that do not change what is learned from a seed."""
_NAMED_MAX = 3
"""Keys in a group's name; all of them are in the table of differences."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of one configuration.

    Args:
        label: what sets it apart from the others; no two groups have the same.
        runs: one a seed, in the order given.
        differs: the keys in which any two groups differ, with this one's values.
    """

    label: str
    runs: tuple[RunRecord, ...]
    differs: dict[str, str]


def group_runs(records: Sequence[RunRecord]) -> list[RunGroup]:
    """The runs in groups, in the order in which each first comes."""
    settings: dict[str, dict[str, str]] = {}
    members: dict[str, list[RunRecord]] = {}
    for record in records:
        found = _settings(record)
        # what was configured is not known: it is like no other
        key = repr(sorted(found.items())) if found else str(record.directory.resolve())
        settings[key] = found
        members.setdefault(key, []).append(record)
    keys = find_differing_keys(list(settings.values()))
    groups: list[RunGroup] = []
    for number, (key, runs) in enumerate(members.items(), 1):
        differs = {name: settings[key].get(name, "–") for name in keys}
        label = _label(differs, runs[0], number, len(runs) == 1)
        if any(group.label == label for group in groups):
            label = f"{number}: {label}"
        groups.append(RunGroup(label, tuple(runs), differs))
    return groups


def find_differing_keys(settings: Sequence[dict[str, str]]) -> list[str]:
    """Keys of which not all have the same value; environment and agent first."""
    known = [found for found in settings if found]
    names = dict.fromkeys(name for found in known for name in found)
    values = {name: {found.get(name) for found in known} for name in names}
    first = ("env.id", "agent.name")
    found = [name for name in names if len(values[name]) > 1]
    return sorted(found, key=lambda name: first.index(name) if name in first else len(first))


def _settings(record: RunRecord) -> dict[str, str]:
    found = dict(flatten_keys(record.config))
    return {
        name: format_setting(value)
        for name, value in found.items()
        if not name.startswith(_OF_A_SEED)
    }


def _label(differs: dict[str, str], run: RunRecord, number: int, alone: bool) -> str:
    if not run.config:
        return run.name
    if not differs:
        return run.title
    if len(differs) <= _NAMED_MAX:
        return _said(differs)
    if alone:
        return f"{number}: {run.name}"
    return f"{number}: {_said(dict(list(differs.items())[:1]))} …"


def _said(named: dict[str, str]) -> str:
    return ", ".join(f"{_last(name, named)}={value}" for name, value in named.items())


def _last(name: str, among: dict[str, str]) -> str:
    """The key's last part, where that says which."""
    tail = name.rpartition(".")[2]
    same = [other for other in among if other.rpartition(".")[2] == tail]
    return tail if len(same) == 1 and tail not in ("id", "name") else name

"""The page about several runs: a line for each configuration, with the interval of its seeds."""

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

COLOURS = 8


def comparison_page(records: Sequence[RunRecord], command: str) -> str:
    """Make the page about several runs, in HTML.

    Args:
        command: the command that writes it again.
    """
    groups = group_runs(records)
    titles = ", ".join(dict.fromkeys(group.runs[0].title for group in groups))
    plural = "" if len(groups) == 1 else "s"
    count = f"{len(records)} runs of {len(groups)} configuration{plural}"
    return html_page(
        f"{count}: {titles}",
        element("h1", count),
        element("p", titles, class_="soft"),
        html_notes(_remarks(groups)),
        html_section("Outcome", html_table(_OUTCOME, (_outcome(group) for group in groups))),
        html_section("What differs", _differences(groups)),
        html_section("Curves", chart_groups(_charts(groups))),
        html_section("The runs", html_table(_RUNS, _runs(groups))),
        html_section("Configuration of the first", *configuration_tables(records[0].config)),
        command=command,
    )


def _remarks(groups: Sequence[RunGroup]) -> Iterator[str]:
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
    """The row of a configuration: means over its seeds, with intervals if there are several."""
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
        format_duration(_average(_known([seconds_of(run) for run in runs]))),
    )


def _mean(values: Sequence[float | None], digits: int) -> str:
    known = _known(values)
    if not known:
        return "–"
    low, high = confidence_interval(known)
    half = (high - low) / 2
    interval = f" ± {format_decimal(half, digits)}" if math.isfinite(half) else ""
    return format_decimal(_average(known), digits) + interval


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _differences(groups: Sequence[RunGroup]) -> Markup | None:
    """A row for each key and a column for each configuration; None if there is only one."""
    if len(groups) < 2:
        return None
    names = list(groups[0].differs)
    rows = [table_row(name, *(group.differs[name] for group in groups)) for name in names]
    return html_table(("key", *(group.label for group in groups)), rows)


def _charts(groups: Sequence[RunGroup]) -> Iterator[tuple[str, Chart]]:
    """The charts of all runs, each with the first of its curves that any run has."""
    names: dict[str, None] = {}
    for group in groups:
        for run in group.runs:
            names |= dict.fromkeys(run.curves)
    ends = x_ends([run for group in groups for run in group.runs])
    for spec in specs_for(names):
        name, label = next((name, label) for name, label in spec.curves if name in names)
        lines: list[ChartLine] = []
        for number, group in enumerate(groups):
            lines += _lines(name, group, number % COLOURS, spec.points)
        if not lines or (spec.nonzero and not any(line.y.any() for line in lines)):
            continue
        title = spec.title if len(spec.curves) == 1 else f"{spec.title}: {label}"
        levels = {level for group in groups for run in group.runs for level in levels_of(spec, run)}
        along = x_label(name)
        shown = tuple(levels) if len(levels) == 1 else ()
        yield spec.group, Chart(title, along, tuple(lines), shown, x_max=ends[along])


def _lines(name: str, group: RunGroup, colour: int, points: int) -> Iterator[ChartLine]:
    """The thin lines of a configuration's seeds, and the line of their mean."""
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
"""Keys, and beginnings of keys, in which runs of one configuration may differ."""
_NAMED_MAX = 3
"""The most keys in a group's label; the table of differences has all of them."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of one configuration.

    Args:
        label: a unique name made of the settings in which the group differs from the others.
        runs: one for each seed, in the order given.
        differs: the keys in which any two groups differ, with this group's values.
    """

    label: str
    runs: tuple[RunRecord, ...]
    differs: dict[str, str]


def group_runs(records: Sequence[RunRecord]) -> list[RunGroup]:
    """Group runs by configuration, in the order of each group's first run."""
    settings: dict[str, dict[str, str]] = {}
    members: dict[str, list[RunRecord]] = {}
    for record in records:
        found = _settings(record)
        # A run whose configuration cannot be read is a group of its own.
        key = repr(sorted(found.items())) if found else str(record.directory.resolve())
        settings[key] = found
        members.setdefault(key, []).append(record)
    keys = _differing_keys(list(settings.values()))
    groups: list[RunGroup] = []
    for number, (key, runs) in enumerate(members.items(), 1):
        differs = {name: settings[key].get(name, "–") for name in keys}
        label = _label(differs, runs[0], number, len(runs) == 1)
        if any(group.label == label for group in groups):
            label = f"{number}: {label}"
        groups.append(RunGroup(label, tuple(runs), differs))
    return groups


def _differing_keys(settings: Sequence[dict[str, str]]) -> list[str]:
    """Keys that do not have the same value everywhere; environment and agent first."""
    known = [found for found in settings if found]
    names = dict.fromkeys(name for found in known for name in found)
    values = {name: {found.get(name) for found in known} for name in names}
    first = ("env.id", "agent.name")
    found = [name for name in names if len(values[name]) > 1]
    return sorted(found, key=lambda name: first.index(name) if name in first else len(first))


def _settings(record: RunRecord) -> dict[str, str]:
    return {
        name: format_setting(value)
        for name, value in flatten_keys(record.config)
        if not name.startswith(_OF_A_SEED)
    }


def _label(differs: dict[str, str], run: RunRecord, number: int, alone: bool) -> str:
    if not run.config:
        return run.name
    if not differs:
        return run.title
    if len(differs) <= _NAMED_MAX:
        return _settings_text(differs)
    if alone:
        return f"{number}: {run.name}"
    return f"{number}: {_settings_text(dict(list(differs.items())[:1]))} …"


def _settings_text(settings: dict[str, str]) -> str:
    """``key=value`` pairs, each key shortened to its last part if that is unique."""
    tails = [name.rpartition(".")[2] for name in settings]
    parts = []
    for tail, (name, value) in zip(tails, settings.items(), strict=True):
        unique = tails.count(tail) == 1 and tail not in ("id", "name")
        parts.append(f"{tail if unique else name}={value}")
    return ", ".join(parts)

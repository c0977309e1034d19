"""Groups runs by configuration and computes the statistics of their seeds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vedette.reports.record import EVALUATION, RECORDED, RunRecord
from vedette.reports.statistics import (
    QUARTERED_LEAST,
    SEED_RESAMPLES,
    Floats,
    SeedCurve,
    average_seeds,
    bootstrap_interval,
    interquartile_mean,
    resample_curves,
)
from vedette_rl.number_format import format_decimal
from vedette_services.config.settings import dotted_items
from vedette_services.status.stop_conditions import EXIT_REASONS

_OF_A_SEED = ("seed", "preset", "replay.directory", "stop.")
"""Keys, and beginnings of keys, in which runs of one configuration may differ."""
_NAMED_MAX = 3
"""The most keys in a configuration's name; the table of differences has all of them."""
_AREA_POINTS = 400
_ENDED = frozenset({*EXIT_REASONS, RECORDED})
"""Reasons for which a run ends for good."""

Span = tuple[float, float]
"""The first and the last env step of a range."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Runs of one configuration.

    Args:
        name: unique, made of the settings in which it differs from the others.
        runs: its runs in the order given.
        differs: the keys in which any two configurations differ, with the values of this one.
    """

    name: str
    runs: tuple[RunRecord, ...]
    differs: dict[str, str]

    @property
    def seeds(self) -> list[str]:
        """Seed of each run."""
        return [str(run.configured("seed")) for run in self.runs]

    def statistics(self, span: Span | None) -> dict[str, Any]:
        """Return the object that ``report --json`` prints.

        Args:
            span: env steps over which the area under the curve is taken.
        """
        runs = self.runs
        reached = [run.env_steps_to_target is not None for run in runs]
        to_target = [None if run.is_offline else run.env_steps_to_target for run in runs]
        return {
            "name": self.name,
            "runs": len(runs),
            "seeds": len(set(self.seeds)),
            "eval_last": self._estimate([run.last_return for run in runs]),
            "eval_best": self._estimate([run.best_return for run in runs]),
            "eval_area": {**self._area(span), "span": span},
            "env_steps": self._estimate([run.summary.env_steps for run in runs])["iqm"],
            "env_steps_to_target": self._estimate(to_target),
            "reached": self._count_seeds(reached),
            "solved": self._count_seeds(run.solved for run in runs),
            "reached_runs": sum(reached),
            "solved_runs": sum(run.solved for run in runs),
            "ended": dict(Counter(_end_reason(run) for run in runs)),
            "seed_values": self.seeds,
            "directories": [str(run.directory) for run in runs],
        }

    def _count_seeds(self, are_counted: Iterable[bool]) -> int:
        return len(set(itertools.compress(self.seeds, are_counted)))

    def _area(self, span: Span | None) -> dict[str, float | None]:
        """The mean evaluation over a range of env steps, of the runs that have all of it.

        A run that `keeps_return` has; one with evaluations that are not finite has not.
        """
        if span is None:
            return self._estimate([])
        grid = np.linspace(*span, _AREA_POINTS)
        return self._estimate([_mean_over(run, grid) for run in self.runs])

    def _estimate(self, scores: Sequence[float | None]) -> dict[str, float | None]:
        """IQM over distinct seeds with its interval; that of less than three seeds is not known."""
        known = [(s, float(x)) for s, x in zip(self.seeds, scores, strict=False) if x is not None]
        if not known:
            return {"iqm": None, "low": None, "high": None, "seeds": 0}
        seeds, values = zip(*known, strict=True)
        per_seed = average_seeds(seeds, np.array(values))
        sides = [float(side) for side in bootstrap_interval(per_seed, resamples=SEED_RESAMPLES)]
        low, high = (None if np.isnan(side) else side for side in sides)
        middle = float(interquartile_mean(per_seed, 0))
        return {"iqm": middle, "low": low, "high": high, "seeds": len(per_seed)}


def statistics_of(
    configurations: Sequence[Configuration], spans: Mapping[str, Span | None]
) -> list[dict[str, Any]]:
    """Return the statistics of each; areas of one environment are over the same env steps.

    Args:
        spans: what `spans_of` returns.
    """
    return [
        each.statistics(spans.get(each.runs[0].configured("env", "id"))) for each in configurations
    ]


def spans_of(configurations: Sequence[Configuration]) -> dict[str, Span | None]:
    """Return the env steps over which areas are taken, by environment."""
    by_env: dict[str, list[RunRecord]] = {}
    for configuration in configurations:
        for run in configuration.runs:
            if EVALUATION in run.curves and not run.is_offline:
                by_env.setdefault(run.configured("env", "id"), []).append(run)
    return {env: _common_span(runs) for env, runs in by_env.items()}


def _common_span(runs: Sequence[RunRecord]) -> Span | None:
    """The env steps that runs have evaluated, without those that go on, or would by the same
    command, and without those that have evaluations that are not finite.

    A run that `keeps_return` has what follows, too. None: they have none in common.
    """
    complete = [run for run in runs if run.exit_reason in _ENDED]
    finite = [run for run in complete or runs if EVALUATION not in run.not_finite]
    counted = finite or complete or runs
    steps = [run.comparable_evaluations()["env"] for run in counted]
    first = max(float(of_run[0]) for of_run in steps)
    pairs = zip(counted, steps, strict=True)
    ends = [float(of_run[-1]) for run, of_run in pairs if not run.keeps_return]
    last = min(ends) if ends else max(float(of_run[-1]) for of_run in steps)
    return (first, last) if last >= first else None


def _mean_over(run: RunRecord, grid: Floats) -> float | None:
    if EVALUATION not in run.curves or run.is_offline or EVALUATION in run.not_finite:
        return None
    found = run.comparable_evaluations()
    (values,) = resample_curves([SeedCurve("", found["env"], found["y"], run.keeps_return)], grid)
    area = float(values.mean())
    return area if np.isfinite(area) else None


def _end_reason(run: RunRecord) -> str:
    """Why a run ended, as its records have it."""
    return "running" if run.running else run.exit_reason or "killed"


OUTCOME_HEADS = (
    *("configuration", "seeds", "last evaluation", "best evaluation", "mean over the curve"),
    *("reached the target", "solved", "first evaluation at the target (env steps)", "ended"),
)
_OUTCOME_NOTE = (
    "{middle}, in brackets its 95 % interval (stratified bootstrap); "
    "runs of one seed count as one. An interval of fewer than five seeds is too narrow to rely on. "
    "Reached: an evaluation was at or above the target; solved: fresh episodes confirmed it. "
    "The first evaluation at the target is where an evaluation happened to be: the policy may have "
    "been as good at any step since the evaluation before. "
    "An evaluation at the target counts among the best by fresh episodes of its model, so that the "
    "last may be above the best. The last evaluation of a solved run is that of the fresh episodes "
    "which confirmed it."
)


def describe_middle(configurations: Sequence[Configuration]) -> str:
    """Return the name of the statistic over the seeds: of fewer than four, no quarter is a whole
    seed, and the interquartile mean is the mean."""
    counts = sorted({len(set(each.seeds)) for each in configurations})
    if counts[0] >= QUARTERED_LEAST:
        return "interquartile mean of the seeds"
    if counts[-1] >= QUARTERED_LEAST:
        return "interquartile mean of the seeds (of fewer than four their mean)"
    among = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"mean of {among} seed{'' if counts[-1] == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison shows of its configurations.

    Args:
        rows: the statistics below `OUTCOME_HEADS` as texts, a row for each configuration.
        note: what the numbers are, in sentences.
    """

    rows: list[list[str]]
    note: str


def outcome_of(configurations: Sequence[Configuration]) -> Outcome:
    """Return what a comparison shows of its configurations."""
    spans = spans_of(configurations)
    pairs = zip(configurations, statistics_of(configurations, spans), strict=True)
    rows = [_outcome_cells(each, configuration.runs) for configuration, each in pairs]
    middle = describe_middle(configurations)
    note = _OUTCOME_NOTE.format(middle=middle[:1].upper() + middle[1:])
    return Outcome(rows, " ".join([note, *_describe_spans(spans)]))


def _describe_spans(spans: Mapping[str, Span | None]) -> Iterator[str]:
    """Say over which env steps the means over the curves are taken, by environment."""
    known = {env: span for env, span in spans.items() if span is not None}
    of = ", ".join(
        f"{first:,.0f} to {last:,.0f}" + f" of {env}" * (len(known) > 1)
        for env, (first, last) in known.items()
    )
    if of:
        yield f"Means over the curve are over env steps {of}."


def _outcome_cells(outcome: dict[str, Any], records: Sequence[RunRecord]) -> list[str]:
    seeds, runs = outcome["seeds"], outcome["runs"]
    has_target = any(run.target is not None for run in records)
    of_all, total = ("_runs", f"{runs} runs") if runs != seeds else ("", str(seeds))
    states = Counter(run.state for run in records)
    return [
        outcome["name"],
        f"{seeds} of {runs} runs" if runs != seeds else str(seeds),
        *(
            _estimate_text(outcome[name], of_seeds=seeds)
            for name in ("eval_last", "eval_best", "eval_area")
        ),
        *(
            f"{outcome[name + of_all]} of {total}" if has_target else "–"
            for name in ("reached", "solved")
        ),
        _estimate_text(outcome["env_steps_to_target"], 0),
        ", ".join(f"{count} {state}" for state, count in states.items()),
    ]


def _estimate_text(
    estimate: Mapping[str, float | None], digits: int = 1, *, of_seeds: int | None = None
) -> str:
    """A statistic with its interval; with the number of its seeds, where these are not all.

    Args:
        of_seeds: how many seeds there are; None: those without a value do not matter.
    """
    middle, low, high = (format_decimal(estimate[side], digits) for side in ("iqm", "low", "high"))
    text = middle if estimate["low"] is None else f"{middle} [{low}, {high}]"
    counted = estimate["seeds"]
    if not counted or of_seeds in (None, counted):
        return text
    return f"{text} ({counted} of {of_seeds} seeds)"


def group_runs(records: Sequence[RunRecord]) -> list[Configuration]:
    """Group runs by configuration, in the order of the values in which they differ."""
    settings: dict[str, dict[str, str]] = {}
    members: dict[str, list[RunRecord]] = {}
    for record in records:
        values = dict(_identity(record))
        # A run whose configuration cannot be read is one of its own.
        key = repr(sorted(values.items())) if values else str(record.directory.resolve())
        settings[key] = values
        members.setdefault(key, []).append(record)
    keys = _differing_keys([x for x in settings.values() if x and "baseline" not in x])
    groups: dict[str, Configuration] = {}
    unread = [key for key in members if not settings[key]]
    read = [key for key in members if settings[key]]
    read.sort(key=lambda key: [_sort_key(settings[key].get(name, "")) for name in keys])
    order = [*read, *unread]
    for number, key in enumerate(order, 1):
        runs = members[key]
        differs = {name: settings[key].get(name, "–") for name in keys}
        name = _name(differs, runs[0])
        name = f"{number}: {name}" if name in groups else name
        groups[name] = Configuration(name, tuple(runs), differs)
    return [*groups.values()]


def _identity(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield what makes a run one of its configuration: settings, those that were changed while it
    learned, and whether it ran in one process, where lag is another."""
    for key, value in flatten(record.config):
        if not key.startswith(_OF_A_SEED):
            yield key, value
    if not record.config:
        return
    changes = {k: text for k, text in record.changes.items() if not k.startswith(_OF_A_SEED)}
    if changes:
        yield "changed later", ", ".join(f"{key} {text}" for key, text in changes.items())
    if record.in_process is not None:
        yield "mode", "in process" if record.in_process else "daemons"


def _sort_key(value: str) -> tuple[bool, float, str]:
    """Numbers by their value, before texts."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value


def flatten(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every dotted key with its value, in the form that ``--set`` takes."""
    for key, value in dotted_items(table):
        if not isinstance(value, Mapping):
            yield key, _setting(value)


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_setting, value)) if isinstance(value, list) else str(value)


def _differing_keys(settings: Sequence[dict[str, str]]) -> list[str]:
    """Keys that do not have the same value everywhere; environment and agent first."""
    names = dict.fromkeys(name for each in settings for name in each)
    differing = [name for name in names if len({each.get(name) for each in settings}) > 1]
    return sorted(differing, key=lambda name: name not in ("env.id", "agent.name"))


def _name(differs: dict[str, str], run: RunRecord) -> str:
    """``key=value`` of the first keys that differ; most keys by their last part."""
    if label := run.configured("baseline"):
        return str(label)
    if not run.config or not differs:
        return run.title if run.config else run.name
    pairs = [(key.rpartition(".")[2], key, value) for key, value in differs.items()][:_NAMED_MAX]
    shown = [f"{key if tail in ('id', 'name') else tail}={value}" for tail, key, value in pairs]
    return ", ".join(shown) + " …" * (len(differs) > _NAMED_MAX)

"""Selects the curves of each chart: known curves by their meaning, all others one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vedette.reports.chart import Chart
from vedette.reports.lines import (
    POINTS,
    ChartLine,
    curve_line,
    evaluation_line,
    spread_line,
    step_at,
)
from vedette.reports.record import RunRecord
from vedette_rl.recording.reading import Curve
from vedette_services.learner.run_recorder import is_against_opt_steps
from vedette_services.run.status import Status, charts
from vedette_services.run.status_fields import ChartSpec, declared

EVALUATION = "eval/mean_reward"
ROLLOUT = "rollout/ep_rew_mean"

_FIRST = frozenset({"train/loss", "train/critic_loss", "train/actor_loss"})


CHART_SPECS = tuple(charts())
GROUPS = ("Returns", "Learning", "Speed", "Lag", "Replay and limiter", "Wire", "More")


def specs_for(names: Mapping[str, object]) -> list[ChartSpec]:
    """Return the charts of the curves with these names, in the order of their groups."""
    known = {name for spec in CHART_SPECS for name, _ in spec.curves}
    known |= {tag for _, number in declared(Status) for tag in number.tags}
    found = [spec for spec in CHART_SPECS if any(name in names for name, _ in spec.curves)]
    for name in sorted(set(names) - known, key=lambda name: (name not in _FIRST, name)):
        group = "Learning" if is_against_opt_steps(name) else "More"
        found.append(ChartSpec(group, _title(name), ((name, _title(name)),)))
    return sorted(found, key=lambda spec: GROUPS.index(spec.group))


def charts_of(record: RunRecord) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of a run, each with its group."""
    ends = x_ends([record])
    for spec in specs_for(record.curves):
        lines = list(_lines(spec, record))
        if lines:
            name = next(name for name, _ in spec.curves if name in record.curves)
            along = x_label(name)
            yield (
                spec.group,
                Chart(
                    spec.title,
                    along,
                    tuple(lines),
                    tuple(levels_of(spec, record)),
                    tuple(_moments(record, record.curves[name])),
                    ends[along],
                    title_says_it=len(spec.curves) == 1,
                ),
            )


def x_ends(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return the last step of all curves, for each label of the x axis."""
    ends: dict[str, float] = {}
    for record in records:
        for name, curve in record.curves.items():
            along = x_label(name)
            ends[along] = max(ends.get(along, 0.0), float(curve.steps[-1]))
    return ends


def x_label(name: str) -> str:
    """Return the label of the x axis: the kind of a curve's steps."""
    return "optimization steps" if is_against_opt_steps(name) else "env steps"


def levels_of(spec: ChartSpec, record: RunRecord) -> Iterator[tuple[float, str]]:
    """Yield the horizontal lines of a chart: each value with its label."""
    if spec.curves[0][0] == EVALUATION and record.target is not None:
        yield record.target, "target"
    for path, label in spec.levels:
        value = record.configured(*path)
        if isinstance(value, int | float) and value:
            yield float(value), label


def main_line(curve: Curve, points: int = POINTS) -> ChartLine | None:
    """Make the line of a curve for a comparison; None if it has no finite value."""
    line = curve_line(curve, "", points=points)
    return replace(line, bands=()) if line.x.size else None


def _lines(spec: ChartSpec, record: RunRecord) -> Iterator[ChartLine]:
    found = [(name, label) for name, label in spec.curves if name in record.curves]
    if spec.nonzero:
        found = [(name, label) for name, label in found if record.curves[name].values.any()]
    for colour, (name, label) in enumerate(found):
        if name == EVALUATION:
            line = _evaluation(record)
        elif name == ROLLOUT:
            line = _rollout(record)
        else:
            line = curve_line(record.curves[name], label, points=spec.points)
        if not line.x.size:
            continue
        if len(found) > 1:  # bands would hide one another
            line = replace(line, bands=())
        yield replace(line, colour=colour)


def _evaluation(record: RunRecord) -> ChartLine:
    parts = {name: record.curves.get(f"eval/{name}_reward") for name in ("std", "min", "max")}
    parts["episodes"] = record.curves.get("eval/episodes")
    episodes = record.configured("evaluation", "episodes")
    default = episodes if isinstance(episodes, int) else 1
    return evaluation_line(record.curves[EVALUATION], parts, default)


def _rollout(record: RunRecord) -> ChartLine:
    low, high = (record.curves.get(f"rollout/ep_rew_{end}") for end in ("min", "max"))
    return spread_line(
        record.curves[ROLLOUT], low, high, "mean return", "from the least to the best actor"
    )


def _moments(record: RunRecord, along: Curve) -> Iterator[tuple[float, str]]:
    """The steps at which later epochs began."""
    for event in record.events:
        if event.kind == "epoch" and event.epoch > 1:
            step = step_at(along, event.time_s)
            if step is not None:
                yield step, f"epoch {event.epoch}"


def _title(name: str) -> str:
    """The title of a recorded name: "td error mean" for ``train/td_error_mean``."""
    return name.removeprefix("train/").replace("_", " ")

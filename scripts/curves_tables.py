"""Writes the tables of docs/curves from its data, by the statistics of `vedette report`."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from curves_data import DATA, PLACE, read_finished
from curves_differences import difference, differences_table
from curves_scores import Estimate, Results, cell, estimate, number, pooled, read_results
from curves_studies import Study, Task

from vedette.reports.statistics import SEED_RESAMPLES, Floats, interquartile_mean

MEASURES = {
    "last": "last evaluation",
    "best": "best evaluation",
    "area": "mean over the curve",
}
TIMES = ["minutes", "CPU minutes"]
HEAD = ["task", "run", "seeds", *MEASURES.values(), "last fifth", "env steps", *TIMES]
SIDES = ("begin", "end")
TARGET_HEAD = ["target", "reached it", "env steps to it", "stayed"]


def task_table(results: Sequence[Results], data: Path = DATA) -> list[list[str]]:
    """A row for each task and label, below a head."""
    targets = any(each.task.target is not None for each in results)
    rows = [HEAD[:3] + TARGET_HEAD * targets + HEAD[3:]]
    for each in results:
        finished = read_finished(data / each.study.name)
        for label, configuration in each.labels.items():
            of_label = [r for r in finished if (r.task, r.label) == (each.task.name, label)]
            statistics = configuration.statistics(each.span)
            diverged = sum(run.diverged for run in configuration.runs)
            seeds = seeds_cell(each.study, label, statistics["seeds"], diverged)
            cells = [each.task.name, label, seeds]
            late = each.last_fifth(label)
            cells += target_cells(each.task, statistics, late) if targets else []
            cells += [cell(estimate(each.scores(label, measure))) for measure in MEASURES]
            least = min(map(len, late))
            ends = np.array([values[len(values) - least :] for values in late])
            cells.append(cell(estimate(ends, statistic=pooled)) if least else "")
            cells.append(f"{statistics['env_steps']:,.0f}")
            cells += [minutes([getattr(r, each) for r in of_label]) for each in ("wall_s", "cpu_s")]
            rows.append(cells)
    return rows


def minutes(seconds: Sequence[float]) -> str:
    """From the least to the most: machines and their load differ."""
    ends = [f"{end / 60:.1f}" for end in (min(seconds), max(seconds))] if seconds else []
    return " to ".join(dict.fromkeys(ends))


def target_cells(task: Task, statistics: dict[str, Any], late: Sequence[Floats]) -> list[str]:
    """The columns of a target; `late` are each seed's evaluations in the last fifth."""
    if task.target is None:
        return [""] * len(TARGET_HEAD)
    found = [statistics["env_steps_to_target"][name] for name in ("iqm", "low", "high")]
    to_target = [np.nan if x is None else x for x in found]
    reached = f"{statistics['reached']} of {statistics['seeds']}"
    ends = [interquartile_mean(values[np.newaxis], 1).item() for values in late if values.size]
    stayed = f"{sum(end >= task.target for end in ends)} of {len(ends)}" if ends else ""
    return [f"{task.target:g}", reached, cell(tuple(to_target), 0), stayed]


def seeds_cell(study: Study, label: str, count: int, diverged: int = 0) -> str:
    """How many seeds have run.

    Args:
        diverged: of how many the last evaluation is not finite. They are in no statistic.
    """
    planned = {each.name: len(each.seeds or study.seeds) for each in study.labels}.get(label, count)
    text = str(count) if count >= planned else f"{count} of {planned}"
    return f"{text}, of which {diverged} diverged" if diverged else text


def normalized_scores(study: Study, results: Sequence[Results]) -> dict[str, dict[str, Estimate]]:
    """Each label's scores over all tasks, divided by the mean of `normalize_by` on each."""
    by = study.normalize_by
    known = [each for each in results if by in each.labels]
    scores = {}
    for label in [each.name for each in study.labels]:
        if of_label := [each for each in known if label in each.labels]:
            scores[label] = {
                measure: estimate(
                    *(each.scores(label, measure) for each in of_label),
                    divisors=[each.scores(by, measure) for each in of_label],
                )
                for measure in MEASURES
            }
    return scores


def normalized_table(study: Study, results: Sequence[Results]) -> list[list[str]]:
    """A row for each label, with the tasks and seeds that are in it."""
    rows = [["run", "tasks and seeds", *MEASURES.values()]]
    for label, scores in normalized_scores(study, results).items():
        seeds = [
            f"{each.task.env} {len(set(each.labels[label].seeds))}"
            for each in results
            if label in each.labels
        ]
        rows.append([label, ", ".join(seeds), *(cell(each, 2) for each in scores.values())])
    return rows if len(rows) > 1 else []


def seeds_table(results: Sequence[Results]) -> list[list[str]]:
    rows = [["task", "run", "last evaluation of each seed (its best)"]]
    for each in results:
        for label, configuration in each.labels.items():
            runs = sorted(configuration.runs, key=lambda run: int(run.configured("seed")))
            values = [f"{_score(run.last_return)} ({_score(run.best_return)})" for run in runs]
            rows.append([each.task.name, label, ", ".join(values)])
    return rows


def _score(value: float | None) -> str:
    return "none" if value is None else number(value)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others]) + "\n"


OVERVIEW_HEAD = ["you have", "task", "ours", "last evaluation", "beside", "theirs", "seeds"]
OVERVIEW_HEAD += ["leads", "leads over the curve"]


def overview_table(studies: Sequence[Study], data: Path = DATA) -> list[list[str]]:
    """A row for each comparison of ours with another program."""
    rows = [OVERVIEW_HEAD]
    for study in studies:
        if not study.whom:
            continue
        others = [label.name for label in study.labels if label.peer or label.source]
        for each in read_results(study, data):
            pairs = product(study.ours, others)
            rows += [
                _overview_row(study, each, ours, theirs)
                for ours, theirs in pairs
                if ours in each.labels and theirs in each.labels
            ]
    return rows


def _overview_row(study: Study, each: Results, ours: str, theirs: str) -> list[str]:
    both = (ours, theirs)
    seeds = " and ".join(dict.fromkeys(str(len(set(each.labels[label].seeds))) for label in both))
    leaders = [leader(each.scores(ours, x), each.scores(theirs, x)) for x in ("last", "area")]
    return [
        study.whom,
        f"{each.task.env.rpartition(':')[2]}, {each.task.env_steps:,} steps",  # without its module
        f"{each.task.agent}: {ours}",
        cell(estimate(each.scores(ours, "last"))),
        theirs,
        cell(estimate(each.scores(theirs, "last"))),
        seeds,
        *leaders,
    ]


def leader(ours: Floats, theirs: Floats, resamples: int = SEED_RESAMPLES) -> str:
    """Who leads, where the intervals of the two lie apart; who perhaps does, where the interval of
    their difference alone leaves out 0."""
    mine, other = (estimate(scores, resamples=resamples) for scores in (ours, theirs))
    between = difference(ours, theirs, resamples)
    if np.isnan([*mine, *other]).any():
        return "too few seeds"
    if mine[1] > other[2]:
        return "ours"
    if other[1] > mine[2]:
        return "theirs"
    if between[1] > 0.0:
        return "perhaps ours"
    return "perhaps theirs" if between[2] < 0.0 else "not told apart"


def page(study: Study, data: Path = DATA) -> str:
    """A study's section of the results page; "" without results."""
    results = read_results(study, data)
    if not results:
        return ""
    parts = [f"## {study.title}\n", f"{study.about.strip()}\n"]
    if any(True for _ in study.runs()):
        parts.append(f"`scripts/curves run {study.name}`\n")
    parts.append(markdown(task_table(results, data)))
    if study.normalize_by and (rows := normalized_table(study, results)):
        by = f"Divided by the mean of `{study.normalize_by}` on each task, over all tasks:\n"
        parts += [by, markdown(rows)]
    if rows := differences_table(study, results):
        # An explanation of the study includes what is between the comments.
        begin, end = (f"<!-- {side} of the differences of {study.name} -->\n" for side in SIDES)
        parts += ["Differences, of interquartile means:\n", begin, markdown(rows), end]
    parts += ["All seeds:\n", markdown(seeds_table(results))]
    # The address is seen from the page that includes this.
    parts += [f"![{study.title}](../curves/{study.name}.svg)\n"]
    return "\n".join(parts)


def pages(studies: Sequence[Study]) -> dict[str, str]:
    """Texts of docs/curves, by file, which pages of docs/ include."""
    text = "\n".join(filter(None, map(page, studies)))
    return {"studies.md": text, "overview.md": markdown(overview_table(studies))}


def write_page(studies: Sequence[Study]) -> str:
    """Write `pages`; returns the studies'."""
    made = pages(studies)
    for name, text in made.items():
        (PLACE / name).write_text(text, "utf-8")
    return made["studies.md"]

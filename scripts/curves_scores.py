"""The scores of a study's runs: an estimate over seeds for each task, label and measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from curves_data import DATA
from curves_studies import Study, Task

from vedette.reports.configurations import Configuration, group_runs
from vedette.reports.record import EVALUATION, RunRecord, read_baseline
from vedette.reports.statistics import (
    SEED_RESAMPLES,
    Floats,
    SeedCurve,
    average_seeds,
    bootstrap_interval,
    interquartile_mean,
    resample_curves,
)

AREA_POINTS = 400

Estimate = tuple[float, float, float]
"""An interquartile mean and its interval, whose sides are NaN for one or two seeds."""


@dataclass(frozen=True)
class Results:
    """The results of a task.

    Args:
        labels: one configuration a label, in the order of the study.
    """

    study: Study
    task: Task
    labels: dict[str, Configuration]

    @property
    def span(self) -> tuple[float, float]:
        """The env steps that all runs have: over these no run's last value is carried on. One with
        evaluations that are not finite ends no other's."""
        runs = [run for each in self.labels.values() for run in each.runs]
        finite = [run for run in runs if EVALUATION not in run.not_finite] or runs
        steps = [run.curves[EVALUATION].steps for run in finite if EVALUATION in run.curves]
        return float(max(each[0] for each in steps)), float(min(each[-1] for each in steps))

    def scores(self, label: str, measure: str) -> Floats:
        """One score for each distinct seed that has it."""
        has_it: Callable[[RunRecord], bool] = {
            "last": lambda run: not run.diverged,
            "best": lambda run: EVALUATION in run.curves,
            "area": lambda run: EVALUATION not in run.not_finite,
        }[measure]
        of_label = self.labels[label]
        pairs = zip(of_label.seeds, of_label.runs, strict=True)
        kept = [(seed, run.curves[EVALUATION]) for seed, run in pairs if has_it(run)]
        seeds = [seed for seed, _ in kept]
        if measure == "area":
            points = [SeedCurve(seed, c.steps.astype(np.float64), c.values) for seed, c in kept]
            grid = np.linspace(*self.span, AREA_POINTS)
            scores = resample_curves(points, grid).mean(1) if points else np.zeros(0)
        else:
            of_curve: Callable[[Floats], float] = max if measure == "best" else itemgetter(-1)
            scores = np.array([of_curve(curve.values) for _, curve in kept])
        return average_seeds(seeds, scores)

    def last_fifth(self, label: str) -> list[Floats]:
        """Each seed's evaluations in the last fifth of the budget.

        One within half an interval of its beginning is not part of it, whether it came just before
        or just after: so programs that evaluate at somewhat different steps have as many.
        """
        late = []
        for run in self.labels[label].runs:
            if EVALUATION in run.curves:
                curve = run.curves[EVALUATION]
                interval = np.median(np.diff(curve.steps)) if curve.steps.size > 1 else 0.0
                late.append(curve.values[curve.steps > 0.8 * self.task.env_steps + 0.5 * interval])
        return late


def estimate(
    *strata: Floats,
    statistic: Any = interquartile_mean,
    divisors: Sequence[Floats] = (),
    resamples: int = SEED_RESAMPLES,
) -> Estimate:
    """The statistic of scores ``(seeds, ...)`` of each task, with its interval over seeds.

    It is not one over evaluations: those of one run are not independent.
    """
    if not all(map(len, (*strata, *divisors))):
        return np.nan, np.nan, np.nan
    low, high = bootstrap_interval(
        *strata, statistic=statistic, resamples=resamples, divisors=divisors
    )
    means = [divisor.mean() for divisor in divisors] or [1.0] * len(strata)
    scores = [scores / mean for scores, mean in zip(strata, means, strict=True)]
    middle = statistic(np.concatenate(scores)[np.newaxis], 1)
    return float(middle[0]), float(np.min(low)), float(np.min(high))


def pooled(scores: Floats, axis: int) -> Floats:
    """The interquartile mean of all scores behind the first axis."""
    return interquartile_mean(scores.reshape(len(scores), -1), axis)


def read_results(study: Study, data: Path = DATA) -> list[Results]:
    """The results of each task that has any, in the order of the list."""
    results = []
    for task in study.tasks:
        file = data / study.name / f"{task.name}.csv"
        if not file.exists():
            continue
        runs = {each.name: each for each in group_runs(read_baseline(file, task.env, task.target))}
        order = [label.name for label in study.labels if label.name in runs]
        names = order + sorted(set(runs) - set(order))
        results.append(Results(study, task, {name: runs[name] for name in names}))
    return results


def cell(estimate: Sequence[float], digits: int | None = None) -> str:
    """Interquartile mean with its 95 % interval."""
    if np.isnan(estimate[0]):
        return ""
    middle, low, high = (number(x, digits) for x in estimate)
    return middle if np.isnan(estimate[1]) else f"{middle} [{low}, {high}]"


def number(x: float, digits: int | None = None) -> str:
    """A return: with one digit behind the point, small ones with two."""
    return f"{x:,.{(1 if abs(x) >= 10 else 2) if digits is None else digits}f}"

"""What a label differs by from the one that it stands beside: each task's difference of scores."""

from collections.abc import Iterator, Sequence

import numpy as np
from curves_scores import Estimate, Results, cell, estimate
from curves_studies import Study

from vedette.reports.statistics import SEED_RESAMPLES, Floats, interquartile_mean

HEAD = ["task", "run", "beside", "seeds", "last evaluation", "mean over the curve"]
SCORES = ("last", "area")


def difference(ours: Floats, theirs: Floats, resamples: int = SEED_RESAMPLES) -> Estimate:
    """The difference of two interquartile means, with its 95 % interval.

    The seeds of each are resampled on their own (percentile bootstrap). Of three seeds a side it
    is too narrow: of normal scores four of five such intervals have the true difference, of five
    seeds a side 93 of 100. The sides are NaN where one has less than three.
    """

    def of_both(scores: Floats, axis: int) -> Floats:
        mine, other = np.split(scores, [len(ours)], axis)
        return interquartile_mean(mine, axis) - interquartile_mean(other, axis)

    return estimate(ours, theirs, statistic=of_both, resamples=resamples)


def differences_table(study: Study, results: Sequence[Results]) -> list[list[str]]:
    """A row for each task and label that stands beside another, and one for all tasks together."""
    rows = [HEAD]
    for label in study.labels:
        for other in label.beside:
            found = [each for each in results if {label.name, other} <= each.labels.keys()]
            rows += _rows(study, label.name, other, found)
    return rows if len(rows) > 1 else []


def _rows(study: Study, label: str, other: str, found: Sequence[Results]) -> Iterator[list[str]]:
    both = (label, other)
    for each in found:
        seeds = dict.fromkeys(str(len(set(each.labels[name].seeds))) for name in both)
        last, area = (
            difference(each.scores(label, score), each.scores(other, score)) for score in SCORES
        )
        yield [each.task.name, *both, " and ".join(seeds), signed(last), signed(area)]
    if study.normalize_by and len(found) > 1:
        ratios = [
            estimate(
                *(each.scores(label, score) for each in found),
                divisors=[each.scores(other, score) for each in found],
            )
            for score in SCORES
        ]
        yield [f"all {len(found)}", *both, "", *(f"times {cell(ratio, 2)}" for ratio in ratios)]


def signed(estimate: Estimate) -> str:
    text = cell(estimate)
    return text if text.startswith("-") else f"+{text}"

"""What a label differs by from the one that it stands beside: each task's difference of scores."""

from collections.abc import Iterator, Sequence

import numpy as np
from curves_scores import Estimate, Results, cell, estimate
from curves_studies import Study

from vedette.reports.statistics import SEED_RESAMPLES, Floats, interquartile_mean

HEAD = ["task", "run", "beside", "seeds", "last evaluation", "mean over the curve"]
SCORES = ("last", "area")
_SEED = 2108  # of the resampling, so that a table can be written again


def difference(ours: Floats, theirs: Floats, resamples: int = SEED_RESAMPLES) -> Estimate:
    """The difference of two interquartile means, with its 95 % interval.

    The seeds of each are resampled on their own (percentile bootstrap). Of three seeds a side it
    is too narrow: of normal scores four of five such intervals have the true difference, of five
    seeds a side 93 of 100. The sides are NaN where one has less than three.
    """
    middle = float(interquartile_mean(ours, 0) - interquartile_mean(theirs, 0))
    if min(len(ours), len(theirs)) < 3:
        return middle, np.nan, np.nan
    rng = np.random.default_rng(_SEED)
    drawn = [
        interquartile_mean(side[rng.integers(len(side), size=(resamples, len(side)))], 1)
        for side in (ours, theirs)
    ]
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    return middle, float(low), float(high)


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
        last, area = (difference(*(each.scores(name, score) for name in both)) for score in SCORES)
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

"""How a measurement is told: never by one number."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most of the rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The ratio of medians, between the least and the most of the ratios within a round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    medians = statistics.median(ours) / statistics.median(theirs)
    return {"median": medians, "min": min(rounds), "max": max(rounds)}

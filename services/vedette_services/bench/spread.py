"""Figures of several rounds, and how two of them compare."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Spread = dict[str, float]
"""``median``, ``min`` and ``max``."""


def spread(values: Sequence[float]) -> Spread:
    """The middle and the ends of several rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The ratio of medians, between the ends of the ratios within a round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    medians = statistics.median(ours) / statistics.median(theirs)
    return {"median": medians, "min": min(rounds), "max": max(rounds)}

"""How a measurement is told: never by one number."""

from __future__ import annotations

import statistics


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and most of the rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}

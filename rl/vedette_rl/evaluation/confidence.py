"""Confidence intervals of means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_Z = 1.959963984540054  # 97.5 % of a normal distribution lie below
_FEW = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469}


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the mean, by Student's t; infinite for a single value."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return -math.inf, math.inf
    half = t_quantile(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return mean - half, mean + half


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t distribution with so many degrees of freedom.

    From 7 on by the expansion about the normal one (Abramowitz & Stegun 26.7.5), right to four
    decimals; below that it converges too slowly.
    """
    if degrees in _FEW:
        return _FEW[degrees]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / float(degrees) ** k for k, term in enumerate(terms, 1))

"""How environment steps a second are counted where a peer collects when it is asked to.

A peer runs in an environment of its own, so nothing here needs more than the standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_S = 3.0


def steps_per_s(collect: Callable[[], int], seconds: float) -> float:
    """Steps a second after the warm-up.

    Args:
        collect: collects once more; how many steps that were.
    """
    collect()  # it may have to start yet
    warm = time.monotonic() + WARM_S
    while time.monotonic() < warm:
        collect()
    steps = 0
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        steps += collect()
    return steps / (time.monotonic() - began)

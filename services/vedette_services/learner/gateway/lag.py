"""Policy lag: how much older than the newest model samples are when they arrive.

The lag of the samples that are drawn is measured in `trainer.training_loop`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np

from vedette_services.status.status import Lag

_BATCHES = 512  # the lag shown is that of the last so many batches


_VERSIONS = 4096  # publishing times remembered


class LagMeter:
    """Measures lag in versions and in seconds over the last batches."""

    def __init__(self) -> None:
        self._lags: deque[tuple[int, float, int]] = deque(maxlen=_BATCHES)
        self._versions: deque[int] = deque(maxlen=_VERSIONS)
        self._times: deque[float] = deque(maxlen=_VERSIONS)

    def on_published(self, version: int, now: float) -> None:
        """Note that a model was published; later versions, from before a resume, are forgotten."""
        while self._versions and self._versions[-1] >= version:
            self._versions.pop()
            self._times.pop()
        self._versions.append(version)
        self._times.append(now)

    def on_inserted(self, version: int, version_now: int, rows: int, now: float) -> None:
        """Note that a batch made with `version` was inserted at `version_now`."""
        self._lags.append((max(0, version_now - version), now - self._time_of(version, now), rows))

    def _time_of(self, version: int, now: float) -> float:
        if not self._versions:
            return now
        place = bisect_right(self._versions, version) - 1
        return self._times[max(0, place)]

    def summarize(self) -> Lag:
        """Return mean, 95th percentile and maximum in versions, and the mean in seconds."""
        if not self._lags:
            return Lag(mean=0.0, p95=0.0, max=0.0, seconds_mean=0.0)
        lags, seconds, rows = np.array(self._lags, np.float64).T
        order = np.argsort(lags)
        share = np.cumsum(rows[order]) / rows.sum()
        return Lag(
            mean=float(np.average(lags, weights=rows)),
            p95=float(lags[order][min(np.searchsorted(share, 0.95), len(lags) - 1)]),
            max=float(lags.max()),
            seconds_mean=float(np.average(seconds, weights=rows)),
        )

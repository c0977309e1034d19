"""Policy lag: how much older than the newest model samples are when they arrive.

The lag of the samples that are drawn is measured in `trainer.training_loop`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from vedette_rl.replay.history import UNREACHED, History
from vedette_services.status.status import Lag

_BATCHES = 512  # the lag shown is that of the last so many batches


_TIMES = 2048
"""Publishing times of a level: the first level has those of the newest models, each further one
those of every second model of the one before. So an age is exact within a thousandth."""

Model = tuple[int, int]
"""Epoch and version of a model, by which models follow one another."""


class LagMeter:
    """Measures lag in versions and in seconds over the last batches."""

    def __init__(self) -> None:
        self._lags: deque[tuple[int, float, int]] = deque(maxlen=_BATCHES)
        self._history = History()
        self._published = 0
        self._newest: Model | None = None
        self._levels: list[deque[tuple[Model, float]]] = [deque(maxlen=_TIMES)]

    def on_published(self, model: Model, now: float) -> None:
        """Note that a model was published; its epoch begins with the first one."""
        if self._newest is not None and model <= self._newest:
            return
        epoch, version = model
        if self._newest is None or epoch != self._newest[0]:
            self._history = self._history.begun(epoch, version)
        self._newest = model
        if self._published == 1 << len(self._levels):
            self._levels.append(deque([self._levels[-1][0]], maxlen=_TIMES))  # the first model
        for level, published in enumerate(self._levels):
            if self._published % (1 << level) == 0:
                published.append((model, now))
        self._published += 1

    def on_inserted(self, model: Model, version_now: int, rows: int, now: float) -> None:
        """Note that a batch made with `model` was inserted at `version_now`.

        Rows that no model known here leads to are left out: those that come before the first model,
        or of a later epoch, where the learner was put back from an older copy.
        """
        if not self._history.starts:
            return
        lag = self._history.lag(*model, version_now)
        if lag < UNREACHED:
            self._lags.append((lag, self._age(model, now), rows))

    def _age(self, model: Model, now: float) -> float:
        """Seconds since a model was published; NaN: before this meter began."""
        for published in self._levels:
            if place := bisect_right(published, model, key=itemgetter(0)):
                return now - published[place - 1][1]
        return math.nan

    def summarize(self) -> Lag:
        """Return mean, 95th percentile and maximum in versions, and the mean in seconds, of those
        models whose age is known; None: of no batch."""
        if not self._lags:
            return Lag()
        lags, seconds, rows = np.array(self._lags, np.float64).T
        order = np.argsort(lags)
        share = np.cumsum(rows[order]) / rows.sum()
        return Lag(
            mean=float(np.average(lags, weights=rows)),
            p95=float(lags[order][min(np.searchsorted(share, 0.95), len(lags) - 1)]),
            max=float(lags.max()),
            seconds_mean=_mean_of_known(seconds, rows),
        )


def _mean_of_known(seconds: NDArray[np.float64], rows: NDArray[np.float64]) -> float | None:
    known = ~np.isnan(seconds)
    return float(np.average(seconds[known], weights=rows[known])) if known.any() else None

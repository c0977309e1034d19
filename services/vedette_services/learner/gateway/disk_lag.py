"""Samples that wait for the disk."""

from __future__ import annotations

import logging

from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.status.records import DISK_LAG_S, DISK_LAGS

_DISK_LINE_EVERY_S = 60.0

log = logging.getLogger("vedette.gateway")


class DiskLag:
    """Reports when samples wait because too little of the ring is on the disk."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._lines = RateLimitedLog(_DISK_LINE_EVERY_S)

    def seconds(self, now: float) -> float:
        """Return for how long samples have waited; 0.0 if they do not."""
        return 0.0 if self._since is None else round(now - self._since, 3)

    def note(self, now: float, *, lags: bool) -> None:
        """Note that the disk lags behind, or not; log it where that lasts."""
        if not lags:
            self._since = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since > DISK_LAG_S and self._lines.should_log("disk", DISK_LAGS, now):
            log.warning(DISK_LAGS)

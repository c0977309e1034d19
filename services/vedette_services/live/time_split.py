"""What the learner spends its time on, over the last seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from vedette_services.live.facts import Status, seconds, value

WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of the time; `other` is publishing, checkpoints, records and starting."""

    waiting: float
    sampling: float
    optimizing: float
    other: float


class TimeWatch:
    """Remembers what statuses said, for the shares of the last seconds instead of the whole epoch.

    Args:
        window_s: how far back it looks.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._epoch: object = None
        self._seen: deque[tuple[float, ...]] = deque()

    def look(self, status: Status) -> TimeSplit | None:
        """The shares since about `window_s` before this status; None before there are any."""
        now = _times(status)
        if now is None:
            return None
        if status.get("epoch") != self._epoch or (self._seen and now[0] < self._seen[-1][0]):
            self._epoch = status.get("epoch")
            self._seen.clear()
        seen = self._seen
        if not seen or now[0] > seen[-1][0]:
            seen.append(now)
        while len(seen) > 2 and now[0] - seen[1][0] >= self._window_s:
            seen.popleft()
        before = seen[0] if len(seen) > 1 else (0.0,) * 4
        return _split([late - early for late, early in zip(now, before, strict=True)])


def _times(status: Status) -> tuple[float, ...] | None:
    """Seconds: of the epoch, waiting, sampling, optimizing."""
    names = ("waiting_s", "sampling_s", "optimizing_s")
    found = (seconds(status), *(value(status, "time", name) for name in names))
    return tuple(x for x in found if x is not None) if None not in found else None


def _split(spent: list[float]) -> TimeSplit | None:
    whole = max(spent[0], sum(spent[1:]))
    if whole <= 0.0:
        return None
    waiting, sampling, optimizing = (max(0.0, part) / whole for part in spent[1:])
    return TimeSplit(waiting, sampling, optimizing, max(0.0, 1 - waiting - sampling - optimizing))

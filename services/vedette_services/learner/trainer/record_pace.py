"""How often a run records: the longer it lasts, the further its records lie apart."""

from __future__ import annotations

import logging
import math

from vedette_rl.number_format import format_clock

log = logging.getLogger("vedette.trainer")

RESOLUTION = 5000
"""Two records of a curve are at least this part of the run's time apart.

So a curve has as many points as a large screen has columns, whatever the learner's speed, and a few
times as many after a month: their number grows with the logarithm of the time.
"""

_EVERYTHING_S = 60.0  # until then everything is recorded
_SAID_S = 1.0


class RecordPace:
    """Says when the next record of a curve is due.

    A run of a minute records everything; one of an hour and a half once a second; one of a month
    every nine minutes.

    Args:
        earlier_s: the time of the run's starts until `began`.
        began: by the clock of `is_due`.
    """

    def __init__(self, earlier_s: float, began: float) -> None:
        self._earlier_s = earlier_s
        self._began = began
        self._last: dict[str, float] = {}
        self._is_said = False

    def spacing_s(self, now: float) -> float:
        """Return the least time between two records of a curve."""
        age_s = self._earlier_s + now - self._began
        return age_s / RESOLUTION if age_s > _EVERYTHING_S else 0.0

    def is_due(self, curve: str, now: float) -> bool:
        """Return True if a record is due, which then counts as written.

        Args:
            now: infinite: it is the last.
        """
        spacing_s = self.spacing_s(now)
        if now - self._last.get(curve, -math.inf) < spacing_s:
            return False
        self._last[curve] = now
        if not self._is_said and _SAID_S < spacing_s < math.inf:
            self._is_said = True
            age = format_clock(spacing_s * RESOLUTION)
            log.info(
                "the run is %s old: from now on its records are 1/%s of its time apart; losses are "
                "the means of all between them, and every new best evaluation is recorded",
                age,
                f"{RESOLUTION:,}",
            )
        return True

"""How long samples stay at the door once all that came were taken."""

from __future__ import annotations

_REST_S = 0.002
_SHARE_S = 3e-5  # longer for each manager: a commit tells of every one that sent something
_MOST_S = 0.005


class Rest:
    """More batches come together, and each costs less; the first after a silence is taken at once.

    Other sockets are heard meanwhile.
    """

    def __init__(self) -> None:
        self.managers = 0
        self._until = 0.0

    def begin(self, now: float) -> None:
        """All that came were taken."""
        self._until = now + min(_MOST_S, _REST_S + _SHARE_S * self.managers)

    def left_ms(self, now: float) -> int:
        """What is left of it, to the nearest; 0 when it is over."""
        return max(0, round(1e3 * (self._until - now)))

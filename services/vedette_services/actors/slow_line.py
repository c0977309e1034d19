"""When models come faster than the line carries them: asked for one by one instead.

The learner's queue for a slow reader is bounded, and what does not fit is left out in the middle of
a model: with every one torn, such a reader would never see another. Instead it leaves the common
topic and subscribes to its own anew whenever it is ready, which brings the newest.
"""

from __future__ import annotations

from vedette_protocol.messages import ModelChunk

TORN_IN_A_ROW = 3
QUIET_S = 1.0
"""What was queued for us has come through when nothing has come for so long."""

NOTHING_NEW_S = 1.0
"""The first pause after a model that we had; each further one is twice as long, up to"""
NOTHING_NEW_MAX_S = 10.0

_SOON_S = 0.05

Name = tuple[str, int, int]


class SlowLine:
    """Watches pieces of models come; says when to change over, and when to ask.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, now: float) -> None:
        self.asks = False
        """Whether models are asked for, one by one."""
        self._under_way: Name | None = None
        self._had: Name | None = None
        self._torn = 0
        self._ask_at = now
        self._pause_s = NOTHING_NEW_S

    def on_chunk(self, chunk: ModelChunk, now: float, *, complete: bool) -> None:
        """A piece came, and perhaps made a model complete."""
        name = (chunk.run_id, chunk.epoch, chunk.version)
        if name != self._under_way:
            if self._under_way is not None and self._under_way != self._had:
                self._torn += 1
            self._under_way = name
        self._ask_at = now + QUIET_S
        if complete:
            self._had, self._torn, self._pause_s = name, 0, NOTHING_NEW_S
            self._ask_at = now + _SOON_S
        elif name == self._had and chunk.index == chunk.count - 1:
            self._ask_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, NOTHING_NEW_MAX_S)

    def changes_over(self) -> bool:
        """Whether to leave the common topic now: true once."""
        if self.asks or self._torn < TORN_IN_A_ROW:
            return False
        self.asks = True
        return True

    def should_ask(self, now: float) -> bool:
        """Whether to ask for the newest model now."""
        if not self.asks or now < self._ask_at:
            return False
        self._ask_at = now + QUIET_S
        return True

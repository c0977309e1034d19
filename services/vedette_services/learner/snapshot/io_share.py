"""Rests between the blocks of a copy, so that copying takes a share of the time and no more."""

from __future__ import annotations

import time
from collections.abc import Callable


class IoShare:
    """A `vedette_rl.replay.ring_parts.Pause`.

    ::

        share = IoShare(0.25, rest, hurries=lambda: False)
        share.begin()                   # of a generation
        share(len(block))               # behind each block: rests three times as long as it took

    Args:
        share: the part of the time that may be spent on copying.
        rest: waits for so many seconds, or less.
        hurries: returns True where somebody waits for the copy, so that nothing rests.
        clock: seconds.
    """

    def __init__(
        self,
        share: float,
        rest: Callable[[float], object],
        *,
        hurries: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rests = 1.0 / share - 1.0
        self._rest = rest
        self._hurries = hurries
        self._clock = clock
        self._since = clock()

    def begin(self) -> None:
        """Begin to work."""
        self._since = self._clock()

    def __call__(self, size: int) -> None:
        """Rest after a block of so many bytes."""
        if not self._hurries():
            self._rest(self._rests * (self._clock() - self._since))
        self._since = self._clock()

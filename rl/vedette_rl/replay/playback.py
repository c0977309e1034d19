"""The looks of a journal in the place of the cursors of rings: draws see what they saw then.

::

    playback = Playback(opened, looks)
    for number, ring in enumerate(rings):
        playback.take_over(ring, number)
    while training:
        playback.next_draw()
        sample = replay.sample(batch_size)

A look that was dropped for doubt has no part here: the rows of it that were in doubt are gone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vedette_rl.replay.ring import RingReader


class Playback:
    """Looks, one after the other.

    Args:
        opened: ``(rings,)``: the rows inserted before the first look, as rings are opened.
        looks: ``(N, rings)``: the rows inserted that each draw saw.
    """

    def __init__(self, opened: NDArray[np.int64], looks: NDArray[np.int64]) -> None:
        self._seen = np.concatenate([opened[None, :], looks]).tolist()
        self._at = 0

    def take_over(self, ring: RingReader, number: int) -> None:
        """Have a ring be as large as the looks say.

        Args:
            number: of the ring in each look.
        """
        ring.use_cursor(_PlayedCursor(self, number))

    def next_draw(self) -> None:
        """Go on to the look of the next draw; behind the last one, it stays."""
        self._at = min(self._at + 1, len(self._seen) - 1)

    def rows_of(self, number: int) -> int:
        """The rows of a ring that this look sees."""
        rows: int = self._seen[self._at][number]
        return rows


class _PlayedCursor:
    """In the place of a ring's cursor."""

    def __init__(self, playback: Playback, number: int) -> None:
        self._playback = playback
        self._number = number

    def __getitem__(self, at: int) -> int:
        return self._playback.rows_of(self._number)

"""Draws each batch of sequences from several sources, as `MixedReplay` draws rows.

Shares are of sequences. Inside a source they are drawn as its own replay draws them. The column
``source`` is ``(B,)``: all rows of a sequence are of one source.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import Sample
from vedette_rl.replay.drawn_sequences import DrawnSequences
from vedette_rl.replay.mixed import NUMBER_BITS, MixedReplay, Source
from vedette_rl.replay.prioritized import PrioritizedReplay, importance_weights
from vedette_rl.replay.sequences import Windows
from vedette_rl.replay.sum_tree import JoinedTrees


class MixedSequences(MixedReplay):
    """A `MixedReplay` whose sources are `DrawnSequences`.

    Args:
        actors, others, warmup: as `MixedReplay` takes them.
    """

    def _join(self) -> tuple[tuple[Columns, list[int]] | None, JoinedTrees | None]:
        return None, None  # rows are gathered by sequences, of one source after the other

    @property
    def first(self) -> frozenset[str]:
        """The columns of which a sequence has the first row's value alone."""
        return _sequences(self.actors).first

    @property
    def windows(self) -> Windows:
        """The rows of the sequences drawn last, with their source in the upper bits."""
        of_parts = [(_sequences(part.replay).windows, part.code) for part in self._parts]
        return Windows(
            np.concatenate([windows.numbers + code for windows, code in of_parts]),
            np.concatenate([windows.burned for windows, _ in of_parts]),
            np.concatenate([windows.learned for windows, _ in of_parts]),
        )

    def wait_reason(self) -> str:
        """The reason why no sequence can be drawn from this look, as a sentence; "" if one can."""
        if any(self._has_some(source) for source in self._sources):
            return ""
        return _sequences(self.actors).wait_reason()

    def _has_some(self, source: Source) -> bool:
        return _sequences(source.replay).drawable > 0

    @property
    def _stays(self) -> bool:
        return False  # sequences cease to be whole while later ones are not yet

    @property
    def _drawn_dtype(self) -> np.dtype[Any]:
        return _sequences(self.actors).drawn_dtype

    def _draw(self, batch_size: int) -> Sample:
        if batch_size != self._fixed:
            counts = self._split(batch_size)
            if counts != self._counts:
                self._make_buffers(batch_size, counts)
        indices = np.empty(batch_size, np.int64)
        relative = np.empty(batch_size)
        by_priority = False
        for part in self._parts:
            replay = part.replay
            if isinstance(replay, PrioritizedReplay):
                by_priority = True
                numbers, masses = replay.draw_into(part.columns, part.count)
                # N_s p_i**alpha / sum
                relative[part.rows] = masses / (replay.tree.summed / replay.weighed_rows)
            else:
                numbers = replay.draw_into(part.columns, part.count)
            np.add(numbers, part.code, out=indices[part.rows])
        weights = None
        if by_priority:
            assert isinstance(self.actors, PrioritizedReplay)
            weights = importance_weights(relative, self.actors.beta)
        return Sample(self._columns, indices, weights)

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the absolute TD errors ``(B,)`` of sequences drawn before, each in its source."""
        sources = indices >> NUMBER_BITS
        numbers = indices & ((1 << NUMBER_BITS) - 1)
        for number, source in enumerate(self._sources):
            mine = sources == number
            if mine.any():
                source.replay.update_priority(numbers[mine], td_errors[mine])


def _sequences(replay: object) -> DrawnSequences:
    assert isinstance(replay, DrawnSequences), "all sources draw sequences"
    return replay

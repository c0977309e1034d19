"""The contract of replay buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vedette_rl.core import Columns, ReplayBuffer, row_dtype
from vedette_rl.errors import EmptyReplayError

Insert = Callable[[Columns], None]

NUMBERED = row_dtype([("number", np.dtype(np.int64), ()), ("pair", np.dtype(np.float32), (2,))])
"""A row that holds its own number, twice."""


def numbered(begin: int, end: int) -> Columns:
    """Rows `begin` to `end` of `NUMBERED`."""
    numbers = np.arange(begin, end)
    return {"number": numbers, "pair": np.stack([numbers, -numbers], 1).astype(np.float32)}


class ReplayBufferContract:
    """A mixin of tests; give it your buffer and how rows get into it::

        class TestMyReplay(ReplayBufferContract):
            def make_replay(self, capacity: int) -> tuple[ReplayBuffer, Insert]: ...

    It holds rows of `NUMBERED`.
    """

    capacity = 64

    def make_replay(self, capacity: int) -> tuple[ReplayBuffer, Insert]:
        """A new buffer, and what makes rows drawable from it."""
        raise NotImplementedError

    def filled(self, rows: int) -> ReplayBuffer:
        """A buffer into which `rows` rows went, a few at a time."""
        replay, insert = self.make_replay(self.capacity)
        for begin in range(0, rows, 10):
            insert(numbered(begin, min(begin + 10, rows)))
        return replay

    def test_it_is_a_replay_buffer(self) -> None:
        assert isinstance(self.make_replay(self.capacity)[0], ReplayBuffer)

    def test_nothing_can_be_drawn_from_an_empty_one(self) -> None:
        replay, _ = self.make_replay(self.capacity)
        assert (len(replay), replay.inserted) == (0, 0)
        try:
            replay.sample(1)
        except EmptyReplayError:
            return
        raise AssertionError("an empty replay gave a sample")

    def test_it_counts_what_was_inserted_and_what_it_holds(self) -> None:
        assert (len(self.filled(25)), self.filled(25).inserted) == (25, 25)
        replay = self.filled(3 * self.capacity)
        assert replay.inserted == 3 * self.capacity
        assert 0 < len(replay) <= self.capacity

    def test_a_sample_holds_the_rows_that_its_indices_name(self) -> None:
        for rows in (1, 25, self.capacity, 3 * self.capacity + 7):
            replay = self.filled(rows)
            for _ in range(5):
                sample = replay.sample(32)
                numbers = sample.columns["number"]
                np.testing.assert_array_equal(numbers, sample.indices)
                np.testing.assert_array_equal(sample.columns["pair"][:, 0], numbers)
                np.testing.assert_array_equal(sample.columns["pair"][:, 1], -numbers)
                assert numbers.min() >= replay.inserted - len(replay)
                assert numbers.max() < replay.inserted

    def test_every_row_can_be_drawn(self) -> None:
        replay = self.filled(2 * self.capacity)
        drawn = {int(i) for _ in range(100) for i in replay.sample(64).indices}
        assert drawn == set(range(replay.inserted - len(replay), replay.inserted))

    def test_weights_are_none_or_up_to_one(self) -> None:
        weights = self.filled(50).sample(32).weights
        if weights is not None:
            assert weights.shape == (32,)
            assert weights.dtype == np.float32
            assert ((weights > 0) & (weights <= 1)).all()

    def test_priorities_may_be_told_of_any_row_drawn_before(self) -> None:
        replay, insert = self.make_replay(self.capacity)
        insert(numbered(0, 30))
        indices = replay.sample(32).indices.copy()
        insert(numbered(30, 60))
        insert(numbered(60, 90))
        insert(numbered(90, 120))
        replay.update_priority(indices, np.full(32, 1000.0, np.float32))  # overwritten by now
        sample = replay.sample(64)
        assert sample.indices.min() >= replay.inserted - len(replay)

"""Which rows follow one another, against a search over all rows that there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_sequences import (
    BURN_IN,
    STEPS,
    Model,
    Row,
    histories,
    insert,
    new_ring,
    plays,
    steps_from,
)

from vedette_rl.replay.sequences import SequenceIndex, Windows


class Replayed:
    """A ring, an index that follows it, and the model of both."""

    def __init__(self, capacity: int, steps: int = STEPS, burn_in: int = BURN_IN) -> None:
        self.ring = new_ring(capacity)
        self.model = Model(steps, burn_in)
        self.index = SequenceIndex(self.ring, steps, burn_in)
        self.order: list[int] = []
        """Complete beginnings, in the order in which they became so."""

    def insert(self, *rows: Row) -> None:
        insert(self.ring, rows)
        self.model.rows += rows

    def look(self) -> None:
        """Have the index follow, and take over what it says."""
        oldest, inserted = self.ring.live()
        changes = self.index.follow(oldest, inserted)
        assert changes is not None, "no row is overwritten while it is read"
        incomplete = changes.incomplete.tolist()
        assert set(incomplete) <= set(self.order), "only what was complete ceases to be"
        assert all(oldest <= number < inserted for number in incomplete)
        self.order = [n for n in self.order if n >= oldest and n not in incomplete]
        completed = changes.completed.tolist()
        assert not set(self.order) & set(completed), "each is completed once"
        self.order += completed

    def check(self) -> None:
        """Check all that the index says against the model."""
        oldest, inserted = self.ring.live()
        complete = self.model.complete(oldest, inserted)
        live = np.arange(oldest, inserted)
        assert self.index.complete_rows == len(complete)
        assert live[self.index.is_complete(live)].tolist() == sorted(complete)
        assert self.order == sorted(complete, key=lambda n: (complete[n][1], n))
        if not complete:
            return
        numbers = np.array(self.order)
        windows = self.index.expand(numbers)
        for row, number in enumerate(self.order):
            burned = self.model.burned(number, oldest, inserted)
            expected = burned + complete[number][0]
            padding = [expected[-1]] * (self.model.steps + self.model.burn_in - len(expected))
            assert windows.numbers[row].tolist() == expected + padding
            assert windows.burned[row] == len(burned)
            assert windows.learned[row] == len(complete[number][0])


def numbers_of(windows: Windows) -> list[list[int]]:
    return windows.numbers.tolist()


# By example


def test_sequences_begin_at_every_row_from_which_there_are_enough() -> None:
    played = Replayed(20)
    played.insert(*steps_from(0, 5))
    played.look()
    played.check()
    assert played.order == [0, 1, 2]
    assert numbers_of(played.index.expand(np.array([0, 2]))) == [[0, 1, 2, 2, 2], [0, 1, 2, 3, 4]]
    played.insert(*steps_from(5, 1))
    played.look()
    assert played.order == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["flagged", "begun"])
def test_at_an_episodes_end_sequences_are_shorter_and_none_goes_across(how: str) -> None:
    played = Replayed(20)
    last = Row((0, 0, 0), 2, ended=how == "flagged")
    played.insert(*steps_from(0, 2), last)
    played.look()
    assert played.order == ([0, 1, 2] if how == "flagged" else [0])
    played.insert(Row((0, 0, 0), 3, begins=True), *steps_from(4, 2))
    played.look()
    played.check()
    assert played.order == [0, 1, 2, 3]
    windows = played.index.expand(np.array([2, 3]))
    assert (windows.learned.tolist(), windows.burned.tolist()) == ([1, 3], [2, 0])


def test_nothing_begins_where_what_follows_is_lost() -> None:
    played = Replayed(20)
    played.insert(*steps_from(0, 4), *steps_from(5, 4))
    played.look()
    played.check()
    assert played.order == [0, 1, 4, 5]


def test_a_batch_that_comes_late_completes_what_waited_for_it() -> None:
    played = Replayed(20)
    played.insert(*steps_from(0, 2), *steps_from(3, 2))
    played.look()
    assert played.order == []
    played.insert(*steps_from(2, 1))
    played.look()
    played.check()
    assert played.order == [0, 1, 4]


def test_a_window_dies_with_its_oldest_row_whichever_step_that_is() -> None:
    played = Replayed(6)
    played.insert(*steps_from(2, 1), *steps_from(0, 2))
    played.look()
    assert played.order == [1]
    played.insert(*steps_from(0, 4, (9, 9, 9)))
    played.look()
    played.check()
    assert 1 not in played.order


def test_a_window_dies_with_the_row_that_proved_its_end() -> None:
    played = Replayed(6)
    played.insert(Row((0, 0, 0), 1, begins=True), *steps_from(0, 1))
    played.look()
    assert played.order == [1]
    played.insert(*steps_from(0, 5, (9, 9, 9)))
    played.look()
    played.check()
    assert 1 not in played.order


def test_rows_of_two_streams_are_not_neighbours() -> None:
    played = Replayed(20)
    for stream in ((0, 0, 1), (0, 1, 0), (1, 0, 0)):
        played.insert(*steps_from(stream[2], 1, stream))
    played.insert(*steps_from(2**32, 3), *steps_from(2**33, 2))
    played.look()
    played.check()
    assert played.order == [3]


def test_nothing_behind_the_look_is_taken_in() -> None:
    played = Replayed(20)
    played.insert(*steps_from(0, 5))
    assert played.index.follow(0, 2).completed.tolist() == []
    assert played.index.follow(0, 4).completed.tolist() == [0, 1]
    assert played.index.follow(0, 5).completed.tolist() == [2]


def test_what_ended_streams_had_is_dropped() -> None:
    played = Replayed(8)
    for stream in range(100):
        played.insert(*steps_from(0, 2, (0, 0, stream)))
        played.look()
    assert len(played.index._streams) <= 12


# By property


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(histories(), plays()),
    st.lists(st.booleans(), min_size=30, max_size=30),
    st.sampled_from([4, 7, 12, 60]),
    st.sampled_from([(1, 0), (2, 1), (3, 2), (5, 0)]),
)
def test_any_looks_give_what_a_search_over_the_live_rows_gives(
    batches: list[list[Row]], looks: list[bool], capacity: int, form: tuple[int, int]
) -> None:
    steps, burn_in = form
    played = Replayed(capacity, steps, burn_in)
    for rows, look in zip(batches, looks, strict=False):
        played.insert(*rows)
        if look:
            played.look()
            played.check()
    played.look()
    played.check()


@settings(max_examples=200, deadline=None)
@given(st.one_of(histories(), plays()), st.integers(0, 60), st.integers(0, 60))
def test_an_index_made_anew_of_the_live_rows_has_what_one_has_that_followed(
    batches: list[list[Row]], seen: int, lost: int
) -> None:
    played = Replayed(12)
    for rows in batches:
        played.insert(*rows)
        played.look()
    oldest, inserted = played.ring.live()
    floor = min(oldest + lost % 5, inserted)  # a recovery raised it
    again = SequenceIndex(played.ring, STEPS, BURN_IN)
    first = again.follow(floor, max(floor, min(seen, inserted)))
    then = again.follow(floor, inserted)
    played.ring.floor = floor
    played.look()
    played.check()
    order = [n for n in first.completed.tolist() if n not in set(then.incomplete.tolist())]
    assert order + then.completed.tolist() == played.order
    live = np.arange(floor, inserted)
    np.testing.assert_array_equal(again.is_complete(live), played.index.is_complete(live))

"""Rows in a ring: what is appended, where it lies, and what is refused."""

from typing import Any

import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, rows
from hypothesis import given
from hypothesis import strategies as st

from vedette_rl.replay.rows import MemoryRing, default_guard, live_places


def live(ring: MemoryRing) -> np.ndarray[Any, Any]:
    return np.arange(max(0, ring.inserted - ring.capacity), ring.inserted)


def assert_live_rows(ring: MemoryRing) -> None:
    physical_rows = len(ring.columns["action"])
    places = live(ring) % physical_rows
    assert_rows({name: column[places] for name, column in ring.columns.items()}, live(ring))


@given(
    capacity=st.integers(1, 40),
    guard=st.integers(1, 20),
    batches=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40),
)
def test_live_rows_stay_whole_whatever_is_appended(
    capacity: int, guard: int, batches: list[tuple[int, bool]]
) -> None:
    ring = MemoryRing(DTYPE, capacity, guard=guard)
    for count, commit in batches:
        count = min(count, ring.room)
        ring.append(rows(ring.inserted + ring.pending, count), count)
        assert_live_rows(ring)
        if commit:
            ring.commit()
            assert_live_rows(ring)


@given(
    capacity=st.integers(1, 40),
    guard=st.integers(1, 20),
    appended=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=20),
)
def test_batches_appended_at_once_lie_where_one_after_the_other_would(
    capacity: int, guard: int, appended: list[tuple[int, int]]
) -> None:
    ring = MemoryRing(DTYPE, capacity, guard=guard)
    for batches, count in appended:
        batches = min(batches, ring.room // count)
        columns = rows(ring.inserted + ring.pending, batches * count)
        stacked = {
            name: column.reshape(batches, count, *column.shape[1:])
            for name, column in columns.items()
        }
        ring.append_batches(stacked, batches, count)
        assert_live_rows(ring)
        ring.commit()
        assert_live_rows(ring)


def test_a_column_of_stacked_batches_may_be_one_number_a_batch() -> None:
    ring = MemoryRing(np.dtype([("x", "f4", (2,)), ("actor", "i4")]), 10, guard=7)
    for _ in range(4):
        x = np.zeros((2, 3, 2), np.float32)
        ring.append_batches({"x": x, "actor": np.array([1, 2], np.int32)}, 2, 3)
        ring.commit()
    assert ring.columns["actor"][:7].tolist() == [2, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    "columns",
    [
        {"x": np.zeros((2, 3), np.float32)},
        {"x": np.zeros((2, 3), np.float64), "actor": np.zeros(2, np.int32)},
        {"x": np.zeros((2, 4), np.float32), "actor": np.zeros(2, np.int32)},
        {"x": np.zeros((2, 3), np.float32), "actor": np.zeros(3, np.int32)},
        {"x": np.zeros((2, 3), np.float32), "other": np.zeros(2, np.int32)},
    ],
    ids=["missing", "dtype", "rows", "batches", "name"],
)
def test_stacked_batches_that_do_not_fit_are_refused_and_none_is_appended(
    columns: dict[str, np.ndarray[Any, Any]],
) -> None:
    ring = MemoryRing(np.dtype([("x", "f4"), ("actor", "i4")]), 10, guard=6)
    with pytest.raises(ValueError, match="column"):
        ring.append_batches(columns, 2, 3)
    with pytest.raises(ValueError, match="9 rows are appended where 6 fit"):
        ring.append_batches({"x": np.zeros((3, 3), "f4"), "actor": np.zeros(3, "i4")}, 3, 3)
    assert ring.pending == 0


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 30))
def test_live_places_are_the_live_rows_oldest_first(
    inserted: int, capacity: int, guard: int
) -> None:
    physical_rows = capacity + guard
    places = np.arange(physical_rows)
    pieces = [places[piece] for piece in live_places(inserted, capacity, physical_rows)]
    expected = np.arange(max(0, inserted - capacity), inserted) % physical_rows
    np.testing.assert_array_equal(np.concatenate(pieces), expected)


def test_rows_are_seen_only_after_the_commit() -> None:
    ring = MemoryRing(DTYPE, 10)
    ring.append(rows(0, 4), 4)
    assert (ring.inserted, ring.pending) == (0, 4)
    ring.commit(b"four")
    assert (ring.inserted, ring.pending, ring.stamp) == (4, 0, b"four")


def test_one_number_fills_a_column_also_where_it_wraps() -> None:
    ring = MemoryRing(DTYPE, 10, guard=4)
    for number in range(5):
        columns = {**rows(0, 3), "version": number, "reward": np.float32(0.5)}
        ring.append(columns, 3)
        ring.commit()
        places = np.arange(number * 3, number * 3 + 3) % 14
        assert ring.columns["version"][places].tolist() == [number] * 3
        assert ring.columns["reward"][places].tolist() == [0.5] * 3


def test_more_rows_than_the_guard_are_refused() -> None:
    ring = MemoryRing(DTYPE, 10, guard=5)
    ring.append(rows(0, 3), 3)
    with pytest.raises(ValueError, match="3 rows are appended where 2 fit before a commit"):
        ring.append(rows(3, 3), 3)
    assert ring.pending == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reward": None}, "columns .* are appended where"),
        ({"extra": np.zeros(4)}, "columns .* are appended where"),
        ({"reward": np.zeros(4)}, r"'reward' is float64 \(4,\), not float32 \(4,\)"),
        ({"reward": np.zeros(1, np.float32)}, r"'reward' is float32 \(1,\)"),
        ({"reward": np.zeros((4, 1), np.float32)}, r"'reward' is float32 \(4, 1\)"),
        ({"obs/place": np.zeros((4, 1), np.float32)}, r"\(4, 1\), not float32 \(4, 3\)"),
    ],
)
def test_columns_that_do_not_fit_are_refused_and_nothing_is_appended(
    change: dict[str, Any], why: str
) -> None:
    ring = MemoryRing(DTYPE, 10)
    columns: dict[str, Any] = {**rows(0, 4), **change}
    with pytest.raises(ValueError, match=why):
        ring.append({name: column for name, column in columns.items() if column is not None}, 4)
    assert ring.pending == 0
    ring.append(rows(0, 4), 4)
    ring.commit()
    assert_live_rows(ring)


def test_gather_copies_the_columns_asked_for() -> None:
    ring = MemoryRing(DTYPE, 10)
    ring.append(rows(0, 10), 10)
    out = {"action": np.empty(3, np.int64)}
    ring.gather(np.array([7, 0, 7]), out)
    assert out["action"].tolist() == [7, 0, 7]


def test_the_guard_is_an_eighth_of_the_capacity_between_bounds() -> None:
    assert default_guard(100, 50) == 4096
    assert default_guard(100_000, 50) == 12_500
    assert default_guard(10_000_000, 50) == 65_536
    assert default_guard(1_000_000, 56_448) == 4096

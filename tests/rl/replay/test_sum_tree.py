"""The sum tree, against sums made the slow way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vedette_rl.replay import sum_tree
from vedette_rl.replay.sum_tree import JoinedTrees, SumTree, padded


def assert_sums(tree: SumTree) -> None:
    for lower, upper in zip(tree.levels, tree.levels[1:], strict=False):
        sums = lower.reshape(-1, sum_tree.WIDTH).sum(1)
        np.testing.assert_allclose(upper[: len(sums)], sums, rtol=1e-12)
        assert not upper[len(sums) :].any()


@pytest.mark.parametrize("capacity", [1, 64, 8192, 8193, 100_000, 1_000_000])
def test_shares_fall_on_the_places_that_own_them(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    leaves = np.zeros(padded(capacity))
    leaves[:capacity] = rng.random(capacity) * (rng.random(capacity) < 0.7)
    leaves[0] = 1.0
    tree = SumTree(leaves)
    assert_sums(tree)
    ends = np.cumsum(leaves)
    assert tree.total == pytest.approx(ends[-1])
    shares = rng.random(1500) * tree.total  # more than one matmul takes
    found, masses = tree.find(shares / tree.total)
    expected = ends.searchsorted(shares, side="right")
    np.testing.assert_array_equal(masses, leaves[found])
    differ = found != expected  # only where a share lies on a border, up to rounding
    assert (np.abs(ends[np.minimum(found, expected)] - shares)[differ] < 1e-9 * tree.total).all()
    assert differ.sum() < 5
    assert (leaves[found] > 0).all()


def test_a_place_of_no_mass_is_never_found() -> None:
    leaves = np.zeros(padded(200_000))
    chosen = np.array([0, 17, 63, 64, 4096, 99_999, 199_999])
    leaves[chosen] = [1e-12, 1.0, 1e6, 3e-7, 0.1, 1e6, 1e-12]
    tree = SumTree(leaves)
    shares = np.concatenate([np.linspace(0.0, tree.total, 5000), np.cumsum(leaves[chosen])])
    found, _ = tree.find(np.minimum(shares / tree.total, 1.0))
    assert np.isin(found, chosen).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 300), st.floats(0.0, 1e6)), max_size=12
    )
)
def test_sums_stay_right_whatever_is_set(changes: list[tuple[int, int, float]]) -> None:
    tree = SumTree(np.zeros(padded(20_300)))
    expected = np.zeros(len(tree.leaves))
    for begin, count, mass in changes:
        tree.fill(begin, begin + count, mass)
        expected[begin : begin + count] = mass
        places = np.array([begin, (begin * 7) % 20_300, begin])
        tree.set(places, np.array([1.0, mass, 2.0]))
        expected[places] = [1.0, mass, 2.0]
        np.testing.assert_array_equal(tree.leaves, expected)
        assert_sums(tree)


def test_setting_most_of_the_leaves_at_once_is_right_too() -> None:
    tree = SumTree(np.zeros(padded(20_000)))
    tree.set(np.arange(20_000), np.arange(20_000, dtype=np.float64))
    assert_sums(tree)
    assert tree.total == pytest.approx(20_000 * 19_999 / 2)


def test_the_bytes_foretold_are_those_taken() -> None:
    tree = SumTree(np.zeros(padded(1_000_000)))
    assert sum(level.nbytes for level in tree.levels) == pytest.approx(
        sum_tree.tree_bytes(1_000_000), rel=0.02
    )


SIZES = (300, 20_300, 64)


def made(sizes: tuple[int, ...], scales: tuple[float, ...], seed: int = 0) -> list[SumTree]:
    rng = np.random.default_rng(seed)
    trees = []
    for size, scale in zip(sizes, scales, strict=True):
        leaves = np.zeros(padded(size))
        leaves[:size] = rng.random(size) * scale * (rng.random(size) < 0.7)
        leaves[size // 2] = scale
        trees.append(SumTree(leaves))
    return trees


@pytest.mark.parametrize("sizes", [SIZES, (64, 64, 64), (64, 200_000, 9000)])
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (1e-3, 2.0, 1.0), (1e-9, 1e9, 1.0)])
def test_joined_trees_are_searched_as_each_alone(
    sizes: tuple[int, ...], scales: tuple[float, ...]
) -> None:
    alone = made(sizes, scales)
    joined = JoinedTrees(made(sizes, scales))
    rng = np.random.default_rng(1)
    parts = ((0, slice(0, 40)), (1, slice(40, 90)), (2, slice(90, 700)))
    fractions = rng.random(700)
    fractions[[0, 40, 90]] = 0.0
    fractions[[39, 89, 699]] = 1.0
    places, masses = joined.find(fractions.copy(), parts)
    for number, rows in parts:
        found = places[rows] - joined.begins[number]
        expected, _ = alone[number].find(fractions[rows])
        leaves = alone[number].leaves
        np.testing.assert_array_equal(masses[rows], leaves[found])
        assert (masses[rows] > 0).all()
        ends = np.cumsum(leaves)
        differ = found != expected  # only where a fraction lies on a border, up to rounding
        border = ends[np.minimum(found, expected)] / ends[-1]
        assert (np.abs(border - fractions[rows])[differ] < 1e-8).all()
        assert differ.sum() < 3


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 299), st.floats(0.0, 1e6)), max_size=12)
)
def test_sums_of_joined_trees_stay_right_whatever_lies_between_their_leaves(
    changes: list[tuple[int, int, float]],
) -> None:
    stored: list[NDArray[np.float64]] = []

    def between_other_numbers(multiple: int) -> tuple[NDArray[np.float64], list[int]]:
        begins = []
        end = 0
        for size in SIZES:
            begins.append(end)
            end = -(-(end + padded(size) + 9) // multiple) * multiple
        leaves = np.full(begins[-1] + padded(SIZES[-1]), np.nan)
        for begin, size in zip(begins, SIZES, strict=True):
            stored.append(leaves[begin : begin + padded(size)])
            stored[-1].fill(0.0)
        return leaves, begins

    trees = [SumTree(np.zeros(padded(size))) for size in SIZES]
    joined = JoinedTrees(trees, between_other_numbers)
    expected = [np.zeros(len(leaves)) for leaves in stored]
    for number, place, mass in changes:
        trees[number].fill(place // 2, place // 2 + 9, mass)
        expected[number][place // 2 : place // 2 + 9] = mass
        where = np.array([place % 60, 7]), np.array([place % SIZES[1], 7, 7])
        places = np.concatenate([where[0] + joined.begins[0], where[1] + joined.begins[1]])
        masses = np.array([mass, 1.0, 2.0, mass, 3.0])
        joined.set(places, masses)
        for tree, at, new in zip(expected, where, (masses[:2], masses[2:]), strict=False):
            tree[at] = new
        assert not any(np.isnan(sums).any() for sums in joined._sums)
        for tree, leaves, own in zip(trees, stored, expected, strict=True):
            np.testing.assert_array_equal(leaves, own)
            np.testing.assert_array_equal(tree.leaves[: len(own)], own)
            assert_sums(tree)

"""The sum tree, against sums made the slow way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_rl.replay import prioritized as sum_tree
from vedette_rl.replay.prioritized import SumTree, padded


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

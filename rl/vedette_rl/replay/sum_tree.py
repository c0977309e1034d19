"""A sum tree in numpy: draws places in proportion to their masses.

A binary tree of 100,000 leaves is seventeen numpy calls deep. This one has `WIDTH` children a
node: going down a level reads the children of all nodes at once. A level of at most `TOP_MAX`
nodes has no parents: it is searched as it is. Sums are computed from the children and never
adjusted by differences, so no rounding error grows in them.

Letters: B places asked for at once, W = `WIDTH`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
TOP_MAX = 8192
LEAVES_MULTIPLE = 64  # of any width there may be, so that files of leaves outlive a change of it

MATMUL_ROWS = 512  # so few that no linear algebra library wakes its threads
BELOW_1 = 1.0 - 2.0**-52

SMALL = 2.0**-16
"""A tree whose sum is less of that of all joined trees is searched apart."""
BELOW_END = 1.0 - 2.0**-32  # so far below the end of any other that no rounding reaches it

# A product with this has the cumulative sums of each node's children, in a fifth of the time of
# `cumsum`; and one with that their sum. Children come first in it, then nodes: numpy is slow where
# the last axis is short.
_CUMULATIVE_WW = np.tril(np.ones((WIDTH, WIDTH)))
_SUM_W = np.ones(WIDTH)


def padded(capacity: int) -> int:
    """Leaves that a tree of `capacity` places has; those beyond are always 0."""
    return -(-capacity // LEAVES_MULTIPLE) * LEAVES_MULTIPLE


def tree_bytes(capacity: int) -> int:
    """Bytes of a tree with its leaves, within a few per cent."""
    return padded(capacity) * 8 * WIDTH // (WIDTH - 1)


class SumTree:
    """Masses by place, and the places that shares of their sum fall on.

    Args:
        leaves: the masses, float64, `padded`; used in place, so they can lie in a file.
    """

    def __init__(self, leaves: NDArray[np.float64]) -> None:
        assert len(leaves) % WIDTH == 0, "leaves are padded"
        self.levels = [leaves]
        while len(self.levels[-1]) > TOP_MAX:
            nodes = len(self.levels[-1]) // WIDTH
            last = nodes <= TOP_MAX
            self.levels.append(np.zeros(nodes if last else -(-nodes // WIDTH) * WIDTH))
        self._sum_up()

    def move(self, levels: Sequence[NDArray[np.float64]]) -> None:
        """Keep the masses, which lie in the first of these arrays, and their sums in the others,
        all zero, each of a node for at least every `WIDTH` of the one below."""
        self.levels = list(levels)
        self._sum_up()

    @property
    def leaves(self) -> NDArray[np.float64]:
        """The masses: to read. `set` and `fill` keep their sums right."""
        return self.levels[0]

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.levels[-1].sum())

    def sum_anew(self) -> None:
        """Compute all sums from the masses, so that they follow from these alone: the last digit of
        a sum depends on what computed it."""
        self._sum_up()

    def set(self, places: NDArray[np.int64], masses: NDArray[np.float64]) -> None:
        """Give places ``(B,)`` their masses ``(B,)``; of a place named twice the last counts."""
        self.levels[0][places] = masses
        for lower, upper in pairwise(self.levels):
            places = places // WIDTH
            nodes = lower.reshape(-1, WIDTH)
            if len(nodes) <= 2 * len(places):  # all of them are quicker
                np.add.reduce(nodes, 1, out=upper[: len(nodes)])
            else:
                upper[places] = _sum_rows(nodes.take(places, 0))

    def fill(self, begin: int, end: int, mass: float) -> None:
        """Give the places [begin, end) one mass."""
        if begin >= end:
            return
        self.levels[0][begin:end] = mass
        for lower, upper in pairwise(self.levels):
            begin, end = begin // WIDTH, -(-end // WIDTH)
            np.add.reduce(lower.reshape(-1, WIDTH)[begin:end], 1, out=upper[begin:end])

    def find(self, fractions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the places that fractions ``(B,)`` of the sum fall on; none of mass 0.

        A place owns as much of [0, 1), in the order of the places, as its mass is of the sum.

        Returns:
            the places, and their masses.
        """
        rest = np.empty(len(fractions))
        nodes = self.find_top(fractions, rest)
        if len(self.levels) == 1:
            return nodes, self.leaves.take(nodes)
        for level in self.levels[-2:0:-1]:
            nodes = _descend(level.reshape(-1, WIDTH), nodes, rest)
        nodes, _ = _fall(self.leaves.reshape(-1, WIDTH).take(nodes, 0), nodes, rest)
        return nodes, self.leaves.take(nodes)

    def find_top(
        self, fractions: NDArray[np.float64], rest: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The nodes of the highest level that fractions of the sum fall on; `rest` becomes what is
        left for their children, and `summed` the sum."""
        begins = self._begins
        np.cumsum(self.levels[-1], out=begins[1:])
        self.summed = float(begins[-1])
        # Below the sum by a digit: there, no node's part ends.
        np.multiply(fractions, self.summed * BELOW_1, out=rest)
        nodes: NDArray[np.int64] = begins[1:].searchsorted(rest, side="right")
        rest -= begins.take(nodes)
        return nodes

    def _sum_up(self) -> None:
        for lower, upper in pairwise(self.levels):
            sums = lower.reshape(-1, WIDTH).sum(1)
            upper[: len(sums)] = sums
        self._begins = np.zeros(len(self.levels[-1]) + 1)  # of the top's nodes, and the sum of all
        self.summed = self.total


Leaves = Callable[[int], tuple[NDArray[np.float64], list[int]]]
"""The masses of several trees as one array, and where each tree's begin: at multiples of what it is
called with. What lies between them may be anything."""


class JoinedTrees:
    """Several trees whose levels lie one behind the other, in common arrays.

    So places of all of them are found, and set, with one call a level. Each remains a tree of its
    own. Parts of a batch are given as `(number of the tree, rows of the batch)`, in order.

    Args:
        trees: their sums move into the common arrays.
        leaves: the leaves of these trees, as they are; None: they move to memory.
    """

    def __init__(self, trees: Sequence[SumTree], leaves: Leaves | None = None) -> None:
        height = max(1, *(len(tree.levels) - 1 for tree in trees))
        masses, self.begins = (leaves or partial(_copy_leaves, trees))(WIDTH**height)
        """`begins` is added to the places of each tree, where places are of all of them."""
        spans = [WIDTH**above for above in range(height, -1, -1)]
        top = -(-len(masses) // spans[0])
        tops = [begin // spans[0] for begin in self.begins] + [top]
        self._tops = np.array(tops, np.int64)
        levels = [masses, *(np.zeros(top * span) for span in spans[1:])]
        self._levels = [level.reshape(-1, WIDTH) for level in levels[:-1]]
        self._leaves = masses
        self._sums = levels[1:]
        self._trees = trees
        self._begins = np.zeros(top + 1)
        for tree, first, begin in zip(trees, self.begins, tops, strict=False):
            levels_of_tree = [masses[first : first + len(tree.leaves)]]
            count = len(tree.leaves)
            for level, span in zip(levels[1:], spans[1:], strict=True):  # its nodes, and no others
                count = -(-count // WIDTH)
                count += -count % WIDTH if span > 1 else 0
                levels_of_tree.append(level[begin * span : begin * span + count])
            tree.move(levels_of_tree)

    def find(
        self, fractions: NDArray[np.float64], parts: Sequence[tuple[int, slice]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The places in all trees that fractions of the sum of each part's tree fall on, and their
        masses; the fractions are overwritten."""
        rest = fractions
        nodes = self._find_tops(rest, parts)
        for level in self._levels[:0:-1]:
            nodes = _descend(level, nodes, rest)
        nodes, _ = _fall(self._levels[0].take(nodes, 0), nodes, rest)
        return nodes, self._leaves.take(nodes)

    def _find_tops(
        self, rest: NDArray[np.float64], parts: Sequence[tuple[int, slice]]
    ) -> NDArray[np.int64]:
        """Find the top nodes of all trees, as `SumTree.find_top` does for one.

        It takes one cumulative sum and one search; fractions become the rest for the children.
        """
        begins = self._begins
        np.cumsum(self._sums[-1], out=begins[1:])
        borders: list[float] = begins.take(self._tops).tolist()
        sums = [borders[number + 1] - borders[number] for number, _ in parts]
        if min(sums) < borders[-1] * SMALL:  # digits of it are lost in a sum with the others
            nodes = np.empty(len(rest), np.int64)
            for number, rows in parts:
                tops = self._trees[number].find_top(rest[rows], rest[rows])
                np.add(tops, self._tops[number], out=nodes[rows])
            return nodes
        for (number, rows), summed in zip(parts, sums, strict=True):
            self._trees[number].summed = summed
            rest_of_tree = rest[rows]
            rest_of_tree *= summed * BELOW_END
            rest_of_tree += borders[number]
        nodes = begins[1:].searchsorted(rest, side="right")
        rest -= begins.take(nodes)
        return nodes

    def set(self, places: NDArray[np.int64], masses: NDArray[np.float64]) -> None:
        """Give places in all trees their masses; of a place named twice the last counts."""
        self._leaves[places] = masses
        for lower, upper in zip(self._levels, self._sums, strict=True):
            places = places // WIDTH
            upper[places] = _sum_rows(lower.take(places, 0))


def _copy_leaves(trees: Sequence[SumTree], span: int) -> tuple[NDArray[np.float64], list[int]]:
    """The masses of trees, one behind the other in memory: see `Leaves`."""
    begins = np.cumsum([0, *(-(-len(tree.leaves) // span) * span for tree in trees)]).tolist()
    masses = np.zeros(begins[-1])
    for tree, begin in zip(trees, begins, strict=False):
        masses[begin : begin + len(tree.leaves)] = tree.leaves
    return masses, begins[:-1]


def _sum_rows(masses_BW: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(masses_BW) <= MATMUL_ROWS:
        return masses_BW @ _SUM_W
    sums: NDArray[np.float64] = np.add.reduce(masses_BW, 1)
    return sums


def _descend(
    level: NDArray[np.float64], parents: NDArray[np.int64], rest: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The child of each parent that `rest` falls on, which becomes what is left for that child."""
    nodes, ends_WB = _fall(level.take(parents, 0), parents, rest)
    chosen = nodes % WIDTH
    chosen *= len(rest)
    chosen += np.arange(len(rest))
    rest -= ends_WB.ravel().take(chosen)
    rest += level.ravel().take(nodes)
    np.maximum(rest, 0.0, out=rest)
    return nodes


def _fall(
    masses_BW: NDArray[np.float64], parents: NDArray[np.int64], rest: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The children that `rest` falls on, and where each child of a parent ends ``(W, B)``."""
    masses_WB = masses_BW.T
    ends_WB = np.empty(masses_WB.shape)
    for begin in range(0, len(rest), MATMUL_ROWS):
        some = slice(begin, begin + MATMUL_ROWS)
        np.matmul(_CUMULATIVE_WW, masses_WB[:, some], out=ends_WB[:, some])
    np.minimum(rest, ends_WB[-1] * BELOW_1, out=rest)
    child_B: NDArray[np.int64] = np.add.reduce(
        (ends_WB <= rest).view(np.int8), 0, dtype=np.int8
    ).astype(np.int64)
    child_B += parents * WIDTH
    return child_B, ends_WB

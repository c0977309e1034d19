"""A sum tree in numpy: draws places in proportion to their masses.

A binary tree of 100,000 leaves is seventeen numpy calls deep. This one has `WIDTH` children a
node: going down a level reads the children of all nodes at once. A level of at most `TOP_MAX`
nodes has no parents: it is searched as it is. Sums are made anew from the children and never
adjusted by differences, so no rounding error grows in them.

Letters: B places asked for at once, W = `WIDTH`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self.stored: NDArray[np.float64] | None = None  # None: the leaves are
        self._sum_up()

    def move(self, levels: Sequence[NDArray[np.float64]]) -> None:
        """Keep the masses and their sums in these arrays, all zero, each of a node for at least
        every `WIDTH` of the one below. What is set is written to the leaves of before, too."""
        before, self.levels = self.levels[0], list(levels)
        self.levels[0][: len(before)] = before
        self.stored = before
        self._sum_up()

    @property
    def leaves(self) -> NDArray[np.float64]:
        """The masses: to read. `set` and `fill` keep their sums right."""
        return self.levels[0]

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self.levels[-1].sum())

    def set(self, places: NDArray[np.int64], masses: NDArray[np.float64]) -> None:
        """Give places ``(B,)`` their masses ``(B,)``; of a place named twice the last counts."""
        self.levels[0][places] = masses
        if self.stored is not None:
            self.stored[places] = masses
        for lower, upper in pairwise(self.levels):
            places = places // WIDTH
            _sum_children(lower.reshape(-1, WIDTH), places, upper)

    def fill(self, begin: int, end: int, mass: float) -> None:
        """Give the places [begin, end) one mass."""
        if begin >= end:
            return
        self.levels[0][begin:end] = mass
        if self.stored is not None:
            self.stored[begin:end] = mass
        for lower, upper in pairwise(self.levels):
            begin, end = begin // WIDTH, -(-end // WIDTH)
            np.add.reduce(lower.reshape(-1, WIDTH)[begin:end], 1, out=upper[begin:end])

    def find(self, fractions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The places that fractions ``(B,)`` of the sum fall on, from [0, 1]; none of mass 0.

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


class JoinedTrees:
    """Several trees whose levels lie one behind the other, in common arrays.

    So places of all of them are found, and set, with one call a level. Each remains a tree of its
    own. Parts of a batch are given as `(number of the tree, rows of the batch)`, in order.

    Args:
        trees: they move into the common arrays.
    """

    def __init__(self, trees: Sequence[SumTree]) -> None:
        height = max(1, *(len(tree.levels) - 1 for tree in trees))
        sizes = [-(-len(tree.leaves) // WIDTH**height) for tree in trees]
        tops = np.cumsum([0, *sizes]).tolist()
        spans = [WIDTH**above for above in range(height, -1, -1)]
        levels = [np.zeros(tops[-1] * span) for span in spans]  # the leaves first
        self._levels = [level.reshape(-1, WIDTH) for level in levels[:-1]]
        self._sums, self._trees, self._tops = levels[1:], trees, tops
        for tree, (begin, end) in zip(trees, pairwise(tops), strict=True):
            parts = zip(levels, spans, strict=True)
            tree.move([level[begin * span : end * span] for level, span in parts])
        self._leaves, self._begins = levels[0], np.zeros(tops[-1] + 1)
        self.begins = [top * spans[0] for top in tops[:-1]]
        """What is added to the places of each tree, where places are of all of them."""

    def find(
        self, fractions: NDArray[np.float64], parts: Sequence[tuple[int, slice]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The places in all trees that fractions of the sum of each part's tree fall on, and their
        masses."""
        rest = np.empty(len(fractions))
        nodes = self._find_tops(fractions, rest, parts)
        for level in self._levels[:0:-1]:
            nodes = _descend(level, nodes, rest)
        nodes, _ = _fall(self._levels[0].take(nodes, 0), nodes, rest)
        return nodes, self._leaves.take(nodes)

    def _find_tops(
        self,
        fractions: NDArray[np.float64],
        rest: NDArray[np.float64],
        parts: Sequence[tuple[int, slice]],
    ) -> NDArray[np.int64]:
        """As `SumTree.find_top`, of all trees, with one cumulative sum and one search."""
        begins, tops = self._begins, self._tops
        np.cumsum(self._sums[-1], out=begins[1:])
        least = float(begins[-1]) * SMALL
        for number, rows in parts:
            begin = float(begins[tops[number]])
            summed = float(begins[tops[number + 1]]) - begin
            if summed < least:  # digits of it are lost in a sum with the others
                break
            self._trees[number].summed = summed
            np.multiply(fractions[rows], summed * BELOW_END, out=rest[rows])
            rest[rows] += begin
        else:
            nodes: NDArray[np.int64] = begins[1:].searchsorted(rest, side="right")
            rest -= begins.take(nodes)
            return nodes
        nodes = np.empty(len(rest), np.int64)
        for number, rows in parts:
            found = self._trees[number].find_top(fractions[rows], rest[rows])
            np.add(found, tops[number], out=nodes[rows])
        return nodes

    def set(
        self,
        places: NDArray[np.int64],
        masses: NDArray[np.float64],
        parts: Sequence[tuple[int, slice]],
    ) -> None:
        """Give places in all trees their masses; of a place named twice the last counts."""
        self._leaves[places] = masses
        for number, rows in parts:
            stored = self._trees[number].stored
            assert stored is not None, "the tree has moved"
            stored[places[rows] - self.begins[number]] = masses[rows]
        for lower, upper in zip(self._levels, self._sums, strict=True):
            places = places // WIDTH
            _sum_children(lower, places, upper)


def _sum_children(
    nodes: NDArray[np.float64], places: NDArray[np.int64], sums: NDArray[np.float64]
) -> None:
    """Sum the children ``(nodes, W)`` of the nodes at `places`, or of all where that is quicker."""
    if len(nodes) <= 2 * len(places):
        np.add.reduce(nodes, 1, out=sums[: len(nodes)])
    else:
        sums[places] = _sum_rows(nodes.take(places, 0))


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

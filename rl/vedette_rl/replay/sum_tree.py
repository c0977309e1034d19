"""A sum tree in numpy: draws places in proportion to their masses.

A binary tree of 100,000 leaves is seventeen numpy calls deep. This one has `WIDTH` children a node:
going down a level reads the children of all nodes at once. A level of at most `TOP_MAX`
nodes has no parents: it is searched as it is. Sums are made anew from the children and
never adjusted by differences, so no rounding error grows in them.

Letters: B places asked for at once, W = `WIDTH`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
TOP_MAX = 8192
LEAVES_MULTIPLE = 64  # of any width there may be, so that files of leaves outlive a change of it

MATMUL_ROWS = 512  # so few that no linear algebra library wakes its threads
BELOW_1 = 1.0 - 2.0**-52

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
        for lower, upper in pairwise(self.levels):
            sums = lower.reshape(-1, WIDTH).sum(1)
            upper[: len(sums)] = sums
        self._begins = np.zeros(len(self.levels[-1]) + 1)  # of the top's nodes, and the sum of all

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
        for lower, upper in pairwise(self.levels):
            nodes = lower.reshape(-1, WIDTH)
            places = places // WIDTH
            if len(nodes) <= 2 * len(places):
                np.add.reduce(nodes, 1, out=upper[: len(nodes)])
            elif len(places) <= MATMUL_ROWS:
                upper[places] = nodes.take(places, 0) @ _SUM_W
            else:
                upper[places] = np.add.reduce(nodes.take(places, 0), 1)

    def fill(self, begin: int, end: int, mass: float) -> None:
        """Give the places [begin, end) one mass."""
        if begin >= end:
            return
        self.levels[0][begin:end] = mass
        for lower, upper in pairwise(self.levels):
            begin, end = begin // WIDTH, -(-end // WIDTH)
            np.add.reduce(lower.reshape(-1, WIDTH)[begin:end], 1, out=upper[begin:end])

    def find(self, fractions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The places that fractions ``(B,)`` of the sum fall on, from [0, 1]; none of mass 0.

        A place owns as much of [0, 1), in the order of the places, as its mass is of the sum.

        Returns:
            the places, and their masses.
        """
        begins = self._begins
        np.cumsum(self.levels[-1], out=begins[1:])
        # Below the sum by a digit: there, no node's part ends.
        rest = fractions * (begins[-1] * BELOW_1)
        nodes: NDArray[np.int64] = begins[1:].searchsorted(rest, side="right")
        rest -= begins.take(nodes)
        for depth in range(len(self.levels) - 2, -1, -1):
            nodes = _descend(self.levels[depth].reshape(-1, WIDTH), nodes, rest, last=depth == 0)
        return nodes, self.levels[0].take(nodes)


def _descend(
    level: NDArray[np.float64],
    parents: NDArray[np.int64],
    rest: NDArray[np.float64],
    *,
    last: bool,
) -> NDArray[np.int64]:
    """The child of each parent that `rest` falls on. `rest` becomes what is left for that child,
    unless this is the last level."""
    masses_WB = level.take(parents, 0).T
    ends_WB = np.empty(masses_WB.shape)
    for begin in range(0, len(rest), MATMUL_ROWS):
        nodes = slice(begin, begin + MATMUL_ROWS)
        np.matmul(_CUMULATIVE_WW, masses_WB[:, nodes], out=ends_WB[:, nodes])
    np.minimum(rest, ends_WB[-1] * BELOW_1, out=rest)
    child_B: NDArray[np.int64] = np.add.reduce(
        (ends_WB <= rest).view(np.int8), 0, dtype=np.int8
    ).astype(np.int64)
    if not last:
        chosen = child_B * len(rest)
        chosen += np.arange(len(rest))
        rest -= ends_WB.ravel().take(chosen)
        rest += level.ravel().take(parents * WIDTH + child_B)
        np.maximum(rest, 0.0, out=rest)
    child_B += parents * WIDTH
    return child_B

"""A sum tree in numpy: draws places in proportion to their masses.

A binary tree of 100,000 leaves is seventeen numpy calls deep. This one has `WIDTH` children a node:
going down a level is one look at the children of all nodes at once. A level of at most `TOP_MAX`
nodes has no parents: it is searched as it is. Sums are made anew from the children and
never adjusted by differences, so no rounding error grows in them.

Letters: B places asked for at once, W = `WIDTH`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
TOP_MAX = 8192
LEAVES_MULTIPLE = 64  # of any width there may be, so that files of leaves outlive a change of it

MATMUL_ROWS = 512  # so few that no linear algebra library wakes its threads
BELOW_1 = 1.0 - 2.0**-52

# A product with this is the cumulative sum of each row, in a fifth of the time of `cumsum(1)`.
_CUMULATIVE = np.triu(np.ones((WIDTH, WIDTH)))


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
        for lower, upper in zip(self.levels, self.levels[1:], strict=False):
            sums = lower.reshape(-1, WIDTH).sum(1)
            upper[: len(sums)] = sums

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
        for lower, upper in zip(self.levels, self.levels[1:], strict=False):
            nodes = lower.reshape(-1, WIDTH)
            places = places // WIDTH
            if len(nodes) <= 2 * len(places):
                np.add.reduce(nodes, 1, out=upper[: len(nodes)])
            else:
                upper[places] = np.add.reduce(nodes.take(places, 0), 1)

    def fill(self, begin: int, end: int, mass: float) -> None:
        """Give the places [begin, end) one mass."""
        if begin >= end:
            return
        self.levels[0][begin:end] = mass
        for lower, upper in zip(self.levels, self.levels[1:], strict=False):
            begin, end = begin // WIDTH, -(-end // WIDTH)
            np.add.reduce(lower.reshape(-1, WIDTH)[begin:end], 1, out=upper[begin:end])

    def find(self, fractions: NDArray[np.float64]) -> NDArray[np.int64]:
        """The places that fractions ``(B,)`` of the sum fall on, from [0, 1); none of mass 0.

        A place owns as much of [0, 1), in the order of the places, as its mass is of the sum.
        """
        ends = np.cumsum(self.levels[-1])
        # Sums of the same masses in another order differ in the last digits: stay inside.
        rest = np.minimum(fractions, BELOW_1)
        rest *= ends[-1]
        nodes: NDArray[np.int64] = ends.searchsorted(rest, side="right")
        if len(self.levels) > 1:
            rest -= ends.take(nodes)
            rest += self.levels[-1].take(nodes)
        for level in self.levels[-2::-1]:
            nodes, rest = _descend(level.reshape(-1, WIDTH), nodes, rest)
        return nodes


def _descend(
    level: NDArray[np.float64], parents: NDArray[np.int64], rest: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which child of each parent `rest` falls on, and what of it is left for that child."""
    masses_BW = level.take(parents, 0)
    ends_BW = np.empty_like(masses_BW)
    for begin in range(0, len(rest), MATMUL_ROWS):
        rows = slice(begin, begin + MATMUL_ROWS)
        np.matmul(masses_BW[rows], _CUMULATIVE, out=ends_BW[rows])
    np.minimum(rest, ends_BW[:, -1] * BELOW_1, out=rest)
    np.maximum(rest, 0.0, out=rest)
    child_B = (ends_BW > rest[:, None]).argmax(1)
    chosen = np.arange(0, masses_BW.size, WIDTH)
    chosen += child_B
    rest -= ends_BW.ravel().take(chosen)
    rest += masses_BW.ravel().take(chosen)
    child_B += parents * WIDTH
    return child_B, rest

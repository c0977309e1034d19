"""Prioritized replay, proportional variant (Schaul et al. 2016, https://arxiv.org/abs/1511.05952).

A row of priority ``p_i = |td_error_i| + priority_epsilon`` is drawn with probability
``P(i) = p_i**alpha / sum_k p_k**alpha`` (their equation 1), one row from each of `batch_size` equal
shares of the sum (stratified, their appendix B.2.1). Its importance weight is
``(N P(i))**-beta / max_j w_j`` with the largest weight of the batch (section 3.4), beta rising
linearly. A row not drawn yet has the largest priority ever seen, so that it is soon; or, if the
configuration says so, the one of the column `TD_ERROR` that its actor gave it (Ape-X, Horgan et al.
2018, https://arxiv.org/abs/1803.00933, algorithm 1).

The trainer that draws owns the priorities. They lie in a file beside the ring's columns, row ``i``
at place ``i % capacity``, and so survive it.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import Sample, State
from vedette_rl.errors import EmptyReplayError
from vedette_rl.replay import ring_files
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.rows import Rows, live_places, ring_places
from vedette_rl.replay.syncing import PRIORITIES
from vedette_rl.replay.uniform import DrawnRows

TD_ERROR = "td_error"
"""The column of |TD errors| that actors compute, where initial priorities are theirs."""

_SEEN, _MAX_PRIORITY, _ALPHA = range(3)
_HEAD = 8  # numbers before the masses


class PrioritizedReplay(DrawnRows):
    """Draws rows by their last |TD error|, while a writer goes on inserting.

    Args:
        rows: a `RingReader` or a `MemoryRing`.
        rng: draws.
        config: alpha, the schedule of beta, priority_epsilon.
        memory: where the priorities lie, from `open_priorities`; None: in memory only.
    """

    def __init__(
        self,
        rows: Rows,
        rng: np.random.Generator,
        config: ReplayConfig,
        *,
        memory: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(rows, rng, config)
        memory = np.zeros(_HEAD + padded(rows.capacity)) if memory is None else memory
        self._head, masses = memory[:_HEAD], memory[_HEAD:]
        _adopt(self._head, masses, config.alpha, rows.inserted)
        self._tree = SumTree(masses)
        self._strata = np.empty(0)
        self._last: tuple[NDArray[Any], NDArray[np.int64]] = self._strata, np.empty(0, np.int64)
        self.draws = 0
        """Batches drawn, by which beta rises."""
        self._dropped = 0  # rows below have no mass, even where they lie

    @property
    def beta(self) -> float:
        """The exponent of the next sample's importance weights."""
        config = self.config
        done = min(1.0, self.draws / config.beta_steps)
        return config.beta_0 + (config.beta_final - config.beta_0) * done

    def sample(self, batch_size: int) -> Sample:
        columns = self.buffers(batch_size)
        numbers, masses = self.draw_into(columns, batch_size)
        # N and the sum of masses cancel out of ``(N P)**-beta`` over its largest
        weights = importance_weights(masses, self.beta)
        self.draws += 1
        return Sample(columns, numbers, weights)

    def draw_into(
        self, columns: Columns, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw `count` rows into `columns`, which have as many; return their numbers and masses."""
        seen = self.add_new_rows()
        if seen == self._dropped:  # no row is live
            raise EmptyReplayError
        if len(self._strata) != count:
            self._strata = np.arange(count) / count
        fractions = self.rng.random(count)
        fractions /= count
        fractions += self._strata
        places, masses = self._tree.find(fractions)
        numbers = self._numbers(places, seen)
        self.gather_into(numbers, columns)
        if self.rows.inserted > seen and self.rows.live()[0]:  # the writer has gone on meanwhile
            redrawn = self.redraw_stale(numbers, columns)
            if len(redrawn):
                # Drawn uniformly, and weighted as the new rows that they mostly are.
                self.add_new_rows()
                places = ring_places(numbers, self.rows.capacity)
                masses = self._tree.leaves.take(places)
                # A row may have died since: it is whole, and has no mass any more.
                masses[masses == 0.0] = masses.max() or 1.0
        self._last = numbers, places
        return numbers, masses

    @property
    def mean_mass(self) -> float:
        """The sum of all masses over N, the rows that have one: N P is a row's mass over it."""
        seen = int(self._head[_SEEN])
        return self._tree.total / (seen - max(self._dropped, seen - self.rows.capacity))

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the |TD errors| ``(B,)`` of rows drawn before; overwritten ones are skipped.

        Raises:
            ValueError: an error is not finite: one would spoil every later draw.
        """
        priorities = np.abs(td_errors, dtype=np.float64)
        priorities += self.config.priority_epsilon
        if not len(priorities):
            return
        highest = float(priorities.max())
        if not math.isfinite(highest):
            raise ValueError("a TD error is not finite: the agent has diverged")
        self.add_new_rows()
        oldest, _ = self.rows.live()
        self._head[_MAX_PRIORITY] = max(float(self._head[_MAX_PRIORITY]), highest)
        drawn, places = self._last
        if indices is not drawn:  # mostly it is the sample drawn last, whose places are known
            places = ring_places(np.asarray(indices), self.rows.capacity)
        masses = priorities**self.config.alpha
        if int(indices.min()) < oldest:
            live = indices >= oldest
            places, masses = places[live], masses[live]
        self._tree.set(places, masses)

    def add_new_rows(self) -> int:
        """Give rows inserted since the last call their first priority, and overwritten ones none;
        return `inserted`.

        `sample` and `update_priority` do so first: no other caller needs to.
        """
        seen, (oldest, inserted) = int(self._head[_SEEN]), self.rows.live()
        capacity = self.rows.capacity
        if inserted > seen:
            self._give_priorities(max(seen, inserted - capacity), inserted)
            # Last: a kill before it has the same rows seen again.
            self._head[_SEEN] = inserted
        if oldest > inserted - capacity and oldest > self._dropped:
            first = max(self._dropped, inserted - capacity, 0)
            for piece in live_places(oldest, oldest - first, capacity):
                self._tree.fill(piece.start, piece.stop, 0.0)
            self._dropped = oldest
        return inserted

    def stats(self) -> dict[str, float]:
        """The current beta and the largest priority."""
        return {"beta": self.beta, "max_priority": float(self._head[_MAX_PRIORITY])}

    def get_state(self) -> State:
        """The generator and the schedule; the priorities are in their own file."""
        return {
            "rng": self.rng.bit_generator.state,
            "draws": self.draws,
            "max_priority": float(self._head[_MAX_PRIORITY]),
        }

    def set_state(self, state: State) -> None:
        """Draw on from `state`; from a uniform replay's with the schedule's beginning."""
        self.rng.bit_generator.state = state["rng"]
        self.draws = int(state.get("draws", 0))
        highest = max(float(self._head[_MAX_PRIORITY]), float(state.get("max_priority", 0.0)))
        self._head[_MAX_PRIORITY] = highest

    def _give_priorities(self, first: int, end: int) -> None:
        """Give the rows [first, end) their first priorities."""
        capacity, alpha = self.rows.capacity, self.config.alpha
        if self.config.initial_priorities == "actor":
            numbers = np.arange(first, end)
            td_errors = self.rows.columns[TD_ERROR]
            priorities = np.abs(td_errors[numbers % len(td_errors)], dtype=np.float64)
            priorities += self.config.priority_epsilon
            self._tree.set(numbers % capacity, priorities**alpha)
            return
        mass = float(self._head[_MAX_PRIORITY]) ** alpha
        for piece in live_places(end, end - first, capacity):
            self._tree.fill(piece.start, piece.stop, mass)

    def _numbers(self, places: NDArray[np.int64], seen: int) -> NDArray[np.int64]:
        """The rows at these places, ascending ones: the newest that were seen there."""
        behind = seen % self.rows.capacity
        numbers = places + (seen - behind - self.rows.capacity)
        numbers[: places.searchsorted(behind)] += self.rows.capacity  # they are in order
        return numbers


def importance_weights(relative: NDArray[np.float64], beta: float) -> NDArray[np.float32]:
    """``p**-beta`` over the largest of the batch, of numbers in proportion to N P."""
    weights: NDArray[np.float64] = relative / relative.min()
    weights **= -beta
    return weights.astype(np.float32)


def open_priorities(ring: RingReader) -> NDArray[np.float64]:
    """The priorities of a replay on disk: its own where it has them, else new ones.

    Raises:
        ReplayFormatError: the file is torn, or another replay's.
        ReplayBudgetError: the disk has no room.
    """
    path, uid = ring.directory / PRIORITIES, ring.manifest.uid
    dtype, shape = np.dtype("<f8"), (_HEAD + padded(ring.capacity),)
    if not path.exists():
        ring_files.make_array(path, uid, dtype, shape)
    array, _ = ring_files.map_array(path, uid, dtype, shape, writable=True)
    return array


def _adopt(
    head: NDArray[np.float64], masses: NDArray[np.float64], alpha: float, inserted: int
) -> None:
    """Take over priorities as they are found, of an older trainer or all zero."""
    if head[_SEEN] > inserted:  # of rows that the ring does not have: begin anew
        head[_SEEN] = 0
        masses[:] = 0
    if not head[_SEEN]:
        head[_MAX_PRIORITY], head[_ALPHA] = 1.0, alpha
    elif head[_ALPHA] != alpha:
        # Masses are p**alpha; where the old alpha was 0 they say nothing about p.
        seen, head[_SEEN] = float(head[_SEEN]), 0  # a kill in between: all rows count as new
        taken = masses > 0
        masses[taken] **= alpha / head[_ALPHA] if head[_ALPHA] else 0.0
        head[_ALPHA] = alpha
        head[_SEEN] = seen


# A sum tree in numpy: draws places in proportion to their masses.
#
# A binary tree of 100,000 leaves is seventeen numpy calls deep. This one has `WIDTH` children a
# node: going down a level reads the children of all nodes at once. A level of at most `TOP_MAX`
# nodes has no parents: it is searched as it is. Sums are made anew from the children and never
# adjusted by differences, so no rounding error grows in them.
#
# Letters: B places asked for at once, W = `WIDTH`.

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

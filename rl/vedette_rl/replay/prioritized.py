"""Prioritized replay, proportional variant (Schaul et al. 2016, https://arxiv.org/abs/1511.05952).

A row of priority ``p_i = |td_error_i| + priority_epsilon`` is drawn with probability
``P(i) = p_i**alpha / sum_k p_k**alpha`` (their equation 1), one row from each of `batch_size` equal
shares of the sum (stratified, their appendix B.2.1). Its importance weight is
``(N P(i))**-beta / max_j w_j`` with the largest weight of the batch (section 3.4), beta rising
linearly. A row not drawn yet has the largest priority ever seen, so that it is soon; or, if the
configuration says so, the one of the column `TD_ERROR` that its actor gave it (Ape-X, Horgan et al.
2018, https://arxiv.org/abs/1803.00933, algorithm 1).

The trainer that draws owns the priorities, row ``i`` at place ``i % capacity``. A checkpoint has
them, so that a run goes on with those of its checkpoint and not with those of steps that are lost.
A loop of one's own has no checkpoint of ours: its priorities lie in a file beside the ring's
columns (`open_priorities`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import Sample, State
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.replay import ring_files
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.rows import Rows, live_places, ring_places
from vedette_rl.replay.sum_tree import JoinedTrees, SumTree, padded
from vedette_rl.replay.syncing import PRIORITIES
from vedette_rl.replay.uniform import LOOKS_MAX, DrawnRows

TD_ERROR = "td_error"
"""The column of |TD errors| that actors compute, where initial priorities are theirs."""

_SEEN, _MAX_PRIORITY, _ALPHA, _SEQUENCE = range(4)
_HEAD = 8  # numbers before the masses

_TD_ERROR_MAX = 1e18
"""Beyond it a squared error is near the end of float32: no gradient of its row counts."""


class PrioritizedReplay(DrawnRows):
    """Draws rows by their last |TD error|, while a writer keeps inserting.

    Args:
        rows: a `RingReader` or a `MemoryRing`.
        rng: draws.
        config: alpha, the schedule of beta, priority_epsilon.
        memory: the priorities, from `open_priorities` or `read_priorities`; None: new ones.

    Attributes:
        goes_on: `set_state` was given the priorities of these rows.
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
        self._in_file = memory is not None and not memory.flags.owndata
        self.goes_on = False
        memory = np.zeros(_HEAD + padded(rows.capacity)) if memory is None else memory
        self._head = memory[:_HEAD]
        masses = memory[_HEAD:]
        _adopt(self._head, masses, config, self.live[1])
        self.tree = SumTree(masses)
        """The masses of the rows, by place."""
        self._strata = np.empty(0)
        self._last: tuple[NDArray[Any], NDArray[np.int64]] = self._strata, np.empty(0, np.int64)
        self.draws = 0
        """Batches drawn, by which beta rises."""
        self._dropped = 0  # rows below have no mass, even where they lie
        self._first_read = math.inf  # the oldest row whose priority this look read from the ring

    @property
    def beta(self) -> float:
        """The exponent of the next sample's importance weights."""
        config = self.config
        done = min(1.0, self.draws / config.beta_steps)
        return config.beta_0 + (config.beta_final - config.beta_0) * done

    def sample(self, batch_size: int) -> Sample:
        columns = self.buffers(batch_size)
        for _ in range(LOOKS_MAX):
            self.begin_draw()
            numbers, masses = self.draw_into(columns, batch_size)
            if self.is_whole(numbers):
                break
            self.drop_look(batch_size)
        else:
            raise ReplayOverrunError(self.rows.capacity, LOOKS_MAX)
        # N and the sum of masses cancel out of ``(N P)**-beta`` over its largest
        weights = importance_weights(masses, self.beta)
        self.draws += 1
        return Sample(columns, numbers, weights)

    def draw_into(
        self, columns: Columns, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw `count` of the rows `live` into `columns`, which have as many; return their numbers
        and masses. They are whole where `is_whole` says so afterwards."""
        seen = self.require_rows()
        if len(self._strata) != count:
            self._strata = np.arange(count) / count
        fractions = self.rng.random(count)
        fractions /= count
        fractions += self._strata
        places, masses = self.tree.find(fractions)
        self.renumber(numbers := places.copy(), seen)
        self.gather_into(numbers, columns)
        self._last = numbers, places
        return numbers, masses

    def is_whole(self, numbers: NDArray[np.int64], code: int = 0) -> bool:
        """As of its base; first priorities, too, may be read from the ring."""
        first = self._first_read
        # What was read of a row in doubt is gone at the next look: the row is dead then, and its
        # place a newer one's.
        self._first_read = math.inf
        if first < math.inf and self.rows.original.doubtful_below(self.live[1]) > first:
            return False
        return super().is_whole(numbers, code)

    def require_rows(self) -> int:
        """`add_new_rows`, where there must be rows to draw.

        Raises:
            EmptyReplayError: there are none.
        """
        seen = self.add_new_rows()
        if seen == self._dropped:  # no row is live
            raise EmptyReplayError
        return seen

    @property
    def weighed_rows(self) -> int:
        """The rows that have a mass."""
        seen = int(self._head[_SEEN])
        return seen - max(self._dropped, seen - self.rows.capacity)

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the |TD errors| ``(B,)`` of rows drawn before; overwritten ones are skipped."""
        priorities = priorities_of(td_errors, self.config.priority_epsilon)
        if not len(priorities):
            return
        self.raise_max_priority(float(priorities.max()))
        self.add_new_rows()
        drawn, places = self._last
        if indices is not drawn:  # mostly it is the sample drawn last, whose places are known
            places = ring_places(np.asarray(indices), self.rows.capacity)
        masses = priorities**self.config.alpha
        if (kept := self.can_be_drawn(indices)) is not None:
            places, masses = places[kept], masses[kept]
        self.tree.set(places, masses)

    def can_be_drawn(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """True where the row of a number ``(B,)`` can be drawn from this look; None if all can."""
        oldest, _ = self.live
        return None if int(numbers.min()) >= oldest else numbers >= oldest

    @property
    def seen(self) -> int:
        """The rows inserted by then that have had their first priority."""
        return int(self._head[_SEEN])

    @seen.setter
    def seen(self, inserted: int) -> None:
        self._head[_SEEN] = inserted

    @property
    def first_mass(self) -> float:
        """The mass of what was never drawn: of the largest priority so far."""
        mass: float = float(self._head[_MAX_PRIORITY]) ** self.config.alpha
        return mass

    def raise_max_priority(self, priority: float) -> None:
        """Give new rows at least this priority from now on.

        Raises:
            ValueError: it is not finite.
        """
        if priority <= self._head[_MAX_PRIORITY]:
            return
        if not math.isfinite(priority):
            raise ValueError("a TD error is not finite: the agent has diverged")
        self._head[_MAX_PRIORITY] = priority

    def add_new_rows(self) -> int:
        """Give rows of this look that no earlier one had their first priority, and overwritten ones
        none; return the rows inserted.

        `sample` and `update_priority` do so first: no other caller needs to.
        """
        seen = int(self._head[_SEEN])
        (oldest, inserted) = self.live
        capacity = self.rows.capacity
        if inserted > seen:
            self._give_priorities(max(seen, inserted - capacity), inserted)
            # Last: a kill before it has the same rows seen again.
            self._head[_SEEN] = inserted
        if oldest > inserted - capacity and oldest > self._dropped:
            first = max(self._dropped, inserted - capacity, 0)
            for piece in live_places(oldest, oldest - first, capacity):
                self.tree.fill(piece.start, piece.stop, 0.0)
            self._dropped = oldest
        return inserted

    def stats(self) -> dict[str, float]:
        """The current beta and the largest priority."""
        return {"beta": self.beta, "max_priority": float(self._head[_MAX_PRIORITY])}

    def get_state(self) -> State:
        """The generator, the schedule and, of rows that outlive the process, the priorities: a
        copy."""
        state = {
            "rng": self.rng.bit_generator.state,
            "draws": self.draws,
            "max_priority": float(self._head[_MAX_PRIORITY]),
        }
        if branch := self.rows.original.branch:
            self.tree.sum_anew()  # as the tree of who goes on from here
            state["branch"] = branch
            state["alpha"] = float(self._head[_ALPHA])
            state["seen"] = int(self._head[_SEEN])
            state["masses"] = self.tree.leaves[: self.rows.capacity].copy()
        return state

    def set_state(self, state: State) -> None:
        """Draw on from `state`; from a uniform replay's with the schedule's beginning.

        Where its priorities are of other rows, all rows are new.
        """
        self.rng.bit_generator.state = state["rng"]
        self.draws = int(state.get("draws", 0))
        if "masses" in state:
            self._set_priorities(state)
            return
        highest = max(float(self._head[_MAX_PRIORITY]), float(state.get("max_priority", 0.0)))
        self._head[_MAX_PRIORITY] = highest

    def _set_priorities(self, state: State) -> None:
        masses = self.tree.leaves
        same = self.rows.original.has_rows_of(state["branch"], state["seen"])
        self.goes_on = same and len(state["masses"]) == self.rows.capacity
        self._head[_SEEN] = 0
        masses.fill(0.0)
        if self.goes_on:
            masses[: self.rows.capacity] = state["masses"]
            self._head[_SEEN] = state["seen"]
        self._head[_MAX_PRIORITY] = state["max_priority"]
        self._head[_ALPHA] = state["alpha"]
        self._dropped = 0
        _change_alpha(self._head, masses, self.config.alpha)
        self.tree.sum_anew()

    def _give_priorities(self, first: int, end: int) -> None:
        """Give the rows [first, end) their first priorities."""
        capacity = self.rows.capacity
        alpha = self.config.alpha
        if self.config.initial_priorities == "actor":
            numbers = np.arange(first, end)
            self._first_read = min(self._first_read, first)
            td_errors = self.rows.columns[TD_ERROR]
            priorities = np.abs(td_errors[numbers % len(td_errors)], dtype=np.float64)
            priorities += self.config.priority_epsilon
            self.tree.set(numbers % capacity, priorities**alpha)
            return
        mass = self.first_mass
        for piece in live_places(end, end - first, capacity):
            self.tree.fill(piece.start, piece.stop, mass)

    def renumber(self, places: NDArray[np.int64], seen: int) -> None:
        """Turn places, ascending ones, into the numbers of the newest rows that were seen there."""
        behind = seen % self.rows.capacity
        split = int(places.searchsorted(behind))
        places += seen - behind - self.rows.capacity
        places[:split] += self.rows.capacity


def priorities_of(td_errors: NDArray[Any], epsilon: float) -> NDArray[np.float64]:
    """The priorities of TD errors ``(B,)``.

    One that is not finite, or whose square would not be in float32, is of a row from which nothing
    can be learned, and counts as 0: it would spoil every later draw.
    """
    priorities: NDArray[np.float64] = np.abs(td_errors, dtype=np.float64)
    priorities[~(priorities < _TD_ERROR_MAX)] = 0.0
    priorities += epsilon
    return priorities


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
    uid, (_, path, dtype, shape) = _priorities_file(ring)
    if not path.exists():
        ring_files.make_array(path, uid, dtype, shape)
    array, _ = ring_files.map_array(path, uid, dtype, shape, writable=True)
    return array


def read_priorities(ring: RingReader) -> NDArray[np.float64] | None:
    """A copy of the priorities of a replay on disk, for who saves them elsewhere from now on; None
    where it has none.

    Raises:
        ReplayFormatError: the file is torn, or another replay's.
    """
    uid, (_, path, dtype, shape) = _priorities_file(ring)
    if not path.exists():
        return None
    array, _ = ring_files.map_array(path, uid, dtype, shape, writable=False)
    return array.copy()


def _priorities_file(ring: RingReader) -> tuple[str, ring_files.ArrayFile]:
    """The replay's uid, and the file of its priorities."""
    shape = (_HEAD + padded(ring.capacity),)
    file = ring_files.ArrayFile(PRIORITIES, ring.directory / PRIORITIES, np.dtype("<f8"), shape)
    return ring.manifest.uid, file


def join_priorities(replays: Sequence[PrioritizedReplay]) -> JoinedTrees:
    """The masses of several replays as one tree: those in files are mapped one behind the other."""
    trees = [replay.tree for replay in replays]
    rings = [r.rows for r in replays if r._in_file and isinstance(r.rows, RingReader)]
    if not rings:
        return JoinedTrees(trees)
    assert len(rings) == len(replays), "the priorities of all are in files, or of none"
    files = [_priorities_file(ring) for ring in rings]

    def map_leaves(multiple: int) -> tuple[NDArray[np.float64], list[int]]:
        page = ring_files.ALIGNED_ROWS // files[0][1].dtype.itemsize
        lengths = [file.shape[0] for _, file in files]
        begins = ring_files.lay_behind(lengths, page, max(multiple, page))
        return ring_files.map_joined(files, begins, writable=True)[_HEAD:], begins

    return JoinedTrees(trees, map_leaves)


def _adopt(
    head: NDArray[np.float64], masses: NDArray[np.float64], config: ReplayConfig, inserted: int
) -> None:
    """Take over priorities as they are found, of an older trainer or all zero."""
    others = head[_SEQUENCE] != config.sequence  # of sequences of another length, or of rows
    if head[_SEEN] > inserted or others:  # or of rows that the ring does not have: begin again
        head[_SEEN] = 0
        masses[:] = 0
    head[_SEQUENCE] = config.sequence
    if not head[_SEEN]:
        head[_MAX_PRIORITY] = 1.0
        head[_ALPHA] = config.alpha
    else:
        _change_alpha(head, masses, config.alpha)


def _change_alpha(head: NDArray[np.float64], masses: NDArray[np.float64], alpha: float) -> None:
    """Have masses, which are p**alpha, be of this alpha; where the old one was 0 they say nothing
    about p."""
    if head[_ALPHA] != alpha:
        seen = float(head[_SEEN])
        head[_SEEN] = 0  # a kill before the end: masses are of both alphas, all rows count as new
        taken = masses > 0
        masses[taken] **= alpha / head[_ALPHA] if head[_ALPHA] else 0.0
        head[_ALPHA] = alpha
        head[_SEEN] = seen

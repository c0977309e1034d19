"""Replays that draw sequences of rows, uniformly or by priority.

A batch has B sequences of up to T steps to learn from, with up to N steps of burn-in before them.
Each is drawn by its beginning, of those that are complete (`vedette_rl.replay.sequences`)::

    obs, obs/KEY     (B, L + 1, ...)  L = N + T: of each row, and behind the last one its `next_obs`
    declared `first` (B, ...)         of the first row alone: a recurrent state, for example
    all others       (B, L, ...)      of each row
    burned           (B,) int64       rows of burn-in, 0 to N: fewer where the episode began
    length           (B,) int64       rows to learn from, 1 to T: fewer where the episode ended
    learned          (B, L) bool      True from `burned` on, for `length` rows

What lies behind the last row repeats it: it is there for the shape alone. The indices of a sample
are the numbers of the beginnings, and its weights and priorities are of whole sequences.

A beginning can be drawn once it is complete, and as long as all its rows are live. Which are, is a
function of the rows of the look; so is a draw, with one random number for each sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import BURNED, LEARNED, LENGTH, Columns, empty_columns, row_dtype
from vedette_rl.core.learning import State
from vedette_rl.errors import NoSequenceError, ReplayOverrunError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import STACKS, split_name
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import Rows, live_places, ring_places
from vedette_rl.replay.sequences import Changes, SequenceIndex
from vedette_rl.replay.sum_tree import SumTree, padded
from vedette_rl.replay.uniform import LOOKS_MAX, DrawnRows, UniformReplay

_WAITING_MAX = 256
"""Looks whose new beginnings are kept apart until their first priority is given."""


class DrawnSequences(DrawnRows):
    """Rows that sequences are drawn from, and the buffers for batches of them.

    Args:
        rows: a `RingReader`, or a `MemoryRing`, with the columns of `SEQUENCE_KEYS`.
        rng: draws.
        config: the replay's: steps of a sequence, and of its burn-in.
        first: the columns of which a sequence has the first row's value alone.

    Attributes:
        windows: the rows of the sequences drawn last.
    """

    def __init__(
        self,
        rows: Rows,
        rng: np.random.Generator,
        config: ReplayConfig,
        *,
        first: Iterable[str] = (),
        **further: Any,  # of the class that is beside this one
    ) -> None:
        self.first = frozenset(first)
        self._beginnings = new_index(rows, config)
        self._seen_oldest = 0
        super().__init__(rows, rng, config, **further)
        self.windows = self._beginnings.expand(np.empty(0, np.int64))

    @property
    def steps(self) -> int:
        """Steps of a whole sequence, its burn-in and what is learned from: L."""
        return self.config.burn_in + self.config.sequence

    @property
    def drawable(self) -> int:
        """Sequences that can be drawn from this look."""
        return self._beginnings.complete_rows

    def wait_reason(self) -> str:
        """The reason why none can be drawn from this look, as a sentence; "" if one can be."""
        if self.drawable:
            return ""
        size = self.live[1] - self.live[0]
        what = f"a whole sequence of {self.config.sequence:,} steps (replay.sequence)"
        reason = f"learner waits: none of {size:,} samples begins {what}"
        # As many environments play at once that none has so many steps here one after the other.
        is_full = self.live[1] - self.rows.floor >= self.rows.capacity
        return f"{reason}; raise replay.capacity" if is_full else reason

    def see(self) -> None:
        """Have what is drawn next see the rows that are there now, and the index follow them."""
        for _ in range(LOOKS_MAX):
            super().see()
            oldest, inserted = self.live
            changes = self._beginnings.follow(oldest, inserted)
            if changes is not None:
                self._change(self._seen_oldest, changes)
                self._seen_oldest = oldest
                return
            self.rows.hurry()
        raise ReplayOverrunError(self.rows.capacity, LOOKS_MAX)

    def _change(self, before: int, changes: Changes) -> None:
        """Take over what became of beginnings.

        Args:
            before: the oldest row of the look before.
        """
        raise NotImplementedError

    def use_rows(self, rows: Rows) -> None:
        rows.hurry()  # else a copy may have fewer rows than were seen
        super().use_rows(rows)
        self.see()

    def buffers(self, batch_size: int) -> Columns:
        if batch_size != self._buffer_rows:
            self._buffer_rows = batch_size
            self._columns = empty_columns(self.drawn_dtype, batch_size)
        return self._columns

    @property
    def drawn_dtype(self) -> np.dtype[Any]:
        """A sequence as it is drawn."""
        steps = self.steps
        fields = []
        row = self.rows.drawn_dtype
        for name in row.names or ():
            base, shape = row[name].base, row[name].shape
            part, _ = split_name(name)
            if part == STACKS[0]:
                fields.append((name, base, (steps + 1, *shape)))
            elif name in self.first:
                fields.append((name, base, shape))
            elif part != STACKS[1]:
                fields.append((name, base, (steps, *shape)))
        number = np.dtype(np.int64)
        fields += [(BURNED, number, ()), (LENGTH, number, ())]
        return row_dtype([*fields, (LEARNED, np.dtype(np.bool_), (steps,))])

    def gather_into(self, numbers: NDArray[np.int64], columns: Columns) -> None:
        """Copy the sequences that begin with these rows into `columns`, every column in it."""
        self.windows = windows = self._beginnings.expand(numbers)
        columns[BURNED][:] = windows.burned
        columns[LENGTH][:] = windows.learned
        columns[LEARNED][:] = windows.is_learned()
        of_rows: Columns = {}
        of_firsts: Columns = {}
        observations: Columns = {}
        for name, column in columns.items():
            part, suffix = split_name(name)
            if part == STACKS[0]:
                observations[suffix] = column.reshape(-1, *column.shape[2:])
            elif name in self.first:
                of_firsts[name] = column
            elif name not in (BURNED, LENGTH, LEARNED):
                of_rows[name] = column.reshape(-1, *column.shape[2:])
        rows = self.rows
        rows.gather(self._places_of(windows.numbers.reshape(-1)), of_rows)
        if of_firsts:
            rows.gather(self._places_of(windows.numbers[:, 0]), of_firsts)
        if observations:
            now, behind = STACKS
            of_obs = {now + suffix: column for suffix, column in observations.items()}
            rows.gather(self._places_of(windows.with_last().reshape(-1)), of_obs)
            following = {
                behind + suffix: np.empty((len(numbers), *column.shape[1:]), column.dtype)
                for suffix, column in observations.items()
            }
            rows.gather(self._places_of(windows.numbers[:, -1]), following)
            ends = windows.ends()
            for suffix, column in observations.items():
                column[ends] = following[behind + suffix]

    def _places_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return ring_places(numbers, self.physical_rows)

    def is_whole(self, numbers: NDArray[np.int64], code: int = 0) -> bool:
        """False if the writer may have overwritten some rows of the sequences drawn last while they
        were copied."""
        return super().is_whole(self.windows.numbers)


class UniformSequences(DrawnSequences, UniformReplay):
    """Draws sequences with replacement: every complete beginning is as likely as any other.

    Args:
        rows, rng, config, first: as `DrawnSequences` takes them.
    """

    def __init__(
        self,
        rows: Rows,
        rng: np.random.Generator,
        config: ReplayConfig,
        *,
        first: Iterable[str] = (),
    ) -> None:
        self._tree = SumTree(np.zeros(padded(rows.capacity)))  # 1 where a beginning is complete
        super().__init__(rows, rng, config, first=first)
        self.see()

    def _change(self, before: int, changes: Changes) -> None:
        capacity = self.rows.capacity
        clear_dead(self._tree, before, self.live[0], capacity)
        for numbers, mass in ((changes.incomplete, 0.0), (changes.completed, 1.0)):
            if len(numbers):
                self._tree.set(numbers % capacity, np.full(len(numbers), mass))

    def draw_into(self, columns: Columns, count: int) -> NDArray[np.int64]:
        if not self.drawable:
            raise NoSequenceError(self.config.sequence)
        numbers, _ = self._tree.find(self.rng.random(count))
        oldest, _ = self.live
        numbers += -(-(oldest - numbers) // self.rows.capacity) * self.rows.capacity
        self.gather_into(numbers, columns)
        return numbers


class PrioritizedSequences(DrawnSequences, PrioritizedReplay):
    """Draws sequences by their last TD error, of which an agent returns one for each.

    A beginning that was not drawn since it became complete has the largest priority ever seen.

    Args:
        rows, rng, config, first: as `DrawnSequences` takes them.
        memory: the priorities, as `PrioritizedReplay` takes them, by the place of the beginning.
    """

    def __init__(
        self,
        rows: Rows,
        rng: np.random.Generator,
        config: ReplayConfig,
        *,
        first: Iterable[str] = (),
        memory: NDArray[np.float64] | None = None,
    ) -> None:
        self._waiting: list[NDArray[np.int64]] = []  # beginnings without a priority yet
        super().__init__(rows, rng, config, first=first, memory=memory)
        self._go_on()

    def _change(self, before: int, changes: Changes) -> None:
        capacity = self.rows.capacity
        clear_dead(self.tree, before, self.live[0], capacity)
        if len(changes.incomplete):
            places = changes.incomplete % capacity
            self.tree.set(places, np.zeros(len(places)))
        if len(changes.completed):
            self._waiting.append(changes.completed)
            if len(self._waiting) > _WAITING_MAX:
                self._waiting = [np.unique(self._complete_of_waiting())]

    def _complete_of_waiting(self) -> NDArray[np.int64]:
        numbers = np.concatenate(self._waiting)
        numbers = numbers[numbers >= self.live[0]]
        return numbers[self._beginnings.is_complete(numbers)]

    def add_new_rows(self) -> int:
        """Give beginnings that are complete since the last call their first priority; return the
        rows inserted."""
        _, inserted = self.live
        if self._waiting:
            places = self._complete_of_waiting() % self.rows.capacity
            self._waiting = []
            self.tree.set(places, np.full(len(places), self.first_mass))
        self.seen = inserted
        return inserted

    def require_rows(self) -> int:
        """`add_new_rows`, where there must be a sequence to draw.

        Raises:
            NoSequenceError: none is complete.
        """
        seen = self.add_new_rows()
        if not self.drawable:
            raise NoSequenceError(self.config.sequence)
        return seen

    @property
    def weighed_rows(self) -> int:
        """The beginnings that have a mass."""
        return self.drawable

    def can_be_drawn(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        live = numbers >= self.live[0]
        live[live] = self._beginnings.is_complete(numbers[live])
        return None if live.all() else live

    def get_state(self) -> State:
        return {**super().get_state(), "sequence": self.config.sequence}

    def _set_priorities(self, state: State) -> None:
        if state.get("sequence", 0) != self.config.sequence:  # beginnings of others
            state = {**state, "masses": np.empty(0)}
        super()._set_priorities(state)
        self._go_on()

    def _go_on(self) -> None:
        """Begin with the priorities that there are: those of the beginnings that were complete when
        they were given. All others are new."""
        capacity = self.rows.capacity
        masses = self.tree.leaves
        seen = self.seen
        self._waiting = []
        for _ in range(LOOKS_MAX):
            index = new_index(self.rows, self.config)
            self.rows.hurry()
            DrawnRows.see(self)
            oldest, inserted = self.live
            if seen > oldest and index.follow(oldest, min(seen, inserted)) is None:
                continue
            # What dies until the index is at the look goes with it.
            live = np.arange(oldest, max(oldest, min(seen, inserted)))
            kept = live[index.is_complete(live)]
            after = index.follow(oldest, inserted)
            if after is not None:
                break
        else:
            raise ReplayOverrunError(capacity, LOOKS_MAX)
        before = masses[:capacity].copy()
        masses.fill(0.0)
        places = kept % capacity
        masses[places] = before[places]
        new = kept[before[places] == 0.0]
        self._beginnings = index
        self._seen_oldest = oldest
        masses[after.incomplete % capacity] = 0.0
        self.tree.sum_anew()
        self._waiting = [numbers for numbers in (new, after.completed) if len(numbers)]


def new_index(rows: Rows, config: ReplayConfig) -> SequenceIndex:
    """An index of the sequences in a ring, which has not followed yet; of a copy's, it is the
    ring's that reads."""
    return SequenceIndex(rows.original, config.sequence, config.burn_in)


def clear_dead(tree: SumTree, before: int, oldest: int, capacity: int) -> None:
    """Take the masses of rows below `oldest`; those below `before` have none."""
    for piece in live_places(oldest, min(oldest - before, capacity), capacity):
        tree.fill(piece.start, piece.stop, 0.0)

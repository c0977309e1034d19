"""Uniform replay: every live row is as likely as any other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.core.learning import ReplayBuffer, Sample, State, check_first_sample
from vedette_rl.core.protocols import implements, missing_members
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError, UnknownNameError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.replay.config import ACTORS, ReplayConfig
from vedette_rl.replay.rows import Rows, ring_places

LOOKS_MAX = 64
"""Of one draw: the writer may overwrite what is being copied, and then it is drawn anew."""

REDRAWS_MAX = 64
REDRAWS_UNIFORM = 4


class DrawnRows:
    """Rows that are drawn from, and the buffers for samples: the base of both replays.

    Args:
        rows: a `RingReader`, or a `MemoryRing`.
        rng: draws.
        config: the replay's, for subclasses that are named in it.
    """

    def __init__(
        self, rows: Rows, rng: np.random.Generator, config: ReplayConfig | None = None
    ) -> None:
        self.rows = rows
        self.rng = rng
        self.config = config or ReplayConfig()
        self.physical_rows = len(next(iter(rows.columns.values())))
        self._places = np.empty(0, np.int64)
        self._columns: Columns = {}
        self._buffer_rows = -1
        self.live = rows.live()
        """The rows that draws see: [oldest, inserted) of the last look."""
        self._has_looked = False
        self._doubted: list[tuple[int, ...]] = []  # the looks of this draw that were in doubt

    def __len__(self) -> int:
        return self.rows.size

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, overwritten ones too."""
        return self.rows.inserted

    def look(self) -> int:
        """Have the next sample see the rows that are there now, and no newer ones.

        Returns:
            the rows inserted that it sees.
        """
        self.see()
        self._has_looked = True
        return self.live[1]

    def begin_draw(self) -> None:
        """Look, unless that was done for this draw: what let it begin is what it sees."""
        if self._has_looked:
            self._has_looked = False
        else:
            self.see()

    def see(self) -> None:
        """Take the look that `look` and `begin_draw` ask for."""
        self.live = self.rows.look()

    @property
    def growing(self) -> dict[str, Rows]:
        """The rows that a look asks, by the name of their source."""
        return {ACTORS: self.rows}

    def drawn_looks(self) -> list[tuple[int, ...]]:
        """What the last sample saw, once: the rows inserted of each of `growing`. The last look is
        that of the batch; those before were dropped, as rows were in doubt."""
        looks = [*self._doubted, (self.live[1],)]
        self._doubted.clear()
        return looks

    def sample(self, batch_size: int) -> Sample:
        """Draw `batch_size` rows with replacement. The next call overwrites the columns.

        A subclass calls `begin_draw`, draws from the rows `live`, and then asks `is_whole`.

        Raises:
            EmptyReplayError: nothing has been inserted yet.
            ReplayOverrunError: rows are overwritten faster than they are copied.
        """
        raise NotImplementedError

    def gather(self, numbers: NDArray[np.int64]) -> Columns:
        """Copy the rows of these numbers to buffers, which are made once for a batch size."""
        columns = self.buffers(len(numbers))
        self.gather_into(numbers, columns)
        return columns

    def use_rows(self, rows: Rows) -> None:
        """Draw from these rows from now on: a copy of the same ones, or they again."""
        self.rows = rows
        self._columns = {}
        self._buffer_rows = -1
        self.live = rows.live()
        self._has_looked = False

    def buffers(self, batch_size: int) -> Columns:
        """The columns of a sample, which are made once for a batch size."""
        if batch_size != self._buffer_rows:
            self._buffer_rows = batch_size
            self._columns = empty_columns(self.rows.drawn_dtype, batch_size)
        return self._columns

    def use_buffers(self, columns: Columns) -> None:
        """Draw samples of this size into these columns from now on, whose memory may be pinned."""
        self._columns = columns
        self._buffer_rows = len(next(iter(columns.values())))

    def gather_into(self, numbers: NDArray[np.int64], columns: Columns) -> None:
        """Copy the rows of these numbers into `columns`, every column that is in it."""
        if len(numbers) != len(self._places):
            self._places = np.empty(len(numbers), np.int64)
        ring_places(numbers, self.physical_rows, self._places)
        self.rows.gather(self._places, columns)

    def is_whole(self, numbers: NDArray[np.int64], code: int = 0) -> bool:
        """False if the writer may have overwritten some of these rows while they were copied.

        It alone asks the cursor again.

        Args:
            numbers: the rows of this look that were copied, with `code` added.
        """
        oldest, seen = self.live
        below = self.rows.doubtful_below(seen)
        return below <= oldest or below <= int(numbers.min(initial=seen + code)) - code

    def drop_look(self, count: int) -> None:
        """Note that the last look was in doubt, and have the generator go back behind it."""
        self._doubted.append((self.live[1],))
        self.take_back(count)

    def take_back(self, count: int) -> None:
        """Have the generator give the last `count` random numbers again."""
        generator: Any = self.rng.bit_generator  # numpy's default has it, and no base class
        generator.advance(-count)

    def redraw_stale(self, numbers: NDArray[np.int64], columns: Columns) -> NDArray[np.int64]:
        """Draw again what the writer may have overwritten while it was copied.

        For a replay of one's own, and for ranks: `numbers` and `columns` are changed in place. New
        draws are uniform, unless that fails a few times.

        Returns:
            indices of the sample's rows that were drawn again: mostly none.

        Raises:
            ReplayOverrunError: the same happened to every new draw.
        """
        stale = self._overwritten(numbers)
        redrawn = stale
        for attempt in range(REDRAWS_MAX):
            if not len(stale):
                return redrawn
            oldest, inserted = self.rows.live()
            size = inserted - oldest
            if attempt >= REDRAWS_UNIFORM:
                # The writer outruns us: keep to newer and newer rows, which it needs longer to
                # reach.
                size = max(1, size >> (attempt - REDRAWS_UNIFORM + 1))
            numbers[stale] = draw(self.rng, inserted - size, inserted, len(stale))
            self._replace(columns, stale, numbers[stale])
            # Only what was copied just now is in doubt: the others were whole when they were.
            stale = stale[self._overwritten(numbers[stale])]
        raise ReplayOverrunError(self.rows.capacity, REDRAWS_MAX)

    def _overwritten(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of those of `numbers` that may have been overwritten by now."""
        below = self.rows.doubtful_below(self.rows.inserted)
        if int(numbers.min(initial=below)) >= below:
            return np.empty(0, np.int64)
        return np.flatnonzero(numbers < below)

    def _replace(self, columns: Columns, at: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Copy the rows of these numbers over the sample's rows `at`."""
        drawn = empty_columns(self.rows.drawn_dtype, len(at))
        self.rows.gather(numbers % self.physical_rows, drawn)
        for name, column in columns.items():
            column[at] = drawn[name]


class UniformReplay(DrawnRows):
    """Draws rows with replacement, while a writer keeps inserting."""

    def sample(self, batch_size: int) -> Sample:
        columns = self.buffers(batch_size)
        for _ in range(LOOKS_MAX):
            self.begin_draw()
            numbers = self.draw_into(columns, batch_size)
            if self.is_whole(numbers):
                return Sample(columns, numbers)
            self.drop_look(batch_size)
        raise ReplayOverrunError(self.rows.capacity, LOOKS_MAX)

    def draw_into(self, columns: Columns, count: int) -> NDArray[np.int64]:
        """Draw `count` of the rows `live` into `columns`, which have as many; return their numbers.

        They are whole where `is_whole` says so afterwards.
        """
        oldest, inserted = self.live
        if oldest == inserted:
            raise EmptyReplayError
        numbers = draw(self.rng, oldest, inserted, count)
        self.gather_into(numbers, columns)
        return numbers

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Nothing: every row is as likely as any other."""

    def get_state(self) -> State:
        """The generator; the rows are the ring's own."""
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Draw on from `state`."""
        self.rng.bit_generator.state = state["rng"]


def draw(rng: np.random.Generator, oldest: int, inserted: int, count: int) -> NDArray[np.int64]:
    """`count` numbers of [oldest, inserted), each as likely, up to 1 in 2**53 / their number.

    Scaled doubles: `Generator.integers` is exact and takes more than twice the time.
    """
    offsets = rng.random(count)
    offsets *= inserted - oldest
    numbers = offsets.astype(np.int64)
    numbers += oldest
    return numbers


def make_custom_replay(config: ReplayConfig, rows: Rows, rng: np.random.Generator) -> ReplayBuffer:
    """The replay that `replay.name` names, of these rows.

    Its first draw raises `CustomPartError` where it returns no sample of so many rows.

    Raises:
        UnknownNameError: there is none, or what is there is no `ReplayBuffer`.
    """
    kwargs = copy.deepcopy(config.kwargs)  # a constructor may change what it is given
    custom = import_by_name("replay.name", config.name)(rows, rng, config, **kwargs)
    if not implements(custom, ReplayBuffer):
        lacks = ", ".join(missing_members(custom, ReplayBuffer))
        raise UnknownNameError(
            "replay.name", config.name, f"it is no ReplayBuffer: it lacks {lacks}"
        )
    check_first_sample(config.name, custom)
    return custom

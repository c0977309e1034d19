"""Uniform replay: every live row is as likely as any other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.core.learning import ReplayBuffer, Sample, State, check_first_sample
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError, UnknownNameError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.rows import Rows, ring_places

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

    def __len__(self) -> int:
        return self.rows.size

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, overwritten ones too."""
        return self.rows.inserted

    def sample(self, batch_size: int) -> Sample:
        """Draw `batch_size` rows with replacement. The next call overwrites the columns.

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

    def redraw_stale(self, numbers: NDArray[np.int64], columns: Columns) -> NDArray[np.int64]:
        """Draw again what the writer may have overwritten while it was copied.

        That is every row that is no longer live now: after the copy, not before it. `numbers` and
        `columns` are changed in place. New draws are uniform, unless that fails a few times.

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
        oldest, _ = self.rows.live()
        if int(numbers.min(initial=oldest)) >= oldest:
            return np.empty(0, np.int64)
        return np.flatnonzero(numbers < oldest)

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
        return Sample(columns, self.draw_into(columns, batch_size))

    def draw_into(self, columns: Columns, count: int) -> NDArray[np.int64]:
        """Draw `count` rows into `columns`, which have as many; return their numbers."""
        oldest, inserted = self.rows.live()
        if oldest == inserted:
            raise EmptyReplayError
        numbers = draw(self.rng, oldest, inserted, count)
        self.gather_into(numbers, columns)
        if self.rows.live()[0] > oldest:  # the writer has gone on meanwhile
            self.redraw_stale(numbers, columns)
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
    custom = import_by_name("replay.name", config.name)(rows, rng, config, **config.kwargs)
    if not isinstance(custom, ReplayBuffer):
        raise UnknownNameError("replay.name", config.name, "it is no ReplayBuffer")
    check_first_sample(config.name, custom)
    return custom

"""Uniform replay: every live row is as likely as any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.core.learning import Sample, State
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.replay.rows import Rows, ring_places

REDRAWS_MAX = 64
REDRAWS_UNIFORM = 4


class DrawnRows:
    """Rows that are drawn from, and the buffers for samples: the base of both replays.

    Args:
        rows: a `RingReader`, or a `MemoryRing`.
        rng: draws.
        names: the columns that samples have; None: all.
    """

    def __init__(
        self, rows: Rows, rng: np.random.Generator, *, names: Iterable[str] | None = None
    ) -> None:
        self.rows, self._rng = rows, rng
        self._buffers = SampleBuffers(rows, names)

    def __len__(self) -> int:
        oldest, inserted = self.rows.live()
        return inserted - oldest

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, overwritten ones too."""
        return self.rows.inserted


class UniformReplay(DrawnRows):
    """Draws rows with replacement, while a writer goes on inserting."""

    def sample(self, batch_size: int, out: Columns | None = None) -> Sample:
        """Draw `batch_size` rows with replacement.

        Args:
            batch_size: how many.
            out: columns ``(batch_size, *shape)`` of the caller's, for example in pinned memory.
                None: the buffer's own, overwritten by the next call.

        Raises:
            EmptyReplayError: nothing has been inserted yet.
            ReplayOverrunError: rows are overwritten faster than they are copied.
        """
        oldest, inserted = self.rows.live()
        if not inserted:
            raise EmptyReplayError
        numbers = draw(self._rng, oldest, inserted, batch_size)
        columns = self._buffers.gather(numbers, out)
        if self.rows.live()[0] > oldest:  # the writer has gone on meanwhile
            redraw_stale(self.rows, self._buffers, numbers, columns, self._rng)
        return Sample(columns, numbers)

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Nothing: every row is as likely as any other."""

    def get_state(self) -> State:
        """The generator; the rows are the ring's own."""
        return {"rng": self._rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Draw on from `state`."""
        self._rng.bit_generator.state = state["rng"]


def draw(rng: np.random.Generator, oldest: int, inserted: int, count: int) -> NDArray[np.int64]:
    """`count` numbers of [oldest, inserted), each as likely, up to 1 in 2**53 / their number.

    Scaled doubles: `Generator.integers` is exact and takes more than twice the time.
    """
    offsets = rng.random(count)
    offsets *= inserted - oldest
    numbers = offsets.astype(np.int64)
    numbers += oldest
    return numbers


class SampleBuffers:
    """Buffers that samples are copied to, made once for a batch size."""

    def __init__(self, rows: Rows, names: Iterable[str] | None = None) -> None:
        self._rows = rows
        self._physical_rows = len(next(iter(rows.columns.values())))
        drawn = rows.drawn_dtype
        self._dtype = drawn if names is None else np.dtype([(n, drawn[n]) for n in names])
        self._places = np.empty(0, np.int64)
        self._columns: Columns = {}

    def gather(self, numbers: NDArray[np.int64], out: Columns | None) -> Columns:
        """Copy the rows of these numbers to `out`, or to a buffer of our own."""
        if len(numbers) != len(self._places):
            self._places = np.empty(len(numbers), np.int64)
            self._columns = empty_columns(self._dtype, len(numbers))
        ring_places(numbers, self._physical_rows, self._places)
        columns = self._columns if out is None else out
        self._rows.gather(self._places, columns)
        return columns

    def replace(self, columns: Columns, at: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Copy the rows of these numbers over the sample's rows `at`."""
        drawn: Columns = {
            name: np.empty((len(at), *column.shape[1:]), column.dtype)
            for name, column in columns.items()
        }
        self._rows.gather(numbers % self._physical_rows, drawn)
        for name, column in columns.items():
            column[at] = drawn[name]


def redraw_stale(
    rows: Rows,
    buffers: SampleBuffers,
    numbers: NDArray[np.int64],
    columns: Columns,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw again what the writer may have overwritten while it was copied.

    That is every row that is no longer live now: after the copy, not before it. `numbers` and
    `columns` are changed in place. New draws are uniform, unless that fails a few times.

    Returns:
        which of the sample were drawn again: mostly none.

    Raises:
        ReplayOverrunError: the same happened to every new draw.
    """
    stale = _overwritten(rows, numbers)
    redrawn = stale
    for attempt in range(REDRAWS_MAX):
        if not len(stale):
            return redrawn
        oldest, inserted = rows.live()
        size = inserted - oldest
        if attempt >= REDRAWS_UNIFORM:
            # The writer outruns us: keep to newer and newer rows, which it needs longer to reach.
            size = max(1, size >> (attempt - REDRAWS_UNIFORM + 1))
        numbers[stale] = draw(rng, inserted - size, inserted, len(stale))
        buffers.replace(columns, stale, numbers[stale])
        # Only what was copied just now is in doubt: the others were whole when they were.
        stale = stale[_overwritten(rows, numbers[stale])]
    raise ReplayOverrunError(rows.capacity, REDRAWS_MAX)


def _overwritten(rows: Rows, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of those of `numbers` that may have been overwritten by now."""
    oldest, _ = rows.live()
    if int(numbers.min(initial=oldest)) >= oldest:
        return np.empty(0, np.int64)
    return np.flatnonzero(numbers < oldest)

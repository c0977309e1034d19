"""Draws each batch from several sources: the actors' rows, and the named ones of a configuration.

A source has a share of every batch: of B rows its part is ``share * B`` rounded up or down, such
that every part is within one row of its share and, over T batches, within O(log T) of it. Inside a
source rows are drawn as its own replay draws them, uniformly or by priority.

**Importance weights.** What a mixed batch is meant to follow is q(i) = share_s / N_s for the N_s
rows i of source s: each source uniform, mixed by its share. By priority, a row is drawn with
P(i) = share_s p_i**alpha / sum_{k in s} p_k**alpha. So its weight is

    w_i = (q(i) / P(i))**beta = (N_s p_i**alpha / sum_{k in s} p_k**alpha)**-beta,

in which the share has cancelled out: inside each source it is Schaul et al.'s, section 3.4. It is
divided by the largest weight of the whole batch, not of each source, which would change the shares.
With beta = 1 the weighted mean over batches is the mean over q; with one source q is uniform, and
all of it is `PrioritizedReplay`.

Rows are told apart in a sample by the column ``source``, the number of a row's source: 0 for the
actors, then in the configuration's order. The same number is in the upper bits of the indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import SOURCE, Columns, empty_columns
from vedette_rl.core.learning import Sample, State
from vedette_rl.errors import EmptyReplayError
from vedette_rl.replay.prioritized import PrioritizedReplay, importance_weights
from vedette_rl.replay.ring import RingWriter, join_rings
from vedette_rl.replay.rows import Rows, ring_places
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.stored_settings import ScheduleConfig

NUMBER_BITS = 48
"""Bits of an index that are a row's number; those above are its source's."""

_GOLDEN = 0.6180339887498949
"""Its multiples modulo 1 are the most evenly spread of all."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source that batches are drawn from.

    Args:
        name: its name in the configuration.
        replay: draws its rows.
        share: its share of a batch, before sources without rows are left out.
        schedule: multiplies the share; None: it stays.
        grows: rows may still be inserted; else they are all there.
    """

    name: str
    replay: UniformReplay | PrioritizedReplay
    share: float
    schedule: ScheduleConfig | None = None
    grows: bool = False

    def share_at(self, step: float) -> float:
        """The share at an optimization step, counted from 1."""
        return self.share if self.schedule is None else self.share * self.schedule.factor(step)


class MixedReplay:
    """A `ReplayBuffer` over several sources; `inserted` counts the actors' rows alone.

    Args:
        actors: draws the actors' rows.
        others: the named sources, in their order.
        warmup: rows of actors before they take part.
    """

    def __init__(
        self,
        actors: UniformReplay | PrioritizedReplay,
        others: Sequence[Source],
        *,
        warmup: int = 1,
    ) -> None:
        self.actors = actors
        self._warmup = max(1, min(warmup, actors.rows.capacity))
        self._sources = (Source("actors", actors, 1.0, grows=True), *others)
        self._scheduled = any(source.schedule is not None for source in others)
        self._alone = self._ready = False
        self._empty = {source.name for source in self._sources if not len(source.replay)}
        self._draws = 0
        self._fixed = 0  # rows of a batch, while each such batch is split alike
        self._counts: tuple[int, ...] = ()
        self._columns: Columns = {}
        self._parts: list[_Part] = []
        self.shares: dict[str, float] = {}
        self._batches, self._drawn = 0, [0] * len(self._sources)  # since the last `stats`
        self._last: tuple[NDArray[np.int64], list[NDArray[np.int64]]] | None = None
        rings = [source.replay.rows for source in self._sources]
        self._joined = None if isinstance(actors, PrioritizedReplay) else join_rings(rings)

    def __len__(self) -> int:
        return sum(len(source.replay) for source in self._sources)

    @property
    def inserted(self) -> int:
        """Rows that actors have inserted since the run began, overwritten ones too."""
        return self.actors.inserted

    @property
    def actors_are_ready(self) -> bool:
        """True once there are as many rows of actors as are drawn from."""
        return len(self.actors) >= self._warmup

    @property
    def alone(self) -> bool:
        """Draw from the named sources alone, as long as one of them has rows."""
        return self._alone

    @alone.setter
    def alone(self, alone: bool) -> None:
        if alone != self._alone:
            self._alone, self._fixed = alone, 0

    def sample(self, batch_size: int) -> Sample:
        if batch_size != self._fixed:
            counts = self._split(batch_size)
            if counts != self._counts:
                self._lay_out(batch_size, counts)
        if isinstance(self.actors, PrioritizedReplay):
            sample = self._sample_by_priority(batch_size)
        elif self._joined is not None:
            sample = Sample(self._columns, self._draw_joined(self._joined[0], batch_size))
        else:
            indices = np.empty(batch_size, np.int64)
            for part in self._parts:
                assert isinstance(part.replay, UniformReplay), "all sources draw in the same way"
                numbers = part.replay.draw_into(part.columns, part.count)
                np.add(numbers, part.code, out=indices[part.rows])
            sample = Sample(self._columns, indices)
        self._batches += 1
        self._draws += 1
        return sample

    def _draw_joined(self, columns: Columns, batch_size: int) -> NDArray[np.int64]:
        """Draw uniformly from all sources with one call a column, as `UniformReplay` does."""
        for part in self._parts:
            if part.grows and (live := part.replay.rows.live()) != part.live:
                part.set_live(live)
        offsets = self.actors.rng.random(batch_size)
        offsets *= self._scale
        numbers = offsets.astype(np.int64)
        numbers += self._oldest
        for part in self._parts:
            if part.grows:
                places = ring_places(numbers[part.rows], part.physical_rows, part.places)
                if part.begin:
                    places += part.begin
            else:
                np.add(numbers[part.rows], part.begin, out=part.places)
        numbers += self._codes
        for name, column in columns.items():
            column.take(self._places, 0, self._columns[name], "clip")  # clip: see `Rows.gather`
        for part in self._parts:  # the writer may have gone on meanwhile
            if part.grows and part.replay.rows.live()[0] > part.live[0]:
                mine = numbers[part.rows] - part.code
                part.replay.redraw_stale(mine, part.columns)
                np.add(mine, part.code, out=numbers[part.rows])
        return numbers

    def _sample_by_priority(self, batch_size: int) -> Sample:
        assert isinstance(self.actors, PrioritizedReplay)
        indices, relative = np.empty(batch_size, np.int64), np.empty(batch_size)
        drawn = []
        for part in self._parts:
            assert isinstance(part.replay, PrioritizedReplay), "all sources draw in the same way"
            numbers, masses = part.replay.draw_into(part.columns, part.count)
            np.divide(masses, part.replay.mean_mass, out=relative[part.rows])
            np.add(numbers, part.code, out=indices[part.rows])
            drawn.append(numbers)
        self._last = indices, drawn
        self.actors.draws = self._draws
        return Sample(self._columns, indices, importance_weights(relative, self.actors.beta))

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the absolute TD errors ``(B,)`` of rows drawn before, each in its own source."""
        if not isinstance(self.actors, PrioritizedReplay):
            return
        if self._last is not None and indices is self._last[0]:  # mostly the sample drawn last
            for part, numbers in zip(self._parts, self._last[1], strict=True):
                part.replay.update_priority(numbers, td_errors[part.rows])
            return
        sources = np.asarray(indices) >> NUMBER_BITS  # ascending, as they were drawn
        ends = sources.searchsorted(np.arange(len(self._sources)), side="right").tolist()
        for number, (begin, end) in enumerate(pairwise([0, *ends])):
            if end > begin:
                numbers = indices[begin:end] - (number << NUMBER_BITS)
                self._sources[number].replay.update_priority(numbers, td_errors[begin:end])

    def sizes(self) -> dict[str, int]:
        """The rows of each source that may be drawn now."""
        return {source.name: len(source.replay) for source in self._sources}

    def stats(self) -> dict[str, float]:
        """The share of each source in the rows drawn since the last call, kept as `shares`."""
        self._count_drawn()
        if total := sum(self._drawn):
            names = [source.name for source in self._sources]
            self.shares = {n: d / total for n, d in zip(names, self._drawn, strict=True)}
        self._drawn = [0] * len(self._sources)
        return {f"share_{name}": share for name, share in self.shares.items()}

    def get_state(self) -> State:
        """That of the actors' replay, so that a run may go on without its sources; and theirs."""
        sources = {source.name: source.replay.get_state() for source in self._sources[1:]}
        return {**self.actors.get_state(), "mixed_draws": self._draws, "sources": sources}

    def set_state(self, state: State) -> None:
        """Draw on from `state`; sources that it does not know begin as they are."""
        known = state.get("sources", {})
        for source in self._sources[1:]:
            if source.name in known:
                source.replay.set_state(known[source.name])
        self.actors.set_state(state)
        # A run that had no sources before: the schedule of beta goes on.
        self._draws = int(state["mixed_draws"] if "mixed_draws" in state else state.get("draws", 0))

    def _split(self, batch_size: int) -> tuple[int, ...]:
        """Rows of each source in the next batch."""
        shares, settled = self._shares()
        scale, end, ends = batch_size / sum(shares), 0.0, []
        for share in shares:
            end += share * scale
            ends.append(end)
        ends[-1] = float(batch_size)
        self._fixed = batch_size if settled and all(end.is_integer() for end in ends) else 0
        # One number for all borders: so parts add up, none is negative, and each is its share on
        # average.
        between = self._draws * _GOLDEN % 1.0
        borders = [int(end + between) for end in ends]
        return tuple([border - before for before, border in pairwise([0, *borders])])

    def _shares(self) -> tuple[list[float], bool]:
        """The share of each source now, which need not add up to 1; True if they stay."""
        self._empty = {s.name for s in self._sources if s.name in self._empty and not len(s.replay)}
        self._ready = self._ready or self.actors_are_ready
        shares = [source.share_at(self._draws + 1.0) for source in self._sources]
        shares[0] = max(0.0, 2.0 - sum(shares))
        settled = self._ready and not self._empty and not self._scheduled
        there = [float(source.name not in self._empty) for source in self._sources]
        shares = [share * has for share, has in zip(shares, there, strict=True)]
        if self._alone or not self._ready:
            named = any(there[1:])  # alike, where their schedules have not begun
            shares = [0.0, *(shares[1:] if any(shares[1:]) else there[1:])] if named else [there[0]]
            shares += [0.0] * (len(self._sources) - len(shares))
        if not any(shares):  # a schedule has not begun, and there are only rows of its source
            shares = there
        if not any(shares):
            raise EmptyReplayError
        return shares, settled

    def _count_drawn(self) -> None:
        for number, count in enumerate(self._counts):
            self._drawn[number] += count * self._batches
        self._batches = 0

    def _lay_out(self, batch_size: int, counts: tuple[int, ...]) -> None:
        """Make the buffers of a batch, and each source's part of them."""
        self._count_drawn()
        if len(self._columns.get(SOURCE, ())) != batch_size:
            drawn = self.actors.rows.drawn_dtype
            fields = [(name, drawn[name].base, drawn[name].shape) for name in drawn.names or ()]
            row = np.dtype([*fields, (SOURCE, np.dtype(np.uint8), ())])
            self._columns = empty_columns(row, batch_size)
            self._places = np.empty(batch_size, np.int64)
        self._scale, self._oldest = np.empty(batch_size), np.empty(batch_size, np.int64)
        self._codes = np.empty(batch_size, np.int64)
        begins = self._joined[1] if self._joined else [0] * len(counts)
        self._parts, self._counts, end = [], counts, 0
        for number, (source, count) in enumerate(zip(self._sources, counts, strict=True)):
            rows, end = slice(end, end + count), end + count
            self._columns[SOURCE][rows] = number
            self._codes[rows] = number << NUMBER_BITS
            if not count:
                continue
            columns = {name: c[rows] for name, c in self._columns.items() if name != SOURCE}
            views = self._scale[rows], self._oldest[rows], self._places[rows]
            part = _Part(source, number << NUMBER_BITS, begins[number], rows, columns, *views)
            part.set_live(source.replay.rows.live())
            self._parts.append(part)


class _Part:
    """The part of a batch that comes from one source, as views of what the whole batch has.

    Args:
        source: whose rows they are.
        code: what is added to a row's number in an index.
        begin: the first row of its ring in the joined columns.
        rows: of the batch.
        columns: of these rows.
        scale, oldest: what random numbers of [0, 1) are multiplied by, and then added.
        places: in the joined columns.
    """

    def __init__(
        self,
        source: Source,
        code: int,
        begin: int,
        rows: slice,
        columns: Columns,
        scale: NDArray[np.float64],
        oldest: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> None:
        self.replay, self.grows = source.replay, source.grows
        self.physical_rows = source.replay.physical_rows
        self.code, self.begin = code, begin
        self.rows, self.count, self.columns = rows, rows.stop - rows.start, columns
        self.places, self._scale, self._oldest = places, scale, oldest
        self.live = (0, 0)

    def set_live(self, live: tuple[int, int]) -> None:
        """Draw from the rows [oldest, inserted)."""
        self.live = live
        self._scale.fill(live[1] - live[0])
        self._oldest.fill(live[0])


class MarkedRows:
    """Copies the rows of a growing ring that a column marks into a ring of their own, each once.

    The copies are committed with the number of rows that were looked at. A kill between a commit
    of the one ring and of the other leaves rows that were not, and the next start looks at them: at
    most a guard's, so they are still there.

    Args:
        rows: that grow.
        ring: takes the copies; closed with this.
        mark: a column of bools.
    """

    def __init__(self, rows: Rows, ring: RingWriter, mark: str) -> None:
        self._rows, self.ring, self._mark = rows, ring, mark
        # a power failure, or a replay in memory, may have fewer rows than were looked at
        self._seen = min(int.from_bytes(ring.stamp, "little"), rows.inserted)

    def follow(self) -> None:
        """Copy the marked rows that were committed since the last call."""
        rows, (oldest, inserted) = self._rows, self._rows.live()
        if inserted == self._seen:
            return
        marks = rows.columns[self._mark]
        numbers = np.arange(max(self._seen, oldest), inserted)
        marked = numbers[marks[numbers % len(marks)]]
        while len(marked) and (room := self.ring.room):
            some, marked = marked[:room], marked[room:]
            columns = empty_columns(self.ring.manifest.row_dtype, len(some))
            rows.gather(some % len(marks), columns)
            self.ring.append(columns, len(some))
            self._seen = int(marked[0]) if len(marked) else inserted
            self.ring.commit(self._seen.to_bytes(8, "little"))
        if not len(marked):  # else the disk lags behind: the next call goes on
            self._seen = inserted

    def close(self) -> None:
        """Copy what is left, and close."""
        self.follow()
        self.ring.close()

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
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import SOURCE, Columns, empty_columns
from vedette_rl.core.learning import Sample, State
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.replay.config import ACTORS
from vedette_rl.replay.prioritized import (
    PrioritizedReplay,
    importance_weights,
    join_priorities,
    priorities_of,
)
from vedette_rl.replay.ring import join_rings
from vedette_rl.replay.rows import Rows, ring_places
from vedette_rl.replay.sum_tree import JoinedTrees
from vedette_rl.replay.uniform import LOOKS_MAX, UniformReplay
from vedette_rl.settings.stored import ScheduleConfig

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
        named = [  # rows are numbered as they lie until the oldest are overwritten
            replace(source, grows=True)
            if source.replay.inserted > source.replay.rows.capacity
            else source
            for source in others
        ]
        self._sources = (Source(ACTORS, actors, 1.0, grows=True), *named)
        self._scheduled = any(source.schedule is not None for source in others)
        self._growing_replays = [source.replay for source in self._sources if source.grows]
        self._doubted: list[tuple[int, ...]] = []  # the looks of this draw that were in doubt
        self._sources_only = False
        self._has_looked = False
        self._draws = 0
        self._fixed = 0  # the size of batches that are all split alike; 0: the split changes
        self._counts: tuple[int, ...] = ()
        self._columns: Columns = {}
        self._parts: list[_Part] = []
        self.shares: dict[str, float] = {}
        self._batches = 0  # drawn with `_counts`, and not yet added to `_drawn`
        self._drawn = [0] * len(self._sources)  # rows by source since the last `stats`
        self._joined, self._trees = self._join()
        self._last = _Drawn(*(np.empty(0, np.int64),) * 3, ())

    def _join(self) -> tuple[tuple[Columns, list[int]] | None, JoinedTrees | None]:
        """The columns of all rings, and their priorities, as one each, where they can be."""
        replays = [source.replay for source in self._sources]
        weighed = [replay for replay in replays if isinstance(replay, PrioritizedReplay)]
        assert len(weighed) in (0, len(replays)), "all sources draw in the same way"
        return join_rings(self.rows), join_priorities(weighed) if weighed else None

    def __len__(self) -> int:
        return sum(len(source.replay) for source in self._sources)

    @property
    def inserted(self) -> int:
        """Rows that actors have inserted since the run began, overwritten ones too."""
        return self.actors.inserted

    @property
    def goes_on(self) -> bool:
        """True once `set_state` was given the priorities of all these rows."""
        replays = [source.replay for source in self._sources]
        return all(isinstance(replay, PrioritizedReplay) and replay.goes_on for replay in replays)

    @property
    def rows(self) -> list[Rows]:
        """The rows of each source."""
        return [source.replay.rows for source in self._sources]

    @property
    def replays(self) -> list[UniformReplay | PrioritizedReplay]:
        """The replay of each source, which draws its rows."""
        return [source.replay for source in self._sources]

    @property
    def names(self) -> list[str]:
        """The name of each source."""
        return [source.name for source in self._sources]

    def use_copies(self, copies: Sequence[Rows]) -> None:
        """Draw from copies of the sources' rows from now on, or from these again.

        Random numbers are the same.
        """
        for source, rows in zip(self._sources, copies, strict=True):
            source.replay.use_rows(rows)
        self._columns = {}
        self._counts = ()
        self._fixed = 0

    def look(self) -> int:
        """Have the next sample see the rows of all sources that are there now, and no newer ones.

        Returns:
            the rows inserted by actors that it sees.
        """
        self._look()
        self._has_looked = True
        return self.actors.live[1]

    def _look(self) -> None:
        for replay in self._growing_replays:
            replay.see()

    @property
    def growing(self) -> dict[str, Rows]:
        """The rows that a look asks, by the name of their source."""
        return {source.name: source.replay.rows for source in self._sources if source.grows}

    def drawn_looks(self) -> list[tuple[int, ...]]:
        """As `DrawnRows.drawn_looks` has it."""
        looks = [*self._doubted, self._seen()]
        self._doubted.clear()
        return looks

    def _seen(self) -> tuple[int, ...]:
        return tuple([replay.live[1] for replay in self._growing_replays])

    @property
    def actors_are_ready(self) -> bool:
        """True once the look has as many rows of actors as are drawn from."""
        # Not the size: where frames are stored once it may fall, and they would leave again.
        return self.actors.live[1] - self.actors.rows.floor >= self._warmup

    @property
    def sources_only(self) -> bool:
        """Draw from the named sources only, as long as one of them has rows."""
        return self._sources_only

    @sources_only.setter
    def sources_only(self, sources_only: bool) -> None:
        if sources_only != self._sources_only:
            self._sources_only = sources_only
            self._fixed = 0

    def choose_sources(self, *, pretrains: bool, offline: bool) -> bool:
        """Decide whether the next batch is drawn from the named sources alone; returns that.

        Args:
            pretrains: it is one of those before the actors' (`learner.pretrain_opts`).
            offline: actors are not waited for: it is as long as there are too few of their rows.
        """
        self.sources_only = pretrains or (offline and not self.actors_are_ready)
        return self.sources_only

    def sample(self, batch_size: int) -> Sample:
        for _ in range(LOOKS_MAX):
            if self._has_looked:
                self._has_looked = False
            else:
                self._look()
            sample = self._draw(batch_size)
            if self._is_whole(sample.indices):
                self._batches += 1
                self._count_draws(self._draws + 1)
                return sample
            self._doubted.append(self._seen())
            self._take_back(batch_size)
        raise ReplayOverrunError(self.actors.rows.capacity, LOOKS_MAX)

    def _is_whole(self, indices: NDArray[np.int64]) -> bool:
        """False if a writer may have overwritten some of these rows while they were copied."""
        for part in self._parts:
            if part.grows and not part.replay.is_whole(indices[part.rows], part.code):
                return False
        return True

    def _draw(self, batch_size: int) -> Sample:
        """Draw from the last look of all sources."""
        if batch_size != self._fixed:
            counts = self._split(batch_size)
            if counts != self._counts:
                self._make_buffers(batch_size, counts)
        if self._trees is not None:
            return self._sample_by_priority(self._trees, batch_size)
        if self._joined is not None:
            return Sample(self._columns, self._draw_joined(self._joined[0], batch_size))
        indices = np.empty(batch_size, np.int64)
        for part in self._parts:
            assert isinstance(part.replay, UniformReplay), "all sources draw in the same way"
            numbers = part.replay.draw_into(part.columns, part.count)
            np.add(numbers, part.code, out=indices[part.rows])
        return Sample(self._columns, indices)

    def _take_back(self, batch_size: int) -> None:
        """Have the generators give the last batch's random numbers again."""
        if self._trees is not None or self._joined is not None:
            self.actors.take_back(batch_size)
            return
        for part in self._parts:
            part.replay.take_back(part.count)

    def _draw_joined(self, columns: Columns, batch_size: int) -> NDArray[np.int64]:
        """Draw uniformly from all sources with one call a column, as `UniformReplay` does."""
        for part in self._parts:
            if part.grows and part.replay.live != part.live:
                part.set_live(part.replay.live)
        offsets = self.actors.rng.random(batch_size)
        offsets *= self._scale
        numbers = offsets.astype(np.int64)
        numbers += self._oldest
        for part in self._parts:
            if part.grows:
                part.place(numbers[part.rows])
            else:
                np.add(numbers[part.rows], part.begin, out=part.places)
        numbers += self._codes
        self._gather(columns)
        return numbers

    def _sample_by_priority(self, trees: JoinedTrees, batch_size: int) -> Sample:
        """Draw from all sources as `PrioritizedReplay` does, with one call for all of them."""
        assert isinstance(self.actors, PrioritizedReplay)
        growing = self._growing
        seen = [replay.require_rows() for replay, _ in growing]
        fractions = self.actors.rng.random(batch_size)
        fractions *= self._widths
        fractions += self._strata
        places, masses = trees.find(fractions, self._slices)
        for replay, part in self._weighed:
            masses_of_source = masses[part.rows]
            masses_of_source /= replay.tree.summed / replay.weighed_rows  # N_s p_i**alpha / sum
        numbers = places - self._offsets
        np.add(numbers, self._rows_begin, out=self._places)  # where none was overwritten
        for (replay, part), inserted in zip(growing, seen, strict=True):
            numbers_of_source = numbers[part.rows]
            replay.renumber(numbers_of_source, inserted)
            part.place(numbers_of_source)
        if self._joined is not None:
            self._gather(self._joined[0])
        else:
            for replay, part in self._weighed:
                replay.rows.gather(part.places, part.columns)
        indices = numbers + self._codes
        self._last = _Drawn(indices, numbers, places, self._slices)
        return Sample(self._columns, indices, importance_weights(masses, self.actors.beta))

    def _gather(self, columns: Columns) -> None:
        for name, to in self._columns.items():
            if name != SOURCE:
                columns[name].take(self._places, 0, to, "clip")  # clip: see `Rows.gather`

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the absolute TD errors ``(B,)`` of rows drawn before, each in its own source."""
        if self._trees is None or not len(indices):
            return
        # Mostly it is the sample drawn last, whose places are known.
        drawn = self._last if indices is self._last.indices else self._locate(indices)
        places = drawn.places
        slices = drawn.slices
        config = self.actors.config
        priorities = priorities_of(td_errors, config.priority_epsilon)
        masses = priorities**config.alpha
        dead = []
        for number, rows in slices:
            replay = self._sources[number].replay
            assert isinstance(replay, PrioritizedReplay)
            replay.raise_max_priority(float(priorities[rows].max()))
            if not self._sources[number].grows:
                continue
            replay.add_new_rows()
            oldest, _ = replay.live
            if oldest > 0 and int((numbers := drawn.numbers[rows]).min()) < oldest:
                dead.append(np.flatnonzero(numbers < oldest) + rows.start)
        if dead:  # overwritten since, by rows that have priorities of their own
            kept = np.delete(np.arange(len(places)), np.concatenate(dead))
            places, masses = places[kept], masses[kept]
        self._trees.set(places, masses)

    def _locate(self, indices: NDArray[Any]) -> _Drawn:
        """Rows drawn earlier than last, in the order of their sources."""
        assert self._trees is not None
        slices = _slices_of(indices >> NUMBER_BITS)
        numbers = indices & ((1 << NUMBER_BITS) - 1)
        places = np.empty(len(indices), np.int64)
        for number, rows in slices:
            ring_places(numbers[rows], self._sources[number].replay.rows.capacity, places[rows])
            places[rows] += self._trees.begins[number]
        return _Drawn(indices, numbers, places, slices)

    def stats(self) -> dict[str, float]:
        """The share of each source in the rows drawn since the last call, kept as `shares`."""
        self._count_drawn()
        if total := sum(self._drawn):
            names = [source.name for source in self._sources]
            self.shares = {n: d / total for n, d in zip(names, self._drawn, strict=True)}
        self._drawn = [0] * len(self._sources)
        return {f"share_{name}": share for name, share in self.shares.items()}

    def get_state(self) -> State:
        """Return the state of the actors' replay and that of the sources.

        So a run may continue without its sources.
        """
        sources = {source.name: source.replay.get_state() for source in self._sources[1:]}
        return {**self.actors.get_state(), "mixed_draws": self._draws, "sources": sources}

    def set_state(self, state: State) -> None:
        """Draw on from `state`; sources that it does not know begin as they are."""
        known = state.get("sources", {})
        for source in self._sources[1:]:
            if source.name in known:
                source.replay.set_state(known[source.name])
        self.actors.set_state(state)
        # A run that had no sources before: the schedule of beta continues.
        draws = state["mixed_draws"] if "mixed_draws" in state else state.get("draws", 0)
        self._count_draws(int(draws))

    def _count_draws(self, draws: int) -> None:
        """Batches drawn: shares and beta follow them."""
        self._draws = draws
        if isinstance(self.actors, PrioritizedReplay):
            self.actors.draws = draws

    def _split(self, batch_size: int) -> tuple[int, ...]:
        """Rows of each source in the next batch."""
        shares, settled = self._shares()
        scale = batch_size / sum(shares)
        end = 0.0
        ends = []
        for share in shares:
            end += share * scale
            ends.append(end)
        last = max(number for number, share in enumerate(shares) if share)
        ends[last:] = [float(batch_size)] * (len(ends) - last)  # a source without rows gives none
        self._fixed = batch_size if settled and all(end.is_integer() for end in ends) else 0
        # One number for all borders: so parts add up, none is negative, and each is its share on
        # average.
        between = self._draws * _GOLDEN % 1.0
        borders = [int(end + between) for end in ends]
        return tuple([border - before for before, border in pairwise([0, *borders])])

    def _shares(self) -> tuple[list[float], bool]:
        """The share of each source now, which need not add up to 1; True if they stay."""
        ready = self.actors_are_ready
        there = [float(self._has_some(source)) for source in self._sources]
        shares = [source.share_at(self._draws + 1.0) for source in self._sources]
        shares[0] = max(0.0, 2.0 - sum(shares))  # what others leave: the sum has the actors' 1.0
        settled = ready and all(there) and self._stays and not self._scheduled
        shares = [share * has for share, has in zip(shares, there, strict=True)]
        if self._sources_only or not ready:
            named = any(there[1:])  # alike, where their schedules have not begun
            shares = [0.0, *(shares[1:] if any(shares[1:]) else there[1:])] if named else [there[0]]
            shares += [0.0] * (len(self._sources) - len(shares))
        if not any(shares):  # a schedule has not begun, and there are only rows of its source
            shares = there
        if not any(shares):
            raise EmptyReplayError
        return shares, settled

    def _has_some(self, source: Source) -> bool:
        """True if something can be drawn of a source."""
        return source.replay.live[0] < source.replay.live[1]

    @property
    def _stays(self) -> bool:
        """True if of what something can be drawn now, it can later."""
        return True  # there are rows of a source for as long as its ring is open

    def _count_drawn(self) -> None:
        for number, count in enumerate(self._counts):
            self._drawn[number] += count * self._batches
        self._batches = 0

    @property
    def _drawn_dtype(self) -> np.dtype[Any]:
        """What is drawn, one of a batch."""
        return self.actors.rows.drawn_dtype

    def _make_buffers(self, batch_size: int, counts: tuple[int, ...]) -> None:
        """Make the buffers of a batch, and each source's part of them."""
        self._count_drawn()
        if len(self._columns.get(SOURCE, ())) != batch_size:
            drawn = self._drawn_dtype
            fields = [(name, drawn[name].base, drawn[name].shape) for name in drawn.names or ()]
            row = np.dtype([*fields, (SOURCE, np.dtype(np.uint8), ())])
            self._columns = empty_columns(row, batch_size)
            self._places = np.empty(batch_size, np.int64)
        self._scale = np.empty(batch_size)
        self._oldest = np.empty(batch_size, np.int64)
        self._codes = np.empty(batch_size, np.int64)
        begins = self._joined[1] if self._joined else [0] * len(counts)
        self._parts = []
        self._counts = counts
        end = 0
        for number, (source, count) in enumerate(zip(self._sources, counts, strict=True)):
            rows = slice(end, end + count)
            end = end + count
            self._columns[SOURCE][rows] = number
            self._codes[rows] = number << NUMBER_BITS
            if not count:
                continue
            columns = {name: c[rows] for name, c in self._columns.items() if name != SOURCE}
            views = self._scale[rows], self._oldest[rows], self._places[rows]
            part = _Part(source, number << NUMBER_BITS, begins[number], rows, columns, *views)
            part.set_live(source.replay.live)
            self._parts.append(part)
        self._slices = tuple([(part.code >> NUMBER_BITS, part.rows) for part in self._parts])
        replays = [(part.replay, part) for part in self._parts]
        self._weighed = [(r, part) for r, part in replays if isinstance(r, PrioritizedReplay)]
        self._growing = [(replay, part) for replay, part in self._weighed if part.grows]
        if self._trees is not None:
            for replay, _ in self._weighed:
                replay.require_rows()  # later, only sources that grow are looked at again
            begins = [self._trees.begins[number] for number, _ in self._slices]
            sizes = [part.count for part in self._parts]
            self._offsets = np.repeat(begins, sizes)
            self._rows_begin = np.repeat([part.begin for part in self._parts], sizes)
            self._widths = np.repeat([1.0 / size for size in sizes], sizes)
            self._strata = np.concatenate([np.arange(size) / size for size in sizes])


class _Drawn(NamedTuple):
    """Rows that were drawn by priority: their indices, their numbers in their own sources, their
    places in all trees, and which rows of the batch are of which source."""

    indices: NDArray[np.int64]
    numbers: NDArray[np.int64]
    places: NDArray[np.int64]
    slices: tuple[tuple[int, slice], ...]


def _slices_of(sources: NDArray[np.int64]) -> tuple[tuple[int, slice], ...]:
    """The rows of each source of ``(B,)`` ascending ones, of those that have any."""
    borders = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
    return tuple(
        [(int(sources[begin]), slice(begin, end)) for begin, end in pairwise(borders) if end]
    )


class _Part:
    """The part of a batch that comes from one source, as views of what the whole batch has.

    Args:
        source: whose rows they are.
        code: the number that is added to a row's number in an index.
        begin: the first row of its ring in the joined columns.
        rows: the slice of the batch.
        columns: the columns of these rows.
        scale, oldest: the factor of random numbers of [0, 1), and the number then added.
        places: the rows' places in the joined columns.
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
        self.replay = source.replay
        self.grows = source.grows
        self.code = code
        self.begin = begin
        self.rows = rows
        self.count = rows.stop - rows.start
        self.columns = columns
        self.places = places
        self._scale = scale
        self._oldest = oldest
        self.live = (0, 0)

    def set_live(self, live: tuple[int, int]) -> None:
        """Draw from the rows [oldest, inserted)."""
        self.live = live
        self._scale.fill(live[1] - live[0])
        self._oldest.fill(live[0])

    def place(self, numbers: NDArray[np.int64]) -> None:
        """Write where the rows of these numbers lie to `places`."""
        ring_places(numbers, self.replay.physical_rows, self.places)
        if self.begin:
            self.places += self.begin

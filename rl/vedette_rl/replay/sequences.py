"""Which rows follow one another, and where sequences of them can begin.

Rows with `SEQUENCE_KEYS` are single steps of the environments of actors. A *stream* is one
environment of one actor: the same `manager`, `actor` and `env`. In it a row is followed by the one
whose `t` is one more, unless an episode ended with the former or begins with the latter. Of two
rows with the same key the newer one counts.

A row is a *complete beginning* if T rows follow one another from it, or fewer up to the end of its
episode. An episode ends with a row that is terminated or truncated, or before one that begins
another: then that row is the *proof*. Where nothing follows and nothing has ended, rows are lost or
not there yet.

All of a window's rows must be live, its proof too, and not only its beginning: batches come late,
so that a later step can have a lower number, and be overwritten first.

Letters: B beginnings, T steps of a sequence, N of burn-in, L = N + T.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import ACTOR, BEGINS, ENV, MANAGER, TIME
from vedette_rl.replay.rows import Rows, live_places

Stream = tuple[int, int, int]
"""Manager, actor and environment."""

_ABSENT = -1
_ENDED = 1  # an episode ends with the row
_BEGINS = 2  # one begins with it
_BITS = 2

INDEX_ROW_BYTES = 33
"""Of memory that the index takes for a row at most, with what is dead and not dropped yet."""

_SWEPT_SHARE = 0.25
"""Of the capacity: after so many rows dead entries are dropped."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of beginnings while the index followed its rows. Beginnings that are not live any
    more are not named.

    Args:
        incomplete: row numbers of beginnings that were complete and are not, or have other rows.
        completed: row numbers of beginnings that are complete now, in the order of the rows by
            which they became so.
    """

    incomplete: NDArray[np.int64]
    completed: NDArray[np.int64]


_NONE = np.empty(0, np.int64)
_NO_CHANGES = Changes(_NONE, _NONE)


@dataclass(frozen=True, slots=True)
class Windows:
    """The rows of sequences.

    Args:
        numbers: ``(B, L)`` row numbers: first the burn-in, then the steps to learn from. Behind
            them the last one is repeated.
        burned: ``(B,)`` rows of burn-in, 0 to N: fewer where the episode began, or rows are gone.
        learned: ``(B,)`` steps to learn from, 1 to T.
    """

    numbers: NDArray[np.int64]
    burned: NDArray[np.int64]
    learned: NDArray[np.int64]

    def is_learned(self) -> NDArray[np.bool_]:
        """True ``(B, L)`` for the steps to learn from."""
        at = np.arange(self.numbers.shape[1])
        burned = self.burned[:, None]
        is_learned: NDArray[np.bool_] = (at >= burned) & (at < burned + self.learned[:, None])
        return is_learned

    def with_last(self) -> NDArray[np.int64]:
        """The row numbers ``(B, L + 1)`` with the last one repeated once more."""
        return np.concatenate([self.numbers, self.numbers[:, -1:]], 1)

    def ends(self) -> NDArray[np.int64]:
        """The place ``(B,)`` behind each sequence's last row, of the ``B (L + 1)`` of `with_last`,
        one sequence behind the other."""
        begins = np.arange(len(self.burned)) * (self.numbers.shape[1] + 1)
        ends: NDArray[np.int64] = begins + self.burned + self.learned
        return ends


class SequenceIndex:
    """Knows which rows follow one another.

    It is a function of the live rows alone: an index that is made anew has what one has that
    followed all along. Of a row it reads the ring once, when it follows.

    ::

        index = SequenceIndex(ring, steps=80, burn_in=40)
        while (changes := index.follow(*ring.live())) is None:
            pass
        windows = index.expand(changes.completed[:64])

    Args:
        rows: have the columns of `SEQUENCE_KEYS`.
        steps: T.
        burn_in: N.

    Attributes:
        complete_rows: complete beginnings among the live rows.
    """

    def __init__(self, rows: Rows, steps: int, burn_in: int) -> None:
        self._rows = rows
        self._physical_rows = len(rows.columns[TIME])
        self._steps = steps
        self._burn_in = burn_in
        self._numbers: dict[Stream, int] = {}
        self._next_number = count()
        self._streams: dict[int, list[_Run]] = {}
        # By place: number % capacity.
        self._complete = np.zeros(rows.capacity, np.bool_)
        self._stream_of = np.zeros(rows.capacity, np.int32)
        self._time = np.zeros(rows.capacity, np.int64)
        self.complete_rows = 0
        self._seen = 0
        self._oldest = 0
        self._swept = 0  # rows seen when dead runs were dropped last
        # Of beginnings one of whose other rows dies before them: that row, and in a heap by it.
        self._dies_with: dict[int, int] = {}
        self._deaths: list[tuple[int, int]] = []

    def follow(self, oldest: int, inserted: int) -> Changes | None:
        """Take in the rows up to `inserted`, of which those from `oldest` on are live.

        Neither may be less than in the call before.

        Returns:
            None if the writer may have overwritten a row while it was read: the index is as before,
            and follows newer rows.
        """
        if oldest == self._oldest and inserted == self._seen:
            return _NO_CHANGES
        begin = max(self._seen, oldest)
        new = None
        if begin < inserted:
            new = self._read(np.arange(begin, inserted))
            if self._rows.doubtful_below(inserted) > begin:
                return None
        self._forget(self._oldest, oldest)
        self._oldest = oldest
        incomplete = self._end_with_dead_rows()
        completed = _NONE
        if new is not None:
            pieces, replaced = self._take_in(new)
            incomplete += replaced
            completed = self._find_completed(pieces)
        self._seen = max(self._seen, inserted)
        if inserted - self._swept >= self._rows.capacity * _SWEPT_SHARE:
            self._sweep()
        return Changes(np.array(sorted(incomplete), np.int64), completed)

    def is_complete(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether these live rows are complete beginnings."""
        complete: NDArray[np.bool_] = self._complete[numbers % self._rows.capacity]
        return complete

    def expand(self, numbers: NDArray[np.int64]) -> Windows:
        """Return the rows of the sequences from these complete beginnings ``(B,)`` on."""
        steps, burn_in = self._steps, self._burn_in
        around = np.full((len(numbers), burn_in + steps), _ABSENT, np.int64)
        at = numbers % self._rows.capacity
        keys = zip(self._stream_of[at].tolist(), self._time[at].tolist(), strict=True)
        for row, (stream, time) in enumerate(keys):
            self._run_with(stream, time).copy(time - burn_in, around[row])
        goes_on = _goes_on(around, self._oldest)
        back = np.logical_and.accumulate(goes_on[:, :burn_in][:, ::-1], 1)
        ahead = np.logical_and.accumulate(goes_on[:, burn_in:], 1)
        burned = np.count_nonzero(back, 1)
        learned = 1 + np.count_nonzero(ahead, 1)
        columns = np.arange(burn_in + steps) + (burn_in - burned)[:, None]
        columns = np.minimum(columns, (burn_in + learned - 1)[:, None])
        return Windows(np.take_along_axis(around, columns, 1) >> _BITS, burned, learned)

    # Rows into runs

    def _read(self, numbers: NDArray[np.int64]) -> _NewRows:
        """Copy what the index has to know of rows."""
        places = numbers % self._physical_rows
        columns = self._rows.columns
        names = (MANAGER, ACTOR, ENV, TIME)
        return _NewRows(
            numbers,
            np.stack([columns[name].take(places).astype(np.int64) for name in names]),
            columns["terminated"].take(places) | columns["truncated"].take(places),
            columns[BEGINS].take(places),
        )

    def _take_in(self, new: _NewRows) -> tuple[list[NDArray[np.int64]], list[int]]:
        """Put rows into runs.

        Returns:
            Entries of all rows that may be in a window with one of these, with `_ABSENT` between
            those that are no neighbours; and the beginnings of whose windows a row was replaced.
        """
        taken: list[tuple[int, int, int]] = []
        replaced: list[int] = []
        for stream, first, entries in self._segments(new):
            end = first + len(entries)
            at = (entries >> _BITS) % self._rows.capacity
            self._stream_of[at] = stream
            self._time[at] = np.arange(first, end)
            replaced += self._replace(self._run_for(stream, first, end), first, entries)
            taken.append((stream, first, end))
        reach = self._steps - 1
        separator = np.full(1, _ABSENT, np.int64)
        pieces: list[NDArray[np.int64]] = []
        for stream, first, end in taken:  # which may be in one run by now
            run = self._run_with(stream, first)
            pieces += [run.between(first - reach, end + reach), separator]
        return pieces, replaced

    def _segments(self, new: _NewRows) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """The entries of rows by stream, at consecutive times from a first one on."""
        flags = np.where(new.begins, _BEGINS, 0) | np.where(new.ended, _ENDED, 0)
        entries = (new.numbers << _BITS) | flags
        keys = new.keys
        order = np.lexsort(keys[::-1])  # stable: of one key the newest is the last
        keys = keys[:, order]
        entries = entries[order]
        newest = np.append((np.diff(keys) != 0).any(0), True)
        keys = keys[:, newest]
        entries = entries[newest]
        step = np.diff(keys)
        follows = (step[:3] == 0).all(0) & (step[3] == 1)
        bounds = [0, *(1 + np.flatnonzero(~follows)).tolist(), len(entries)]
        for begin, end in pairwise(bounds):
            manager, actor, env, time = keys[:, begin].tolist()
            stream = manager, actor, env
            if stream not in self._numbers:
                self._numbers[stream] = next(self._next_number)
            yield self._numbers[stream], time, entries[begin:end]

    def _run_for(self, stream: int, first: int, end: int) -> _Run:
        """The run that has, or may go on with, the times from `first` on and before `end`: runs
        that touch these become one."""
        runs = self._streams.setdefault(stream, [])
        if runs and runs[-1].end == first:  # as nearly always
            return runs[-1]
        at = bisect_right(runs, first, key=lambda run: run.first)
        begin = at - 1 if at and runs[at - 1].end >= first else at
        stop = begin
        while stop < len(runs) and runs[stop].first <= end:
            stop += 1
        if begin == stop:
            runs.insert(begin, _Run(first))
        elif runs[begin].first > first or stop - begin > 1:
            lowest = min(first, runs[begin].first)
            joined = _Run(lowest, max(end, runs[stop - 1].end) - lowest)
            for run in runs[begin:stop]:
                joined.write(run.first, run.between(run.first, run.end))
            runs[begin:stop] = [joined]
        return runs[begin]

    def _run_with(self, stream: int, time: int) -> _Run:
        runs = self._streams[stream]
        if runs[-1].first <= time:
            return runs[-1]
        return runs[bisect_right(runs, time, key=lambda run: run.first) - 1]

    def _replace(self, run: _Run, first: int, entries: NDArray[np.int64]) -> list[int]:
        """Write entries into a run; return the beginnings of whose windows a row was replaced."""
        incomplete: list[int] = []
        before = run.between(first, first + len(entries))
        replaced = before >= self._oldest << _BITS
        if len(before) and replaced.any():
            reach = self._steps - 1
            begin = max(run.first, first - reach)
            around = run.between(begin, first + len(entries) + reach)
            _, extent = self._windows(around)
            is_replaced = np.zeros(len(around), np.bool_)
            is_replaced[first - begin : first - begin + len(before)] = replaced
            last = np.minimum(extent, len(around) - 1)
            mine = (around >= self._oldest << _BITS) & (_next_of(is_replaced) <= last)
            found = around[mine] >> _BITS
            found = found[self.is_complete(found)]
            self._complete[found % self._rows.capacity] = False
            self.complete_rows -= len(found)
            incomplete = found.tolist()
            for number in incomplete:
                self._dies_with.pop(number, None)
        run.write(first, entries)
        return incomplete

    # Complete beginnings

    def _windows(self, entries: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Of each entry: whether it is a complete beginning, as far as these say, and the place of
        its window's last row, or proof."""
        count = len(entries)
        at = np.arange(count)
        ended = (entries & _ENDED) != 0
        live = entries >= self._oldest << _BITS
        proof = np.append((live & ((entries & _BEGINS) != 0))[1:], False)
        last = _next_of(~np.append(_goes_on(entries, self._oldest), False))
        enough = last - at + 1 >= self._steps
        over = ended[last] | proof[last]
        extent = np.where(enough, at + self._steps - 1, np.where(ended[last], last, last + 1))
        return live & (enough | over), extent

    def _find_completed(self, pieces: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Mark the beginnings among these entries that are complete now, and return them."""
        entries = np.concatenate(pieces)
        complete, extent = self._windows(entries)
        numbers = entries >> _BITS
        new = np.flatnonzero(complete)
        new = new[~self.is_complete(numbers[new])]
        _, first = np.unique(numbers[new], return_index=True)  # two pieces may have it
        new = new[first]
        begun = numbers[new]
        extent = extent[new]
        by = numbers[extent]
        # Where rows came in the order of their steps, the beginning is the oldest of its window.
        falls = _next_of(np.append(np.diff(numbers) < 0, True))
        for k in np.flatnonzero(falls[new] < extent).tolist():
            window = numbers[new[k] : extent[k] + 1]
            by[k] = window.max()
            number = int(begun[k])
            lowest = int(window.min())
            if lowest < number:
                self._dies_with[number] = lowest
                heappush(self._deaths, (lowest, number))
        self._complete[begun % self._rows.capacity] = True
        self.complete_rows += len(begun)
        return begun[np.lexsort((begun, by))]

    def _forget(self, before: int, oldest: int) -> None:
        """No row below `oldest` begins a sequence any more; none below `before` did."""
        capacity = self._rows.capacity
        for piece in live_places(oldest, min(oldest - before, capacity), capacity):
            self.complete_rows -= int(np.count_nonzero(self._complete[piece]))
            self._complete[piece] = False

    def _end_with_dead_rows(self) -> list[int]:
        """Mark the live beginnings of which another row is not live any more, and return them."""
        ended: list[int] = []
        while self._deaths and self._deaths[0][0] < self._oldest:
            lowest, number = heappop(self._deaths)
            if self._dies_with.get(number) != lowest:
                continue  # it has had other rows since
            del self._dies_with[number]
            if number >= self._oldest:
                self._complete[number % self._rows.capacity] = False
                self.complete_rows -= 1
                ended.append(number)
        return ended

    def _sweep(self) -> None:
        """Drop what is dead of all runs: actors end, and a peer could name many streams."""
        self._swept = self._seen
        for name, stream in list(self._numbers.items()):
            kept = [run for run in self._streams[stream] if run.trim(self._oldest)]
            if kept:
                self._streams[stream] = kept
            else:
                del self._numbers[name], self._streams[stream]


class _NewRows(NamedTuple):
    """What the index has read of rows.

    Args:
        numbers: their numbers ``(R,)``.
        keys: manager, actor, environment and time ``(4, R)``.
        ended, begins: whether an episode ends with a row, or begins ``(R,)``.
    """

    numbers: NDArray[np.int64]
    keys: NDArray[np.int64]
    ended: NDArray[np.bool_]
    begins: NDArray[np.bool_]


class _Run:
    """The entries of a stream's rows at consecutive times.

    An entry is a row's number with two flags behind it: an episode ends with the row, or begins.

    Args:
        first: the first time.
        length: the number of times, of none of which there is a row yet.
    """

    __slots__ = ("_entries", "_length", "first")

    def __init__(self, first: int, length: int = 0) -> None:
        self.first = first
        self._entries = np.full(max(16, length), _ABSENT, np.int64)
        self._length = length

    @property
    def end(self) -> int:
        """The time behind the last one."""
        return self.first + self._length

    def between(self, first: int, end: int) -> NDArray[np.int64]:
        """The entries from `first` on and before `end`, as far as there are some: a view."""
        begin = max(0, first - self.first)
        return self._entries[begin : max(begin, min(end - self.first, self._length))]

    def copy(self, first: int, out: NDArray[np.int64]) -> None:
        """Copy the entries of times from `first` on; those that are not there are left."""
        found = self.between(first, first + len(out))
        offset = max(0, self.first - first)
        out[offset : offset + len(found)] = found

    def write(self, first: int, entries: NDArray[np.int64]) -> None:
        """Write entries of times from `first` on, which the run has or which follow its last."""
        begin = first - self.first
        end = begin + len(entries)
        assert 0 <= begin <= self._length, "a run has no gaps"
        if end > len(self._entries):
            larger = np.empty(max(end, 2 * len(self._entries)), np.int64)
            larger[: self._length] = self._entries[: self._length]
            self._entries = larger
        self._entries[begin:end] = entries
        self._length = max(self._length, end)

    def trim(self, oldest: int) -> bool:
        """Drop entries before the first live one; False if there is none."""
        live = np.flatnonzero(self._entries[: self._length] >= oldest << _BITS)
        if not len(live):
            return False
        begin = int(live[0])
        self._entries = self._entries[begin : self._length].copy()
        self._length -= begin
        self.first += begin
        return True


def _goes_on(entries: NDArray[np.int64], oldest: int) -> NDArray[np.bool_]:
    """True ``(..., K - 1)`` where of entries ``(..., K)`` the next row follows a row."""
    live = entries >= oldest << _BITS
    ended = (entries & _ENDED) != 0
    begins = (entries & _BEGINS) != 0
    follows: NDArray[np.bool_] = (live & ~ended)[..., :-1] & (live & ~begins)[..., 1:]
    return follows


def _next_of(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first place from each on that is marked; behind the last one, the number of places."""
    places = np.where(marked, np.arange(len(marked)), len(marked))
    following: NDArray[np.int64] = np.minimum.accumulate(places[::-1])[::-1]
    return following

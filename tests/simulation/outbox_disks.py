"""The model's disks: an outbox, a replay with its ledger, and a snapshot directory.

`lose_power` leaves what was synced, and of the rest any part that a file system may leave.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from outbox_ledger import Ledger  # beside this file

Row = int


@dataclass(slots=True)
class SessionFile:
    """What one process of a manager appended: a row a batch, number `i` the `i`-th.

    Args:
        manager: the id under which the session was begun.
        rows: those that are held, by number; their order is that of the numbers.
        end: the next number.
        dropped: rows that were deleted and not safe.
        torn_at: the number of an append that left a part of a record; -1: there is none.
    """

    manager: str
    rows: dict[int, Row] = field(default_factory=dict)
    end: int = 0
    dropped: int = 0
    torn_at: int = -1

    @property
    def base(self) -> int:
        """The lowest number that is held."""
        return min(self.rows, default=self.end)

    def read(self) -> None:
        """Read the file as another process finds it: up to the first record that is not whole."""
        if self.torn_at >= 0:
            self.end = self.torn_at
            self.rows = {number: row for number, row in self.rows.items() if number < self.end}
            self.torn_at = -1

    def copy(self) -> SessionFile:
        return replace(self, rows=dict(self.rows))


Files = dict[int, SessionFile]


def copy_files(files: Files) -> Files:
    return {session: file.copy() for session, file in files.items()}


class OutboxDisk:
    """The folder of an outbox: a file for each session, oldest first.

    Args:
        fails_sync: the next sync fails.
        tears: the next append fails, and leaves a part of its record.
    """

    def __init__(self) -> None:
        self.files: Files = {}
        self._durable: Files = {}
        self._given_up: set[Row] = set()  # by a sync that failed: no later one writes them
        self.fails_sync = False
        self.tears = False

    @property
    def held(self) -> set[Row]:
        """The rows in all files."""
        return {row for file in self.files.values() for row in file.rows.values()}

    @property
    def unsynced(self) -> set[Row]:
        """The rows that a loss of power may take."""
        durable = {row for file in self._durable.values() for row in file.rows.values()}
        return self.held - durable

    def sync(self) -> bool:
        """Sync what is there; return False if that failed."""
        if self.fails_sync:
            self.fails_sync = False
            self._given_up |= self.unsynced
            return False
        self._durable = self._without_given_up(self.files)
        return True

    def write_again(self) -> None:
        """Write what a sync has given up, elsewhere in the folder."""
        self._given_up = set()

    def _without_given_up(self, files: Files) -> Files:
        left = copy_files(files)
        for file in left.values():
            file.rows = {n: row for n, row in file.rows.items() if row not in self._given_up}
        return left

    def lose_power(self, rng: random.Random) -> None:
        """Keep what was synced, a beginning of what was appended since, and of what was deleted
        since any file or part."""
        left: Files = {}
        for session in [*self._durable, *(s for s in self.files if s not in self._durable)]:
            old = self._durable.get(session)
            new = self.files.get(session)
            if new is None:
                if old is not None and rng.random() < 0.5:
                    left[session] = old.copy()
                continue
            if old is None and rng.random() < 0.3:
                continue
            file = new.copy()
            file.end = rng.randint(old.end if old else 0, new.end)
            file.rows = {number: row for number, row in new.rows.items() if number < file.end}
            if old is not None and rng.random() < 0.5:
                file.dropped = old.dropped
                file.rows = dict(sorted({**old.rows, **file.rows}.items()))
            left[session] = file
        self.files = self._without_given_up(left)
        self._given_up = set()
        self._durable = copy_files(self.files)

    def copy(self) -> OutboxDisk:
        """Copy the disk; the copy is synced."""
        disk = OutboxDisk()
        disk.files = copy_files(self.files)
        disk._durable = copy_files(self.files)
        return disk


class ReplayDisk:
    """The learner's disk: rows with their ledger, and who wrote them.

    Args:
        starts: the starts of the learner, each with the number of its first row.
        epoch: of the last start.
        reserved: the highest epoch that a start may take which cannot reach the snapshot.
    """

    def __init__(self, *, archives: bool) -> None:
        self.rows: list[Row] = []
        self.ledger = Ledger(archives=archives)
        self.starts: list[tuple[int, int]] = []
        self.epoch = 0
        self.reserved = 0
        self.synced_rows = 0
        self.synced_ledger = self.ledger.copy()

    @property
    def synced(self) -> set[Row]:
        """The rows of the last sync."""
        return set(self.rows[: self.synced_rows])

    def end_of(self, start: int) -> int:
        """Return the number behind the last row that this start wrote and that is there; -1: it is
        no start of this replay."""
        names = [name for name, _ in self.starts]
        if start not in names:
            return -1
        later = [first for _, first in self.starts[names.index(start) + 1 :]]
        return min([len(self.rows), *later])

    def sync(self) -> None:
        self.synced_rows = len(self.rows)
        self.synced_ledger = self.ledger.copy()

    def lose_power(self, rng: random.Random, *, archive_is_synced: bool) -> None:
        """Go back to the last sync, or keep all.

        Args:
            archive_is_synced: what was added to the archive since is kept, too.
        """
        if rng.random() < 0.6:
            del self.rows[self.synced_rows :]
            self.ledger = self.synced_ledger.copy()
        elif not archive_is_synced:
            known = self.synced_ledger.archive
            self.ledger.archive = {k: a for k, a in self.ledger.archive.items() if k in known}
        self.sync()

    def copy(self) -> ReplayDisk:
        """Copy the disk; the copy is synced."""
        disk = ReplayDisk(archives=self.ledger.archives)
        disk.rows = list(self.rows)
        disk.ledger = self.ledger.copy()
        disk.starts = list(self.starts)
        disk.epoch = self.epoch
        disk.reserved = self.reserved
        disk.sync()
        return disk


@dataclass(frozen=True, slots=True)
class Generation:
    """One state of the replay in a snapshot directory.

    Args:
        name: random.
        behind: the name of the newest one when it was begun; 0: there was none.
        parent: the name of the one whose rows it continues; 0: it has all rows.
        first: the number of its first row.
        start: the start that wrote it.
        starts: of the replay.
        reserved: the highest epoch that starts of this learner may take.
    """

    number: int
    name: int
    behind: int
    parent: int
    first: int
    rows: tuple[Row, ...]
    ledger: Ledger
    start: int
    starts: tuple[tuple[int, int], ...]
    reserved: int

    @property
    def end(self) -> int:
        """The number of rows of the replay."""
        return self.first + len(self.rows)


class SnapshotDirectory:
    """Generations by number, on a mount that may be away. A name is given once (`O_EXCL`)."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {}
        self.aside: set[int] = set()  # the names of those that are written, and have no number yet
        self.is_there = True

    def put_back(self, generations: dict[int, Generation]) -> None:
        """Put the directory's content of another time in its place."""
        self.generations = dict(generations)
        self.aside = set()

    @property
    def newest(self) -> Generation | None:
        """The one with the highest number, whole or not."""
        return self.generations[max(self.generations)] if self.generations else None

    @property
    def newest_whole(self) -> Generation | None:
        """The newest one whose rows are all there."""
        for number in sorted(self.generations, reverse=True):
            if self.chain(self.generations[number]) is not None:
                return self.generations[number]
        return None

    def chain(self, generation: Generation) -> list[Generation] | None:
        """Return a generation with all that it continues, oldest first; None if one is missing."""
        by_name = {known.name: known for known in self.generations.values()}
        chain = [generation]
        while chain[0].parent:
            parent = by_name.get(chain[0].parent)
            if parent is None:
                return None
            chain.insert(0, parent)
        return chain

    def rows_of(self, generation: Generation | None) -> list[Row]:
        """Return all rows of a whole generation."""
        if generation is None:
            return []
        chain = self.chain(generation)
        assert chain is not None, "it is whole"
        rows: list[Row] = []
        for part in chain:
            del rows[part.first :]
            rows += part.rows
        return rows

    @property
    def rows(self) -> set[Row]:
        """The rows that a start from here would have."""
        return set(self.rows_of(self.newest_whole))

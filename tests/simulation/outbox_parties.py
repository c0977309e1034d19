"""The model's processes: a manager with or without an outbox, and a learner.

Each method is one step, in one piece. A kill comes between two steps, so what must be in one piece
on a disk is one step here, and what must be in an order is several.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from outbox_disks import (  # beside this file
    Generation,
    OutboxDisk,
    ReplayDisk,
    Row,
    SessionFile,
    SnapshotDirectory,
)
from outbox_ledger import EXTRAS_MAX, Account, Key, Ledger, RetiredError
from outbox_rules import Rules

HELD_MAX = 14
"""Batches that an outbox holds at most."""
SYNC_EVERY = 40
"""Steps between two syncs of an outbox at most."""
FOLLOW_AFTER = 25
"""Acks of a lower epoch running, without a higher one, until a manager follows it."""
RIVALS_AFTER = 60
"""Steps for which two processes report as one manager before the later one is refused."""
MESSAGE_AGE_MAX = 25
"""Steps for which a message may be under way."""


@dataclass(frozen=True, slots=True)
class Batch:
    key: Key
    number: int
    row: Row
    base: int


@dataclass(frozen=True, slots=True)
class Report:
    """Args:
    host: the name of the sender, to which acks go.
    process: the sender's session.
    ended: the session is of a process before. A learner that knows no outbox ignores it.
    """

    key: Key
    host: int
    process: int
    ended: bool
    end: int
    base: int
    dropped: int
    held: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Args:
    safe: all below are safe; None: the learner does not say.
    older: its learner knows no outbox, by its run.
    """

    key: Key
    epoch: int
    learner: int
    contiguous: int
    extras: frozenset[int]
    safe: int | None
    older: bool

    @property
    def beyond(self) -> int:
        return max(self.extras, default=self.contiguous - 1) + 1


@dataclass(frozen=True, slots=True)
class Refusal:
    key: Key


Follows = tuple[int, int]
"""The epoch and the name of a learner."""


class Observer(Protocol):
    """Is told what happens, and raises where an invariant does not hold."""

    now: int
    rules: Rules
    rng: random.Random

    def new_row(self, host: int, *, outbox: bool) -> Row: ...
    def on_promised(self, row: Row, key: Key, number: int) -> None: ...
    def on_dropped(self, rows: list[Row]) -> None: ...
    def on_deleted(self, rows: list[Row]) -> None: ...
    def on_commit(self, disk: ReplayDisk, rows: list[Row]) -> None: ...
    def on_safe(self, rows: set[Row], host: int) -> None: ...
    def on_followed(self, learner: Follows, before: Follows) -> None: ...
    def on_no_descendant(self, learner: int) -> None: ...
    def on_refused(self, host: int) -> None: ...
    def on_learner(self, learner: int, host: int) -> None: ...
    def send_up(self, host: int, message: Batch | Report) -> None: ...
    def send_down(self, host: int, message: Ack | Refusal) -> None: ...


class Manager:
    """One process of a manager.

    Args:
        host: the name of its machine.
        manager: the id that it uses.
        disk: of its outbox; of one without, the memory, which a kill takes.
        drops: a full outbox drops its oldest batch; else actors wait.
    """

    def __init__(
        self,
        world: Observer,
        host: int,
        manager: str,
        disk: OutboxDisk,
        *,
        outbox: bool,
        drops: bool,
    ) -> None:
        self.world = world
        self.rules = world.rules
        self.host = host
        self.manager = manager
        self.disk = disk
        self.outbox = outbox
        self.drops = drops
        self.refused = False
        self._fresh: deque[Row] = deque()  # handed over by actors, and not appended
        self._learner: Follows | None = None
        self._lower = 0  # acks of a lower epoch, running
        self._older = True  # the learner is not known to have the feature
        self._stored: dict[int, Account] = {}
        self._safe: dict[int, int] = {}
        self._aside: set[int] = set()  # refused by a learner that is older, or not known yet
        self._sent_at: dict[tuple[int, int], int] = {}
        self._synced_at = world.now
        rng = world.rng
        self.session = rng.getrandbits(60) if self.rules.session_is_random else 1
        while not self.rules.session_is_random and self.session in disk.files:
            self.session += 1
        ended = list(disk.files)
        if not self.rules.session_ends_with_process and ended:
            self.session = ended[-1]
        for file in disk.files.values():
            file.read()
        self._mine = disk.files.setdefault(self.session, SessionFile(manager))
        self.sync()  # what the process before left to the page cache

    # What its actors and its disk do

    def produce(self) -> None:
        """Take a row from an actor, if there is room for it in memory."""
        if not self._fresh:
            self._fresh.append(self.world.new_row(self.host, outbox=self.outbox))
            if not self.rules.appended_before_sent:
                file = self._mine
                row = self._fresh[0]
                self.world.on_promised(row, (file.manager, self.session), file.end)
                self._send(self.session, file, file.end, row)

    def append(self) -> None:
        """Append a row to the file; a full outbox makes it wait, or drops another."""
        if not self._fresh:
            return
        if self.rules.bounded and len(self.disk.held) >= HELD_MAX:
            if not self.drops:
                return
            self._drop_one()
        file = self._mine
        if self.disk.tears:
            self.disk.tears = False
            if not self.rules.torn_append_is_cut and file.torn_at < 0:
                file.torn_at = file.end
            return
        row = self._fresh.popleft()
        file.rows[file.end] = row
        self.world.on_promised(row, (file.manager, self.session), file.end)
        file.end += 1

    def _drop_one(self) -> None:
        """Delete the oldest batch that is stored and not safe; if there is none, the oldest."""
        for stored in (True, False):
            for session, file in self.disk.files.items():
                for number, row in file.rows.items():
                    if stored and not self._is_stored(session, number):
                        continue
                    del file.rows[number]
                    file.dropped += not stored
                    self.world.on_dropped([row])
                    return

    def sync(self) -> None:
        if not self.rules.synced_in_time:
            return
        if not self.disk.sync() and self.rules.written_again_after_failed_sync:
            self.disk.write_again()
            self.disk.sync()
        self._synced_at = self.world.now

    @property
    def must_sync(self) -> bool:
        return self.world.now - self._synced_at >= SYNC_EVERY - 1

    def delete_safe(self) -> None:
        """Delete what is safe, and the files of ended sessions that hold nothing."""
        for session, file in list(self.disk.files.items()):
            below = self._safe.get(session, 0)
            if not self.rules.deleted_when_safe and session in self._stored:
                below = self._stored[session].contiguous
            gone = [number for number in file.rows if number < below]
            self.world.on_deleted([file.rows.pop(number) for number in gone])
            if session != self.session and not file.rows:
                del self.disk.files[session]

    # What it sends

    def _ended(self) -> list[int]:
        return [s for s in self.disk.files if s != self.session and s not in self._aside]

    def _may_send(self, session: int) -> bool:
        """Return whether this session's messages go out now."""
        if not (self._older and self.rules.one_session_for_older_learners):
            return True
        return session == next((s for s in self._ended()), self.session)

    def report(self) -> None:
        """Report the session of this process, or an ended one."""
        session = self.world.rng.choice([*self.disk.files, self.session])
        file = self._file(session)
        if not self._may_send(session) or session in self._aside:
            return
        unstored = [n for n in file.rows if not self._is_stored(session, n)]
        ends = session != self.session
        if ends and not unstored and not self.rules.ended_sessions_ask_until_safe:
            return
        self.world.send_up(
            self.host,
            Report(
                (self._id_of(file), session),
                self.host,
                self.session,
                ends,
                file.end,
                self._base(session, file),
                file.dropped,
                len(unstored),
            ),
        )

    def send_batch(self) -> None:
        """Send a batch that is not stored, of this session or of the oldest ended one."""
        if not self.rules.numbered_when_appended:
            self._take_over()
        sessions = [s for s in self.disk.files if self._may_send(s) and s in self._stored]
        first = next((s for s in self._ended() if s in sessions and self._unstored(s)), None)
        mine = [s for s in (first, self.session) if s is not None and s in sessions]
        if not mine:
            return
        session = self.world.rng.choice(mine)
        file = self._file(session)
        limit = self._stored[session].contiguous + EXTRAS_MAX
        numbers = [
            number
            for number in self._unstored(session)
            if number < limit
            and self.world.now - self._sent_at.get((session, number), -99) > MESSAGE_AGE_MAX
        ]
        if numbers:
            number = numbers[0]
            self._sent_at[session, number] = self.world.now
            self._send(session, file, number, file.rows[number])

    def _take_over(self) -> None:
        """Give what ended sessions hold to this process's session (a mutation)."""
        mine = self._mine
        for session in self._ended():
            file = self.disk.files[session]
            for number in [n for n in file.rows if not self._is_stored(session, n)]:
                mine.rows[mine.end] = file.rows.pop(number)
                mine.end += 1

    def _send(self, session: int, file: SessionFile, number: int, row: Row) -> None:
        batch = Batch((self._id_of(file), session), number, row, self._base(session, file))
        self.world.send_up(self.host, batch)

    def _id_of(self, file: SessionFile) -> str:
        return file.manager if self.rules.session_keeps_manager else self.manager

    def _base(self, session: int, file: SessionFile) -> int:
        if self.rules.base_is_lowest_held:
            return file.base
        return min(self._unstored(session), default=file.end)

    def _unstored(self, session: int) -> list[int]:
        rows = self._file(session).rows
        return [number for number in rows if not self._is_stored(session, number)]

    def _file(self, session: int) -> SessionFile:
        """Return the file of a session; that of one's own may have been deleted by another."""
        return self._mine if session == self.session else self.disk.files[session]

    def _is_stored(self, session: int, number: int) -> bool:
        stored = self._stored.get(session)
        return stored is not None and (number < stored.contiguous or number in stored.extras)

    # What comes

    def on_message(self, message: Ack | Refusal) -> None:
        session = message.key[1]
        file = self.disk.files.get(session)
        if file is None or self._id_of(file) != message.key[0]:
            return
        if isinstance(message, Refusal):
            self._on_refusal(session)
        elif self._follow(message):
            self._on_ack(session, file, message)

    def _follow(self, ack: Ack) -> bool:
        """Return whether this ack's learner is followed."""
        known = self._learner
        learner = (ack.epoch, ack.learner)
        if known is not None and ack.epoch < known[0] and self.rules.lower_epochs_ignored:
            self._lower += 1
            if self._lower < FOLLOW_AFTER:
                return False
        elif known is not None and known != learner:
            self.world.on_followed(learner, known)
        self._lower = 0
        if known != learner and self.rules.stored_is_of_one_learner:
            self._stored = {}
            self._sent_at = {}
        self._learner = learner
        self._older = ack.older if self.rules.older_by_its_run else ack.safe is None
        if not self._older:
            self._aside.clear()
        return True

    def _on_ack(self, session: int, file: SessionFile, ack: Ack) -> None:
        over = ack.beyond > file.end
        if over and session != self.session and not self.rules.knows_more_than_the_file:
            return
        stored = self._stored.setdefault(session, Account())
        stored.advance_to(ack.contiguous)
        for number in ack.extras:
            stored.settle(number)
        # An older learner's acks say no more; the window of a manager without outbox is in memory.
        safe = ack.contiguous if self._older or not self.outbox else ack.safe or 0
        self._safe[session] = max(self._safe.get(session, 0), safe)

    def _on_refusal(self, session: int) -> None:
        """End, or set an ended session aside: the refusal was for the process before, or an older
        learner has closed the session."""
        if session == self.session:
            self.refused = True
            self.world.on_refused(self.host)
            return
        if self.rules.refused_is_kept:
            self._aside.add(session)
            return
        file = self.disk.files.pop(session)
        self.world.on_deleted(list(file.rows.values()))


class Learner:
    """One process of a learner.

    Args:
        host: the name of its machine.
        snapshot: where its snapshots go; None: nowhere.
        older: of a release that knows no outbox.
        origin: the newest generation, where the disk was made from the snapshot a moment ago.
    """

    def __init__(
        self,
        world: Observer,
        host: int,
        disk: ReplayDisk,
        snapshot: SnapshotDirectory | None,
        *,
        older: bool,
        origin: Generation | None = None,
    ) -> None:
        self.world = world
        self.rules = world.rules
        self.host = host
        self.disk = disk
        self.snapshot = snapshot
        self.older = older
        self.ended = ""
        """Why it ended, and will not start again by itself."""
        self.name = world.rng.getrandbits(60)
        self._serves = False
        self._pending: list[Row] = []
        self._syncing: tuple[int, Ledger] | None = None
        self._generation: Generation | None = None  # to be written aside
        self._aside: Generation | None = None  # to be created
        self._created: Generation | None = None  # to be verified
        self._last_name = 0
        self._called_safe: Ledger | None = None  # the ledger of what is called safe
        self._seen: dict[str, dict[int, tuple[int, int]]] = {}  # processes of a manager
        self._asked: set[tuple[int, Key]] = set()  # acks that are due
        self._answered: set[Key] = set()
        self._origin = origin
        world.on_learner(self.name, host)
        self._begin()

    @property
    def serves(self) -> bool:
        return self._serves and not self.ended

    # Its start

    def _begin(self) -> None:
        disk = self.disk
        if self._origin is None:
            disk.epoch += 1
        disk.starts.append((self.name, len(disk.rows)))
        disk.sync()  # a start verifies what it finds, and writes it once more
        if self.snapshot is None and not self.older:
            self.world.on_safe(disk.synced, self.host)
        self.ledger = disk.ledger.copy()
        if self.older:
            if self.ledger.archives and self.rules.older_learner_refuses_archive:
                self.ended = "its replay is of a newer release"
            self.ledger.archives = False
            self.ledger.archive = {}
        else:
            self.ledger.archives = True
        if self.older or self.snapshot is None:
            self._serves = True
        if self._origin is not None and not self.rules.start_is_in_snapshot:
            self._serves = True

    def poll_start(self) -> None:
        """Serve without the snapshot, if it is away and the epoch is one that was reserved."""
        away = self.snapshot is not None and not self.snapshot.is_there
        if not self._serves and away and self.disk.epoch <= self.disk.reserved:
            self._serves = True

    # Messages

    def on_message(self, message: Batch | Report) -> None:
        if not self.serves:
            return
        try:
            if isinstance(message, Batch):
                self._on_batch(message)
            else:
                self._on_report(message)
        except RetiredError:
            if isinstance(message, Report):
                self.world.send_down(message.host, Refusal(message.key))

    def _open(self, key: Key) -> Account:
        return self.ledger.open(
            key,
            self.world.now,
            forgets=not self.rules.never_forgotten and not self.older,
            keeps_gaps=self.rules.closed_with_gaps,
        )

    def _on_batch(self, batch: Batch) -> None:
        account = self._open(batch.key)
        account.advance_to(batch.base)
        if batch.number >= account.contiguous + EXTRAS_MAX:
            return
        if account.settle(batch.number):
            account.inserted += 1
            self._pending.append(batch.row)

    def _on_report(self, report: Report) -> None:
        ended = report.ended and self.rules.ended_is_no_rival and not self.older
        if not ended and self._is_rival(report):
            self.world.send_down(report.host, Refusal(report.key))
            if not self.rules.rival_stays_open:
                self.ledger.retire(report.key)
            return
        account = self._open(report.key)
        account.advance_to(report.base)
        smaller = report.end < account.produced or report.dropped < account.dropped
        if not smaller or (report.ended and self.rules.held_is_replaced):
            account.produced = max(account.produced, report.end)
            account.dropped = max(account.dropped, report.dropped)
            account.held = report.held
        if report.ended and not self.older and account.held > report.held:
            raise AssertionError(f"{account.held} rows in flight where {report.held} are held")
        self._asked.add((report.host, report.key))

    def _is_rival(self, report: Report) -> bool:
        """Return whether two processes use this id and this one came later."""
        # An older learner tells processes by their session alone.
        who = report.key[1] if self.older else report.process
        now = self.world.now
        before = self._seen.get(report.key[0], {})
        seen = {name: claim for name, claim in before.items() if now - claim[1] < RIVALS_AFTER}
        since = seen[who][0] if who in seen else now
        seen[who] = (since, now)
        self._seen[report.key[0]] = seen
        return any(
            other != who and first < since and last - since >= RIVALS_AFTER
            for other, (first, last) in seen.items()
        )

    # Disk

    def commit(self) -> None:
        """Commit rows and ledger, and acknowledge them."""
        self.world.on_commit(self.disk, self._pending)
        self.disk.rows += self._pending
        self.disk.ledger = self.ledger.copy()
        self._pending = []
        for host, key in sorted(self._asked):
            self.world.send_down(host, self._ack(key))
        self._asked = set()

    def _ack(self, key: Key) -> Ack:
        account = self.disk.ledger.find(key) or Account()
        says_safe = not self.older and key in self._answered
        self._answered.add(key)
        return Ack(
            key,
            self.disk.epoch,
            self.name,
            account.contiguous,
            frozenset(account.extras),
            self._safe_below(key) if says_safe else None,
            self.older,
        )

    def _safe_below(self, key: Key) -> int:
        if self.snapshot is not None:
            ledger = self._called_safe
        elif self.rules.safe_is_synced:
            ledger = self.disk.synced_ledger
        else:
            ledger = self.disk.ledger
        account = None if ledger is None else ledger.find(key)
        return 0 if account is None else account.contiguous

    def sync(self) -> None:
        """Begin a sync of the columns, or record one that is done."""
        if self._syncing is None:
            self._syncing = (len(self.disk.rows), self.disk.ledger.copy())
            return
        self.disk.synced_rows, self.disk.synced_ledger = self._syncing
        self._syncing = None
        if self.snapshot is None:
            self.world.on_safe(self.disk.synced, self.host)

    # Snapshots

    def take_snapshot(self) -> None:
        """One step of a generation: copy, write aside and look once more, create, verify."""
        if self.snapshot is None or self.older or not self.snapshot.is_there or self.ended:
            return
        if self._created is not None:
            self._verify(self.snapshot, self._created)
        elif self._aside is not None:
            self._create(self.snapshot, self._aside)
        elif self._generation is not None:
            self._write_aside(self.snapshot, self._generation)
        else:
            self._generation = self._copy(self.snapshot)

    def _copy(self, snapshot: SnapshotDirectory) -> Generation | None:
        disk = self.disk
        newest = snapshot.newest
        if newest is not None and self.rules.descent_is_checked and not self._descends(newest):
            self.ended = "its replay is no descendant of the snapshot"
            self.world.on_no_descendant(self.host)
            return None
        if self.rules.snapshot_is_synced:
            end = disk.synced_rows
            ledger = disk.synced_ledger
        else:
            end = len(disk.rows)
            ledger = disk.ledger
        if not self.rules.snapshot_is_of_one_moment:
            ledger = disk.ledger
        whole = newest is not None and snapshot.chain(newest) is not None
        if not self.rules.chain_is_checked:
            whole = self._last_name != 0
        first = 0
        parent = 0
        if whole and newest is not None:
            first = min(newest.end, end)
            parent = newest.name
        elif whole:
            first = end
            parent = self._last_name
        return Generation(
            number=1 + (newest.number if newest else 0),
            name=self.world.rng.getrandbits(60) + 1,
            behind=newest.name if newest else 0,
            parent=parent,
            first=first,
            rows=tuple(disk.rows[first:end]),
            ledger=ledger.copy(),
            start=self.name,
            starts=tuple(disk.starts),
            reserved=max(disk.epoch + 2, newest.reserved if newest else 0),
        )

    def _descends(self, newest: Generation) -> bool:
        """Return whether this replay goes on from where the newest generation was written."""
        if self._origin is not None and self._last_name == 0:
            return newest is self._origin or newest.start == self.name
        if not self.rules.descent_by_start:
            return len(self.disk.rows) >= newest.end
        return self.disk.end_of(newest.start) >= newest.end

    def _write_aside(self, snapshot: SnapshotDirectory, generation: Generation) -> None:
        self._generation = None
        snapshot.aside.add(generation.name)
        newest = snapshot.newest.name if snapshot.newest is not None else 0
        if newest == generation.behind or not self.rules.newest_is_compared:
            self._aside = generation

    def _create(self, snapshot: SnapshotDirectory, generation: Generation) -> None:
        self._aside = None
        if generation.name not in snapshot.aside and self.rules.created_from_aside:
            return
        if not self.rules.safe_after_creation:
            self._called_safe = generation.ledger
        if generation.number in snapshot.generations and self.rules.created_exclusively:
            return
        snapshot.generations[generation.number] = generation
        self._created = generation

    def _verify(self, snapshot: SnapshotDirectory, generation: Generation) -> None:
        self._created = None
        newest = snapshot.newest
        if newest is not generation and self.rules.created_exclusively:
            return
        if snapshot.chain(generation) is None and self.rules.chain_is_checked:
            return
        self._last_name = generation.name
        self.disk.reserved = generation.reserved
        self._serves = True
        self.world.on_safe(set(snapshot.rows_of(snapshot.newest_whole)), self.host)
        self._called_safe = generation.ledger


def start_from_snapshot(world: Observer, host: int, snapshot: SnapshotDirectory) -> Learner | None:
    """Start a learner on a new disk; None if the snapshot has nothing whole."""
    whole = snapshot.newest_whole
    newest = snapshot.newest
    if whole is None or newest is None:
        return None
    disk = ReplayDisk(archives=True)
    disk.rows = snapshot.rows_of(whole)
    disk.ledger = whole.ledger.copy()
    disk.starts = list(whole.starts)
    reserved = max(known.reserved for known in snapshot.generations.values())
    disk.epoch = reserved + 1 if world.rules.epoch_exceeds_reserved else 1
    disk.reserved = disk.epoch - 1  # it has to be in the snapshot first
    return Learner(world, host, disk, snapshot, older=False, origin=newest)

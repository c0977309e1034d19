"""Draws a schedule of steps and faults for the model of the outbox, and checks what is promised."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from outbox_disks import OutboxDisk, ReplayDisk, Row, SnapshotDirectory  # beside this file
from outbox_ledger import Key
from outbox_parties import (
    HELD_MAX,
    MESSAGE_AGE_MAX,
    RIVALS_AFTER,
    SYNC_EVERY,
    Ack,
    Batch,
    Follows,
    Learner,
    Manager,
    Refusal,
    Report,
    start_from_snapshot,
)
from outbox_rules import ALL, Rules

_STEPS = (200, 900)
_DRAIN_MAX = 6000
_FAULT_SHARE = 0.03
_COPY_SHARE = 0.01  # of the steps at which the snapshot's disk is copied, where it is put back


class BrokenPromiseError(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class ManagerHost:
    """A machine with a manager.

    Args:
        at: the machine of the learner that it is connected to.
        cut_until: its network is away until this step.
        second: another process on the same outbox, where nothing keeps it from that.
    """

    name: int
    manager: str
    outbox: bool
    drops: bool
    at: int
    disk: OutboxDisk
    process: Manager | None = None
    second: Manager | None = None
    cut_until: int = 0
    down_until: int = 0

    @property
    def processes(self) -> list[Manager]:
        """All that run here."""
        return [process for process in (self.process, self.second) if process is not None]


@dataclass(slots=True)
class LearnerHost:
    """A machine with a learner.

    Args:
        disk: None where it was destroyed.
        frozen_until: its process stands still until this step, and goes on then.
    """

    name: int
    disk: ReplayDisk | None
    process: Learner | None = None
    down_until: int = 0
    frozen_until: int = 0


@dataclass(slots=True)
class RowFate:
    """What is known of one row.

    Args:
        promised_at: the step in which it was appended, or sent; -1: neither.
        excused: a fault took it that the table of promises names, or a full outbox.
        key, number: under which it was first appended.
    """

    host: int
    outbox: bool
    promised_at: int = -1
    excused: bool = False
    key: Key = ("", 0)
    number: int = 0


class World:
    """One schedule. `run` raises an AssertionError where an invariant does not hold.

    Args:
        kinds: the kinds of faults; None: drawn.
    """

    def __init__(self, seed: int, rules: Rules = ALL, kinds: Sequence[str] | None = None) -> None:
        self.seed = seed
        self.rules = rules
        self.rng = rng = random.Random(seed)
        self.now = 0
        self.fates: list[RowFate] = []
        self.story: list[str] = []
        self.faults: list[str] = []
        """The kinds of faults that have come."""
        self.rows_stored = 0
        self.rows_lost = 0  # of managers with an outbox, at the end
        self._messages: list[tuple[int, bool, int, Batch | Report | Ack | Refusal]] = []
        self._lossy = rng.choice((0.0, 0.1, 0.4))
        # What is promised depends on these two.
        self.older = rng.random() < 0.15  # the learner, at first
        self._began_older = self.older
        self.snapshot = SnapshotDirectory() if not self.older and rng.random() < 0.75 else None
        self.learners = [LearnerHost(0, ReplayDisk(archives=not self.older))]
        self.current = 0
        self._host_of: dict[int, int] = {}  # of each learner
        self._epochs: dict[int, int] = {}  # and the host that served under it
        self._ever_safe: set[Row] = set()
        self._ever_stored: set[Row] = set()
        self._at_risk: set[Row] = set()  # were in the snapshot before it was damaged
        self._put_back = False  # the current learner's disk, or it has taken over
        self._contested = False
        """The snapshot was damaged while a learner that was replaced still reached it, and the
        current one has no generation there since: either of them may own it."""
        self._was_contested = False  # so copies of it may be of another line than the current one
        self._given_twice: list[range] = []
        """Epochs that two learners may have: what reserved them was forgotten."""
        self._cloned = False
        self._shared_until = -1_000_000  # the last step in which two used one id
        self._old_outboxes: dict[int, OutboxDisk] = {}
        self._old_replay: ReplayDisk | None = None
        self._old_snapshots: list[SnapshotDirectory] = []  # copies of several ages
        self.hosts = [
            ManagerHost(
                name=number,
                manager=f"m{number}",
                outbox=number == 0 or rng.random() < 0.7,
                drops=rng.random() < 0.5,
                at=0,
                disk=OutboxDisk(),
            )
            for number in range(rng.choice((1, 1, 2)))
        ]
        self._kinds = self._draw_kinds() if kinds is None else list(kinds)
        self._weights = [rng.choice((0.2, 1.0, 3.0)) for _ in range(9)]

    def _draw_kinds(self) -> list[str]:
        kinds = ["kill", "kill", "kill", "power", "cut", "kill_learner", "kill_learner"]
        kinds += ["power_learner", "wait", "fail_sync", "tear", "second"]
        if self.older:
            kinds += ["upgrade"]
        else:
            kinds += ["roll_back", "clone", "copy_outboxes", "downgrade", "lose_outbox"]
        if self.snapshot is not None:
            kinds += ["unmount", "wipe", "roll_back_snapshot", "destroy", "take_over"]
            kinds += ["misdirect", "freeze_learner"]
        kinds += ["copy_replay", "roll_back_replay"]
        kept = [kind for kind in kinds if self.rng.random() < 0.6]
        return kept or ["kill"]

    # What parties tell

    def new_row(self, host: int, *, outbox: bool) -> Row:
        self.fates.append(RowFate(host, outbox))
        return len(self.fates) - 1

    def on_promised(self, row: Row, key: Key, number: int) -> None:
        fate = self.fates[row]
        if fate.promised_at < 0:
            fate.promised_at = self.now
            fate.key = key
            fate.number = number

    def on_dropped(self, rows: list[Row]) -> None:
        for row in rows:
            self.fates[row].excused = True

    def on_deleted(self, rows: list[Row]) -> None:
        """Check that the right party has what an outbox deletes."""
        for row in rows:
            fate = self.fates[row]
            # Of an older learner nothing better than "stored" is known.
            has = self._ever_stored if self._began_older or not fate.outbox else self._ever_safe
            if row not in has and not fate.excused:
                raise BrokenPromiseError(f"row {row} is deleted and not safe")

    def on_commit(self, disk: ReplayDisk, rows: list[Row]) -> None:
        host = next(learner.name for learner in self.learners if learner.disk is disk)
        epoch = disk.epoch
        if self._epochs.setdefault(epoch, host) != host and not self._may_be_of_two(epoch):
            raise BrokenPromiseError(f"two learners have served under epoch {epoch}")
        stored = set(disk.rows)
        for row in rows:
            if row in stored:
                raise BrokenPromiseError(f"row {row} is stored twice")
            stored.add(row)
        self._ever_stored |= set(rows)
        if host != self.current:  # of a learner that was replaced
            self._excuse_without_outbox(set(rows))
        self.rows_stored += len(rows)

    def on_safe(self, rows: set[Row], host: int) -> None:
        """Check that what was called safe before is there, but for what a damage has taken."""
        if self.snapshot is not None and (gone := self._ever_safe - self._at_risk - rows):
            if not self._contested:
                raise BrokenPromiseError(f"rows {gone} were called safe, and are not there")
            self._at_risk |= gone
            disk = self.learners[self.current].disk
            self._excuse(gone - set(disk.rows if disk is not None else ()))
        self._ever_safe |= rows
        self._at_risk -= rows
        if host == self.current:
            self._put_back = False
            self._contested = False

    def _may_be_of_two(self, epoch: int) -> bool:
        return any(epoch in epochs for epochs in self._given_twice)

    def on_learner(self, learner: int, host: int) -> None:
        self._host_of[learner] = host

    def on_followed(self, learner: Follows, before: Follows) -> None:
        """Check that nobody goes back to a learner that was replaced.

        The learners' hosts have numbers in the order in which they took over. After the snapshot
        was put back two of them may have one epoch.
        """
        if learner[0] == before[0] and self._may_be_of_two(learner[0]):
            return
        if (self._host_of[learner[1]], learner[0]) < (self._host_of[before[1]], before[0]):
            raise BrokenPromiseError(f"epoch {learner[0]} is followed after {before[0]}")

    def on_no_descendant(self, learner: int) -> None:
        if learner == self.current and not self._put_back and not self._contested:
            raise BrokenPromiseError("a learner that only failed is no descendant of its snapshot")

    def on_refused(self, host: int) -> None:
        ids = [other.manager for other in self.hosts]
        if ids.count(ids[host]) == 1 and self.now - self._shared_until > 2 * RIVALS_AFTER:
            raise BrokenPromiseError(f"manager {host} is refused, and is the only one with its id")
        self._say(f"manager {host} is refused")

    def send_up(self, host: int, message: Batch | Report) -> None:
        if self.hosts[host].cut_until <= self.now:
            self._messages.append((self.now, True, self.hosts[host].at, message))

    def send_down(self, host: int, message: Ack | Refusal) -> None:
        if self.hosts[host].cut_until <= self.now:
            self._messages.append((self.now, False, host, message))

    def _say(self, text: str) -> None:
        self.story.append(f"{self.now}: {text}")

    # The schedule

    def run(self) -> None:
        """Play all of it."""
        for host in self.hosts:
            self._start_manager(host)
        self._start_learner(self.learners[0])
        steps = self.rng.randint(*_STEPS)
        for _ in range(steps):
            self._step()
            if "roll_back_snapshot" in self._kinds and self.rng.random() < _COPY_SHARE:
                self._copy_snapshot()
            if self.rng.random() < _FAULT_SHARE:
                self._fail(self.rng.choice(self._kinds))
        self._say("healed")
        self._heal()
        self._drain()
        self._check_end()

    def _step(self) -> None:
        """One step of somebody."""
        self.now += 1
        self._start_again()
        for host in self.hosts:
            for process in host.processes:
                if process.must_sync:
                    process.sync()
        rng = self.rng
        deliver, produce, append, send, report, tidy, commit, sync, snapshot = self._weights
        what = rng.choices(range(9), (9 * deliver, 4 * produce, 4 * append, 4 * send, 4 * report,
                                      tidy, 3 * commit, sync, snapshot))[0]  # fmt: skip
        if what == 0:
            self._deliver()
            return
        if what <= 5:
            host = rng.choice(self.hosts)
            if not host.processes:
                return
            process = rng.choice(host.processes)
            if what == 1:
                process.produce()
            elif what == 2:
                process.append()
            elif what == 3:
                process.send_batch()
            elif what == 4:
                process.report()
            elif rng.random() < 0.6:
                process.delete_safe()
            else:
                process.sync()
            self._check_bound()
            return
        at = rng.choice(self.learners)
        learner = at.process
        if learner is None or learner.ended or self._is_frozen(at):
            return
        learner.poll_start()
        if what == 8 or not learner.serves:
            learner.take_snapshot()
        elif what == 6:
            learner.commit()
        else:
            learner.sync()

    def _deliver(self) -> None:
        self._messages = [m for m in self._messages if self.now - m[0] <= MESSAGE_AGE_MAX]
        if not self._messages:
            return
        at = self.rng.randrange(len(self._messages))
        _, up, to, message = self._messages.pop(at)
        if self.rng.random() < self._lossy:
            return
        if up:
            learner = self.learners[to].process
            if learner is not None and not self._is_frozen(self.learners[to]):
                assert isinstance(message, Batch | Report)
                learner.on_message(message)
            return
        for manager in self.hosts[to].processes:
            assert isinstance(message, Ack | Refusal)
            manager.on_message(message)
            if manager.refused:
                self._end_manager(self.hosts[to])
                return

    def _is_frozen(self, learner: LearnerHost) -> bool:
        return self.now < learner.frozen_until

    def _start_again(self) -> None:
        for host in self.hosts:
            if host.process is None and host.down_until <= self.now:
                self._start_manager(host)
        for learner in self.learners:
            if learner.process is None and learner.disk and learner.down_until <= self.now:
                self._start_learner(learner)
        self._operate()

    def _start_manager(self, host: ManagerHost) -> None:
        if not host.outbox:
            host.disk = OutboxDisk()  # memory
        host.process = Manager(
            self, host.name, host.manager, host.disk, outbox=host.outbox, drops=host.drops
        )

    def _end_manager(self, host: ManagerHost) -> None:
        """Of two with one id, the later one ends; its operator starts it with another id."""
        self._kill(host)
        host.manager = f"m{host.name}x{self.now}"
        self._shared_until = self.now

    def _start_learner(self, host: LearnerHost) -> None:
        assert host.disk is not None
        host.process = Learner(self, host.name, host.disk, self.snapshot, older=self.older)

    def _operate(self) -> None:
        """Do what an operator does: a learner that does not start is started from the snapshot, or
        by the newer release."""
        current = self.learners[self.current]
        process = current.process
        if process is not None and process.ended:
            if process.older:
                self.older = False
                self._start_learner(current)
            elif self.snapshot is not None and self.snapshot.is_there and self.rng.random() < 0.1:
                self._start_from_snapshot_or_anew(current, self.snapshot)

    def _start_from_snapshot_or_anew(self, host: LearnerHost, snapshot: SnapshotDirectory) -> None:
        if not self._replace_learner(host.name):
            snapshot.put_back({})  # the fragments of a directory that was wiped
            self._start_learner(host)

    def _replace_learner(self, host: int) -> bool:
        """Start a learner from the snapshot on this machine. Managers find it by name."""
        assert self.snapshot is not None
        started = self._start_from(self.snapshot, host)
        if started is None:
            return False
        before = self.learners[self.current].disk
        rows = set(before.rows) if before is not None else set()
        self._excuse_without_outbox(rows - set(started.disk.rows))
        self._excuse(self._at_risk - set(started.disk.rows))
        self.learners[host].disk = started.disk
        self.learners[host].process = started
        self.current = host
        self._put_back = True
        self._say(f"learner {host} is started from the snapshot, epoch {started.disk.epoch}")
        for manager in self.hosts:
            if self.rng.random() < 0.7:
                manager.at = host
        return True

    def _start_from(self, snapshot: SnapshotDirectory, host: int) -> Learner | None:
        """Start a learner from the snapshot. It may take the snapshot over before it copies it, and
        be killed while it copies: then nothing of it is left but its generation."""
        started = start_from_snapshot(self, host, snapshot)
        if started is not None and self.rng.random() < 0.5:
            for _ in range(self.rng.randint(3, 4)):
                started.take_snapshot()
            if self.rng.random() < 0.3:
                return start_from_snapshot(self, host, snapshot)
        return started

    # Faults

    def _fail(self, kind: str) -> None:
        self._say(kind)
        self.faults.append(kind)
        getattr(self, f"_fail_{kind}")()

    def _soon(self) -> int:
        return self.now + self.rng.choice((1, 5, 30, 120))

    def _kill(self, host: ManagerHost) -> None:
        if host.process is not None and not host.outbox:
            self._excuse(host.disk.held)
        host.process = None
        host.second = None
        host.down_until = self._soon()

    def _fail_second(self) -> None:
        """Somebody starts a manager once more on the same outbox."""
        host = self.rng.choice(self.hosts)
        if not self.rules.folder_is_locked and host.outbox and host.process is not None:
            host.second = Manager(
                self, host.name, host.manager, host.disk, outbox=True, drops=host.drops
            )

    def _fail_fail_sync(self) -> None:
        self.rng.choice(self.hosts).disk.fails_sync = True

    def _fail_tear(self) -> None:
        self.rng.choice(self.hosts).disk.tears = True

    def _fail_kill(self) -> None:
        self._kill(self.rng.choice(self.hosts))

    def _fail_power(self) -> None:
        host = self.rng.choice(self.hosts)
        lives = host.process is not None
        self._kill(host)
        if not host.outbox:
            return
        before = host.disk.held
        for row in host.disk.unsynced:
            if lives and self.now - self.fates[row].promised_at > SYNC_EVERY:
                raise BrokenPromiseError(f"row {row} is old and not synced")
        host.disk.lose_power(self.rng)
        self._excuse_unless_kept(before - host.disk.held)

    def _fail_cut(self) -> None:
        self.rng.choice(self.hosts).cut_until = self.now + self.rng.choice((10, 60, 300))

    def _fail_wait(self) -> None:
        self.rng.choice(self.hosts).down_until = self._soon()

    def _fail_copy_outboxes(self) -> None:
        for host in self.hosts:
            if host.outbox:
                self._old_outboxes[host.name] = host.disk.copy()

    def _fail_roll_back(self) -> None:
        host = self.rng.choice(self.hosts)
        old = self._old_outboxes.get(host.name)
        if old is None or not host.outbox:
            return
        self._kill(host)
        before = host.disk.held
        host.disk = old.copy()
        self._excuse_unless_kept(before - host.disk.held)

    def _fail_lose_outbox(self) -> None:
        host = self.rng.choice(self.hosts)
        if host.outbox:
            self._kill(host)
            before = host.disk.held
            host.disk = OutboxDisk()
            self._excuse_unless_kept(before)

    def _fail_clone(self) -> None:
        """A machine that was made from the image of another one, which goes on."""
        if self._cloned or not self.hosts[0].outbox:
            return
        self._cloned = True
        old = self.hosts[0]
        disk = self._old_outboxes.get(0, old.disk) if self.rng.random() < 0.5 else old.disk
        name = len(self.hosts)
        manager = old.manager if self.rng.random() < 0.7 else f"m{name}"
        clone = ManagerHost(name, manager, True, old.drops, old.at, disk.copy())
        self.hosts.append(clone)
        self._start_manager(clone)

    def _fail_kill_learner(self) -> None:
        host = self.rng.choice(self.learners)
        if host.process is None or not host.process.ended:
            host.process = None
            host.down_until = self._soon()

    def _fail_freeze_learner(self) -> None:
        """A learner stands still between any two steps, as at a mount that does not answer."""
        self._freeze(self.rng.choice(self.learners))

    def _freeze(self, host: LearnerHost) -> None:
        host.frozen_until = self.now + self.rng.choice((10, 60, 300))

    def _fail_power_learner(self) -> None:
        host = self.learners[self.current]
        if host.disk is None or (host.process is not None and host.process.ended):
            return
        host.process = None
        host.down_until = self._soon()
        before = set(host.disk.rows)
        host.disk.lose_power(self.rng, archive_is_synced=self.rules.archive_is_synced)
        self._excuse_stored(before - set(host.disk.rows))

    def _fail_copy_replay(self) -> None:
        disk = self.learners[self.current].disk
        if disk is not None:
            self._old_replay = disk.copy()

    def _fail_roll_back_replay(self) -> None:
        """The learner's disk is put back from an older copy of it."""
        host = self.learners[self.current]
        if self._old_replay is None or host.disk is None:
            return
        before = set(host.disk.rows)
        host.disk = self._old_replay.copy()
        self._give_twice(host.disk.epoch)  # the copy may be of another learner's disk
        host.process = None
        host.down_until = self._soon()
        self._put_back = True
        gone = before - set(host.disk.rows)
        self._excuse_without_outbox(gone)
        if self.snapshot is None:
            # Their outboxes may have deleted them, or learn any moment that they may.
            self._excuse(gone & (self._ever_stored if self._began_older else self._ever_safe))
        self._excuse(self._at_risk & gone)

    def _fail_upgrade(self) -> None:
        self.older = False

    def _fail_downgrade(self) -> None:
        """Somebody starts the release before on the replay of this one."""
        host = self.learners[self.current]
        if host.process is not None and host.process.serves:
            self.older = True
            self._start_learner(host)

    def _fail_unmount(self) -> None:
        assert self.snapshot is not None
        self.snapshot.is_there = self.rng.random() < 0.5

    def _damage(self, generations: SnapshotDirectory) -> None:
        assert self.snapshot is not None
        before = self.snapshot.rows
        self.snapshot.put_back(generations.generations)
        self._at_risk |= before - self.snapshot.rows
        self._contested = self._contested or self._replaced_lives or self._is_of_another_line
        self._was_contested = self._was_contested or self._contested
        reserved = [known.reserved for known in generations.generations.values()]
        self._give_twice(max(reserved, default=0))
        # The learner's disk was put back a moment before: both disks have lost them.
        disk = self.learners[self.current].disk
        if disk is not None:
            self._excuse(self._at_risk - set(disk.rows))

    @property
    def _replaced_lives(self) -> bool:
        """True if a learner that was replaced goes on, or will."""
        return any(
            learner.disk is not None and (learner.process is None or not learner.process.ended)
            for learner in self.learners
            if learner.name != self.current
        )

    @property
    def _is_of_another_line(self) -> bool:
        """True if the snapshot is of one who owned it before, when either of two might, or has
        generations that it had lost when the current learner was started from it."""
        assert self.snapshot is not None
        disk = self.learners[self.current].disk
        newest = self.snapshot.newest
        if disk is None or newest is None or (self._put_back and not self._was_contested):
            return False
        return disk.end_of(newest.start) < newest.end

    def _give_twice(self, above: int) -> None:
        """Epochs above one, as far as they are reserved now, may be reserved once more."""
        disks = [learner.disk for learner in self.learners if learner.disk is not None]
        most = max((max(disk.epoch, disk.reserved) for disk in disks), default=0)
        self._given_twice.append(range(above + 1, max([most, *self._epochs]) + 1))

    def _fail_wipe(self) -> None:
        self._damage(SnapshotDirectory())

    def _copy_snapshot(self) -> None:
        """The snapshot's disk is copied now and then, such as each night."""
        if self.snapshot is not None and self.snapshot.generations:
            copy = SnapshotDirectory()
            copy.put_back(self.snapshot.generations)
            self._old_snapshots.append(copy)

    def _fail_roll_back_snapshot(self) -> None:
        if self._old_snapshots:
            self._damage(self.rng.choice(self._old_snapshots))

    def _fail_misdirect(self) -> None:
        """A manager finds a learner at the name that was replaced, or the other way round."""
        self.rng.choice(self.hosts).at = self.rng.randrange(len(self.learners))

    def _fail_destroy(self) -> None:
        """The learner's host is gone, with its disk. Another one takes its place."""
        self._replace(destroyed=True)

    def _fail_take_over(self) -> None:
        """A learner is taken for dead, and goes on, perhaps in the middle of a generation, and
        perhaps after it has stood still for a while."""
        host = self.learners[self.current]
        old = host.process
        if old is not None and self.rng.random() < 0.7:
            for _ in range(self.rng.randint(1, 8)):
                old.take_snapshot()
        if self.rng.random() < 0.5:
            self._freeze(host)
        if "roll_back_snapshot" in self._kinds and self.rng.random() < 0.5:
            self._fail("roll_back_snapshot")  # its disk was replaced, for which the learner waits
        self._replace(destroyed=False)
        if self.rng.random() < 0.2:
            self._replace(destroyed=False)  # two operators
        new = self.learners[self.current].process
        for process in self.rng.choices((old, new), k=self.rng.randint(0, 8)):
            if process is not None and not (process is old and self._is_frozen(host)):
                process.take_snapshot()

    def _replace(self, *, destroyed: bool) -> None:
        assert self.snapshot is not None
        if not self.snapshot.is_there or self.snapshot.newest_whole is None:
            return
        if len(self.learners) > 2:
            return
        old = self.learners[self.current]
        new = LearnerHost(len(self.learners), None)
        self.learners.append(new)
        self._replace_learner(new.name)
        if destroyed:
            old.disk = None
            old.process = None

    # Who is excused

    def _excuse(self, rows: set[Row]) -> None:
        for row in rows:
            self.fates[row].excused = True

    def _excuse_without_outbox(self, rows: set[Row]) -> None:
        """A manager without an outbox has freed what was stored."""
        self._excuse({row for row in rows if not self.fates[row].outbox})

    def _excuse_stored(self, rows: set[Row]) -> None:
        """The learner lost its power: rows that nobody promised to keep may be lost."""
        self._excuse_without_outbox(rows)
        if self._began_older:  # it has acknowledged them, or its ack is under way
            self._excuse(rows)

    def _excuse_unless_kept(self, rows: set[Row]) -> None:
        """An outbox lost these: those that are safe must not be lost."""
        disk = self.learners[self.current].disk
        if self.snapshot is not None:
            kept = self.snapshot.rows
        else:
            kept = disk.synced if disk is not None else set()
        self._excuse(rows - kept)

    # The end

    def _heal(self) -> None:
        if self.snapshot is not None:
            self.snapshot.is_there = True
        self.older = self.older and self.rng.random() < 0.5
        self._lossy = 0.0
        self._weights = [1.0] * 9
        self._weights[1] = 0.0
        self._weights[6:] = [2.0, 2.0, 3.0]
        for host in self.hosts:
            host.second = None
            host.cut_until = 0
            host.down_until = min(host.down_until, self.now)
        for learner in self.learners:
            learner.down_until = min(learner.down_until, self.now)
            learner.frozen_until = min(learner.frozen_until, self.now)

    def _drain(self) -> None:
        """Go on until all outboxes are empty."""
        for step in range(_DRAIN_MAX):
            self._step()
            if step % 50 == 0:
                for host in self.hosts:
                    host.at = self.current
                if step > 200 and self._is_drained():
                    return
        held = {host.name: len(host.disk.held) for host in self.hosts}
        why = getattr(self.learners[self.current].process, "ended", "")
        raise BrokenPromiseError(f"outboxes do not become empty: rows by host {held} {why}")

    def _is_drained(self) -> bool:
        process = self.learners[self.current].process
        if process is None or not process.serves:
            return False
        return not any(host.disk.held for host in self.hosts) and all(
            len(host.disk.files) == 1 for host in self.hosts
        )

    def _check_bound(self) -> None:
        for host in self.hosts:
            if len(host.disk.held) > HELD_MAX * (2 if "power" in self.faults else 1):
                raise BrokenPromiseError(f"an outbox holds {len(host.disk.held)} batches")

    def _check_end(self) -> None:
        process = self.learners[self.current].process
        disk = self.learners[self.current].disk
        assert process is not None
        assert disk is not None
        process.commit()
        stored = disk.rows
        if len(set(stored)) != len(stored):
            raise BrokenPromiseError("a row is stored twice")
        for row in set(range(len(self.fates))) - set(stored):
            fate = self.fates[row]
            self.rows_lost += fate.outbox and fate.promised_at >= 0
            if fate.promised_at >= 0 and not fate.excused:
                raise BrokenPromiseError(f"row {row} of host {fate.host} is lost")
        self._check_accounting(process, stored)

    def _check_accounting(self, learner: Learner, stored: list[Row]) -> None:
        made: dict[Key, int] = {}
        for fate in self.fates:
            if fate.promised_at >= 0:
                made[fate.key] = max(made.get(fate.key, 0), fate.number + 1)
        inserted = lost = 0
        for key, account in learner.ledger.all_accounts().items():
            produced, *parts = account.counts(self.now, of_missing=self.rules.dropped_is_of_missing)
            if produced != sum(parts) or min(parts) < 0:
                raise BrokenPromiseError(f"the accounting of {key} does not balance")
            if produced > made.get(key, 0):
                raise BrokenPromiseError(f"{key} counts {produced} rows of {made.get(key, 0)}")
            inserted += parts[0]
            lost += parts[1] + parts[3]
        if inserted != len(stored):
            raise BrokenPromiseError(f"{inserted} rows count as inserted, {len(stored)} are stored")
        excused = sum(fate.excused for fate in self.fates) - sum(
            self.fates[row].excused for row in stored
        )
        if lost > excused:
            raise BrokenPromiseError(f"{lost} rows count as lost, {excused} are")


def play(seed: int, rules: Rules = ALL, kinds: Sequence[str] | None = None) -> str:
    """Play one schedule. Return what is wrong; "" if nothing is."""
    world = World(seed, rules, kinds)
    try:
        world.run()
    except AssertionError as error:
        return f"seed {seed}, step {world.now}: {error}"
    return ""

"""The life of a run on a disk that fails: replay, ledger, checkpoints and ``run.json`` together.

A learner without sockets and processes inserts what managers send, syncs, saves and begins epochs.
Every row says which it is, so what is there can be held against what was done.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from counting_rows import DTYPE, rows_of
from failing_disk import FailingDisk
from kinds_of_rows import Machine
from power_failure import PowerFailure

from vedette_protocol.messages import Batch, Report
from vedette_rl.core.columns import empty_columns
from vedette_rl.errors import ReplayRowsLostError, RlError
from vedette_rl.replay.checksums import block_entries
from vedette_rl.replay.ring import RingWriter, recover_replay
from vedette_rl.replay.syncing import Recovery, read_synced
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.errors import ServicesError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.ring_stamp import ActorNumbers, count_lost, pack_stamp, read_stamp

CAPACITY = 600
GUARD = 160
BATCH_MAX = 40
DISK_ERRORS = (OSError, RlError, ServicesError)
"""What a failing disk may raise of us."""


class KilledError(Exception):
    """The process is killed here."""


class Manager:
    """Sends batches of rows until they are acknowledged."""

    def __init__(self, number: int) -> None:
        self.name = f"m{number}"
        self.window: dict[int, list[int]] = {}
        self.produced = 0
        self.next_seq = 0

    def produce(self, rows: list[int]) -> None:
        self.window[self.next_seq] = rows
        self.next_seq += 1
        self.produced += len(rows)

    @property
    def base(self) -> int:
        return min(self.window, default=self.next_seq)

    def batch(self, run_id: str, seq: int) -> Batch:
        rows = len(self.window[seq])
        return Batch(
            run_id, self.name, 7, seq, 0, 1, 0, b"\0" * 8, rows, b"", self.base, env_steps=rows
        )

    def report(self, run_id: str) -> Report:
        in_window = sum(map(len, self.window.values()))
        return Report(
            manager=self.name,
            incarnation=7,
            host="h",
            state="running",
            run_id=run_id,
            produced=self.produced,
            dropped=0,
            window_batches=len(self.window),
            window_rows=in_window,
            window_bytes=in_window,
            sequenced=self.next_seq,
            base=self.base,
            limit=self.next_seq,
            actors=(),
        )


class Learner:
    """One start of the learner on a run's directory.

    Args:
        root: the run's directory.
        on_recovered: told what the replay was recovered to, if it was.
    """

    def __init__(self, root: Path, on_recovered: Callable[[Recovery], None]) -> None:
        self.run = RunDirectory(root)
        self.run.make()
        self.run_id = self.run.ensure_id()
        recovery = recover_replay(
            self.run.replay, partial(count_lost, self.run_id, self.run.replay)
        )
        if recovery is not None:
            on_recovered(recovery)
        self.epoch = self.run.begin_epoch().epoch
        self.checkpoints = Checkpoints(self.run.checkpoints, keep=2)
        loaded = self.checkpoints.load_latest()
        self.opt_steps = int(loaded.path.name) if loaded else 0
        if loaded:
            weights = loaded.state["weights"]
            np.testing.assert_array_equal(weights, weights_at(self.opt_steps))
        self.open_ring()

    def open_ring(self) -> None:
        """Begin to write the replay, as the gateway does."""
        self.ring = RingWriter.open(
            self.run.replay,
            DTYPE,
            CAPACITY,
            run_id=self.run_id,
            guard=GUARD,
            sync_interval_s=3600.0,
            recovers=False,
        )
        self.ledger, _ = read_stamp(self.run_id, self.ring.stamp, 0.0)

    def insert(self, manager: Manager, seq: int) -> list[int]:
        """Take a batch; the rows that are new."""
        batch = manager.batch(self.run_id, seq)
        if not self.ledger.has_account(manager.name, 7):
            self.ledger.mark_alive(manager.name, 7, 0.0)
        self.ledger.account(manager.name, 7).grant(64)
        if self.ledger.record_batch(batch, 0.0) != "new":
            return []
        numbers = manager.window[seq]
        self.ring.append(rows_of(np.array(numbers)), len(numbers))
        return numbers

    def commit(self) -> None:
        """Make what was taken visible, with the ledger."""
        self.ring.commit(pack_stamp(self.ledger, ActorNumbers()))

    def save(self) -> None:
        """Save a checkpoint."""
        steps = self.opt_steps + 10
        self.checkpoints.save(steps, {"weights": weights_at(steps)}, {"run_id": self.run_id})
        self.opt_steps = steps

    def kill(self) -> None:
        """End as by ``kill -9``."""
        self.ring._held.close()


def weights_at(opt_steps: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The weights after so many steps."""
    return np.arange(3000, dtype=np.int64) * opt_steps


class Life:
    """A run on a failing disk, and what is true of it.

    Args:
        root: where its directory and those of its copies are made.
        machine: what it runs on.
        chance: of all that happens.

    Attributes:
        history: the uids of all rows that were committed, by number.
        synced: rows of the last sync.
        saved: optimization steps of the last checkpoint that was saved.
        epoch: the last one that was begun.
        made: rows that managers have produced.
        lost: rows that recoveries took, in all.
        recoveries: those that were said since the last start that succeeded.
    """

    def __init__(self, root: Path, machine: Machine, chance: random.Random) -> None:
        self._machine = machine
        self.chance = chance
        self._root = root
        self._copies = 0
        # False: a whole commit may be there that is older than the last, and nothing tells so.
        self._knows_loss = True
        # Rows below are not promised: newer ones may have been written into their slots.
        self._overwritten = 0
        self.managers = [Manager(number) for number in range(3)]
        self.history: list[int] = []
        self.synced = self.saved = self.epoch = 0
        self.lost = self.made = 0
        self.recoveries: list[Recovery] = []
        self._snapshots: list[tuple[Path, list[int], int, int]] = []
        self._held = contextlib.ExitStack()
        place = root / "disk-0"
        place.mkdir()
        self._mount(place)

    def _mount(self, place: Path) -> None:
        self._held.close()
        self.place = place
        self.disk = self._held.enter_context(FailingDisk(place, self.chance))

    def close(self) -> None:
        self._held.close()

    @property
    def root(self) -> Path:
        """The run's directory."""
        return self.place / "run"

    # Starts

    def start(self) -> None:
        """Start the learner, and check what it has found."""
        self.learner = Learner(self.root, self.recoveries.append)
        assert self.learner.epoch > self.epoch, "a start has a number of its own"
        self.epoch = self.learner.epoch
        self._check()

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.learner.kill()
        self.start()

    def kill_in_commit(self) -> None:
        """Kill it within a commit: its rows and their checksums are written, and it is not."""
        ring = self.learner.ring
        before = len(self.history), self.made
        write = ring._commits.write

        def killed(*_: object, **__: object) -> None:
            raise KilledError

        ring._commits.write = killed  # type: ignore[method-assign]  # this object's alone
        with contextlib.suppress(KilledError):
            self.insert()
        ring._commits.write = write  # type: ignore[method-assign]
        assert len(self.history) == before[0]
        self.restart()

    def come_from_older_release(self) -> None:
        """End in good order, and have a replay as releases without checksums wrote it: alone, or
        behind rows of one that has them."""
        path = self.root / "replay" / "checksums.bin"
        of_before = path.read_bytes()
        is_alone = self.chance.random() < 0.5
        for _ in range(0 if is_alone else 4):
            self.insert()
        self.learner.ring.close()
        self.synced = len(self.history)
        if is_alone:
            path.unlink()
            self.disk.sync_folder(path.parent)
        else:
            with path.open("r+b") as file:
                file.write(of_before)
                file.flush()
                os.fsync(file.fileno())
        self.start()
        assert self.learner.ring.inserted == self.synced

    def lose_cache_behind_older_release(self) -> None:
        """Lose all but the last commit of what only memory has, behind rows of an older release."""
        self.fail_beneath_readers()  # so that no row is old enough to be overwritten
        self.come_from_older_release()
        self.insert()
        self.disk.write_back("commits")
        self.lose_cache()

    def lose_cache_of_older_release(self) -> None:
        """Lose what only memory has, while newer rows come to those of an older release."""
        while len(self.history) < CAPACITY:
            self.insert()
        self.come_from_older_release()
        begun = len(self.history)
        while len(self.history) - begun <= GUARD:
            self.insert()
        self.disk.write_back("*.bin", but="checksums.bin")
        self.lose_cache()

    def lose_commit_of_end(self) -> None:
        """End in good order on a disk that says so and has not written the last commit."""
        self.disk.lie_about("commits")
        self.learner.ring.close()
        self.synced = len(self.history)
        self.lose_cache()

    def restart_gateway(self) -> None:
        """Kill the one process that writes the replay, and start it again."""
        self.learner.kill()
        self.disk.has_readers = True
        try:
            self.learner.open_ring()
        except ReplayRowsLostError:
            self.disk.has_readers = False
            self.start()
            return
        finally:
            self.disk.has_readers = False
        assert self.learner.ring.inserted == len(self.history), "nothing is lost beneath readers"
        self._check()

    def _check(self) -> None:
        """What a start has found is what it must be."""
        learner = self.learner
        ring = learner.ring
        inserted = ring.inserted
        assert inserted >= self.synced, "synced rows are there"
        assert ring.live()[0] <= max(0, inserted - CAPACITY, self._overwritten), "all of them"
        assert learner.opt_steps >= self.saved, "a saved checkpoint is there"
        if inserted < len(self.history) and self._knows_loss:
            assert self.recoveries, "a loss is said"
        assert all(map(str, self.recoveries))
        self.recoveries.clear()
        self._knows_loss = True
        self.lost += len(self.history) - inserted
        del self.history[inserted:]
        self.synced = min(self.synced, inserted)
        self.saved = learner.opt_steps
        self.check_rows()
        self.check_accounting()

    def _note_bound(self) -> None:
        """Note how far the writer may have come: this is what a loss of its pages may take."""
        record = read_synced(self.root / "replay")
        bound = max(self.learner.ring._syncer.bound, record.bound if record else 0)
        self._overwritten = max(self._overwritten, bound - CAPACITY - GUARD)

    def check_rows(self) -> None:
        """Every live row is the one that was inserted as this number, whole and once."""
        ring = self.learner.ring
        oldest, inserted = ring.live()
        numbers = np.arange(oldest, inserted)
        found = empty_columns(ring.drawn_dtype, len(numbers))
        ring.gather(numbers % (CAPACITY + GUARD), found)
        uids = np.array(self.history[oldest:inserted], np.int64)
        for name, expected in rows_of(uids).items():
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert len(np.unique(uids)) == len(uids)

    def check_accounting(self) -> None:
        """The ledger knows of every row that was made where it is, or that it is lost."""
        learner = self.learner
        for manager in self.managers:
            if learner.ledger.has_account(manager.name, 7):
                account = learner.ledger.account(manager.name, 7)
                for seq in filter(account.is_settled, list(manager.window)):
                    del manager.window[seq]  # it was acknowledged once more
            if manager.produced:
                learner.ledger.on_report(manager.report(learner.run_id), 0.0, claims_max=1000)
        found = learner.ledger.accounting()
        in_flight = sum(len(rows) for m in self.managers for rows in m.window.values())
        there = set(self.history).union(*(r for m in self.managers for r in m.window.values()))
        assert found.produced == self.made
        assert found.inserted == len(self.history) == learner.ring.inserted
        assert found.lost == self.made - len(there)
        assert found.in_flight == in_flight

    # What it does

    def work(self) -> None:
        """Insert, sync, save: whatever comes next."""
        match self.chance.choice(("insert",) * 12 + ("sync",) * 3 + ("extend", "save", "note")):
            case "insert":
                self.insert()
            case "sync":
                self.sync()
            case "extend":
                self.learner.ring._syncer.extend()
            case "save":
                self.learner.save()
                self.saved = self.learner.opt_steps
            case "note":
                self.disk.note()

    def insert(self) -> None:
        learner = self.learner
        if learner.ring.room < BATCH_MAX:
            learner.ring._syncer.extend()
        taken: list[tuple[Manager, int]] = []
        new: list[int] = []
        for _ in range(self.chance.randint(1, 3)):
            manager = self.chance.choice(self.managers)
            if len(manager.window) < 8:
                count = self.chance.randint(1, BATCH_MAX)
                manager.produce(list(range(self.made, self.made + count)))
                self.made += count
            seq = self.chance.choice(list(manager.window))
            if learner.ring.room < len(manager.window[seq]):
                break
            new += learner.insert(manager, seq)
            taken.append((manager, seq))
        learner.commit()
        self.history += new
        for manager, seq in taken:
            if self.chance.random() < 0.8:  # else the acknowledgement is lost
                manager.window.pop(seq, None)

    def sync(self) -> None:
        latest = self.learner.ring.inserted
        self.learner.ring._syncer.sync()
        self.synced = max(self.synced, latest)

    # What happens to it

    def end_orderly(self) -> None:
        """End as a command does that is asked to, and start again."""
        self.learner.ring.close()
        self.synced = len(self.history)
        self.disk.note()
        self.start()
        assert self.learner.ring.inserted == self.synced

    def fail_writing_back(self) -> None:
        """Let the system fail to write pages back by itself, and kill the process that would have
        been told at its next sync."""
        self._work_until_it_fails()
        self.disk.fail_writing_back()
        self.restart()
        for _ in range(self.chance.randint(0, 10)):
            self.work()
        if self.chance.random() < 0.5:
            self.sync()
            self.disk.drop_pages()
            self.check_rows()

    def fail_sync(self) -> None:
        """Let a sync fail once and then succeed, with pages dropped before, between or later."""
        self.disk.fail_syncs(self.chance.randint(1, 4))
        self._work_until_it_fails()
        self.disk.fail_syncs(0)
        self._go_on_after_failure()

    def lie_and_fail(self) -> None:
        """Let a sync succeed that has not written all, as a short write may, and the next fail."""
        self.disk.lie(self.chance.randint(1, 6))
        self.synced = self.saved = self.epoch = 0
        for _ in range(3):
            self._work_until_it_fails()
        self.disk.lie(0)
        self.insert()
        self.disk.fail_syncs(1)
        with contextlib.suppress(OSError):
            self.sync()
        self.disk.fail_syncs(0)
        self.synced = self.saved = self.epoch = 0
        self._overwritten = len(self.history)
        self._go_on_after_failure()

    def fail_beneath_readers(self) -> None:
        """Let a sync succeed that has written little, and a later one fail; start the gateway again
        beneath readers, whose maps keep what the disk has not."""
        self.insert()
        self.disk.lie(100)
        self.sync()
        self.disk.lie(0)
        for _ in range(4):
            self.insert()
        self.disk.fail_syncs(1)
        with contextlib.suppress(OSError):
            self.sync()
        self.disk.fail_syncs(0)
        self.synced = self.saved = self.epoch = 0
        self._overwritten = len(self.history) + block_entries(GUARD)
        self.restart_gateway()
        self.disk.drop_pages()
        self.check_rows()

    def _work_until_it_fails(self) -> None:
        for _ in range(12):
            try:
                self.work()
            except DISK_ERRORS:
                break

    def _go_on_after_failure(self) -> None:
        self._note_bound()
        # After a failed sync, rows that share a block with overwritten ones are left out.
        self._overwritten += block_entries(GUARD)
        if self.chance.random() < 0.5:
            self.disk.drop_pages()
        self.chance.choice((self.restart, self.restart_gateway))()
        for _ in range(self.chance.randint(0, 10)):
            self.work()
        self.disk.drop_pages()
        self.check_rows()

    def lose_cache(self) -> None:
        """Lose what only memory has: the power fails, or a volume is detached and attached."""
        self._note_bound()
        self.learner.kill()
        self._mount(self._image(self.disk.lose_power))
        self._knows_loss = self.chance.random() < 0.5
        if self._knows_loss:
            self._machine.starts += 1
        self.start()

    def lose_cache_in_a_sync(self) -> None:
        """The same where a sync would begin, also one of a start."""
        self.disk.fail_power_after(int(1.3 ** self.chance.uniform(0, 14)))
        with contextlib.suppress(PowerFailure):
            for _ in range(30):
                self.work()
                if self.chance.random() < 0.2:
                    self.restart()
        self.disk.fail_power_after(None)
        self.lose_cache()

    def lose_cache_after_a_failed_record(self) -> None:
        """Let the sync of a record fail, and lose the cache where the next one is synced, which may
        be torn then."""
        self.insert()
        self.sync()
        if self.learner.ring._syncer._record._map.seq % 2:  # the next but one may be torn
            self.insert()
            self.sync()
        self.insert()
        self.disk.fail_syncs(1)
        with contextlib.suppress(OSError):
            self.learner.ring._syncer.extend()
        self.disk.fail_syncs(0)
        self._note_bound()
        self._overwritten += block_entries(GUARD)  # as in `_go_on_after_failure`
        self.disk.fail_power_at("synced", 1)  # the first sync is that of the opened file
        with contextlib.suppress(PowerFailure):
            self.restart()
        self.lose_cache()

    def run_full(self) -> None:
        """Have no room from some call on, until it is made."""
        self.disk.full_after(self.chance.randint(0, 12))
        with contextlib.suppress(*DISK_ERRORS):
            for _ in range(self.chance.randint(1, 20)):
                self.work()
        self.learner.kill()
        with contextlib.suppress(*DISK_ERRORS):
            self.start()
            self.learner.kill()
        self.disk.full_after(None)
        self.start()

    def fail_reads(self) -> None:
        """Fail to read rows at a start; then be well again."""
        self._note_bound()
        self.learner.kill()
        self.disk.fail_reads(True)
        with contextlib.suppress(*DISK_ERRORS):
            self.start()
            self.learner.kill()
        self.disk.fail_reads(False)
        self.start()

    def take_snapshot(self) -> None:
        """Copy the disk as it is, while all goes on."""
        image = self._image(self.disk.lose_power)
        self._snapshots.append((image, self.history.copy(), self.synced, self.saved))

    def put_back_snapshot(self) -> None:
        """Put an older copy in place of the disk."""
        if not self._snapshots:
            return
        image, self.history, self.synced, self.saved = self._snapshots.pop()
        self._snapshots.clear()
        self._put_back(image)

    def put_back_slow_copy(self) -> None:
        """Put back a copy whose files are of different times."""
        for _ in range(3):
            self.disk.note()
            for _ in range(self.chance.randint(0, 8)):
                self.work()
            if self.chance.random() < 0.2:
                self.end_orderly()
        image = self._image(self.disk.copy_slowly)
        self.synced = self.saved = 0
        self._put_back(image)

    def _put_back(self, image: Path) -> None:
        self.learner.kill()
        self._mount(image)
        self._knows_loss = False
        self._overwritten = len(self.history)
        self.epoch = 0
        self.start()

    def _image(self, make: Callable[[Path], None]) -> Path:
        self._copies += 1
        image = self._root / f"disk-{self._copies}"
        make(image)
        return image


@contextlib.contextmanager
def living(root: Path, machine: Machine, chance: random.Random) -> Iterator[Life]:
    """A life that has begun."""
    life = Life(root, machine, chance)
    try:
        life.start()
        try:
            yield life
        finally:
            life.learner.kill()  # its files are open in this process
    finally:
        life.close()


FAULTS = (
    "end_orderly",
    "restart",
    "restart_gateway",
    "kill_in_commit",
    "come_from_older_release",
    "fail_writing_back",
    "fail_sync",
    "lie_and_fail",
    "fail_beneath_readers",
    "lose_cache",
    "lose_cache_in_a_sync",
    "lose_cache_of_older_release",
    "lose_cache_behind_older_release",
    "lose_cache_after_a_failed_record",
    "lose_commit_of_end",
    "run_full",
    "fail_reads",
    "take_snapshot",
    "put_back_snapshot",
    "put_back_slow_copy",
)
"""All that happens to a life, by the names of its methods."""


def live(root: Path, machine: Machine, seed: int, faults: tuple[str, ...]) -> Life:
    """One life, with these faults in random order."""
    chance = random.Random(seed)
    root.mkdir()
    with living(root, machine, chance) as life:
        for _ in range(chance.randint(2, 6)):
            for _ in range(chance.randint(0, 40)):
                life.work()
            getattr(life, chance.choice(faults))()
    return life

"""Syncs a ring to the disk while it is written, and records what a power failure cannot take.

A power failure leaves each page that was changed since the last sync as it was or as it became. The
writer changes only the slots of new rows. So rows that were synced are whole after a power failure,
but for those whose slots newer rows may have taken. ``synced`` therefore says two things::

    inserted, stamp     a commit whose rows are on the disk
    bound               no row of this number or above has been written

Both are on the disk before the writer goes beyond the bound before. Row ``i`` lies where row
``i - physical_rows`` lay, so after a power failure the rows from ``bound - physical_rows`` to
``inserted`` are whole: `recover` keeps these. Frames that rows share are bounded likewise.

::

    syncer = RingSyncer(directory, manifest, latest, synced, bounded=True)
    syncer.start(5.0)                  # two threads: the writer never waits for the rows' sync
    while batches:
        append(rows)                   # below syncer.bound
        syncer.on_commit(commit)
    syncer.stop(); syncer.sync_columns(); syncer.record_end(); syncer.close()

What was committed after the last sync is then gone, for rows and stamp alike. The oldest rows may
be gone too: those whose slots the writer may have taken since.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vedette_rl.errors import LatestValueFormatError, ReplayTornError, RlError
from vedette_rl.replay import commits, ring_files
from vedette_rl.replay.commits import COMMITS, Commit, CommitWriter, last_commit
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.manifest import Manifest
from vedette_rl.replay.ring_files import column_files
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.latest_value import (
    LatestValueWriter,
    latest_value_file_bytes,
    read_latest_value,
)
from vedette_rl.storage.system import open_file, sync_mapped_file

SYNCED = "synced"
SYNCED_SLOTS = 2
UNBOUNDED = 1 << 62
"""The bound of a writer that does not sync."""

_RECORD = struct.Struct("<QQQQ16s")
_JOIN_S = 60.0


class CommitPoint(NamedTuple):
    """A commit of a ring: rows and shared entries inserted since the run began, and the stamp."""

    inserted: int
    shared: int
    stamp: bytes


class SyncedCommit(NamedTuple):
    """The contents of ``synced``.

    Args:
        commit: it is on the disk, with its rows.
        bound: rows from this number on were never written.
        shared_bound: the same of what the rows share.
        boot: the id of the machine's start in which it was written.
    """

    commit: CommitPoint
    bound: int
    shared_bound: int
    boot: bytes

    @property
    def closed(self) -> bool:
        """True if nothing was written behind the commit."""
        return (self.bound, self.shared_bound) == (self.commit.inserted, self.commit.shared)


def synced_file_bytes() -> int:
    """Bytes of ``synced``."""
    return latest_value_file_bytes(_value_bytes(), SYNCED_SLOTS)


def _value_bytes() -> int:
    return _RECORD.size + commits.STAMP_MAX_BYTES


def read_synced(directory: Path) -> SyncedCommit | None:
    """The last whole record; None where the file is missing or damaged."""
    try:
        newest = read_latest_value(directory / SYNCED, torn=True)
    except (FileNotFoundError, LatestValueFormatError):
        return None
    if newest is None or len(newest[1]) < _RECORD.size:
        return None
    inserted, shared, bound, shared_bound, boot = _RECORD.unpack_from(newest[1])
    commit = CommitPoint(inserted, shared, newest[1][_RECORD.size :])
    return SyncedCommit(commit, bound, shared_bound, boot)


class SyncedFile:
    """The one writer of ``synced``, behind the ring's lock. Made where it is not there."""

    def __init__(self, directory: Path) -> None:
        path = directory / SYNCED
        made = not path.exists()
        size = _value_bytes()
        try:
            self._map = LatestValueWriter(path, size, SYNCED_SLOTS, durable=True, torn=True)
        except LatestValueFormatError:  # damaged: `read_synced` has found nothing in it
            path.unlink()
            made = True
            self._map = LatestValueWriter(path, size, SYNCED_SLOTS, durable=True, torn=True)
        if made:
            sync_directory(directory)
        self._boot = commits.boot_id()

    def write(self, commit: CommitPoint, bound: int, shared_bound: int) -> None:
        """Replace the record. It is on the disk when this returns."""
        head = _RECORD.pack(commit.inserted, commit.shared, bound, shared_bound, self._boot)
        self._map.write(head, commit.stamp)
        self._map.sync()

    def close(self) -> None:
        """Close the file."""
        self._map.close()


class RingSyncer:
    """Syncs the columns of a ring, and bounds how far its writer may go until then.

    Args:
        directory, manifest: the ring's directory and manifest.
        latest: the ring's last commit.
        synced: the last commit that is on the disk; None: the columns are synced now.
        bounded: False: the ring is not synced while it is written, and has no bound.

    Attributes:
        bound: rows below may be written.
        shared_bound: the same of what they share.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        latest: CommitPoint,
        synced: CommitPoint | None,
        *,
        bounded: bool,
    ) -> None:
        self._directory = directory
        self._guard = manifest.guard
        self._shared_guard = manifest.shared.guard if manifest.shared else 0
        self._files = [
            open_file(path, writable=True) for _, path, *_ in column_files(directory, manifest)
        ]
        self._record = SyncedFile(directory)
        self._bounded = bounded
        self._latest = latest
        self._rate = (0, 0)  # rows, and shared entries, of the last interval
        self._record_lock = threading.Lock()
        self._stopped = threading.Event()
        self._short = threading.Event()  # the writer comes near the bound
        self._threads: list[threading.Thread] = []
        self._failure: OSError | None = None
        self.bound = self.shared_bound = 0
        if synced is None:
            self.sync_columns()
        self._synced = synced or latest
        self.extend()

    def start(self, interval_s: float) -> None:
        """Begin to sync every `interval_s` seconds, beside the writer."""
        for name, loop in (("sync", self._sync_often), ("bound", self._extend_often)):
            thread = threading.Thread(target=loop, args=(interval_s,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def on_commit(self, commit: CommitPoint) -> None:
        """Note the writer's last commit.

        Raises:
            RlError: the disk has failed, so a power failure could take what is written.
        """
        self._latest = commit
        if commit.inserted >= self._extend_at or commit.shared >= self._shared_extend_at:
            self._short.set()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the failure of a thread, if there was one.

        Raises:
            RlError: as `on_commit`.
        """
        if self._failure is not None:
            raise RlError(
                f"the replay in {self._directory} cannot be synced: "
                f"{self._failure.strerror or self._failure}: check the disk, or name another as "
                "replay.directory"
            ) from self._failure

    def sync(self) -> None:
        """Bring the last commit to the disk, with its rows, then record it."""
        latest = self._latest  # read first: rows that are committed meanwhile may not be synced
        before = self._synced
        if latest is before:
            return
        self.sync_columns()
        with self._record_lock:
            self._rate = latest.inserted - before.inserted, latest.shared - before.shared
            self._synced = latest
            self._write_record()

    def extend(self) -> None:
        """Raise the bound, as far as the writer will probably come in a part of an interval."""
        with self._record_lock:
            self._write_record()

    def stop(self) -> None:
        """End the threads."""
        self._stopped.set()
        self._short.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def record_end(self) -> None:
        """Record that the writer has ended: all that it committed is on the disk."""
        latest = self._latest
        self._record.write(latest, latest.inserted, latest.shared)

    def close(self) -> None:
        """End the threads and close the files, as they are."""
        self.stop()
        self._record.close()
        for file in self._files:
            os.close(file)

    def sync_columns(self) -> None:
        """Wait until the disk has what was written to the columns."""
        for file in self._files:
            sync_mapped_file(file)

    def _write_record(self) -> None:
        latest = self._latest
        synced = self._synced
        if self._bounded:
            reach = self._reach(latest.inserted - synced.inserted, self._rate[0], self._guard)
            shared_reach = self._reach(
                latest.shared - synced.shared, self._rate[1], self._shared_guard
            )
            bound, shared_bound = latest.inserted + reach, latest.shared + shared_reach
            # A bound never falls: the writer may be at the last one.
            bound, shared_bound = max(bound, self.bound), max(shared_bound, self.shared_bound)
            self._extend_at = bound - 2 * reach // 3
            self._shared_extend_at = shared_bound - 2 * shared_reach // 3
        else:
            bound = shared_bound = self._extend_at = self._shared_extend_at = UNBOUNDED
        self._record.write(synced, bound, shared_bound)
        # Only now: no row above a bound is written before the disk has that bound.
        self.bound, self.shared_bound = bound, shared_bound

    @staticmethod
    def _reach(since: int, rate: int, guard: int) -> int:
        """Rows from the last commit to the bound.

        Two thirds of them are left when the bound is raised again: at least the guard, the most
        that is appended before the next commit. Where half an interval's rows are more, it is
        these: after a power failure the slots of all rows below the bound count as overwritten.
        """
        return max(3 * guard // 2 + 1, since // 2, rate // 2)

    def _sync_often(self, interval_s: float) -> None:
        try:
            while not self._stopped.wait(interval_s):
                self.sync()
        except OSError as error:
            self._failure = error

    def _extend_often(self, _: float) -> None:
        try:
            while self._short.wait() and not self._stopped.is_set():
                self._short.clear()
                self.extend()
        except OSError as error:
            self._failure = error


# Recovery


PRIORITIES = "priorities.bin"

MergeStamps = Callable[[bytes, bytes], bytes]


class Recovery(NamedTuple):
    """A state to recover a replay to.

    Args:
        commit: the last that is on the disk.
        floor: rows below are gone.
        last_commit: the last one that is there, whose rows may be torn; None: it is torn itself.
        synced: False: nothing says which rows were synced, so all are gone.
    """

    commit: CommitPoint
    floor: int
    last_commit: Commit | None
    synced: bool

    def __str__(self) -> str:
        kept = self.commit.inserted - self.floor
        why = "the machine stopped, or the run came from another one, while the replay was written"
        if not self.synced:
            return f"{why}, and {SYNCED} is missing or damaged: its rows are lost, it begins empty"
        rows_lost = (
            max(0, self.last_commit.inserted - self.commit.inserted) if self.last_commit else 0
        )
        lost = f", {rows_lost:,} lost" if self.last_commit else ""
        return f"{why}: recovered to its last sync: {kept:,} rows kept{lost}"


def find_recovery(directory: Path, manifest: Manifest) -> Recovery | None:
    """The state that `recover` will make; None where the last commit holds. Changes nothing.

    Raises:
        ReplayTornError: a column's file is missing, cut short or another replay's.
    """
    synced = read_synced(directory)
    commit: Commit | None = None
    with contextlib.suppress(ReplayTornError):  # a power failure may have torn it, too
        commit = last_commit(directory)
    if commit is not None:
        closed, boot = (synced.closed, synced.boot) if synced else (commit.synced, commit.boot)
        # In the same start of the machine the page cache is taken to have kept every write.
        if closed or _is_this_start(boot):
            return None
    ring_files.check_files(directory, manifest)
    if synced is None:
        point = CommitPoint(commit.inserted, 0, commit.stamp) if commit else CommitPoint(0, 0, b"")
        return Recovery(point, point.inserted, commit, synced=False)
    floor = _first_whole_row(directory, manifest, synced)
    return Recovery(synced.commit, floor, commit, synced=True)


def recover(
    directory: Path, manifest: Manifest, merge_stamps: MergeStamps | None = None
) -> Recovery | None:
    """Make a replay whole that a power failure has torn; its lock must be held.

    Args:
        merge_stamps: makes the stamp from that of the synced commit and from that of a later one,
            whose rows are gone; None: it is that of the synced commit.

    Returns:
        What was done; None where the last commit holds.

    Raises:
        ReplayTornError: as `find_recovery`.
    """
    recovery = find_recovery(directory, manifest)
    if recovery is None:
        return None
    stamp = recovery.commit.stamp
    if (
        merge_stamps
        and recovery.last_commit
        and recovery.last_commit.inserted > recovery.commit.inserted
    ):
        stamp = merge_stamps(stamp, recovery.last_commit.stamp)
    # In this order: killed or cut off at any line, the next start does the same once more.
    ring_files.write_cursor(directory, recovery.commit.inserted, recovery.floor)
    (directory / PRIORITIES).unlink(missing_ok=True)  # of other rows: they start again
    (directory / COMMITS).unlink(missing_ok=True)
    CommitWriter.make(directory)
    commit = CommitWriter(directory)
    commit.write(recovery.commit.inserted, stamp, synced=True)
    commit.sync()
    commit.close()
    sync_directory(directory)
    record = SyncedFile(directory)
    record.write(
        recovery.commit._replace(stamp=stamp), recovery.commit.inserted, recovery.commit.shared
    )
    record.close()
    return recovery


def _is_this_start(boot: bytes) -> bool:
    """True if the machine has not started since, or cannot tell."""
    now = commits.boot_id()
    return boot == now or not any(now)


def _first_whole_row(directory: Path, manifest: Manifest, synced: SyncedCommit) -> int:
    """The first of the synced rows whose slot, and whose frames', no newer one may have taken."""
    inserted = synced.commit.inserted
    oldest = max(ring_files.read_floor(directory), inserted - manifest.capacity, 0)
    floor = min(inserted, max(oldest, synced.bound - manifest.physical_rows))
    if manifest.shared is None:
        return floor
    first_entry = synced.shared_bound - manifest.shared.all_entries
    mapped = ring_files.map_columns(directory, manifest, writable=False)
    spans = mapped.columns[FRAME_SPANS]
    rows = manifest.physical_rows
    numbers = range(floor, inserted)
    return floor + bisect.bisect_left(numbers, first_entry, key=lambda i: spans[i % rows, 0])

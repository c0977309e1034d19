"""Syncs a ring to the disk while it is written, and records what a lost page cache cannot take.

What was written since the last sync may be in memory alone. It is lost with the machine's power,
with a volume that is detached, with a write that fails: each page is then as it was at the sync, or
as it was at any time since. The writer changes only the slots of new rows. So rows that were synced
are whole then, but for those whose slots newer rows may have taken. ``synced`` therefore says two
things::

    inserted, stamp     a commit whose rows are on the disk
    bound               no row of this number or above has been written

Both are on the disk before the writer goes beyond the bound before. Row ``i`` lies where row
``i - physical_rows`` lay, so the rows from ``bound - physical_rows`` to ``inserted`` are whole.
Frames that rows share are bounded likewise.

A writer that ended without `record_end` was killed, or the memory of what it wrote may be gone. The
rows themselves say which: those that came after the last sync, and those whose slots may have been
taken, must have their checksums (`vedette_rl.replay.checksums`). Then the last commit holds, and
nothing is lost. Else `recover` goes back to the last sync.

A sync that failed is remembered. After it memory is not evidence either, because the system takes
the pages that it could not write for written: they are read from the disk, all of them.

::

    syncer = RingSyncer(directory, manifest, latest, synced, checksums, bounded=True)
    syncer.start(5.0)                  # two threads: the writer never waits for the rows' sync
    while batches:
        append(rows)                   # below syncer.bound
        syncer.on_commit(commit)
    syncer.stop(); syncer.sync_columns(); syncer.record_end(); syncer.close()

After a recovery, what was committed after the last sync is gone, for rows and stamp alike. The
oldest rows may be gone too: those whose slots the writer may have taken since.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from vedette_rl.errors import (
    BEGIN_EMPTY,
    LatestValueFormatError,
    OneWriterError,
    ReplayFormatError,
    ReplayTornError,
    RlError,
)
from vedette_rl.replay import commits, ring_files
from vedette_rl.replay.checksums import CHECKSUMS, BlockChecksums, RingChecksums
from vedette_rl.replay.commits import COMMITS, Commit, CommitWriter, last_commit
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.manifest import Manifest, SharedSpec
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
        # The next record overwrites the one before the last: the last one must be on the disk, also
        # where the sync of it has failed.
        self._map.rewrite()
        self._map.sync()
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
        checksums: of the rows, up to `latest`.
        bounded: False: the ring is not synced while it is written, and has no bound.
        limit: the bound is never raised above it; None: it may be.

    Attributes:
        bound: rows below may be written.
        shared_bound: the same of what they share.
        recorded: the last commit that the disk has, as `read_synced` would say.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        latest: CommitPoint,
        synced: CommitPoint | None,
        checksums: RingChecksums,
        *,
        bounded: bool,
        limit: int | None = None,
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._manifest = manifest
        self._checksums = checksums
        # Opened before anything is written: each reports the failures since.
        paths = [path for _, path, *_ in column_files(directory, manifest)]
        self._files = [open_file(path, writable=True) for path in (*paths, directory / CHECKSUMS)]
        self._record = SyncedFile(directory)
        self._bounded = bounded
        self._last = latest, checksums.tails  # the last commit, and the checksums that are its
        self._rate = (0, 0)  # rows, and shared entries, of the last interval
        self._record_lock = threading.Lock()
        self._stopped = threading.Event()
        self._due = threading.Event()  # a sync is asked for
        self._short = threading.Event()  # the writer comes near the bound
        self._threads: list[threading.Thread] = []
        self._failure: OSError | None = None
        self.bound = self.shared_bound = 0
        begin = (synced.inserted, synced.shared) if synced else (0, 0)
        checksums.rewrite(begin, (latest.inserted, latest.shared))
        self._synced = synced or latest
        if self._synced[:2] == latest[:2]:
            checksums.set_synced(checksums.tails, latest[:2])
        if synced is None:
            checksums.set_synced(checksums.tails, self._synced[:2])
            self.sync_columns()
            self._synced = latest
        self.extend()

    @property
    def _latest(self) -> CommitPoint:
        return self._last[0]

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
        self._last = commit, self._checksums.tails
        if commit.inserted >= self._extend_at or commit.shared >= self._shared_extend_at:
            self._short.set()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the failure of a thread, if there was one.

        Raises:
            RlError: as `on_commit`.
        """
        if self._failure is not None:
            raise sync_error(self._directory, self._failure) from self._failure

    def sync(self) -> None:
        """Bring the last commit to the disk, with its rows, then record it."""
        latest, tails = self._last  # read first: rows committed meanwhile may not be synced
        before = self._synced
        if latest is before:
            return
        self._checksums.set_synced(tails, before[:2])
        self.sync_columns()
        with self._record_lock:
            self._rate = latest.inserted - before.inserted, latest.shared - before.shared
            self._synced = latest
            self._write_record()

    def request_sync(self) -> None:
        """Have the thread sync now, and not at the end of its interval."""
        self._due.set()

    def raise_limit(self, limit: int) -> None:
        """Let the bound rise up to here."""
        if self._limit is None or limit > self._limit:
            self._limit = limit
            if self._extend_at == UNBOUNDED and self._bounded:  # the limit has held it
                self._short.set()

    def extend(self) -> None:
        """Raise the bound, as far as the writer will probably come in a part of an interval."""
        with self._record_lock:
            self._write_record()

    def stop(self) -> None:
        """End the threads."""
        self._stopped.set()
        self._due.set()
        self._short.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def record_end(self) -> None:
        """Record that the writer has ended: all that it committed is on the disk."""
        latest = self._latest
        self._record.write(latest, latest.inserted, latest.shared)
        self.recorded = latest

    def close(self) -> None:
        """End the threads and close the files, as they are."""
        self.stop()
        self._record.close()
        for file in self._files:
            os.close(file)

    def sync_columns(self) -> None:
        """Wait until the disk has what was written to the columns, and their checksums."""
        try:
            for file in self._files:
                sync_mapped_file(file)
        except OSError:
            self._checksums.sync_failed = True
            raise
        self._checksums.sync_failed = False

    def _write_record(self) -> None:
        latest = self._latest
        synced = self._synced
        manifest = self._manifest
        shared = manifest.shared
        bound = shared_bound = self._extend_at = self._shared_extend_at = UNBOUNDED
        if self._bounded:
            since = latest.inserted - synced.inserted
            bound, self._extend_at = _bound(
                latest.inserted, max(since, self._rate[0]), manifest, self.bound
            )
            if self._limit is not None and bound > self._limit:
                bound = max(self._limit, latest.inserted, self.bound)
                self._extend_at = UNBOUNDED  # until the limit is raised
        if self._bounded and shared:
            since = latest.shared - synced.shared
            shared_bound, self._shared_extend_at = _bound(
                latest.shared, max(since, self._rate[1]), shared, self.shared_bound
            )
        # From then on the entries in the slots below the bound have to be verified.
        self._checksums.fill_gaps(
            bound - manifest.physical_rows, shared_bound - shared.all_entries if shared else 0
        )
        self._record.write(synced, bound, shared_bound)
        self.recorded = synced
        # Only now: no row above a bound is written before the disk has that bound.
        self.bound, self.shared_bound = bound, shared_bound

    def _sync_often(self, interval_s: float) -> None:
        try:
            while True:
                self._due.wait(interval_s)
                self._due.clear()
                if self._stopped.is_set():
                    return
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


def _bound(latest: int, interval: int, ring: Manifest | SharedSpec, before: int) -> tuple[int, int]:
    """A bound above the last commit's entries, and the entry from which on it is to be raised.

    The slots of all entries below the bound count as overwritten where the page cache is lost. So
    it is near: what half an interval brings, or a guard, the most that is appended before the next
    commit, and a quarter of a small ring. When it is raised, a guard is left, or two thirds.

    Args:
        interval: entries that an interval brings.
        before: the bound until now: it never falls, as the writer may be at it.
    """
    guard = ring.guard
    reach = max(guard + min(guard // 2 + 1, max(1, ring.capacity // 4)), interval // 2)
    bound = max(latest + reach, before)
    return bound, bound - max(guard, 2 * reach // 3)


def sync_error(directory: Path, error: OSError) -> RlError:
    """The error of a replay whose disk does not take it."""
    return RlError(
        f"the replay in {directory} cannot be synced: {error.strerror or error}: check the disk, "
        "or name another as replay.directory"
    )


@contextlib.contextmanager
def sync_errors(directory: Path) -> Iterator[None]:
    """Raise what the disk reports as an error of the replay."""
    try:
        yield
    except OSError as error:
        raise sync_error(directory, error) from error


# Recovery


PRIORITIES = "priorities.bin"

MergeStamps = Callable[[bytes, bytes], bytes]


class Recovery(NamedTuple):
    """A state to recover a replay to.

    Args:
        commit: the last one that is whole.
        floor: rows below are gone.
        last_commit: the last one that is there, whose rows may be torn; None: it is torn itself.
        synced: the record of the last sync; None: nothing says which rows were synced, so all
            are gone.
        why: what was found.
    """

    commit: CommitPoint
    floor: int
    last_commit: Commit | None
    synced: SyncedCommit | None
    why: str

    @property
    def holds(self) -> bool:
        """True if the last commit that is there is whole."""
        return self.last_commit is not None and self.commit.inserted == self.last_commit.inserted

    def __str__(self) -> str:
        if self.synced is None:
            return f"{self.why}, and {SYNCED} is missing or damaged: {_ALL_LOST}"
        kept = f"{self.commit.inserted - self.floor:,} rows kept"
        if self.holds:
            return f"{self.why}: goes on from its last commit, which is whole: {kept}"
        lost = "what came after it is lost"  # and with it the last commit, which knew how much
        if self.last_commit and self.last_commit.inserted > self.commit.inserted:
            lost = f"{self.last_commit.inserted - self.commit.inserted:,} lost"
        return f"{self.why}: recovered to its last sync: {kept}, {lost}"


_ALL_LOST = "its rows are lost, it begins empty"
_NO_CHECKSUMS = (
    "the replay was not closed, and an earlier release wrote it, without checksums by which what "
    "came after the last sync could be verified"
)
_NOT_WHOLE = (
    "the replay was not closed, and not all of its rows are there (the machine stopped, the disk "
    "failed or went away, or the files are of different times)"
)
_SYNC_FAILED = "the disk failed while the replay was written"
_STOPPED = "the machine stopped, or the run came from another one, while the replay was written"
_OVERWRITTEN = "the replay was not closed, and some of its oldest rows may be overwritten"


def find_recovery(directory: Path, manifest: Manifest) -> Recovery | None:
    """The state that `recover` will make; None where the last commit holds. Changes nothing.

    No writer may run: its lock is held, or `find_recovery_at_rest` is called.

    Raises:
        ReplayTornError: a column's file is missing, cut short or another replay's.
        ReplayFormatError: rows that were synced cannot be read.
    """
    synced = read_synced(directory)
    commit: Commit | None = None
    with contextlib.suppress(ReplayTornError):  # lost pages may have torn it, too
        commit = last_commit(directory)
    if commit is not None:
        if synced is None and commit.synced:
            return None
        if synced and synced.closed and synced.commit.inserted == commit.inserted:
            return None
    ring_files.check_files(directory, manifest)
    with (
        _read_errors(directory),
        contextlib.closing(_Evidence(directory, manifest, synced)) as evidence,
    ):
        if commit is not None and (floor := evidence.floor_of(commit)) is not None:
            # It is whole. It may be older than the last one that was made.
            if _has_stopped(commit, synced):
                why = _STOPPED
            elif ring_files.read_inserted(directory) > commit.inserted:
                why = evidence.why
            elif floor > oldest_kept(directory, manifest, commit.inserted):
                why = _OVERWRITTEN
            else:
                return None
            point = CommitPoint(commit.inserted, 0, commit.stamp)
            return Recovery(point, floor, commit, synced, why)
        if synced is None:
            point = (
                CommitPoint(commit.inserted, 0, commit.stamp) if commit else CommitPoint(0, 0, b"")
            )
            return Recovery(point, point.inserted, commit, None, evidence.why)
        return Recovery(synced.commit, evidence.floor_of_sync(), commit, synced, evidence.why)


def find_recovery_at_rest(directory: Path, manifest: Manifest) -> Recovery | None:
    """The same where a writer may run: then its last commit holds.

    Raises:
        ReplayTornError: as `find_recovery`.
    """
    try:
        lock = ring_files.lock_directory(directory, shared=True)
    except OneWriterError:
        return None
    except FileNotFoundError:  # nobody has written to this copy
        return find_recovery(directory, manifest)
    try:
        return find_recovery(directory, manifest)
    finally:
        os.close(lock)


def find_doubt(directory: Path, manifest: Manifest) -> str:
    """Why a replay that readers have mapped cannot be written further; "" where it can.

    Raises:
        ReplayTornError: as `find_recovery`.
    """
    ring_files.check_files(directory, manifest)
    with contextlib.closing(_Evidence(directory, manifest, None)) as evidence:
        if evidence.sync_failed:
            return evidence.why
    recovery = find_recovery(directory, manifest)
    # A writer that was killed has overwritten no row that its readers draw.
    return "" if recovery is None or recovery.holds else recovery.why


def recover(
    directory: Path, manifest: Manifest, merge_stamps: MergeStamps | None = None
) -> Recovery | None:
    """Make a replay whole whose last rows are lost; its lock must be held.

    Args:
        merge_stamps: makes the stamp from that of the synced commit and from that of a later one,
            whose rows are gone; None: it is that of the synced commit.

    Returns:
        What was done; None where the last commit holds.

    Raises:
        ReplayTornError: as `find_recovery`.
    """
    recovery = find_recovery(directory, manifest)
    if recovery is not None:
        _recover_to(recovery, directory, merge_stamps)
    _settle_failed_sync(directory, manifest)
    return recovery


def _recover_to(recovery: Recovery, directory: Path, merge_stamps: MergeStamps | None) -> None:
    inserted = recovery.commit.inserted
    if recovery.holds:
        # Readers may have seen rows of a later commit, which is gone.
        new_branch = recovery.why != _OVERWRITTEN
        ring_files.write_cursor(directory, inserted, recovery.floor, new_branch=new_branch)
        if recovery.synced:  # now of this start of the machine
            record = SyncedFile(directory)
            record.write(*recovery.synced[:3])
            record.close()
        return
    stamp = recovery.commit.stamp
    if (
        merge_stamps
        and recovery.last_commit
        and recovery.last_commit.inserted > recovery.commit.inserted
    ):
        stamp = merge_stamps(stamp, recovery.last_commit.stamp)
    # In this order: killed or cut off at any line, the next start does the same once more.
    ring_files.write_cursor(directory, inserted, recovery.floor, new_branch=True)
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


def _settle_failed_sync(directory: Path, manifest: Manifest) -> None:
    """After a sync that failed, bring what is whole to the disk.

    Raises:
        RlError: it fails again.
    """
    ring_files.check_files(directory, manifest)
    checksums = RingChecksums.read(directory, manifest)
    if checksums is None:
        return
    checksums.close()
    if not checksums.sync_failed:
        return
    synced = read_synced(directory)
    shared = manifest.shared
    begins, ends = (0, 0), (last_commit(directory).inserted, shared.all_entries if shared else 0)
    if synced:
        begins = synced.commit[:2]
        ends = ends[0], min(synced.shared_bound, begins[1] + ends[1])
    with sync_errors(directory), contextlib.closing(RingChecksums.open(directory, manifest)) as own:
        own.rewrite(begins, ends)
        own.sync_all()
        own.sync_failed = False


def _has_stopped(commit: Commit, synced: SyncedCommit | None) -> bool:
    """True if the machine has certainly started again since the replay was opened to write."""
    before = synced.boot if synced else commit.boot
    now = commits.boot_id()
    return any(now) and any(before) and before != now


def oldest_kept(directory: Path, manifest: Manifest, inserted: int) -> int:
    """The oldest row that a replay keeps of so many inserted ones."""
    return max(ring_files.read_floor(directory), inserted - manifest.capacity, 0)


@contextlib.contextmanager
def _read_errors(directory: Path) -> Iterator[None]:
    """Raise what the disk refuses to read as an error of the replay."""
    try:
        yield
    except OSError as error:
        raise ReplayFormatError(
            f"the replay in {directory} cannot be read: {error.strerror or error}: check the disk, "
            f"or {BEGIN_EMPTY}"
        ) from error


class _Evidence:
    """The rows of a replay that nobody writes, held against their checksums.

    Args:
        directory, manifest: the replay's.
        synced: the record of its last sync.

    Attributes:
        sync_failed: a sync has failed, and none has succeeded since.
        why: what is wrong with it.
    """

    def __init__(self, directory: Path, manifest: Manifest, synced: SyncedCommit | None) -> None:
        self._directory = directory
        self._manifest = manifest
        self._synced = synced
        self._checksums = RingChecksums.read(directory, manifest)
        self.sync_failed = self._checksums is not None and self._checksums.sync_failed
        self.why = _SYNC_FAILED if self.sync_failed else _NOT_WHOLE
        if self._checksums is None:
            self.why = _NO_CHECKSUMS
        if self.sync_failed and self._checksums:
            self._checksums.forget_pages()

    def close(self) -> None:
        """Close the files."""
        if self._checksums:
            self._checksums.close()

    def floor_of(self, commit: Commit) -> int | None:
        """The first row of a commit that is whole, as all rows behind it are; None: not all of its
        last rows are."""
        manifest = self._manifest
        count = commit.inserted
        synced = self._synced
        if synced and count < synced.commit.inserted:  # the page cache is lost, and this with it
            return None
        oldest = oldest_kept(self._directory, manifest, count)
        floor = self._lowest_whole(
            self._checksums.rows if self._checksums else None,
            _Span(oldest, synced.commit.inserted if synced else 0, count),
            (synced.bound if synced else UNBOUNDED) - manifest.physical_rows,
        )
        shared = manifest.shared
        if floor is None or shared is None or floor == count:
            return floor
        spans = self._frame_spans()
        shared_count = int(spans[(count - 1) % len(spans), 1])
        oldest = max(int(spans[floor % len(spans), 0]), shared_count - shared.capacity)
        lowest = self._lowest_whole(
            self._checksums.shared if self._checksums else None,
            _Span(oldest, synced.commit.shared if synced else 0, shared_count),
            (synced.shared_bound if synced else UNBOUNDED) - shared.all_entries,
        )
        if lowest is None or lowest <= oldest:
            return floor if lowest is not None else None
        return first_row_with(spans, lowest, floor, count)

    def floor_of_sync(self) -> int:
        """The first row of the last sync that is whole, as all rows behind it are.

        No newer row may have taken its slot, or those of its frames. A disk that has lost what
        came later may not have kept its word on these either, so they are verified too.
        """
        synced = self._synced
        assert synced is not None, "there was a sync"
        manifest = self._manifest
        count = synced.commit.inserted
        oldest = oldest_kept(self._directory, manifest, count)
        floor = min(count, max(oldest, synced.bound - manifest.physical_rows))
        if self._checksums:
            overwritten = synced.bound - manifest.physical_rows
            floor = self._lowest_synced(self._checksums.rows, floor, count, overwritten)
        shared = manifest.shared
        if shared is None or floor == count:
            return floor
        spans = self._frame_spans()
        shared_count = synced.commit.shared
        overwritten = synced.shared_bound - shared.all_entries
        floor = first_row_with(spans, overwritten, floor, count)
        if self._checksums and self._checksums.shared and floor < count:
            oldest = int(spans[floor % len(spans), 0])
            lowest = self._lowest_synced(self._checksums.shared, oldest, shared_count, overwritten)
            floor = first_row_with(spans, lowest, floor, count)
        return floor

    def _lowest_whole(
        self, sums: BlockChecksums | None, span: _Span, overwritten: int
    ) -> int | None:
        """The first entry from which on all are whole; None: not all that must be are.

        Args:
            overwritten: the slots of entries below may hold newer ones.
        """
        oldest, synced, count = span
        synced = min(max(synced, oldest), count)
        reached = overwritten
        overwritten = min(max(overwritten, oldest), synced)
        if sums is None:
            return overwritten if synced == count else None
        try:
            lowest = sums.lowest_whole(synced, count, count)
        except OSError:  # what came since the last sync can be left, and nothing else
            return None
        if lowest > synced:
            # Entries that were being appended may lie in the oldest ones' block.
            shared_block = synced == oldest and sums.block_begin(oldest) < reached
            return lowest if shared_block and lowest <= sums.block_end(oldest) else None
        floor = overwritten
        if self.sync_failed:
            floor = sums.lowest_whole(overwritten, synced, count, unknown=True)
        return sums.lowest_whole(oldest, floor, count) if floor == overwritten else floor

    def _lowest_synced(self, sums: BlockChecksums, begin: int, end: int, overwritten: int) -> int:
        """The first of synced entries from which on all are whole.

        Args:
            overwritten: the slots of entries below may hold newer ones.
        """
        lowest = sums.lowest_whole(begin, end, end, unknown=True)
        if sums.block_begin(begin) < overwritten and not self.sync_failed:
            # Newer entries may lie in the first block, so it cannot be verified.
            return begin if lowest <= sums.block_end(begin) else lowest
        return lowest

    def _frame_spans(self) -> NDArray[Any]:
        mapped = ring_files.map_columns(self._directory, self._manifest, writable=False)
        return mapped.columns[FRAME_SPANS]


class _Span(NamedTuple):
    """Entries of a ring: the oldest that is kept, those that were synced, and all."""

    oldest: int
    synced: int
    end: int


def first_row_with(spans: NDArray[Any], entry: int, begin: int, end: int) -> int:
    """The first row from `begin` to `end` whose shared entries are not below a number."""
    numbers = range(begin, end)
    return begin + bisect.bisect_left(numbers, entry, key=lambda i: int(spans[i % len(spans), 0]))

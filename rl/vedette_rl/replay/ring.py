"""The ring on disk: memory-mapped columns that one process writes and others read.

::

    ring = RingWriter.open(directory, row_dtype, capacity, run_id=run_id)
    ledger = Ledger.from_bytes(ring.stamp, now)     # what was committed last, with its rows
    while batches:
        if ring.room < rows: ring.commit(ledger.to_bytes())
        ring.append(columns, rows)                  # beyond the cursor: not visible yet
    ring.commit(ledger.to_bytes())                  # rows and stamp, both or neither
    ring.close()                                    # the disk has all of it

    ring = RingReader(directory)                    # in another process
    ring.columns["reward"][places]                  # live rows: see `vedette_rl.replay.rows`

Data is written first, then the commit (a value of `vedette_rl.storage.latest_value`, which is there
whole or not at all), then the cursor that readers poll. So ``kill -9`` at any instruction leaves
the rows and the stamp of the last commit, as long as the system's memory has them. If that is lost
before the disk has them, pages are there in any mixture. So the rows are synced from time to time
(`vedette_rl.replay.syncing`), and a replay that was not closed, and whose rows are not those of
their checksums (`vedette_rl.replay.checksums`), is recovered to the last sync.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from vedette_rl.core.columns import Columns, empty_columns
from vedette_rl.errors import (
    BEGIN_EMPTY,
    ReplayFormatError,
    ReplayRowsLostError,
    ReplayTornError,
)
from vedette_rl.replay import ring_files
from vedette_rl.replay.checksums import RingChecksums
from vedette_rl.replay.commits import COMMITS, NO_COMMIT, CommitWriter, last_commit
from vedette_rl.replay.manifest import (
    MANIFEST,
    ColumnSpec,
    Manifest,
    SharedSpec,
    new_manifest,
    read_manifest,
    write_manifest,
)
from vedette_rl.replay.rows import RowAppender, Rows, default_guard, kept_of_guard
from vedette_rl.replay.syncing import (
    CommitPoint,
    MergeStamps,
    Recovery,
    RingSyncer,
    find_doubt,
    find_recovery_at_rest,
    read_synced,
    recover,
    sync_errors,
)
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.latest_value import MemoryFence
from vedette_rl.storage.unfinished import remove_unfinished

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RingWriter(RowAppender):
    """The writing end. Made by `RingWriter.open`."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        commits: CommitWriter,
        checksums: RingChecksums,
        batch_rows: int | None = None,
    ) -> None:
        mapped = ring_files.map_columns(directory, manifest, writable=True)
        inserted = commits.last.inserted
        self.stamp = commits.last.stamp
        super().__init__(mapped.columns, manifest.capacity, inserted, batch_rows, manifest.keep)
        self.manifest = manifest
        self.shared = mapped.shared
        self._directory = directory
        self._maps = mapped.maps
        self._commits = commits
        self._checksums = checksums
        self._held = ExitStack()
        self._cursor = ring_files.map_cursor(directory, manifest, writable=True)
        self._cursor[0] = inserted  # a writer killed between commit and cursor left it behind
        self.floor = ring_files.read_floor(directory)
        self._fence = MemoryFence()

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        row_dtype: np.dtype[Any],
        capacity: int,
        *,
        run_id: str,
        guard: int | None = None,
        batch_rows: int | None = None,
        keep: int = 0,
        shared: SharedSpec | None = None,
        sync_interval_s: float = 0.0,
        recovers: bool = True,
        kept_from: int | None = None,
    ) -> Self:
        """Open a run's replay, or make an empty one. Its space on disk is taken now.

        One whose last rows are lost is recovered to its last sync.

        Args:
            directory: the ring's directory; it is made if it is missing.
            row_dtype: the columns, as a structured dtype.
            capacity: rows that can be drawn.
            run_id: whose rows these are.
            guard: rows that may be appended before a commit; None: the replay's own, or
                `default_guard` for a new one.
            batch_rows: the most rows that are appended at once, as the readers are told: what the
                guard has room for beyond them is in part left alone (`kept_of_guard`).
            keep: rows before those that can be drawn that are left alone, beside the guard's.
            shared: the columns that its rows share (`vedette_rl.replay.frame_ring`). A replay keeps
                as many entries as it was made with.
            sync_interval_s: seconds between two syncs; 0: only when it is closed.
            recovers: False: readers have it mapped, so it must not be recovered beneath them.
            kept_from: as `keep_from` has it, from the beginning on.

        Raises:
            ReplayFormatError: torn, foreign, or of another run, capacity or columns.
            ReplayRowsLostError: its last rows are lost, and it is not to be recovered.
            ReplayBudgetError: the disk has no room.
            OneWriterError: another process has it open.
        """
        directory = Path(directory)
        guard_rows = guard or default_guard(capacity, row_dtype.itemsize)
        asked = new_manifest(row_dtype, capacity, guard_rows, run_id, shared, keep)
        with ExitStack() as held:
            held.callback(os.close, _prepare(directory))
            if not (directory / MANIFEST).exists():
                _make(directory, asked)
            manifest = read_manifest(directory)
            _compare(directory, asked, manifest, guard)
            if recovers:
                recover(directory, manifest)
            elif why := find_doubt(directory, manifest):
                raise ReplayRowsLostError(directory, why)
            commits = CommitWriter(directory)
            held.callback(commits.close)
            ring_files.check_files(directory, manifest)
            checksums = RingChecksums.open(directory, manifest)
            held.callback(checksums.close)
            writer = cls(directory, manifest, commits, checksums, batch_rows)
            writer._kept_from = kept_from
            writer._begin_to_sync(directory, sync_interval_s)
            held.callback(writer._syncer.close)
            writer._held = held.pop_all()
            return writer

    @property
    def room(self) -> int:
        """Rows that may still be appended before a commit: few while the disk lags behind."""
        self._syncer.raise_failure()
        self._allow_rows()
        return super().room

    def commit(self, stamp: Buffer = b"") -> None:
        """Make the rows appended, and the stamp, visible: both, or after a kill neither.

        Raises:
            ValueError: the stamp is larger than `STAMP_MAX_BYTES`; nothing is committed.
        """
        self._commit(stamp, synced=False)

    def close(self) -> None:
        """Wait until the disk has what was committed, and close. Pending rows are dropped."""
        self._pending = 0
        self._syncer.stop()
        with sync_errors(self._directory):
            self._syncer.sync_columns()  # before the commit that says that the disk has them
            self._commit(self.stamp, synced=True)
            self._commits.sync()
            self._syncer.record_end()
        self._held.close()

    def request_sync(self) -> None:
        """Have what was committed synced soon, beside the writer; where it is not synced while it
        is written, nothing happens."""
        self._syncer.request_sync()

    def keep_from(self, number: int) -> None:
        """Have no row from this one on be overwritten, neither now nor by a recovery, for which all
        rows count as written up to the bound of the sync."""
        if number != self._kept_from:
            super().keep_from(number)
            limit = self._limit
            assert limit is not None, "rows are kept"
            self._syncer.raise_limit(limit)

    @property
    def _limit(self) -> int | None:
        if self._kept_from is None:
            return None
        return self._kept_from + self._physical_rows

    @property
    def synced_rows(self) -> int:
        """Rows that the disk has, and that no power failure takes."""
        return self._syncer.recorded.inserted

    def release_memory(self) -> None:
        """Take the columns out of this process's memory: what was written is the file's alone."""
        for file_map in self._maps:
            file_map.madvise(mmap.MADV_DONTNEED)

    @property
    def synced_stamp(self) -> bytes:
        """The stamp of the last commit that the disk has, with its rows."""
        return self._syncer.recorded.stamp

    @property
    def _shared_appended(self) -> int:
        """Entries that the rows appended share."""
        return 0

    def _begin_to_sync(self, directory: Path, interval_s: float) -> None:
        last = self._commits.last
        before = read_synced(directory)
        point = CommitPoint(last.inserted, self._shared_appended, self.stamp)
        synced = point if last.synced else before and before.commit
        shared = self.manifest.shared
        oldest_shared = point.shared - shared.capacity if shared else 0
        with sync_errors(directory):
            self._checksums.begin(
                self._maps, (point.inserted, point.shared), (self.live()[0], max(0, oldest_shared))
            )
            self._syncer = RingSyncer(
                directory,
                self.manifest,
                point,
                synced,
                self._checksums,
                bounded=interval_s > 0.0,
                limit=self._limit,
            )
        self._allow_rows()
        if interval_s:
            self._syncer.start(interval_s)

    def _allow_rows(self) -> None:
        self._allowed = min(self._allowed_at_once, self._syncer.bound - self._inserted)

    def _commit(self, stamp: Buffer, *, synced: bool) -> None:
        inserted = self._inserted + self._pending
        self._checksums.add(inserted, self._shared_appended)
        # `write` contains memory fences, so the rows, too, are visible before the cursor is.
        self._commits.write(inserted, stamp, synced=synced)
        self._cursor[0] = inserted
        self._fence()
        self.stamp = bytes(stamp)
        self._committed()
        self._allow_rows()
        self._syncer.on_commit(CommitPoint(inserted, self._shared_appended, self.stamp))


class Cursor(Protocol):
    """Has the rows inserted at 0."""

    def __getitem__(self, at: int, /) -> int: ...


class RingReader(Rows):
    """The reading end: `Rows` of a replay that another process writes.

    Args:
        directory: the ring's.
        batch_rows: as the writer was given it; None, which is always safe: not known.

    Raises:
        ReplayFormatError: there is no replay, or a torn one.
    """

    def __init__(self, directory: str | os.PathLike[str], *, batch_rows: int | None = None) -> None:
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        self.capacity = self.manifest.capacity
        self.keep = self.manifest.keep + kept_of_guard(self.manifest.guard, batch_rows)
        mapped = ring_files.map_columns(self.directory, self.manifest, writable=False)
        self.columns: Columns = mapped.columns
        self.shared = mapped.shared
        self._cursor: Cursor = ring_files.map_cursor(self.directory, self.manifest, writable=False)
        self.floor = ring_files.read_floor(self.directory)
        branch = ring_files.read_branch(self.directory)
        self.branch = self.manifest.uid + branch.id.hex()
        self.branch_before = self.manifest.uid + branch.before.hex()
        self.branch_begin = branch.begin
        self._fence = MemoryFence()

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began."""
        self._fence()
        inserted: int = self._cursor[0]
        self._fence()
        return inserted

    def use_cursor(self, cursor: Cursor) -> None:
        """Ask another cursor than the writer's from now on."""
        self._cursor = cursor


class MarkedRows:
    """Copies the rows of a growing ring that a column marks into a ring of their own, each once.

    The copies are committed with the number of rows that were looked at. A kill between a commit
    of the one ring and of the other leaves rows that were not, and the next start looks at them: at
    most a guard's, so they are still there.

    Args:
        rows: the growing rows.
        ring: takes the copies; closed with this.
        mark: a column of bools.
    """

    def __init__(self, rows: Rows, ring: RingWriter, mark: str) -> None:
        self._rows = rows
        self.ring = ring
        self._mark = mark
        # a recovery, or a replay in memory, may have fewer rows than were looked at
        self._seen = min(int.from_bytes(ring.stamp, "little"), rows.inserted)

    def follow(self) -> None:
        """Copy the marked rows that were committed since the last call."""
        rows = self._rows
        (oldest, inserted) = self._rows.live()
        if inserted == self._seen:
            return
        marks = rows.columns[self._mark]
        numbers = np.arange(max(self._seen, oldest), inserted)
        marked = numbers[marks[numbers % len(marks)]]
        while len(marked) and (room := self.ring.room):
            some = marked[:room]
            marked = marked[room:]
            columns = empty_columns(self.ring.manifest.row_dtype, len(some))
            rows.gather(some % len(marks), columns)
            self.ring.append(columns, len(some))
            self._seen = int(marked[0]) if len(marked) else inserted
            self.ring.commit(self._seen.to_bytes(8, "little"))
        if not len(marked):  # else the disk lags behind: the next call continues
            self._seen = inserted

    def close(self) -> None:
        """Copy what is left, and close."""
        self.follow()
        self.ring.close()


def join_rings(rings: Sequence[Rows]) -> tuple[Columns, list[int]] | None:
    """The columns of several rings as one array each, and the row at which each ring begins.

    None where they cannot be one: rings in memory, or of other columns than each other's.
    """
    readers = [ring for ring in rings if type(ring) is RingReader]
    if len(readers) < len(rings):
        return None
    aligned = ring_files.ALIGNED_ROWS  # the gap is for a page of identity
    begins = ring_files.lay_behind((r.manifest.physical_rows for r in readers), aligned, aligned)
    files: dict[str, list[tuple[str, ring_files.ArrayFile]]] = {}
    for ring in readers:
        for file in ring_files.column_files(ring.directory, ring.manifest):
            files.setdefault(file.name, []).append((ring.manifest.uid, file))
    for same in files.values():
        forms = {(file.dtype, file.shape[1:]) for _, file in same}
        if len(forms) > 1 or len(same) < len(readers):
            return None
    return {name: ring_files.map_joined(same, begins) for name, same in files.items()}, begins


def check_ring(
    directory: Path,
    row_dtype: np.dtype[Any],
    capacity: int,
    *,
    run_id: str,
    guard: int | None = None,
    keep: int = 0,
    shared: SharedSpec | None = None,
) -> bytes:
    """Check that `RingWriter.open` would take the replay in a directory, and change nothing.

    It checks the heads of the files and reads no rows: as quick for any size.

    Args:
        directory, row_dtype, capacity, run_id, guard, keep, shared: as `RingWriter.open` takes
            them.

    Returns:
        the stamp of the last commit, or of the one that the replay will be recovered to; empty
        where there is none, or no replay yet.

    Raises:
        ReplayFormatError: torn, foreign, or of another run, capacity or columns; names the fix.
    """
    if not check_replay_directory(directory):
        return b""
    manifest = read_manifest(directory)
    asked = new_manifest(row_dtype, capacity, guard or 1, run_id, shared, keep)
    _compare(directory, asked, manifest, guard)
    ring_files.check_files(directory, manifest)
    recovery = find_recovery_at_rest(directory, manifest)
    return recovery.commit.stamp if recovery else last_commit(directory).stamp


def recover_replay(directory: Path, merge_stamps: MergeStamps | None = None) -> Recovery | None:
    """Recover a replay before a process maps it, if its last rows are lost.

    Args:
        merge_stamps: as `vedette_rl.replay.syncing.recover` has it.

    Returns:
        What was done; None where there was nothing to do, or where no replay is.

    Raises:
        ReplayFormatError: torn in another way.
        OneWriterError: a process writes it.
    """
    if not check_replay_directory(directory):
        return None
    with ExitStack() as held:
        held.callback(os.close, _prepare(directory))
        return recover(directory, read_manifest(directory), merge_stamps)


def check_replay_directory(directory: Path) -> bool:
    """True if a directory holds a replay; if not, one can be made there.

    Raises:
        ReplayFormatError: something else lies there, or a replay without its ``ring.json``.
    """
    if not directory.exists():
        return False
    with _place_errors(directory):
        ring_files.check_directory(directory)
    if (directory / MANIFEST).exists():
        return True
    _check_unmade(directory)
    return False


def _prepare(directory: Path) -> int:
    """The directory, made and locked; the lock's descriptor."""
    with _place_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        ring_files.check_directory(directory)
        return ring_files.lock_directory(directory, shared=False)


@contextmanager
def _place_errors(directory: Path) -> Iterator[None]:
    """Raise what the disk refuses as an error of the replay."""
    try:
        yield
    except OSError as e:
        raise ReplayFormatError(
            f"no replay can be in {directory}: {e.strerror}: name a folder to write to"
        ) from e


def _check_unmade(directory: Path) -> None:
    """Refuse to make a replay over one that has rows and lost its ``ring.json``."""
    if (directory / COMMITS).exists() and last_commit(directory) != NO_COMMIT:
        raise ReplayTornError(directory / MANIFEST, "is missing")


def _make(directory: Path, manifest: Manifest) -> None:
    """Make the files. A kill in between leaves no ``ring.json``: the next writer starts over."""
    _check_unmade(directory)
    remove_unfinished(directory)
    made: list[Path] = []
    try:
        for _, path, dtype, shape in ring_files.array_files(directory, manifest):
            made.append(path)
            ring_files.make_array(path, manifest.uid, dtype, shape)
        CommitWriter.make(directory)
        for folder in (directory, directory.parent):
            sync_directory(folder)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    write_manifest(directory, manifest)


def _compare(directory: Path, asked: Manifest, stored: Manifest, guard: int | None) -> None:
    """Refuse what is not what was asked for, naming the first difference."""
    if stored.run_id != asked.run_id:
        raise ReplayFormatError(
            f"the replay in {directory} is of run {stored.run_id!r}, not {asked.run_id!r}: "
            f"name another directory, or {BEGIN_EMPTY}",
            key="replay.directory",
        )
    if stored.capacity != asked.capacity:
        raise ReplayFormatError(
            f"the replay in {directory} has a capacity of {stored.capacity}, not {asked.capacity}: "
            f"set replay.capacity={stored.capacity}, or {BEGIN_EMPTY}",
            key="replay.capacity",
        )
    if stored.keep != asked.keep:
        raise ReplayFormatError(
            f"the replay in {directory} keeps {stored.keep} rows beyond those of its guard, not "
            f"{asked.keep}: set replay.keep={stored.keep}, or {BEGIN_EMPTY}",
            key="replay.keep",
        )
    if guard is not None and stored.guard < guard:
        raise ReplayFormatError(
            f"the replay in {directory} takes {stored.guard} rows before a commit, and {guard} are "
            f"asked: {BEGIN_EMPTY}",
            key="actors.n_buffer",
            fix="or lower actors.n_buffer",
        )
    difference = _shared_difference(stored.shared, asked.shared) or _columns_difference(
        stored.columns, asked.columns
    )
    if difference:
        what = f"the replay in {directory} has {difference}"
        if (stored.shared is None) == (asked.shared is None):
            raise ReplayFormatError(
                f"{what}: its samples are of another environment",
                key="env",
                fix="name another --out, or erase this run with --fresh --force",
            )
        key = "replay.frame_storage"
        raise ReplayFormatError(
            f"{what}: {BEGIN_EMPTY}",
            key=key,
            fix=f"or go on with it by {key}={'auto' if stored.shared else 'plain'}",
        )


def _columns_difference(stored: tuple[ColumnSpec, ...], asked: tuple[ColumnSpec, ...]) -> str:
    stored_by_name = {column.name: column for column in stored}
    for column in asked:
        if column.name not in stored_by_name:
            return f"no column {column.name!r}"
        if stored_by_name[column.name] != column:
            return f"column {column.name!r} of {stored_by_name[column.name]}, not {column}"
    names = {column.name for column in asked}
    for column in stored:
        if column.name not in names:
            return f"a column {column.name!r} that is not asked for"
    return "" if stored == asked else "its columns in another order"


def _shared_difference(stored: SharedSpec | None, asked: SharedSpec | None) -> str:
    if asked is None:
        return f"{_names(stored)} apart from its rows, which are not asked for" if stored else ""
    if stored is None:
        return f"no {_names(asked)} apart from its rows"
    if difference := _columns_difference(stored.columns, asked.columns):
        return difference
    if stored.guard < asked.guard:
        return f"room for {stored.guard} entries of {_names(stored)} before a commit, and " + (
            f"{asked.guard} are asked"
        )
    return ""


def _names(shared: SharedSpec) -> str:
    return ", ".join(repr(column.name) for column in shared.columns)

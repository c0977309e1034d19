"""Recovers a replay after the machine stopped while it was written: to the last synced commit.

What was committed later is gone, for rows and stamp alike. The oldest rows may be gone too: those
whose slots the writer may have taken since. See `vedette_rl.replay.syncing`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vedette_rl.errors import ReplayTornError
from vedette_rl.replay import commits, ring_files
from vedette_rl.replay.commits import COMMITS, Commit, CommitWriter, last_commit
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.manifest import Manifest
from vedette_rl.replay.syncing import CommitPoint, SyncedCommit, SyncedFile, read_synced
from vedette_rl.storage.atomic_files import sync_directory

PRIORITIES = "priorities.bin"

MergeStamps = Callable[[bytes, bytes], bytes]


class Recovery(NamedTuple):
    """A state to recover a replay to.

    Args:
        commit: the last that is on the disk.
        floor: rows below are gone.
        found: the last commit that is there, whose rows may be torn; None: it is torn itself.
        synced: False: the replay was never synced, so all rows are gone.
    """

    commit: CommitPoint
    floor: int
    found: Commit | None
    synced: bool

    def __str__(self) -> str:
        kept = self.commit.inserted - self.floor
        why = "the machine stopped, or the run came from another one, while the replay was written"
        if not self.synced:
            return f"{why} by a version that did not sync it: its rows are lost, it begins empty"
        rows_lost = max(0, self.found.inserted - self.commit.inserted) if self.found else 0
        lost = f", {rows_lost:,} lost" if self.found else ""
        return f"{why}: recovered to its last sync: {kept:,} rows kept{lost}"


def find_recovery(directory: Path, manifest: Manifest) -> Recovery | None:
    """The state that `recover` will make; None where the last commit holds. Changes nothing.

    Raises:
        ReplayTornError: a column's file is missing, cut short or another replay's.
    """
    synced, commit = read_synced(directory), _readable_commit(directory)
    if commit is not None:
        closed, boot = (synced.closed, synced.boot) if synced else (commit.synced, commit.boot)
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
    found = find_recovery(directory, manifest)
    if found is None:
        return None
    stamp = found.commit.stamp
    if merge_stamps and found.found and found.found.inserted > found.commit.inserted:
        stamp = merge_stamps(stamp, found.found.stamp)
    # In this order: killed or cut off at any line, the next start does the same once more.
    ring_files.write_cursor(directory, found.commit.inserted, found.floor)
    (directory / PRIORITIES).unlink(missing_ok=True)  # of other rows: they begin anew
    (directory / COMMITS).unlink(missing_ok=True)
    CommitWriter.make(directory)
    commit = CommitWriter(directory)
    commit.write(found.commit.inserted, stamp, synced=True)
    commit.sync()
    commit.close()
    sync_directory(directory)
    record = SyncedFile(directory)
    record.write(found.commit._replace(stamp=stamp), found.commit.inserted, found.commit.shared)
    record.close()
    return found


def _is_this_start(boot: bytes) -> bool:
    """True if the machine has not started since, or cannot tell."""
    now = commits.boot_id()
    return boot == now or not any(now)


def _readable_commit(directory: Path) -> Commit | None:
    try:
        return last_commit(directory)
    except ReplayTornError:
        return None


def _first_whole_row(directory: Path, manifest: Manifest, synced: SyncedCommit) -> int:
    """The first of the synced rows whose slot, and whose frames', no newer one may have taken."""
    inserted = synced.commit.inserted
    oldest = max(ring_files.read_floor(directory), inserted - manifest.capacity, 0)
    floor = min(inserted, max(oldest, synced.bound - manifest.physical_rows))
    if manifest.shared is None:
        return floor
    first_entry = synced.shared_bound - manifest.shared.all_entries
    mapped = ring_files.map_columns(directory, manifest, writable=False)
    spans, rows = mapped.columns[FRAME_SPANS], manifest.physical_rows
    numbers = range(floor, inserted)
    return floor + bisect.bisect_left(numbers, first_entry, key=lambda i: spans[i % rows, 0])

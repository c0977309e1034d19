"""Writes the generations of a snapshot (rules 22 to 25 of docs/decisions/outbox.md)."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.frame_stacks import FRAME_SPANS
from vedette_rl.replay.ring_files import ARCHIVE, read_branch
from vedette_rl.replay.ring_parts import ColumnEntries, FileEntries, PartsCopy, Pause, RingState
from vedette_rl.replay.syncing import SYNCED, SyncedCommit, read_synced
from vedette_rl.storage.system import open_file, sync_mapped_file
from vedette_services.errors import SnapshotTakenError
from vedette_services.learner.snapshot.run_files import RunFilesCopy
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_starts import ReplayStarts
from vedette_services.run.snapshot_directory import (
    EPOCHS_RESERVED,
    Generation,
    SnapshotDirectory,
    SnapshotView,
    StoredFile,
    check_in_place,
    is_stranger,
    new_name,
)

log = logging.getLogger("vedette.snapshot")


class SnapshotWriter:
    """Copies a run that goes on, one generation after the other.

    ::

        writer = SnapshotWriter(Path("/mnt/other/run"), replay, run, archive_end)
        while ...:
            generation = writer.take(pause)     # None: begin anew
            send(generation.ring.stamp)         # to managers: what is safe

    Args:
        root: the snapshot's directory.
        replay: the replay's, which a writer may have open, and whose last start is this one.
        run: the run's.
        archive_end: returns the bytes of the replay's archive that belong to a stamp.
    """

    def __init__(
        self,
        root: Path,
        replay: Path,
        run: RunDirectory,
        archive_end: Callable[[bytes], int],
    ) -> None:
        self._root = root
        self._replay = replay
        self._run = run
        self._archive_end = archive_end
        self._starts = ReplayStarts.read(replay)
        self._directory = SnapshotDirectory(root)
        self._reader = open_reader(replay)
        self._synced_file = open_file(replay / SYNCED, writable=True)
        self._writer = f"{self._starts.newest}-{secrets.token_hex(4)}"
        self._follows = ""  # the name of the generation from which the copies go on
        self._verified: int | None = None  # the number of the last one that was
        self._damage = ""  # that was logged last
        self._rows = PartsCopy(root, f"rows-{self._writer}", ColumnEntries(self._reader.columns))
        self._frames: PartsCopy | None = None
        if self._reader.shared:
            shared = ColumnEntries(self._reader.shared)
            self._frames = PartsCopy(root, f"frames-{self._writer}", shared)
        archive = FileEntries(replay / ARCHIVE)
        self._archive = PartsCopy(root, f"archive-{self._writer}", archive)
        self._files = RunFilesCopy(root, f"file-{self._writer}", run)

    def take(self, pause: Pause) -> Generation | None:
        """Write a generation of the replay's last recorded sync; None: another one was created
        meanwhile, so that it has to be done again.

        Args:
            pause: called after each block.

        Raises:
            SnapshotTakenError: the replay is no descendant of the newest generation.
            SnapshotFormatError: a later release writes there.
            OSError: the directory cannot be reached, or written.
        """
        self._check_there()
        view = self._directory.look()
        newest = view.newest
        if newest is not None and is_stranger(newest, self._starts, self._reader.inserted):
            raise SnapshotTakenError(self._root, str(newest))
        synced = self._read_synced()
        archive_end = self._archive_end(synced.commit.stamp)
        self._go_on_from(view, synced, archive_end)
        try:
            files = self._files.follow(lambda: self._reader.inserted, synced.commit.inserted, pause)
            self._archive.follow(archive_end, 0, lambda: 0, pause)
            self._archive.sync()
            self._copy_rows(synced, pause)
            generation = self._make(view, synced, files)
            is_newest = self._directory.create(generation)
        except OSError:
            self._follows = ""  # nobody knows what of the parts is there
            raise
        if not is_newest:
            self._follows = ""
            return None
        self._follows = generation.name
        self._verified = generation.number
        self._note(generation)
        self._directory.prune(start.name for start in self._starts.starts[:-1])
        return generation

    def close(self) -> None:
        """Close the files."""
        self._rows.close()
        self._archive.close()
        if self._frames is not None:
            self._frames.close()
        os.close(self._synced_file)

    def _check_there(self) -> None:
        """Check that this is the directory in which generations were verified before.

        It is made where there was none. One that has been there, and is not, is out of reach.
        """
        check_in_place(self._root, self._starts)
        if self._starts.snapshot != str(self._root):
            self._root.mkdir(exist_ok=True)

    def _read_synced(self) -> SyncedCommit:
        """Read the last recorded sync; the disk has the record then."""
        found = read_synced(self._replay)
        if found is None:
            raise OSError(errno.EIO, "no whole record of a sync", str(self._replay / SYNCED))
        sync_mapped_file(self._synced_file)
        return found

    def _go_on_from(self, view: SnapshotView, synced: SyncedCommit, archive_end: int) -> None:
        """Have the copies go on from the newest generation; from nothing, where that is not whole:
        then all is copied anew."""
        newest = view.newest
        self._log_damage(view)
        if newest is not view.whole or (
            newest is not None
            and (
                newest.ring.inserted > synced.commit.inserted
                or newest.ring.archive_end > archive_end
            )
        ):
            newest = None
        if newest is not None and newest.name == self._follows:
            return
        self._rows.give_up(newest.ring.rows if newest else ())
        self._archive.give_up(newest.ring.archive if newest else ())
        if self._frames is not None:
            self._frames.give_up(newest.ring.frames if newest else ())
        self._files.give_up(newest.files if newest else ())
        self._directory.remove_leftovers(self._writer)

    def _log_damage(self, view: SnapshotView) -> None:
        """Log, once, that the directory has lost what was called safe in it."""
        newest = view.newest
        alone = "until it is there again, rows that were safe are on this learner's disk alone"
        damage = ""
        if newest is not None and newest is not view.whole:
            missing = self._directory.describe_missing(newest)
            damage = f"{missing}, and {newest}, needs it: all is copied anew; {alone}"
        elif self._verified is not None and (newest is None or newest.number < self._verified):
            has = str(newest) if newest is not None else "nothing"
            unread = f"{self._root / view.unreadable[0]} cannot be read" if view.unreadable else ""
            why = unread or "it was put back from an older copy, or wiped"
            damage = f"{why}: its newest is {has}, where generation {self._verified} was; the rest "
            damage += f"is copied again; {alone}"
        if damage and damage != self._damage:
            log.warning("learner.snapshot: %s", damage)
        self._damage = damage

    def _copy_rows(self, synced: SyncedCommit, pause: Pause) -> None:
        """Copy the rows of a sync, and what they share, as far as they are still needed."""
        reader = self._reader
        manifest = reader.manifest
        end = synced.commit.inserted
        oldest = min(reader.live()[0], end)
        kept = manifest.capacity + manifest.keep
        self._rows.follow(end, oldest, lambda: reader.inserted - kept, pause)
        self._rows.sync()
        if self._frames is None or manifest.shared is None:
            return
        spans = reader.columns[FRAME_SPANS]
        shared = synced.commit.shared
        first = int(spans[oldest % len(spans), 0]) if oldest < end else shared
        kept_frames = manifest.shared.capacity + manifest.shared.keep

        def doubtful_below() -> int:
            inserted = reader.inserted
            return int(spans[(inserted - 1) % len(spans), 1]) - kept_frames if inserted else 0

        self._frames.follow(shared, min(first, shared), doubtful_below, pause)
        self._frames.sync()

    def _make(
        self, view: SnapshotView, synced: SyncedCommit, files: tuple[StoredFile, ...]
    ) -> Generation:
        identity = replace(self._run.identity(), owner=None)
        starts = self._starts
        reserved = max(identity.epoch + EPOCHS_RESERVED, view.reserved, starts.reserved)
        ring = RingState(
            manifest=self._reader.manifest,
            inserted=synced.commit.inserted,
            shared=synced.commit.shared,
            floor=self._reader.floor,
            branch=read_branch(self._replay),
            rows=tuple(self._rows.parts),
            frames=tuple(self._frames.parts) if self._frames is not None else (),
            archive=tuple(self._archive.parts),
            stamp=synced.commit.stamp,
        )
        return Generation(
            number=view.next_number,
            name=new_name(),
            parent=view.newest_name,
            start=starts.newest,
            starts=starts.starts,
            reserved=reserved,
            identity=asdict(identity),
            ring=ring,
            files=files,
            host=socket.gethostname(),
            time_s=time.time(),
        )

    def _note(self, generation: Generation) -> None:
        """Note, beside the rows, what a later start may do while it cannot reach the directory."""
        root = self._root
        known = replace(
            self._starts,
            reserved=generation.reserved,
            snapshot=str(root),
            is_mount=root.is_mount(),
        )
        if known != self._starts:
            known.write(self._replay)
            self._starts = known

"""Copies the files of a run that a start from its snapshot needs beside the replay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vedette_rl.replay.ring_parts import BLOCK_BYTES, Pause
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.regular_files import open_regular
from vedette_rl.storage.system import sync_file
from vedette_services.run.directory import RunDirectory
from vedette_services.run.snapshot_directory import StoredFile, file_digest

Version = tuple[int, int, int]
"""By which a file that was replaced is known: inode, size and time of the last write."""


class RunFilesCopy:
    """Copies settings, summary, best model and the newest checkpoint, each file when it is new.

    A checkpoint goes into the first generation that has all rows which it may have drawn.

    Args:
        folder: of the copies.
        prefix: begins their names; nobody else's do.
        run: whose files they are.
        known: the copies that are there.
    """

    def __init__(
        self, folder: Path, prefix: str, run: RunDirectory, known: Iterable[StoredFile] = ()
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._run = run
        self._stored = {file.path: file for file in known}
        self._versions: dict[str, Version] = {}
        self._made = 0
        self._checkpoint = ""  # the newest that was seen, and the rows that were inserted then
        self._rows_needed = 0

    def give_up(self, known: Iterable[StoredFile]) -> None:
        """Go back to the copies that are known to be on the disk."""
        self._stored = {file.path: file for file in known}
        self._versions = {}

    def follow(self, inserted: int, copied: int, pause: Pause) -> tuple[StoredFile, ...]:
        """Copy what is new; returns all copies, which the disk has.

        Args:
            inserted: rows of the replay now.
            copied: those of the generation.

        Raises:
            OSError: the snapshot's disk refuses.
        """
        found: dict[str, StoredFile] = {}
        for path in self._files():
            if (file := self._copy(path, pause)) is not None:
                found[file.path] = file
        newest = self._newest_checkpoint(inserted)
        before = [file for path, file in self._stored.items() if path.startswith("checkpoints/")]
        checkpoint = []
        if newest is not None and self._rows_needed <= copied:
            checkpoint = [self._copy(path, pause) for path in sorted(newest.iterdir())]
        whole = [file for file in checkpoint if file is not None]
        # One that was removed meanwhile, for a newer one, is not whole.
        found |= {file.path: file for file in (whole if whole == checkpoint and whole else before)}
        self._stored = found
        return tuple(found.values())

    def _files(self) -> Iterator[Path]:
        run = self._run
        yield run.config_file
        yield run.summary_file
        if run.best.is_dir():
            yield from (path for path in sorted(run.best.iterdir()) if path.name[0] != ".")

    def _newest_checkpoint(self, inserted: int) -> Path | None:
        newest = Checkpoints(self._run.checkpoints, keep=1).latest()
        if newest is not None and newest.name != self._checkpoint:
            self._checkpoint = newest.name
            self._rows_needed = inserted
        return newest

    def _copy(self, path: Path, pause: Pause) -> StoredFile | None:
        """Copy a file unless it is there; None: it is not here any more."""
        inner = path.relative_to(self._run.root).as_posix()
        known = self._stored.get(inner)
        try:
            file = open_regular(path)
        except OSError:
            return None
        with file:
            status = os.fstat(file.fileno())
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if known is not None and self._versions.get(inner) == version:
                return known
            if known is None or known.size != status.st_size or known.digest != file_digest(path):
                known = self._write(inner, iter(lambda: file.read(BLOCK_BYTES), b""), pause)
        self._stored[inner] = known
        self._versions[inner] = version
        return known

    def _write(self, inner: str, pieces: Iterable[bytes], pause: Pause) -> StoredFile:
        self._made += 1
        name = f"{self._prefix}-{self._made}"
        target = self._folder / name
        with target.open("xb") as copy:
            for piece in pieces:
                copy.write(piece)
                pause(len(piece))
            copy.flush()
            sync_file(copy.fileno())
        return StoredFile(inner, name, target.stat().st_size, file_digest(target))

"""Copies the files of a run that a start from its snapshot needs beside the replay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from vedette_rl.replay.ring_parts import BLOCK_BYTES, Pause
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.regular_files import open_new_to_append, open_regular
from vedette_rl.storage.state_file import META_FILE, STATE_FILE
from vedette_rl.storage.system import sync_file
from vedette_services.run.directory import RunDirectory
from vedette_services.run.snapshot_directory import StoredFile, file_digest, new_digest

_CHECKPOINTS = "checkpoints/"

Version = tuple[int, int, int]
"""By which a file that was replaced is known: inode, size and time of the last write."""


class RunFilesCopy:
    """Copies settings, summary, best model and checkpoints, each file when it is new.

    A checkpoint is copied when it is seen, since the run may soon remove it. It goes into the first
    generation that has all rows which it may have drawn; until then, no newer one is copied.

    Args:
        folder: of the copies.
        prefix: begins their names; nobody else's do.
        run: whose files they are.
    """

    def __init__(self, folder: Path, prefix: str, run: RunDirectory) -> None:
        self._folder = folder
        self._prefix = prefix
        self._run = run
        self._stored: dict[str, StoredFile] = {}
        self._versions: dict[str, Version] = {}
        self._made = 0
        self._checkpoint: tuple[StoredFile, ...] = ()  # of the last generation
        self._waiting: tuple[StoredFile, ...] = ()  # a newer one, and the rows that it needs
        self._rows_needed = 0

    def give_up(self, known: Sequence[StoredFile]) -> None:
        """Go on from the copies that are known to be on the disk."""
        self._stored = {file.path: file for file in known}
        self._versions = {}
        self._checkpoint = tuple(file for file in known if file.path.startswith(_CHECKPOINTS))
        self._waiting = ()

    def follow(
        self, inserted: Callable[[], int], copied: int, pause: Pause
    ) -> tuple[StoredFile, ...]:
        """Copy what is new; returns the copies of a generation, which the disk has.

        Args:
            inserted: returns the rows of the replay.
            copied: those of the generation.

        Raises:
            OSError: the snapshot's disk refuses.
        """
        found = [file for path in self._files() if (file := self._copy(path, pause)) is not None]
        newest = Checkpoints(self._run.checkpoints, keep=1).latest()
        if newest is not None and not self._waiting and not self._has(newest):
            self._rows_needed = inserted()  # at least those that it has drawn from
            self._waiting = self._copy_all(newest, pause)
        if self._waiting and self._rows_needed <= copied:
            self._checkpoint = self._waiting
            self._waiting = ()
        self._stored = {file.path: file for file in (*found, *self._checkpoint, *self._waiting)}
        return (*found, *self._checkpoint)

    def _files(self) -> Iterator[Path]:
        run = self._run
        yield run.config_file
        yield run.summary_file
        if run.best.is_dir():
            yield from (path for path in sorted(run.best.iterdir()) if path.name[0] != ".")

    def _has(self, checkpoint: Path) -> bool:
        inner = f"{_CHECKPOINTS}{checkpoint.name}/"
        return any(file.path.startswith(inner) for file in self._checkpoint)

    def _copy_all(self, checkpoint: Path, pause: Pause) -> tuple[StoredFile, ...]:
        """Copy a checkpoint; nothing where the run has removed it meanwhile."""
        copies = [self._copy(checkpoint / name, pause) for name in (STATE_FILE, META_FILE)]
        whole = [file for file in copies if file is not None]
        return tuple(whole) if len(whole) == len(copies) else ()

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
        size = 0
        digest = new_digest()  # of what was written, and not of what somebody has made of it
        with open_new_to_append(target) as copy:
            for piece in pieces:
                copy.write(piece)
                size += len(piece)
                digest.update(piece)
                pause(len(piece))
            copy.flush()
            sync_file(copy.fileno())
        return StoredFile(inner, name, size, digest.hexdigest())

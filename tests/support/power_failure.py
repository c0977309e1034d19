"""A disk that can lose its power: what a folder may look like after the machine stopped.

::

    with RecordedDisk(folder, chance) as disk:
        ...                         # writes, maps, renames; os.fsync and os.fdatasync are recorded
        disk.note()                 # pages may have been written back as they are now
        disk.lose_power(image)      # a folder as the power failure may leave it

What was synced is there. Of what changed since, every page of 4 KiB is as it was at the sync or at
any later note, every size the old or the new one, and every entry of a folder that was not synced
the old or the new one.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PAGE_BYTES = 4096


class PowerFailure(BaseException):
    """The power fails now: raised where the next sync would begin."""


class RecordedDisk:
    """Records the syncs below a folder.

    Args:
        root: the folder; what is in it now is on the disk.
        chance: of what a power failure leaves.
        syncs: after so many the power fails; None: never by itself.

    Attributes:
        meanwhile: called in the middle of each sync of a file.
    """

    def __init__(self, root: Path, chance: random.Random, syncs: int | None = None) -> None:
        self.root = root
        self._chance = chance
        self._syncs = syncs
        self.meanwhile: Callable[[], None] = lambda: None
        self._files: dict[int, int] = {}  # a descriptor each, so that no number is used again
        self._on_disk: dict[int, bytes] = {}
        self._later: dict[int, list[bytes]] = {}
        self._entries: dict[int, dict[str, int]] = {}  # of folders, as on the disk
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            self._entries[self._know(folder)] = self._listed(folder)
        for number in list(self._files):
            if number not in self._entries:
                self._on_disk[number] = self._read(number)

    def __enter__(self) -> Self:
        self._fsync = os.fsync
        self._fdatasync = os.fdatasync
        os.fsync = os.fdatasync = self._sync  # type: ignore[assignment]  # they take a file too
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.fsync = self._fsync
        os.fdatasync = self._fdatasync
        for file in self._files.values():
            os.close(file)

    def note(self) -> None:
        """Note what all files hold now: the kernel may write any page back at any time."""
        for path in self.root.rglob("*"):
            number = self._know(path)
            if not path.is_dir():
                self._later.setdefault(number, []).append(self._as_written(number))

    def lose_power(self, image: Path) -> None:
        """Make `image` a folder as a power failure may leave this one."""
        self.note()
        self._compose(self._know(self.root), self.root, image)

    def _sync(self, file: int) -> None:
        found = os.fstat(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        if self.root != path and self.root not in path.parents:
            return
        if self._syncs is not None:
            self._syncs -= 1
            if self._syncs < 0:
                raise PowerFailure
        number = self._know(path)
        if stat.S_ISDIR(found.st_mode):
            self._entries[number] = self._listed(path)
            return
        self._sync_file(number)

    def _sync_file(self, number: int) -> None:
        """Bring a file to the disk."""
        self._on_disk[number] = self._read(number)
        self._later[number] = []
        self.meanwhile()

    def _as_written(self, number: int) -> bytes:
        """What all of a file is once all is written that was not yet."""
        return self._read(number)

    def fail_power_after(self, syncs: int | None) -> None:
        """Let the power fail after so many syncs; None: not by itself."""
        self._syncs = syncs

    def sync_folder(self, folder: Path) -> None:
        """Bring a folder's entries to the disk."""
        self._entries[self._know(folder)] = self._listed(folder)

    def _know(self, path: Path) -> int:
        number = path.stat().st_ino
        if number not in self._files:
            self._files[number] = os.open(path, os.O_RDONLY)
        return number

    def _listed(self, folder: Path) -> dict[str, int]:
        return {path.name: self._know(path) for path in folder.iterdir()}

    def _read(self, number: int) -> bytes:
        file = self._files[number]
        return os.pread(file, os.fstat(file).st_size, 0)

    def _compose(self, number: int, folder: Path | None, image: Path) -> None:
        image.mkdir()
        then = self._entries.get(number, {})
        now = self._listed(folder) if folder is not None and folder.is_dir() else then
        for name in sorted(then.keys() | now.keys()):
            kept = self._chance.choice((then, now)).get(name)
            if kept is None:
                continue
            if stat.S_ISDIR(os.fstat(self._files[kept]).st_mode):
                is_now = folder is not None and now.get(name) == kept
                self._compose(kept, folder / name if is_now and folder else None, image / name)
            else:
                (image / name).write_bytes(self._content(kept))

    def _content(self, number: int) -> bytes:
        """The old or the new content, or some of the pages of each."""
        old = self._on_disk.get(number, b"")
        versions = [old, *self._later.get(number, [])]
        match self._chance.choice(("old", "new", "mixed")):
            case "old":
                return old
            case "new":
                return versions[-1]
        size = len(self._chance.choice((old, versions[-1])))
        pages = []
        for begin in range(0, size, PAGE_BYTES):
            page = self._chance.choice(versions)[begin : begin + PAGE_BYTES]
            pages.append(page.ljust(min(PAGE_BYTES, size - begin), b"\0"))
        return b"".join(pages)

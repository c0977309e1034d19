"""A disk that fails in more ways than by its power: syncs, reads, room, copies of another time.

::

    with FailingDisk(folder, chance) as disk:
        disk.fail_syncs(2)          # the next two syncs of files give EIO, and of what was changed
                                    # since the last one, some pages are never written
        disk.lie(1)                 # the same of the next sync of a column, which succeeds
        disk.lie_about("commits")   # the same of the next sync of this file
        disk.write_back("commits")  # the system writes this file back by itself
        disk.fail_writing_back()    # the system writes pages back by itself, and fails; a process
                                    # that opens the files later is told nothing
        disk.has_readers = True     # memory keeps what a reader has mapped, whatever is asked
        disk.drop_pages()           # memory lets go of such pages: what is read is the disk's
        disk.full_after(7)          # the seventh call from now that takes room gives ENOSPC
        disk.fail_power_at("synced", 1)  # the power fails at the second sync of this file
        disk.fail_reads(True)       # reads of columns give EIO
        disk.copy_slowly(image)     # a copy that takes each file at another time

A page whose write has failed counts as written, as on Linux: no later sync writes it, unless it is
written to again.
"""

from __future__ import annotations

import errno
import io
import os
import random
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from power_failure import PAGE_BYTES, PowerFailure, RecordedDisk


class FailingDisk(RecordedDisk):
    """A recorded disk, whose power fails only when it is asked to.

    Attributes:
        calls: how many calls took room.
        has_readers: another process has mapped all files, so that no page can be forgotten.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        super().__init__(root, chance)
        self._unwritten: dict[int, dict[int, bytes]] = {}  # of files: pages that count as written
        self._failing_syncs = 0
        self._lying_syncs = 0
        self._lying_names: set[str] = set()
        self._power_at: tuple[str, int] | None = None
        self._reads_fail = False
        self._full_at: int | None = None
        self.calls = 0
        self.has_readers = False
        self._real: dict[str, Callable[..., Any]] = {}

    # What a test asks for

    def fail_syncs(self, syncs: int) -> None:
        """Let the next syncs of files fail."""
        self._failing_syncs = syncs

    def lie(self, syncs: int) -> None:
        """Let the next syncs of columns say that they succeeded where they did not."""
        self._lying_syncs = syncs

    def lie_about(self, name: str) -> None:
        """Let the next sync of a file say that it succeeded where it did not."""
        self._lying_names.add(name)

    def fail_power_at(self, name: str, syncs: int) -> None:
        """Let the power fail where a file is synced, after so many syncs of it."""
        self._power_at = name, syncs

    def fail_reads(self, fail: bool) -> None:
        """Let reads of columns fail, or not."""
        self._reads_fail = fail

    def full_after(self, calls: int | None) -> None:
        """Have no room from so many calls on; None: have room."""
        self._full_at = None if calls is None else self.calls + calls

    def write_back(self, names: str, *, but: str = "") -> None:
        """Let the system write back, by itself, all pages of files with such names."""
        self.note()  # it knows all files then
        for number in self._on_disk:
            name = self._name_of(number)
            if fnmatch(name, names) and name != but:
                self._on_disk[number] = self._as_written(number)
                self._later[number] = []

    def fail_writing_back(self) -> None:
        """Let the system fail to write back, by itself, some pages of columns."""
        for number in [number for number in self._files if self._is_column(number)]:
            self._lose_pages(number)

    def drop_pages(self) -> None:
        """Let memory drop pages whose write has failed."""
        for number in list(self._unwritten):
            self._drop(number, 0.7)

    def copy_slowly(self, image: Path) -> None:
        """Copy all files, each as it was now or at some time before."""
        self.note()
        self._copy(self.root, image)

    # How it does that

    def __enter__(self) -> Self:
        super().__enter__()
        replaced: dict[str, Callable[..., Any]] = {
            "pwrite": self._pwrite,
            "write": self._writing("write"),
            "writev": self._writing("writev"),
            "pread": self._pread,
            "posix_fallocate": self._writing("posix_fallocate"),
            "posix_fadvise": self._fadvise,
            "open": self._open,
            "mkdir": self._making("mkdir"),
            "rename": self._making("rename"),
            "replace": self._making("replace"),
        }
        for name, call in replaced.items():
            self._real[name] = getattr(os, name)
            setattr(os, name, call)
        self._real["io.open"] = io.open
        io.open = self._io_open  # type: ignore[assignment]  # its overloads are the real one's
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        io.open = self._real.pop("io.open")
        for name, call in self._real.items():
            setattr(os, name, call)
        super().__exit__(kind, error, traceback)

    def _sync_file(self, number: int) -> None:
        name = self._name_of(number)
        if self._power_at is not None and name == self._power_at[0]:
            syncs = self._power_at[1]
            self._power_at = (name, syncs - 1) if syncs else None
            if not syncs:
                raise PowerFailure
        lies = self._lying_syncs > 0 and self._is_column(number)
        self._lying_syncs -= lies
        if name in self._lying_names:
            self._lying_names.remove(name)
            lies = True
        if lies or self._failing_syncs:
            self._failing_syncs -= not lies
            self._lose_pages(number)
            self._on_disk[number] = self._as_written(number)
            if lies:
                return
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._on_disk[number] = self._as_written(number)
        self._later[number] = []
        self.meanwhile()

    def _lose_pages(self, number: int) -> None:
        """Fail to write what was changed; some pages were written before the one that failed."""
        now = self._read(number)
        before = self._on_disk.get(number, b"")
        unwritten = self._unwritten.setdefault(number, {})
        for page in range(-(-len(now) // PAGE_BYTES)):
            content = _page(now, page)
            if content != _page(before, page) and self._chance.random() < 0.8:
                unwritten[page] = content

    def _is_column(self, number: int) -> bool:
        name = self._name_of(number)
        return name[:3].isdecimal() and name.endswith(".bin")  # not a checkpoint's folder

    def _name_of(self, number: int) -> str:
        return Path(f"/proc/self/fd/{self._files[number]}").readlink().name

    def _as_written(self, number: int) -> bytes:
        """What all of a file is once all is written that counts as not written yet."""
        now = self._read(number)
        unwritten = self._unwritten.get(number)
        if not unwritten:
            return now
        before = self._on_disk.get(number, b"").ljust(len(now), b"\0")
        pages = []
        for page in range(-(-len(now) // PAGE_BYTES)):
            content = _page(now, page)
            if unwritten.get(page, content) != content:
                del unwritten[page]  # written to again
            pages.append(_page(before, page) if page in unwritten else content)
        return b"".join(pages)

    def _drop(self, number: int, share: float) -> None:
        unwritten = self._unwritten.get(number, {})
        before = self._on_disk.get(number, b"")
        writable = self._real["open"](f"/proc/self/fd/{self._files[number]}", os.O_RDWR)
        try:
            for page, content in list(unwritten.items()):
                if _page(self._read(number), page) != content:
                    del unwritten[page]
                elif self._chance.random() < share:
                    del unwritten[page]
                    old = _page(before, page).ljust(len(content), b"\0")
                    self._real["pwrite"](writable, old, page * PAGE_BYTES)
        finally:
            os.close(writable)

    def _copy(self, folder: Path, image: Path) -> None:
        image.mkdir()
        for path in folder.iterdir():
            if path.is_dir():
                self._copy(path, image / path.name)
                continue
            number = self._know(path)
            versions = [*self._later.get(number, []), self._read(number)]
            (image / path.name).write_bytes(self._chance.choice(versions))

    # Calls

    def _is_here(self, file: int) -> Path | None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        return path if self.root in path.parents else None

    def _take_room(self, path: Path | None) -> None:
        if path is None or (path != self.root and self.root not in path.parents):
            return
        self.calls += 1
        if self._full_at is not None and self.calls > self._full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _writing(self, name: str) -> Callable[..., Any]:
        def call(file: int, *arguments: Any) -> Any:
            self._take_room(self._is_here(file))
            return self._real[name](file, *arguments)

        return call

    def _making(self, name: str) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            self._take_room(Path(os.fspath(path)))
            return self._real[name](path, *arguments, **named)

        return call

    def _pwrite(self, file: int, data: bytes, at: int) -> int:
        path = self._is_here(file)
        number = os.fstat(file).st_ino
        for page in range(at // PAGE_BYTES, -(-(at + len(data)) // PAGE_BYTES)):
            self._unwritten.get(number, {}).pop(page, None)
        if path is not None and at + len(data) > os.fstat(file).st_size:
            self._take_room(path)
        written: int = self._real["pwrite"](file, data, at)
        return written

    def _pread(self, file: int, size: int, at: int) -> bytes:
        path = self._is_here(file)
        if self._reads_fail and path is not None and path.name[:3].isdecimal():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data: bytes = self._real["pread"](file, size, at)
        return data

    def _fadvise(self, file: int, *arguments: int) -> None:
        if self._is_here(file) and not self.has_readers:
            self._drop(os.fstat(file).st_ino, 1.0)
        self._real["posix_fadvise"](file, *arguments)

    def _open(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            self._take_room(Path(os.fspath(path)))
        file: int = self._real["open"](path, flags, *arguments, **named)
        return file

    def _io_open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax"):
            self._take_room(Path(os.fspath(file)))
        return self._real["io.open"](file, mode, *arguments, **named)


def _page(content: bytes, page: int) -> bytes:
    return content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]

"""Power failures of an outbox's host: what was synced is there, and what is there is whole."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from vedette_services.actors.outbox import files as files_module
from vedette_services.actors.outbox.files import OutboxFiles, Session

MAX_BYTES = 40_000  # segments of 5,000 bytes
INCARNATIONS = 1 << 40


class Disk:
    """Knows what of a folder would outlive a power failure: of each file what was there at its last
    sync, and the names that were there at the last sync of the folder."""

    def __init__(
        self, directory: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.directory = directory
        self.rng = rng
        self.fails = 0.0
        self._synced: dict[int, int] = {}  # bytes, by inode
        self._given_up: list[tuple[int, int, int]] = []  # inode, from where to where
        self._named: dict[str, int] = {}  # inodes, by name
        self._removed: dict[str, bytes] = {}  # that may come back
        monkeypatch.setattr(files_module, "sync_mapped_file", self._sync)
        monkeypatch.setattr(files_module, "sync_directory", self._sync_names)
        self._unlink = Path.unlink

        def unlink(path: Path, missing_ok: bool = False) -> None:
            self._remove(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink)

    def _sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if not found.st_nlink:
            return  # removed; another file may be given its inode
        if self.rng.random() < self.fails:
            # The system counts these pages as written: no later sync writes them.
            known = self._synced.get(found.st_ino, 0)
            self._given_up.append((found.st_ino, known, found.st_size))
            self._synced[found.st_ino] = found.st_size
            raise OSError(errno.EIO, "Input/output error")
        self._synced[found.st_ino] = found.st_size

    def _sync_names(self, directory: Path) -> None:
        self._named = {path.name: path.stat().st_ino for path in self._files()}
        self._removed = {}

    def _remove(self, path: Path, *, missing_ok: bool) -> None:
        inode = path.stat().st_ino
        self._synced.pop(inode, None)
        self._given_up = [each for each in self._given_up if each[0] != inode]
        if path.name in self._named:
            self._removed[path.name] = path.read_bytes()
        self._unlink(path, missing_ok=missing_ok)

    def _files(self) -> list[Path]:
        return list(self.directory.glob("*.outbox"))

    def lose_power(self) -> None:
        for path in self._files():
            found = path.stat()
            if path.name not in self._named and self.rng.random() < 0.5:
                self._unlink(path)
                continue
            kept = self.rng.randint(self._synced.get(found.st_ino, 0), found.st_size)
            with path.open("r+b") as file:
                for inode, begin, end in self._given_up:
                    if inode == found.st_ino:
                        file.seek(begin)
                        file.write(bytes(end - begin))
                file.truncate(kept)
                if self.rng.random() < 0.3:  # the size came to the disk, and the bytes did not
                    file.truncate(found.st_size)
        for name, data in self._removed.items():
            if self.rng.random() < 0.5:
                (self.directory / name).write_bytes(data)
        self._removed = {}
        self._given_up = []
        self._synced = {path.stat().st_ino: path.stat().st_size for path in self._files()}
        self._named = {path.name: path.stat().st_ino for path in self._files()}


def payload(incarnation: int, seq: int) -> bytes:
    return random.Random(incarnation * INCARNATIONS + seq).randbytes(200 + seq % 90)


def check(files: OutboxFiles) -> None:
    for session in files.sessions:
        assert session.dropped + session.unstored_rows <= session.produced
        assert session.base == min(session.held, default=session.end)
        for seq, batch in session.held.items():
            assert bytes(files.read(session, batch)) == payload(session.incarnation, seq)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_synced_outlives_a_power_failure_and_nothing_is_made_up(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    disk = Disk(tmp_path, rng, monkeypatch)
    promised: set[tuple[int, int]] = set()
    gone: set[tuple[int, int]] = set()
    for life in range(6):
        disk.fails = 0.0
        files = OutboxFiles(tmp_path, max_bytes=MAX_BYTES, memory_bytes=2000)
        held = {(s.incarnation, seq) for s in files.sessions for seq in s.held}
        assert promised - gone <= held
        check(files)
        disk.fails = rng.choice((0.0, 0.0, 0.2))
        own = files.begin("m", "run", "0123456789abcdef", life)
        for step in range(rng.randint(0, 200)):
            play_step(files, own, rng, float(step), gone)
            for session in files.sessions:
                promised |= {
                    (session.incarnation, seq) for seq, b in session.held.items() if b.synced
                }
        check(files)
        if rng.random() < 0.3:  # the disk is well again
            disk.fails = 0.0
            files.poll(1e9)
            files.sync()
            assert all(b.synced for s in files.sessions for b in s.held.values())
            promised |= {(s.incarnation, seq) for s in files.sessions for seq in s.held}
        os.close(files._folder.descriptor)
        disk.lose_power()


def play_step(
    files: OutboxFiles, own: Session, rng: random.Random, now: float, gone: set[tuple[int, int]]
) -> None:
    """Append, sync, drop or delete something; `gone` takes what was given up or is safe."""
    before = {(s.incarnation, seq) for s in files.sessions for seq in s.held}
    what = rng.random()
    if what < 0.6:
        data = payload(own.incarnation, own.end)
        if not files.has_room(len(data)):
            files.make_room(len(data), files.sessions)
        if files.has_room(len(data)):
            files.append(own, 0, 1, 1, 4, 4, data)
    elif what < 0.75:
        files.sync()
    elif what < 0.9:
        session = rng.choice(files.sessions)
        for batch in list(session.held.values())[: rng.randint(0, 5)]:
            files.mark_stored(session, batch)
        if rng.random() < 0.5:
            files.free_below(session, session.base + rng.randint(0, 4))
    else:
        files.poll(now)
    gone |= before - {(s.incarnation, seq) for s in files.sessions for seq in s.held}

"""Calls on files that differ between operating systems, where macOS's path is taken."""

import errno
import fcntl
import mmap
import os
import resource
from pathlib import Path

import pytest

from vedette_rl.storage import system
from vedette_rl.storage.system import (
    boot_id,
    installed_memory,
    lock_file,
    reserve_space,
    sync_file,
    sync_mapped_file,
    wait_readable,
)

FULL_SYNC = 51


def test_space_is_reserved_by_zeros_where_there_is_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    size = (2 << 20) + 777
    with (tmp_path / "file").open("w+b") as file:
        reserve_space(file.fileno(), size)
        found = os.fstat(file.fileno())
    assert found.st_size == size
    assert found.st_blocks * 512 >= size
    assert (tmp_path / "file").read_bytes() == bytes(size)


def test_a_sync_goes_through_the_drives_cache_where_that_has_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command: calls.append(command))
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno())
        assert calls == [FULL_SYNC]

        def refuse(_: int, command: int) -> None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

        monkeypatch.setattr(fcntl, "fcntl", refuse)
        sync_file(file.fileno())
    assert calls == [FULL_SYNC, "fsync"]


def test_a_map_is_synced_with_its_file_where_there_is_no_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as written:
        written[5000] = 7
        sync_mapped_file(file.fileno())
        assert synced == [file.fileno()]
    assert path.read_bytes()[5000] == 7


def test_a_lock_is_one_writers_or_many_readers(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as one, path.open("r+b") as other:
        lock_file(one.fileno(), shared=True)
        lock_file(other.fileno(), shared=True)
        with pytest.raises(BlockingIOError):
            lock_file(other.fileno())


def test_the_start_of_the_machine_has_an_identifier_or_zeros(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert len(boot_id()) == 16
    assert boot_id() == boot_id()
    assert any(boot_id())
    monkeypatch.setattr(system, "_BOOT_ID", tmp_path / "none")
    monkeypatch.setattr(system, "sysctl_text", lambda _: "")
    assert boot_id() == bytes(16)
    uuid = "0A1B2C3D-0000-4000-8000-00000000000F"
    monkeypatch.setattr(system, "sysctl_text", {"kern.bootsessionuuid": uuid}.__getitem__)
    assert boot_id().hex() == uuid.replace("-", "").lower()


def test_the_machines_memory_is_known_or_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 28 < installed_memory() < 1 << 50
    monkeypatch.delattr(os, "sysconf")
    assert installed_memory() == system.UNKNOWN_BYTES


def test_a_descriptor_beyond_1024_is_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this user may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    read, write = os.pipe()
    try:
        high = fcntl.fcntl(read, fcntl.F_DUPFD, 2000)
        assert not wait_readable(high, 0.0)
        os.write(write, b"x")
        assert wait_readable(high, 10.0)
        os.close(high)
    finally:
        os.close(read)
        os.close(write)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

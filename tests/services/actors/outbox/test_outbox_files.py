"""The files of an outbox: what another process finds in them, whatever went wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vedette_services.actors.outbox import files as files_module
from vedette_services.actors.outbox import folder as folder_module
from vedette_services.actors.outbox.files import HeldBatch, OutboxFiles, Session
from vedette_services.actors.outbox.records import FORMAT, MAGIC, RECORD_BYTES
from vedette_services.errors import (
    OutboxFormatError,
    OutboxInUseError,
    OutboxLinkError,
    OutboxReadOnlyError,
)

ROOM = 1 << 20


def payload(seq: int, size: int = 100) -> bytes:
    return bytes([seq % 251]) * size


def open_files(directory: Path, max_bytes: int = ROOM, memory_bytes: int = ROOM) -> OutboxFiles:
    return OutboxFiles(directory, max_bytes=max_bytes, memory_bytes=memory_bytes)


def begin(files: OutboxFiles, incarnation: int = 7) -> Session:
    return files.begin("m", "run", "0123456789abcdef", incarnation)


def append(files: OutboxFiles, session: Session, count: int = 1, size: int = 100) -> None:
    for _ in range(count):
        files.append(session, 0, 1, 5, 4, 4, payload(session.end, size))


def kill(files: OutboxFiles) -> None:
    """Leave everything as a killed process does."""
    os.close(files._folder.descriptor)


def batches(files: OutboxFiles, session: Session) -> dict[int, bytes]:
    return {seq: bytes(files.read(session, batch)) for seq, batch in session.held.items()}


def numbers(count: int, first: int = 0, size: int = 100) -> dict[int, bytes]:
    return {seq: payload(seq, size) for seq in range(first, first + count)}


def test_another_process_finds_what_a_killed_one_has_appended(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    append(files, begin(files), 3)
    kill(files)
    again = open_files(tmp_path)
    [session] = again.sessions
    assert session.ended
    assert (session.manager, session.run_id, session.incarnation) == ("m", "run", 7)
    assert (session.end, session.produced, session.unstored_rows) == (3, 12, 12)
    assert batches(again, session) == numbers(3)


def test_sessions_are_in_the_order_of_their_beginnings(tmp_path: Path) -> None:
    for incarnation in (9, 2, 5):
        files = open_files(tmp_path)
        append(files, begin(files, incarnation))
        kill(files)
    again = open_files(tmp_path)
    assert [session.incarnation for session in again.sessions] == [9, 2, 5]


def test_a_folder_has_one_process(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    with pytest.raises(OutboxInUseError, match="in use by another manager"):
        open_files(tmp_path)
    files.close()
    open_files(tmp_path)


@pytest.mark.parametrize("missing", range(1, RECORD_BYTES + 100, 13))
def test_a_record_that_is_not_whole_ends_the_file(tmp_path: Path, missing: int) -> None:
    files = open_files(tmp_path)
    append(files, begin(files), 3)
    kill(files)
    [path] = tmp_path.glob("*.outbox")
    os.truncate(path, path.stat().st_size - missing)
    again = open_files(tmp_path)
    [session] = again.sessions
    assert batches(again, session) == numbers(2)
    assert session.end == 2
    [fault] = again.damage
    assert f"{path} is not whole: from byte" in fault
    assert "are left out" in fault


@pytest.mark.parametrize("at", [8, 40, 90, 140])
def test_a_damaged_record_is_found_by_its_sum(tmp_path: Path, at: int) -> None:
    files = open_files(tmp_path)
    append(files, begin(files), 2)
    kill(files)
    [path] = tmp_path.glob("*.outbox")
    data = bytearray(path.read_bytes())
    data[-at] ^= 1
    path.write_bytes(data)
    again = open_files(tmp_path)
    [session] = again.sessions
    assert batches(again, session) == numbers(1)


def test_a_file_whose_making_was_cut_off_is_nothing(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    append(files, begin(files))
    kill(files)
    [path] = tmp_path.glob("*.outbox")
    whole = path.read_bytes()
    for left in (b"", whole[:5], MAGIC, MAGIC + bytes(80), whole[:30], bytes(100)):
        path.write_bytes(left)
        again = open_files(tmp_path)
        assert again.sessions == []
        assert again.damage == []
        assert not path.exists()
        kill(again)


def test_a_file_whose_beginning_is_damaged_is_kept_and_named(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    append(files, begin(files), 10)
    kill(files)
    [path] = tmp_path.glob("*.outbox")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    again = open_files(tmp_path)
    assert again.sessions == []
    [kept] = tmp_path.glob("*.damaged")
    assert kept.read_bytes() == data
    assert not path.exists()
    [fault] = again.damage
    assert f"{path} does not begin as a file of an outbox: its samples" in fault
    assert f"it is now {kept.name}" in fault


def test_a_file_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "00000001-0000000000000007-000000.outbox"
    path.write_bytes(MAGIC + bytes([FORMAT[0] + 1]) + bytes(100))
    with pytest.raises(OutboxFormatError, match="another format"):
        open_files(tmp_path)
    assert path.exists()
    path.unlink()
    open_files(tmp_path)


def test_what_is_safe_is_deleted_by_whole_files(tmp_path: Path) -> None:
    files = open_files(tmp_path, max_bytes=80_000)  # segments of 10,000 bytes
    session = begin(files)
    append(files, session, 20, size=1000)
    before = len(list(tmp_path.glob("*.outbox")))
    files.free_below(session, 13)
    assert (session.base, len(session.held)) == (13, 7)
    assert len(list(tmp_path.glob("*.outbox"))) == before - 1
    assert files.bytes == sum(path.stat().st_size for path in tmp_path.glob("*.outbox"))
    files.free_below(session, 20)
    files.close()
    assert list(tmp_path.glob("*.outbox")) == []


def test_a_batch_is_read_from_its_file_where_memory_has_no_room(tmp_path: Path) -> None:
    files = open_files(tmp_path, memory_bytes=300)
    session = begin(files)
    append(files, session, 3)
    files.sync()
    append(files, session, 5)
    assert session.held[0].payload is None
    assert batches(files, session) == numbers(8)


def test_a_full_outbox_drops_the_oldest_and_first_what_is_stored(tmp_path: Path) -> None:
    files = open_files(tmp_path, max_bytes=80_000)
    session = begin(files)
    while files.has_room(1000):
        append(files, session, size=1000)
    for seq in range(10, 20):  # the second file
        files.mark_stored(session, session.held[seq])
    assert files.make_room(1000, [session]) == 0
    assert 9 in session.held
    assert 10 not in session.held
    assert session.base == 0
    while files.has_room(1000):
        append(files, session, size=1000)
    assert files.make_room(1000, [session]) == 4 * 10
    assert session.dropped == 40
    assert files.has_room(1000)
    assert session.base >= 20
    kill(files)
    append(files, session, size=1000)
    [again] = open_files(tmp_path, max_bytes=80_000).sessions
    assert (again.dropped, again.base) == (40, session.base)


class FailingDisk:
    """Stands in for calls of the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: Callable[[int], int] | None = None  # how many bytes of a write arrive
        self.sync_fails = False
        self._writev = os.writev
        self._sync = files_module.sync_mapped_file
        monkeypatch.setattr(os, "writev", self._write)
        monkeypatch.setattr(files_module, "sync_mapped_file", self._sync_file)

    def _write(self, descriptor: int, buffers: tuple[bytes, bytes]) -> int:
        if self.writes is None:
            return self._writev(descriptor, buffers)
        data = b"".join(buffers)
        return os.write(descriptor, data[: self.writes(len(data))])

    def _sync_file(self, descriptor: int) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(monkeypatch)


def test_a_write_that_fails_leaves_nothing_in_the_way_of_later_ones(
    tmp_path: Path, disk: FailingDisk
) -> None:
    files = open_files(tmp_path)
    session = begin(files)
    append(files, session, 2)
    disk.writes = lambda size: size // 2
    append(files, session, 2)
    assert files.failure is not None
    assert files.failure.errno == errno.ENOSPC
    assert batches(files, session) == numbers(4), "those in memory are sent all the same"
    disk.writes = None
    append(files, session)
    assert files.bytes_in_memory_alone == 300, "in order"
    files.poll(10.0)
    assert files.failure is None
    kill(files)
    again = open_files(tmp_path)
    [found] = again.sessions
    assert batches(again, found) == numbers(5)


def test_what_a_failing_disk_has_not_is_held_until_it_is_stored(
    tmp_path: Path, disk: FailingDisk
) -> None:
    files = open_files(tmp_path, memory_bytes=250)
    session = begin(files)
    disk.writes = lambda size: 0
    append(files, session, 2)
    assert not files.has_room(100)
    files.mark_stored(session, session.held[0])
    assert files.has_room(100)
    assert session.base == 1
    files.poll(10.0)
    files.poll(20.0)
    assert list(session.held) == [1]


def test_what_a_failed_sync_was_to_write_is_written_again(
    tmp_path: Path, disk: FailingDisk
) -> None:
    files = open_files(tmp_path)
    session = begin(files)
    append(files, session, 2)
    files.sync()
    [first] = tmp_path.glob("*.outbox")
    append(files, session, 2)
    disk.sync_fails = True
    files.sync()
    disk.sync_fails = False
    append(files, session)
    files.poll(10.0)
    assert [batch.synced for batch in session.held.values()] == [True, True, False, False, False]
    files.sync()
    assert all(batch.synced for batch in session.held.values())
    kill(files)
    os.truncate(first, first.stat().st_size - 3 * (RECORD_BYTES + 100))  # the disk never had them
    again = open_files(tmp_path)
    [found] = again.sessions
    assert batches(again, found) == numbers(5)


def look(files: OutboxFiles, now: float) -> None:
    """What the thread that syncs finds, and the manager's next turn."""
    files.sync()
    files.poll(now)


AWAY = ["renamed", "replaced by an empty folder", "replaced by another outbox", "no disk"]


def take_away(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the folder away as an unmounted disk is, or a stick that was pulled out."""
    if how == "no disk":  # its names are still known to the system

        def fail(*_: object) -> Any:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "writev", fail)
        monkeypatch.setattr(os, "pwrite", fail)
        monkeypatch.setattr(os, "pread", fail)
        monkeypatch.setattr(files_module, "sync_mapped_file", fail)
        return
    folder.rename(folder.with_name("away"))
    if how != "renamed":
        folder.mkdir()
    if how == "replaced by another outbox":
        open_files(folder).close()


def bring_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if (away := folder.with_name("away")).exists():
        if folder.exists():
            shutil.rmtree(folder)
        away.rename(folder)


@pytest.mark.parametrize("how", AWAY)
def test_a_folder_that_was_away_has_lost_nothing_once_it_is_back(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "outbox"
    files = open_files(folder, memory_bytes=250)
    session = begin(files)
    append(files, session, 4)
    files.sync()
    append(files, session, 1)
    assert session.held[0].payload is None, "those in memory are the newest ones"
    take_away(folder, how, monkeypatch)
    with contextlib.suppress(OSError):  # what a manager that sends it notices
        files.read(session, session.held[0])
    if how == "no disk":
        assert files.may_be_read_later(session.held[0], OSError(errno.EIO, ""))
    look(files, 1.0)
    look(files, 2.0)
    assert files.away is not None
    assert files.failure is None, "one line says it"
    with pytest.raises(OSError, match=r"not there|in its place|Input/output"):
        files.read(session, session.held[0])
    assert files.may_be_read_later(session.held[0], files.away)
    append(files, session)
    assert files.bytes_in_memory_alone == 200
    assert not files.has_room(100), "memory has a bound"
    if how != "no disk":
        assert not list(folder.glob("*.outbox")), "nothing is written in its place"
    bring_back(folder, monkeypatch)
    returns = files.returns
    look(files, 3.0)
    assert files.away is None
    assert files.returns > returns
    assert batches(files, session) == numbers(6)
    look(files, 5.0)
    assert files.bytes_in_memory_alone == 0
    assert files.faults == []
    files.sync()
    kill(files)
    [found] = open_files(folder).sessions
    assert [*found.held] == [*range(6)]


def test_a_disk_that_was_mounted_again_is_known_and_locked_again(tmp_path: Path) -> None:
    """Its files have other numbers then, as those of a copy have."""
    folder = tmp_path / "outbox"
    files = open_files(folder)
    session = begin(files)
    append(files, session)
    files.sync()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    folder.rename(tmp_path / "elsewhere")
    look(files, 1.0)
    assert files.away is not None
    append(files, session)
    copy.rename(folder)
    look(files, 3.0)
    assert files.away is None
    with pytest.raises(OutboxInUseError):
        open_files(folder)
    files.close()
    [found] = open_files(folder).sessions
    assert batches(files, found) == numbers(2)


def test_a_folder_that_another_process_has_used_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    files = open_files(folder)
    append(files, begin(files))
    files.sync()
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "copy").rename(folder)
    other = open_files(folder)
    look(files, 1.0)
    assert files.away is not None
    other.close()
    look(files, 2.0)
    assert files.away is not None, "it has not this process's mark any more"


def test_a_folder_that_another_host_uses_where_no_lock_keeps_it_out_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes this session for one that has ended, and deletes its files."""
    monkeypatch.setattr(folder_module, "lock_file", lambda file: False)
    files = open_files(tmp_path)
    assert "is not kept out (its file system has no locks)" in files.faults[0]
    session = begin(files)
    append(files, session, 2)
    look(files, 1.0)
    assert files.away is None
    other = open_files(tmp_path)
    [ended] = other.sessions
    append(files, session)
    look(files, 2.0)
    assert files.away is not None
    assert str(files.away.strerror) == "another manager uses it now"
    assert files.rows_in_memory_alone == 4, "what the other one has not read is not in its hands"
    other.free_below(ended, 2)
    append(files, session)
    look(files, 3.0)
    assert list(tmp_path.glob("*.outbox")) == [], "nothing is written there any more"
    assert batches(files, session) == numbers(4)
    other.sync()
    assert other.away is None
    other.close()
    files.close()


def test_what_is_safe_is_deleted_once_the_folder_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    files = open_files(folder, max_bytes=8000)  # segments of 1,000 bytes
    session = begin(files)
    append(files, session, 20)
    files.sync()
    folder.rename(tmp_path / "away")
    look(files, 1.0)
    files.free_below(session, 15)
    append(files, session)
    (tmp_path / "away").rename(folder)
    for now in (3.0, 5.0, 7.0):
        look(files, now)
    assert files.bytes == sum(path.stat().st_size for path in folder.glob("*.outbox"))
    kill(files)
    [found] = open_files(folder).sessions
    assert batches(files, found) == numbers(21 - found.base, first=found.base)
    assert found.base > 7


def test_a_batch_that_cannot_be_read_twice_though_its_disk_is_well_is_given_up(
    tmp_path: Path,
) -> None:
    files = open_files(tmp_path, memory_bytes=0)
    session = begin(files)
    append(files, session)
    files.sync()
    append(files, session)
    [path] = tmp_path.glob("*.outbox")
    path.rename(tmp_path / "elsewhere")
    held = session.held[0]
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as failed:
            files.read(session, held)
        assert files.may_be_read_later(held, failed.value)
    look(files, 1.0)
    assert files.returns == 1
    with pytest.raises(FileNotFoundError) as failed:
        files.read(session, held)
    assert not files.may_be_read_later(held, failed.value)


def test_a_folder_that_is_removed_for_good_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    files = open_files(folder)
    session = begin(files)
    append(files, session, 2)
    shutil.rmtree(folder)
    look(files, 1.0)
    assert batches(files, session) == numbers(2), "what is in memory is sent"
    files.mark_stored(session, session.held[0])
    files.close()
    assert files.rows_in_memory_alone == 4
    assert not folder.exists()


def test_a_file_that_is_deleted_as_safe_is_not_taken_away(tmp_path: Path) -> None:
    files = open_files(tmp_path, max_bytes=8000)  # segments of 1,000 bytes
    session = begin(files)
    append(files, session, 10)
    files.free_below(session, 10)
    files.sync()
    files.poll(1.0)
    assert files.failure is None


def test_a_file_that_cannot_be_deleted_is_named_and_samples_are_kept_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    files = open_files(tmp_path, max_bytes=8000)  # segments of 1,000 bytes
    session = begin(files)
    append(files, session, 10)
    monkeypatch.setattr(Path, "unlink", unlink)
    files.free_below(session, 6)
    assert files.failure is None
    assert (
        f"{tmp_path}/00000001-0000000000000007-000000.outbox cannot be deleted" in files.faults[0]
    )


def test_a_full_disk_is_freed_of_what_is_safe(tmp_path: Path, disk: FailingDisk) -> None:
    files = open_files(tmp_path)
    session = begin(files)
    append(files, session)
    files.sync()
    disk.writes = lambda size: 0
    append(files, session)
    assert files.failure is not None
    assert len(list(tmp_path.glob("*.outbox"))) == 1
    files.free_below(session, 1)
    append(files, session)
    files.poll(2.0)
    files.sync()
    assert list(tmp_path.glob("*.outbox")) == []
    disk.writes = None
    files.poll(4.0)
    assert files.failure is None


def test_a_sync_after_one_that_failed_is_not_believed(tmp_path: Path, disk: FailingDisk) -> None:
    files = open_files(tmp_path)
    session = begin(files)
    append(files, session)
    disk.sync_fails = True
    files.sync()
    disk.sync_fails = False
    append(files, session)
    files.sync()
    assert not session.held[0].synced
    files.close()
    assert session.held[0].synced
    [found] = open_files(tmp_path).sessions
    assert list(found.held) == [0, 1]


def test_a_batch_that_is_damaged_on_the_disk_is_an_error_of_reading(tmp_path: Path) -> None:
    files = open_files(tmp_path, memory_bytes=0)
    session = begin(files)
    append(files, session)
    files.sync()
    append(files, session)
    held: HeldBatch = session.held[0]
    assert held.payload is None
    [path] = tmp_path.glob("*.outbox")
    data = bytearray(path.read_bytes())
    data[held.offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="batch 0 is damaged"):
        files.read(session, held)


def test_dropped_files_that_a_power_failure_brings_back_are_held_and_not_dropped(
    tmp_path: Path,
) -> None:
    files = open_files(tmp_path, max_bytes=80_000)
    session = begin(files)
    while files.has_room(1000):
        append(files, session, size=1000)
    [oldest, *_] = sorted(tmp_path.glob("*.outbox"))
    data = oldest.read_bytes()
    assert files.make_room(1000, [session]) > 0
    append(files, session, size=1000)
    kill(files)
    oldest.write_bytes(data)
    [again] = open_files(tmp_path, max_bytes=80_000).sessions
    assert again.base == 0
    assert again.dropped + again.unstored_rows == again.produced


def test_files_of_another_host_may_be_put_into_a_folder(tmp_path: Path) -> None:
    for name, incarnation in (("a", 1), ("b", 2)):
        files = open_files(tmp_path / name)
        append(files, begin(files, incarnation), incarnation)
        kill(files)
    for path in (tmp_path / "b").glob("*.outbox"):
        path.rename(tmp_path / "a" / path.name)
    (tmp_path / "a" / "notes.outbox").write_text("of the operator")
    again = open_files(tmp_path / "a")
    assert {each.incarnation: each.end for each in again.sessions} == {1: 1, 2: 2}


def test_a_sync_without_a_descriptor_is_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    files = open_files(tmp_path)
    session = begin(files)
    append(files, session)
    monkeypatch.setattr(os, "dup", fail)
    files.sync()
    monkeypatch.undo()
    files.poll(10.0)
    assert not session.held[0].synced
    files.sync()
    assert session.held[0].synced


def test_a_folder_keeps_the_id_of_its_manager(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    assert files.manager_id("robot-1a2b") == "robot-1a2b"
    files.close()
    again = open_files(tmp_path)
    assert again.manager_id("robot-9f9f") == "robot-1a2b"
    (tmp_path / "manager").write_bytes(bytes(9))  # as a power failure may leave it
    assert again.manager_id("robot-9f9f") == "robot-9f9f"


def test_a_learner_that_is_another_one_may_lack_what_was_stored(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    session = begin(files)
    append(files, session, 3)
    for seq in (0, 1):
        files.mark_stored(session, session.held[seq])
    assert session.unstored_rows == 4
    files.forget_stored(session)
    assert (session.unstored_rows, session.unstored_batches) == (12, 3)


@pytest.mark.parametrize("name", ["00000001-0000000000000007-000000.outbox", "manager"])
def test_a_pipe_in_the_folder_is_named_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="it is no regular file") as refused:
        open_files(tmp_path).manager_id("robot")
    assert refused.value.filename == str(tmp_path / name)


def test_a_folder_that_is_a_link_to_nothing_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    with pytest.raises(OutboxLinkError, match=r"is a link to .*unmounted, and there is nothing"):
        open_files(tmp_path / "link")
    assert not (tmp_path / "unmounted").exists()


def test_a_folder_that_is_mounted_read_only_is_to_be_mounted_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(folder_module.os, "open", refuse)
    with pytest.raises(OutboxReadOnlyError, match="mount it writable: what is in it is sent then"):
        open_files(tmp_path)

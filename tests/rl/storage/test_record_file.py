"""Records that are appended, synced beside their writer, and found by a key."""

from __future__ import annotations

import errno
import time
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vedette_rl.errors import ReplayTornError, RlError
from vedette_rl.storage import record_file
from vedette_rl.storage.record_file import RecordFile

TOP = (1 << 64) - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def await_sync(records: RecordFile) -> None:
    deadline = time.monotonic() + 30.0
    while records.synced < records.end:
        assert time.monotonic() < deadline, "it is not synced"
        time.sleep(0.005)


def test_records_of_a_key_are_found_the_newest_first(path: Path) -> None:
    records = RecordFile(path, 0)
    assert not path.exists(), "nothing is made for nothing"
    assert list(records.find(7)) == []
    assert records.append([(7, b"first"), (TOP, b"other"), (7, b"second")])
    between = records.end
    assert records.append([(7, b"")])
    assert list(records.find(7)) == [b"", b"second", b"first"]
    assert list(records.find(7, between)) == [b"second", b"first"]
    assert list(records.find(TOP)) == [b"other"]
    await_sync(records)
    records.close()
    again = RecordFile(path, records.end)
    assert list(again.find(7)) == [b"", b"second", b"first"]
    assert list(again.find(TOP)) == [b"other"]
    assert list(again.find(8)) == []
    again.close()


def test_what_nobody_has_committed_is_cut_off(path: Path) -> None:
    records = RecordFile(path, 0)
    records.append([(1, b"kept")])
    kept = records.end
    records.append([(1, b"not committed")])
    records.close()
    again = RecordFile(path, kept)
    assert path.stat().st_size == kept
    assert list(again.find(1)) == [b"kept"]
    assert again.append([(1, b"later")])
    again.close()
    third = RecordFile(path, again.end)
    assert list(third.find(1)) == [b"later", b"kept"]
    third.close()


def test_a_file_that_is_shorter_or_damaged_is_refused(path: Path) -> None:
    with pytest.raises(ReplayTornError, match="has 0 bytes, and 5 belong to the last commit"):
        RecordFile(path, 5)
    records = RecordFile(path, 0)
    records.append([(1, b"a content"), (2, b"another")])
    records.close()
    with pytest.raises(ReplayTornError, match="belong to the last commit"):
        RecordFile(path, records.end + 1)
    with pytest.raises(ReplayTornError, match="damaged"):
        RecordFile(path, records.end - 1)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ReplayTornError, match="damaged"):
            RecordFile(path, records.end)


def test_many_records_are_found_after_they_were_sorted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "_RECENT_MAX", 64)
    records = RecordFile(path, 0)
    rng = np.random.default_rng(1)
    keys = [int(key) for key in rng.integers(0, 1 << 64, 200, np.uint64)]
    for turn in range(3):
        for key in keys:
            records.append([(key, b"%d of %d" % (turn, key))])
    for found in (records, RecordFile(path, records.end)):
        for key in keys:
            assert list(found.find(key)) == [b"%d of %d" % (turn, key) for turn in (2, 1, 0)]
        found.close()


def test_a_disk_without_room_has_none_of_the_records_and_takes_them_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileIO):
        """Takes some bytes, and no more."""

        def write(self, data: Any, /) -> int:
            if self.tell() > end:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data[:7])

    records = RecordFile(path, 0)
    records.append([(1, b"there")])
    await_sync(records)
    end = records.end
    with monkeypatch.context() as patched, Full(path, "r+") as full:
        patched.setattr(records, "_file", full)
        assert not records.append([(2, b"not there")])
    assert "No space left" in records.failing
    assert (records.end, path.stat().st_size) == (end, end)
    assert list(records.find(2)) == []
    assert records.append([(2, b"there, too")])
    assert records.failing == ""
    assert list(records.find(2)) == [b"there, too"]
    records.close()


def test_after_a_sync_that_failed_nothing_more_is_appended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk has is not known: another start writes it again."""

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(record_file, "sync_file", fails)
    records = RecordFile(path, 0)
    records.append([(1, b"lost, perhaps")])
    assert records._thread is not None
    records._thread.join(30.0)
    assert records.synced == 0
    with pytest.raises(RlError, match="cannot be synced: Input/output error"):
        records.append([(2, b"behind it")])
    records.close()

"""Whoever looks at a file that is replaced sees the old content or the new, never half."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from vedette_rl.storage import atomic_files
from vedette_rl.storage.atomic_files import (
    allocate_file,
    replace_file,
    replace_or_overwrite,
    replacing,
    write_json,
)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(("content", "found"), [("grün", "grün".encode()), (b"\0\1", b"\0\1")])
def test_a_file_is_replaced(
    tmp_path: Path, content: str | bytes, found: bytes, durable: bool
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a much longer text than the new one")
    replace_file(path, content, durable=durable)
    assert path.read_bytes() == found
    assert names(tmp_path) == {"a.txt"}


def test_json_is_readable_and_ends_with_a_line(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1})
    assert (tmp_path / "a.json").read_text() == '{\n  "x": 1\n}\n'


def test_an_exception_leaves_the_old_content_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(IsADirectoryError), replacing(path) as aside:
        aside.write_text("new") and tmp_path.write_text("fails")
    assert path.read_text() == "old"
    assert names(tmp_path) == {"a.txt"}


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is a device or a pipe"):
        replace_file(pipe, "x")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match="No space left") as caught, replacing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path)


def test_on_a_full_disk_a_small_file_is_overwritten_in_its_own_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text('{"epoch": 9}')
    monkeypatch.setattr(atomic_files, "replace_file", no_room)
    replace_or_overwrite(tmp_path / "run.json", '{"epoch": 10}')
    assert (tmp_path / "run.json").read_text() == '{"epoch": 10}'
    replace_or_overwrite(tmp_path / "run.json", b"{}")
    assert (tmp_path / "run.json").read_text() == "{}"


@pytest.mark.parametrize("content", ["x" * 100_000, "{}"])
def test_what_has_no_room_of_its_own_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    path = tmp_path / ("large.json" if len(content) > 2 else "missing.json")
    if len(content) > 2:
        path.write_text("old")
    monkeypatch.setattr(atomic_files, "replace_file", no_room)
    with pytest.raises(OSError, match="No space left"):
        replace_or_overwrite(path, content)
    assert path.read_text() == "old" if len(content) > 2 else not path.exists()


def no_room(path: Path, content: bytes, *, durable: bool = False) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_folder_that_is_not_there_is_told_by_the_files_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        replace_file(tmp_path / "none" / "a.txt", "x")
    assert caught.value.filename == str(tmp_path / "none" / "a.txt")


def test_an_error_about_another_file_keeps_that_files_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "a.txt"):
        (tmp_path / "source").read_bytes()
    assert caught.value.filename == str(tmp_path / "source")


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "data") as aside:
        aside.mkdir()
        (aside / "one").write_text("1")
        assert not (tmp_path / "data").exists()
    assert (tmp_path / "data" / "one").read_text() == "1"
    assert names(tmp_path) == {"data"}


def test_a_directory_that_holds_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").touch()
    with pytest.raises(OSError, match="not empty"), replacing(tmp_path / "data") as aside:
        aside.mkdir()
    assert names(tmp_path) == {"data"}
    assert names(tmp_path / "data") == {"mine"}


def test_an_allocated_file_has_its_size_its_head_and_zeros(tmp_path: Path) -> None:
    path = tmp_path / "map"
    allocate_file(path, 10_000, b"head", durable=True)
    data = path.read_bytes()
    assert (len(data), data[:4], set(data[4:])) == (10_000, b"head", {0})
    assert path.stat().st_blocks * 512 >= 10_000
    assert stat.S_IMODE(path.stat().st_mode) & 0o133 == 0


def test_a_file_larger_than_the_disk_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left|too large") as caught:
        allocate_file(tmp_path / "map", 1 << 60, b"", durable=False)
    assert caught.value.filename == str(tmp_path / "map")
    assert names(tmp_path) == set()


def test_what_is_durable_is_synced_before_it_has_its_name_and_so_is_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    path = tmp_path / "run.json"

    def sync(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_json(path, {"x": 1}, durable=True)
    (file, named_before), folder = synced
    assert file.startswith(".run.json.")
    assert not named_before
    assert folder == (tmp_path.name, True)

"""The ring on disk: what is there after closing, what a reader sees, and what is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, insert, rows, stamp

from vedette_rl.errors import OneWriterError, ReplayBudgetError, ReplayFormatError
from vedette_rl.replay import commits, ring_files
from vedette_rl.replay.ring import RingReader, RingWriter, check_ring


def open_ring(directory: Path, capacity: int = 100, **settings: Any) -> RingWriter:
    return RingWriter.open(directory, DTYPE, capacity, run_id="run", **settings)


def assert_reads_whole(reader: RingReader) -> None:
    numbers = np.arange(max(0, reader.inserted - reader.capacity), reader.inserted)
    places = numbers % reader.manifest.physical_rows
    assert_rows({name: column[places] for name, column in reader.columns.items()}, numbers)


def test_a_reader_sees_what_was_committed(tmp_path: Path) -> None:
    ring = open_ring(tmp_path, guard=30)
    reader = RingReader(tmp_path)
    assert reader.inserted == 0
    for count in (30, 30, 1, 30, 30, 29):
        insert(ring, count)
        assert reader.inserted == ring.inserted
        assert_reads_whole(reader)
    ring.append(rows(ring.inserted, 30), 30)
    assert reader.inserted == 150
    assert_reads_whole(reader)


STATUS = Path("/proc/self/status")


def mapped_mb() -> int:
    """Megabytes of files in this process's memory, those of a tmpfs among them."""
    lines = [line.split() for line in STATUS.read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line[0] in ("RssFile:", "RssShmem:")) >> 10


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says it")
def test_a_writer_gives_back_the_memory_of_what_it_has_written(tmp_path: Path) -> None:
    row = np.dtype([("obs", "u1", (1 << 20,))])
    before = mapped_mb()
    ring = RingWriter.open(tmp_path, row, 40, run_id="run", guard=1)
    for number in range(40):
        ring.append({"obs": np.full((1, 1 << 20), number, np.uint8)}, 1)
        ring.commit()
    assert mapped_mb() - before >= 40
    ring.release_memory()
    assert mapped_mb() - before < 10
    ring.append({"obs": np.full((1, 1 << 20), 99, np.uint8)}, 1)
    ring.close()
    seen = RingReader(tmp_path).columns["obs"]
    assert (seen[:40] == np.arange(40)[:, None]).all()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_ring(tmp_path)
    reader = RingReader(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        reader.columns["reward"][0] = 1.0


def test_rows_and_stamp_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    for _ in range(7):
        insert(ring, 20)
    ring.append(rows(140, 5), 5)  # never committed
    ring.close()
    again = open_ring(tmp_path)
    assert (again.inserted, again.pending, again.stamp) == (140, 0, stamp(140))
    assert_reads_whole(RingReader(tmp_path))
    insert(again, 20)
    assert_reads_whole(RingReader(tmp_path))


def test_a_stamp_alone_can_be_committed(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    ring.commit(b"one")
    ring.commit(b"two")
    ring.close()
    assert open_ring(tmp_path).stamp == b"two"


def test_a_stamp_too_large_commits_nothing(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 3)
    ring.append(rows(3, 3), 3)
    with pytest.raises(ValueError, match="bytes"):
        ring.commit(bytes(commits.STAMP_MAX_BYTES + 1))
    assert (ring.inserted, ring.pending) == (3, 3)
    assert RingReader(tmp_path).inserted == 3
    ring.commit(stamp(6))
    assert_reads_whole(RingReader(tmp_path))


def test_a_commit_that_the_cursor_does_not_show_yet_is_found(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 3)
    ring._cursor[0] = 0  # the store that a kill took away
    ring.close()
    path = tmp_path / "cursor.bin"
    content = path.read_bytes()
    path.write_bytes(content[: ring_files.PAGE_BYTES] + bytes(8))
    assert RingReader(tmp_path).inserted == 0
    assert open_ring(tmp_path).inserted == 3
    assert RingReader(tmp_path).inserted == 3


def test_its_space_is_really_taken(tmp_path: Path) -> None:
    open_ring(tmp_path, 50_000)
    for path in tmp_path.glob("*.bin"):
        assert path.stat().st_blocks * 512 >= path.stat().st_size, path.name


def test_a_disk_without_room_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReplayBudgetError, match=r"needs .* of disk .* lower replay.capacity"):
        open_ring(tmp_path, 10**15)
    with pytest.raises(ReplayBudgetError):
        open_ring(tmp_path, 10**25)
    assert open_ring(tmp_path, 10).inserted == 0


def test_only_one_may_write(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    with pytest.raises(OneWriterError, match="in use by another process"):
        open_ring(tmp_path)
    ring.close()
    open_ring(tmp_path)


def test_a_refusal_lets_go_of_the_lock(tmp_path: Path) -> None:
    open_ring(tmp_path).close()
    with pytest.raises(ReplayFormatError):
        open_ring(tmp_path, 101)
    open_ring(tmp_path)


def test_rows_kept_as_another_setting_asks_are_refused_with_the_fix(tmp_path: Path) -> None:
    open_ring(tmp_path, keep=30).close()
    with pytest.raises(ReplayFormatError, match=r"keeps 30 rows .*, not 0: set replay.keep=30, or"):
        open_ring(tmp_path)
    again = open_ring(tmp_path, keep=30)
    assert len(again.columns["reward"]) == again.capacity + again.manifest.guard + 30
    again.close()


def test_a_replay_that_keeps_no_more_is_one_that_version_0_2_reads(tmp_path: Path) -> None:
    open_ring(tmp_path / "usual").close()
    open_ring(tmp_path / "more", keep=1).close()
    assert "keep" not in json.loads((tmp_path / "usual" / "ring.json").read_text())
    assert json.loads((tmp_path / "more" / "ring.json").read_text())["keep"] == 1


def test_another_capacity_is_refused(tmp_path: Path) -> None:
    open_ring(tmp_path).close()
    with pytest.raises(ReplayFormatError, match=r"capacity of 100, not 200: set replay.capacity="):
        open_ring(tmp_path, 200)


def test_another_run_is_refused(tmp_path: Path) -> None:
    open_ring(tmp_path).close()
    with pytest.raises(ReplayFormatError, match="is of run 'run', not 'other'"):
        RingWriter.open(tmp_path, DTYPE, 100, run_id="other")


def test_a_larger_guard_is_refused_and_a_smaller_one_is_not(tmp_path: Path) -> None:
    open_ring(tmp_path, guard=50).close()
    open_ring(tmp_path, guard=40).close()
    open_ring(tmp_path).close()
    with pytest.raises(ReplayFormatError, match="takes 50 rows before a commit, and 60"):
        open_ring(tmp_path, guard=60)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([("a", "f4", (2,))], r"no column 'b'|column 'b'"),
        ([("a", "f4", (3,)), ("b", "i8", ())], r"column 'a' of float32 \(2,\), not float32 \(3,\)"),
        ([("a", "f8", (2,)), ("b", "i8", ())], "column 'a' of float32"),
        ([("a", "f4", (2,)), ("c", "i8", ())], "no column 'c'"),
        ([("b", "i8", ()), ("a", "f4", (2,))], "columns in another order"),
    ],
)
def test_other_columns_are_refused_by_name(tmp_path: Path, fields: list[Any], why: str) -> None:
    dtype = np.dtype([("a", "f4", (2,)), ("b", "i8", ())])
    RingWriter.open(tmp_path, dtype, 10, run_id="run").close()
    with pytest.raises(ReplayFormatError, match=why):
        RingWriter.open(tmp_path, np.dtype(fields), 10, run_id="run")


def truncate(directory: Path) -> None:
    os.truncate(directory / "002-action.bin", 5000)


def remove(directory: Path) -> None:
    (directory / "002-action.bin").unlink()


def empty(directory: Path) -> None:
    size = (directory / "002-action.bin").stat().st_size
    (directory / "002-action.bin").write_bytes(bytes(size))


def swap(directory: Path) -> None:
    open_ring(directory / "of_another").close()
    (directory / "of_another" / "002-action.bin").rename(directory / "002-action.bin")


def lose_manifest(directory: Path) -> None:
    (directory / "ring.json").unlink()


def break_manifest(directory: Path) -> None:
    (directory / "ring.json").write_text('{"format": "vedette rep')


def foreign_manifest(directory: Path) -> None:
    (directory / "ring.json").write_text('{"name": "somebody else"}')


def newer_manifest(directory: Path) -> None:
    content = json.loads((directory / "ring.json").read_text())
    (directory / "ring.json").write_text(json.dumps({**content, "version": 2}))


def objects_in_manifest(directory: Path) -> None:
    content = json.loads((directory / "ring.json").read_text())
    content["columns"][0]["dtype"] = "O"
    (directory / "ring.json").write_text(json.dumps(content))


def cut_commits(directory: Path) -> None:
    os.truncate(directory / "commits", 5000)


def turn_a_bit_of_the_commit(directory: Path) -> None:
    content = bytearray((directory / "commits").read_bytes())
    content[content.rindex(stamp(10))] ^= 1
    (directory / "commits").write_bytes(content)


def lose_commits(directory: Path) -> None:
    (directory / "commits").unlink()


def lose_cursor(directory: Path) -> None:
    (directory / "cursor.bin").unlink()


def turn_cursor(directory: Path) -> None:
    content = bytearray((directory / "cursor.bin").read_bytes())
    content[0] ^= 1
    (directory / "cursor.bin").write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lose_cursor, "cursor.bin is missing: put a"),
        (turn_cursor, "cursor.bin is no part of this replay: put a"),
        (truncate, "002-action.bin is torn: 5000 bytes, where .* belong: put a"),
        (remove, "002-action.bin is missing: put a"),
        (empty, "002-action.bin is no part of this replay: put a"),
        (swap, "002-action.bin is no part of this replay: put a"),
        (lose_manifest, "ring.json is missing: put a"),
        (break_manifest, "ring.json is damaged .*: put a"),
        (foreign_manifest, "ring.json is no replay's: name another directory"),
        (objects_in_manifest, "ring.json is damaged"),
    ],
)
def test_a_torn_or_foreign_replay_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 10)
    ring.close()
    damage(tmp_path)
    with pytest.raises(ReplayFormatError, match=why) as caught:
        open_ring(tmp_path)
    assert "\n" not in str(caught.value)
    assert "begin an empty replay with --new-replay" in str(caught.value)


def test_a_whole_replay_of_a_newer_release_is_not_to_be_deleted(tmp_path: Path) -> None:
    open_ring(tmp_path).close()
    newer_manifest(tmp_path)
    newer = r"ring.json: made by a newer version of vedette \(its format is 2, and 1 is read here\)"
    with pytest.raises(ReplayFormatError, match=newer) as caught:
        open_ring(tmp_path)
    assert "delete" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [lose_cursor, truncate, remove, swap, lose_manifest, break_manifest],
)
def test_the_check_says_what_the_opening_would_and_changes_nothing(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 10)
    ring.close()
    assert check_ring(tmp_path, DTYPE, 100, run_id="run") == stamp(10)
    damage(tmp_path)
    before = {path: path.stat() for path in tmp_path.iterdir()}
    with pytest.raises(ReplayFormatError) as foretold:
        check_ring(tmp_path, DTYPE, 100, run_id="run")
    for path, stat in before.items():
        assert (path.stat().st_mtime_ns, path.stat().st_size) == (stat.st_mtime_ns, stat.st_size)
    assert set(tmp_path.iterdir()) == set(before)
    with pytest.raises(ReplayFormatError) as met:
        open_ring(tmp_path)
    assert str(foretold.value) == str(met.value)


def test_the_check_takes_a_place_without_a_replay_and_a_replay_in_use(tmp_path: Path) -> None:
    assert check_ring(tmp_path / "none", DTYPE, 100, run_id="run") == b""
    ring = open_ring(tmp_path)
    insert(ring, 10)
    assert check_ring(tmp_path, DTYPE, 100, run_id="run") == stamp(10)
    insert(ring, 10)


def test_a_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ReplayFormatError, match=r"'thesis.tex', which is no part of a replay"):
        open_ring(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReplayFormatError, match="no replay can be in"):
        open_ring(tmp_path / "file" / "replay")


def test_a_replay_half_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("vedette_rl.replay.ring.write_manifest", stop)
        with pytest.raises(KeyboardInterrupt):
            open_ring(tmp_path)
    assert len(list(tmp_path.glob("*.bin"))) > 3
    assert not (tmp_path / "ring.json").exists()
    assert open_ring(tmp_path, 50).inserted == 0


def stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", [cut_commits, turn_a_bit_of_the_commit, lose_commits])
def test_commits_that_are_damaged_are_restored_from_the_last_sync(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    ring = open_ring(tmp_path)
    insert(ring, 10)
    ring.close()
    damage(tmp_path)
    assert check_ring(tmp_path, DTYPE, 100, run_id="run") == stamp(10)
    again = open_ring(tmp_path)
    assert (again.size, again.stamp) == (10, stamp(10))
    assert_reads_whole(RingReader(tmp_path))


def test_columns_of_any_name_have_a_file(tmp_path: Path) -> None:
    dtype = np.dtype([("obs/../../x", "f4"), ("obs/" + "y" * 300, "f4"), ("öß", "f4")])
    ring = RingWriter.open(tmp_path / "replay", dtype, 10, run_id="run")
    ring.append({name: np.float32(1) for name in dtype.names or ()}, 1)
    ring.commit()
    ring.close()
    assert {path.parent for path in tmp_path.rglob("*.bin")} == {tmp_path / "replay"}
    assert RingWriter.open(tmp_path / "replay", dtype, 10, run_id="run").inserted == 1

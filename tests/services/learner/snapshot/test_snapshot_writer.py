"""Generations of a snapshot: of one moment, newer ones continue older ones, one learner writes."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import counting_frames
import numpy as np
import pytest
from counting_rows import DTYPE, assert_rows, insert, stamp

from vedette_rl.replay import ring_files, ring_parts
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.ring_parts import BLOCK_BYTES, RingRestore
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.errors import (
    NoSnapshotError,
    SettingError,
    SnapshotFormatError,
    SnapshotTakenError,
)
from vedette_services.learner.snapshot import run_files
from vedette_services.learner.snapshot.writer import SnapshotWriter
from vedette_services.run import from_snapshot, snapshot_directory
from vedette_services.run.directory import RunDirectory
from vedette_services.run.from_snapshot import remove_leftovers, restore_run
from vedette_services.run.replay_starts import ReplayStarts
from vedette_services.run.snapshot_directory import Generation, SnapshotDirectory

CAPACITY = 2000
GUARD = 400


def no_pause(size: int) -> None:
    """Does not wait."""


class Learner:
    """A learner's run: a replay that is written, and its snapshot's writer."""

    def __init__(self, out: Path, snapshot: Path) -> None:
        self.run = RunDirectory(out)
        self.run.make()
        self.snapshot = snapshot
        self.ring: RingWriter | None = None
        self.archive_end = 0  # of each stamp
        self.start()

    def start(self) -> None:
        """A start: it is marked in the replay before anything is answered."""
        self.run.begin_epoch()
        self.ring = RingWriter.open(
            self.run.replay, DTYPE, CAPACITY, run_id="counting", guard=GUARD, sync_interval_s=1e3
        )
        starts = ReplayStarts.read(self.run.replay).with_start(self.ring.inserted)
        starts.write(self.run.replay)
        self.writer = SnapshotWriter(
            self.snapshot, self.run.replay, self.run, lambda stamp: self.archive_end
        )

    def stop(self) -> None:
        if self.ring is not None:
            self.writer.close()
            self.ring.close()
            self.ring = None

    def insert(self, count: int) -> None:
        assert self.ring is not None
        for _ in range(0, count, 100):
            self.ring._syncer.extend()
            self.ring._allow_rows()
            insert(self.ring, min(count, 100))

    def sync(self) -> None:
        assert self.ring is not None
        self.ring._syncer.sync()

    def take(self) -> Generation:
        generation = self.writer.take(no_pause)
        assert generation is not None
        return generation


@pytest.fixture
def learners(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as ending:
        yield ending


@pytest.fixture
def learner(tmp_path: Path, learners: ExitStack) -> Learner:
    learner = Learner(tmp_path / "run", tmp_path / "snapshot")
    learners.callback(learner.stop)
    return learner


def assert_restored(out: Path, inserted: int) -> None:
    """The replay in a run directory has all rows, and the stamp that was committed with them."""
    with ExitStack() as ending:
        ring = RingWriter.open(out / "replay", DTYPE, CAPACITY, run_id="counting", guard=GUARD)
        ending.callback(ring.close)
        assert ring.inserted == inserted
        assert ring.stamp == (stamp(inserted) if inserted else b"")
        oldest = max(0, inserted - CAPACITY)
        assert ring.live() == (oldest, inserted)
        numbers = np.arange(oldest, inserted)
        columns = {name: column[numbers % len(column)] for name, column in ring.columns.items()}
        assert_rows(columns, numbers)


def test_a_generation_has_the_rows_and_the_ledger_of_the_last_recorded_sync(
    learner: Learner, tmp_path: Path
) -> None:
    learner.insert(300)
    learner.sync()
    learner.insert(200)
    generation = learner.take()
    assert generation.ring.inserted == 300
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 300)


def test_a_generation_copies_only_what_is_new_and_removes_what_is_not_needed(
    learner: Learner, tmp_path: Path
) -> None:
    written: list[int] = []
    for _ in range(8):
        learner.insert(500)
        learner.sync()
        learner.writer.take(written.append)
    assert sum(written) == 4000 * DTYPE.itemsize
    assert len(list(learner.snapshot.glob("generation-*"))) == 2
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 4000)


def test_a_generation_has_the_archive_up_to_the_length_of_its_stamp(
    learner: Learner, tmp_path: Path
) -> None:
    archive = learner.run.replay / ring_files.ARCHIVE
    content = bytes(range(256)) * 40
    for end in (1000, 1000, 7000):
        archive.write_bytes(content)  # the file is ahead of the stamp
        learner.archive_end = end
        learner.insert(100)
        learner.sync()
        generation = learner.take()
        assert generation.ring.archive_end == end
    learner.stop()
    learner.start()  # another process goes on from what the one before has copied
    learner.archive_end = 9000
    parts = learner.take().ring.archive
    assert [(part.first, part.end) for part in parts] == [(0, 7000), (7000, 9000)]
    restore_run(learner.snapshot, tmp_path / "new")
    assert (tmp_path / "new" / "replay" / ring_files.ARCHIVE).read_bytes() == content[:9000]
    assert_restored(tmp_path / "new", 300)


def test_a_generation_without_archive_makes_none(learner: Learner, tmp_path: Path) -> None:
    learner.insert(100)
    learner.sync()
    assert learner.take().ring.archive == ()
    restore_run(learner.snapshot, tmp_path / "new")
    assert not (tmp_path / "new" / "replay" / ring_files.ARCHIVE).exists()


def test_a_copy_of_the_directory_is_whole_at_every_moment(learner: Learner, tmp_path: Path) -> None:
    """Whatever is copied while a generation is written restores the generation before."""
    learner.insert(300)
    learner.sync()
    before = learner.take().ring.inserted
    numbers = itertools.count()

    def restore_now(size: int) -> None:
        number = next(numbers)
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(learner.snapshot, copy)
        restore_run(copy, tmp_path / f"new-{number}")
        assert_restored(tmp_path / f"new-{number}", before)

    for _ in range(2):
        learner.insert(300)
        learner.sync()
        generation = learner.writer.take(restore_now)
        assert generation is not None
        before = generation.ring.inserted
    assert next(numbers) >= 2


class InterruptedWriteError(OSError):
    """The disk of the snapshot fails."""


@pytest.mark.parametrize("fails", [False, True], ids=["killed", "fails"])
def test_a_generation_may_be_interrupted_at_any_sync(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A kill leaves the directory as it was then; a disk that fails is written to again."""
    numbers = itertools.count()
    fails_at = math.inf
    expected: list[int] = []  # rows of the generations of which one has to be there
    restored = []

    def interrupt(*_: object) -> None:
        number = next(numbers)
        if number == fails_at:
            raise InterruptedWriteError(5, "Input/output error")
        if not fails and expected and not (restored and restored[-1] < 0):
            restored.append(-1)  # what restores calls this, too
            copy = tmp_path / f"copy-{number}"
            shutil.copytree(learner.snapshot, copy)
            restore_run(copy, tmp_path / f"new-{number}")
            found = ring_files.read_inserted(tmp_path / f"new-{number}" / "replay")
            assert found in expected
            assert_restored(tmp_path / f"new-{number}", found)
            restored[-1] = found

    learner.insert(100)
    learner.sync()
    learner.take()
    for module in (ring_parts, snapshot_directory, run_files):
        for call in ("sync_file", "sync_directory"):
            if hasattr(module, call):
                monkeypatch.setattr(module, call, interrupt)
    for attempt in range(6):
        learner.insert(100)
        learner.sync()
        before = 100 * (attempt + 1)
        expected[:] = [before, before + 100]
        numbers = itertools.count()
        fails_at = attempt if fails else math.inf
        with contextlib.suppress(InterruptedWriteError):
            learner.take()
        fails_at = math.inf
        expected.clear()
        assert learner.take().ring.inserted == before + 100
        if not fails:
            assert set(restored) == {before, before + 100}
            break
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", before + 100)


def test_a_start_from_the_snapshot_has_an_epoch_above_all_that_were_reserved(
    learner: Learner, tmp_path: Path
) -> None:
    reserved = learner.take().reserved
    assert reserved > learner.run.identity().epoch
    restore_run(learner.snapshot, tmp_path / "new")
    new = RunDirectory(tmp_path / "new")
    assert new.identity().run_id == learner.run.identity().run_id
    assert new.begin_epoch().epoch > reserved
    assert ReplayStarts.read(new.replay).reserved > new.identity().epoch


def test_a_learner_that_was_replaced_writes_no_generation_and_is_refused_for_ever(
    learner: Learner, tmp_path: Path, learners: ExitStack
) -> None:
    learner.insert(300)
    learner.sync()
    learner.take()
    restore_run(learner.snapshot, tmp_path / "new")
    learner.insert(300)
    learner.sync()
    with pytest.raises(SnapshotTakenError, match="another learner was started from it"):
        learner.take()
    learner.stop()
    learner.start()
    with pytest.raises(SnapshotTakenError):
        learner.take()
    new = Learner(tmp_path / "new", learner.snapshot)
    learners.callback(new.stop)
    assert new.take().ring.inserted == 300


def test_of_two_learners_that_start_from_one_snapshot_the_later_one_goes_on(
    learner: Learner, tmp_path: Path, learners: ExitStack
) -> None:
    learner.insert(100)
    learner.sync()
    learner.take()
    for name in ("first", "second"):
        restore_run(learner.snapshot, tmp_path / name)
    first, second = (Learner(tmp_path / name, learner.snapshot) for name in ("first", "second"))
    learners.callback(first.stop)
    learners.callback(second.stop)
    with pytest.raises(SnapshotTakenError):
        first.take()
    assert second.take().ring.inserted == 100


def test_a_learner_whose_disk_was_put_back_is_refused(learner: Learner, tmp_path: Path) -> None:
    learner.insert(100)
    learner.sync()
    learner.take()
    learner.stop()
    shutil.copytree(learner.run.root, tmp_path / "older")
    learner.start()
    learner.insert(300)
    learner.sync()
    learner.take()
    learner.stop()
    shutil.rmtree(learner.run.root)
    (tmp_path / "older").rename(learner.run.root)
    learner.start()
    learner.insert(600)  # more rows than the snapshot has
    learner.sync()
    with pytest.raises(SnapshotTakenError, match="put back"):
        learner.take()


def test_a_start_that_only_failed_goes_on(learner: Learner) -> None:
    learner.insert(100)
    learner.sync()
    learner.take()
    learner.insert(50)
    learner.stop()
    learner.start()
    assert learner.take().ring.inserted == 150


def test_a_directory_that_was_wiped_gets_all_rows_anew(learner: Learner, tmp_path: Path) -> None:
    learner.insert(300)
    learner.sync()
    learner.take()
    for path in learner.snapshot.iterdir():
        path.unlink()
    learner.insert(100)
    learner.sync()
    written: list[int] = []
    learner.writer.take(written.append)
    assert sum(written) == 400 * DTYPE.itemsize
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 400)


def test_a_directory_that_was_put_back_gets_its_end_again(learner: Learner, tmp_path: Path) -> None:
    learner.insert(300)
    learner.sync()
    learner.take()
    shutil.copytree(learner.snapshot, tmp_path / "older")
    learner.insert(200)
    learner.sync()
    learner.take()
    shutil.rmtree(learner.snapshot)
    (tmp_path / "older").rename(learner.snapshot)
    learner.insert(100)
    learner.sync()
    written: list[int] = []
    learner.writer.take(written.append)
    assert sum(written) == 300 * DTYPE.itemsize
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 600)


def test_a_generation_that_was_begun_before_the_directory_was_put_back_is_not_created(
    learner: Learner, tmp_path: Path, learners: ExitStack
) -> None:
    """Its writer was taken for dead, and another learner was started from the older copy."""
    learner.insert(100)
    learner.sync()
    learner.take()
    shutil.copytree(learner.snapshot, tmp_path / "older")
    for _ in range(2):
        learner.insert(100)
        learner.sync()
        learner.take()

    def put_back(size: int) -> None:
        if (tmp_path / "older").exists():
            shutil.rmtree(learner.snapshot)
            (tmp_path / "older").rename(learner.snapshot)
            restore_run(learner.snapshot, tmp_path / "new")

    learner.insert(100)
    learner.sync()
    assert learner.writer.take(put_back) is None
    successor = Learner(tmp_path / "new", learner.snapshot)
    learners.callback(successor.stop)
    assert successor.take().ring.inserted == 100
    with pytest.raises(SnapshotTakenError):
        learner.take()


def test_another_learners_directory_in_the_place_of_ones_own_is_noticed(
    learner: Learner, tmp_path: Path, learners: ExitStack
) -> None:
    """Another share is mounted there, whose generations have the same numbers."""
    other = Learner(tmp_path / "other-run", tmp_path / "other")
    learners.callback(other.stop)
    for each in (learner, other):
        each.insert(100)
        each.sync()
        each.take()
    learner.snapshot.rename(tmp_path / "unmounted")
    other.snapshot.rename(learner.snapshot)
    with pytest.raises(SnapshotTakenError):
        learner.take()


def test_a_part_that_is_gone_is_noticed_and_all_rows_are_copied_anew(
    learner: Learner, tmp_path: Path
) -> None:
    learner.insert(300)
    learner.sync()
    part = learner.take().ring.rows[0]
    (learner.snapshot / part.name).unlink()
    learner.insert(100)
    learner.sync()
    learner.take()
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 400)


@pytest.mark.parametrize("place", ["before", "while it is copied"])
def test_a_part_that_is_cut_short_makes_nothing_safe_until_all_is_copied_anew(
    learner: Learner, tmp_path: Path, place: str
) -> None:
    """What is appended behind the cut would leave a hole in a file of the right size."""
    learner.insert(300)
    learner.sync()
    part = learner.snapshot / learner.take().ring.rows[0].name

    def cut(size: int) -> None:
        with part.open("r+b") as file:
            file.truncate(50)

    learner.insert(100)
    learner.sync()
    if place == "before":
        cut(0)
    else:
        assert learner.writer.take(cut) is None
    learner.take()
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 400)


def test_a_checkpoints_copy_that_is_cut_short_meanwhile_makes_no_generation(
    learner: Learner, tmp_path: Path
) -> None:
    learner.run.config_file.write_text("seed = 1\n" + "#" * (BLOCK_BYTES + 100))

    def cut(size: int) -> None:
        for path in learner.snapshot.glob("file-*"):
            os.truncate(path, 5)

    assert learner.writer.take(cut) is None
    learner.take()
    restore_run(learner.snapshot, tmp_path / "new")
    restored = RunDirectory(tmp_path / "new").config_file
    assert restored.read_text() == learner.run.config_file.read_text()


def test_a_generation_of_a_clock_that_was_ahead_has_no_age(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be "0 s ago", however old it is."""
    learner.take()
    assert re.search(r"written \d s ago", restore_run(learner.snapshot, tmp_path / "a")[0])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 7200.0)
    [first, *_] = restore_run(learner.snapshot, tmp_path / "b")
    assert re.search(r"clock that is 7,[12]\d\d s ahead of this host's: no age is known", first)


@pytest.mark.parametrize("damage", ["part gone", "part cut short", "generation", "older", "wiped"])
def test_what_a_snapshot_has_lost_is_logged_once_and_that_rows_are_here_alone(
    learner: Learner, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    for _ in range(2):
        learner.insert(100)
        learner.sync()
        newest = learner.take()
        if not (tmp_path / "older").exists():
            shutil.copytree(learner.snapshot, tmp_path / "older")
    part = learner.snapshot / newest.ring.rows[0].name
    match damage:
        case "part gone":
            part.unlink()
        case "part cut short":
            os.truncate(part, 50)
        case "generation":
            os.truncate(learner.snapshot / newest.file_name, 50)
        case _:
            shutil.rmtree(learner.snapshot)
            if damage == "older":
                (tmp_path / "older").rename(learner.snapshot)
    said = {
        "part gone": f"{part} is missing, and generation 2 of",
        "part cut short": f"{part} is cut short",
        "generation": f"{learner.snapshot / newest.file_name} cannot be read: its newest is",
        "older": "it was put back from an older copy, or wiped: its newest is generation 1 of",
        "wiped": "it was put back from an older copy, or wiped: its newest is nothing, where",
    }[damage]
    if damage == "wiped":
        learner.snapshot.mkdir()
    learner.take()
    learner.take()
    lines = [line for line in caplog.messages if said in line]
    assert len(lines) == 1, caplog.messages
    assert "rows that were safe are on this learner's disk alone" in lines[0]
    assert len(caplog.messages) == 1
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 200)


def test_a_directory_that_is_away_is_not_made_anew(learner: Learner, tmp_path: Path) -> None:
    learner.take()
    learner.snapshot.rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError):
        learner.take()
    assert not learner.snapshot.exists()
    (tmp_path / "unmounted").rename(learner.snapshot)
    learner.insert(100)
    learner.sync()
    assert learner.take().ring.inserted == 100


def test_a_generation_that_was_cut_off_is_none_and_its_number_is_not_used_again(
    learner: Learner, tmp_path: Path
) -> None:
    learner.insert(100)
    learner.sync()
    first = learner.take()
    torn = learner.snapshot / f"generation-{first.number + 1:08}"
    torn.write_bytes(first.to_bytes()[:-100])
    learner.insert(100)
    learner.sync()
    assert learner.take().number == first.number + 2
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 200)


def test_a_number_is_given_once(learner: Learner) -> None:
    generation = learner.take()
    assert not SnapshotDirectory(learner.snapshot).create(generation)


def test_a_checkpoint_travels_once_its_rows_are_there_though_newer_ones_replace_it(
    learner: Learner, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(learner.run.checkpoints, keep=1)
    checkpoints.save(10, {"step": 10}, {"run_id": "r"})
    learner.insert(100)
    learner.sync()
    learner.take()
    learner.insert(100)
    checkpoints.save(20, {"step": 20}, {"run_id": "r"})
    for number, expected in enumerate((10, 20)):
        generation = learner.take()
        names = {file.path for file in generation.files}
        assert f"checkpoints/{expected}/state.safetensors" in names
        learner.insert(100)
        checkpoints.save(30 + number, {"step": 30 + number}, {"run_id": "r"})
        learner.sync()
    restore_run(learner.snapshot, tmp_path / "new")
    found = Checkpoints(tmp_path / "new" / "checkpoints", keep=1).load_latest()
    assert found is not None
    assert found.state == {"step": 20}


def test_a_start_from_nothing_is_refused(learner: Learner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoSnapshotError, match="no generation"):
        restore_run(tmp_path / "empty", tmp_path / "new")
    with pytest.raises(NoSnapshotError, match="No such file"):
        restore_run(tmp_path / "nowhere", tmp_path / "new")
    learner.take()
    with pytest.raises(NoSnapshotError, match="is there already"):
        restore_run(learner.snapshot, learner.run.root)
    assert not (tmp_path / "new").exists()


def test_what_will_be_refused_takes_no_snapshot_over(learner: Learner, tmp_path: Path) -> None:
    learner.take()

    def refuse(run: Path) -> None:
        assert RunDirectory(run).config_file.read_text() == "seed = 1\n"
        raise SettingError("agent.lerning_rate", "unknown key", "leave it out")

    learner.run.config_file.write_text("seed = 1\n")
    learner.take()
    with pytest.raises(SettingError):
        restore_run(learner.snapshot, tmp_path / "new", refuse)
    assert not (tmp_path / "new").exists()
    learner.take()


def test_a_disk_without_room_takes_no_snapshot_over(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner.take()
    monkeypatch.setattr(from_snapshot, "free_disk_bytes", lambda place: 1000)
    with pytest.raises(NoSnapshotError, match=r"new needs .* of disk, but 1 kB is free: make room"):
        restore_run(learner.snapshot, tmp_path / "new")
    learner.take()


@pytest.mark.parametrize("harm", ["generation", "part changed", "part gone", "part cut short"])
def test_a_newest_generation_that_is_damaged_is_refused_until_an_older_one_is_named(
    learner: Learner, tmp_path: Path, harm: str
) -> None:
    for _ in range(2):
        learner.insert(100)
        learner.sync()
        newest = learner.take()
        learner.stop()
        learner.start()  # the next rows are in a part of its own
    older = learner.snapshot / f"generation-{newest.number - 1:08}"
    path = learner.snapshot / newest.ring.rows[-1].name
    if harm == "generation":
        path = learner.snapshot / newest.file_name
    content = path.read_bytes()
    path.write_bytes(
        content[:-20] if harm == "part cut short" else content[:-1] + bytes([content[-1] ^ 1])
    )
    if harm == "part gone":
        path.unlink()
    before = sorted(learner.snapshot.iterdir())
    with pytest.raises(NoSnapshotError) as refused:
        restore_run(learner.snapshot, tmp_path / "new")
    said = str(refused.value)
    assert str(path) in said
    assert "Nothing was taken over. Put it back as it was" in said
    assert f"--from-snapshot {older}" in said
    assert sorted(learner.snapshot.iterdir()) == before
    assert not (tmp_path / "new").exists()
    lines = restore_run(older, tmp_path / "new")
    assert any("is passed over: what only that has is lost" in line for line in lines), lines
    assert_restored(tmp_path / "new", 100)


def test_where_no_generation_is_whole_the_damage_is_named(learner: Learner, tmp_path: Path) -> None:
    learner.insert(100)
    learner.sync()
    part = learner.snapshot / learner.take().ring.rows[0].name
    content = part.read_bytes()
    part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(NoSnapshotError) as refused:
        restore_run(learner.snapshot, tmp_path / "new")
    assert f"{part} is damaged behind byte 0, and generation" in str(refused.value)
    assert "No other generation is whole" in str(refused.value)


@pytest.mark.parametrize("files", [False, True])
def test_what_a_learner_writes_while_its_snapshot_is_copied_is_copied_too(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: bool
) -> None:
    """It was taken for dead, and removes what its newer generations do not need."""
    learner.insert(300)
    learner.sync()
    learner.take()
    writes = iter(range(3))
    finish = RingRestore.finish

    def write_more(ring: RingRestore) -> int:
        if next(writes, None) is not None:
            if files:
                learner.run.config_file.write_text(f"seed = {learner.ring.inserted}\n")
            learner.insert(1200)
            learner.sync()
            learner.take()
        return finish(ring)

    monkeypatch.setattr(RingRestore, "finish", write_more)
    checked: list[Path] = []
    restore_run(learner.snapshot, tmp_path / "new", checked.append)
    assert_restored(tmp_path / "new", 300 + 3 * 1200)
    assert len(checked) == (4 if files else 1)
    with pytest.raises(SnapshotTakenError):
        learner.take()


def test_a_learner_that_writes_all_the_time_is_named(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner.take()
    finish = RingRestore.finish

    def write_more(ring: RingRestore) -> int:
        learner.take()
        return finish(ring)

    monkeypatch.setattr(RingRestore, "finish", write_more)
    with pytest.raises(NoSnapshotError, match="other learners write it all the time"):
        restore_run(learner.snapshot, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    learner.take()


def test_a_directory_of_a_later_release_is_left_alone(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_directory, "_FORMAT", 2)
    learner.take()
    monkeypatch.undo()
    before = sorted(learner.snapshot.iterdir())
    learner.stop()
    learner.start()
    with pytest.raises(SnapshotFormatError, match="is of a later release: use that one"):
        learner.take()
    with pytest.raises(NoSnapshotError, match="is of a later release: use that one"):
        restore_run(learner.snapshot, tmp_path / "new")
    assert sorted(learner.snapshot.iterdir()) == before


def test_a_directory_that_is_a_file_is_named(tmp_path: Path, learners: ExitStack) -> None:
    (tmp_path / "file").touch()
    learner = Learner(tmp_path / "run", tmp_path / "file")
    learners.callback(learner.stop)
    with pytest.raises(NotADirectoryError, match="it is no folder"):
        learner.take()


def test_frames_that_rows_share_travel_with_them(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    ring = counting_frames.open_ring(run.replay)
    ReplayStarts.read(run.replay).with_start(0).write(run.replay)
    writer = SnapshotWriter(tmp_path / "snapshot", run.replay, run, lambda stamp: 0)
    for count in (9, 23, 12):
        for _ in range(count):
            rows = min(counting_frames.BATCH, ring.room)
            ring.append(counting_frames.batch(ring.inserted, rows), rows)
            ring.commit(counting_frames.stamp(ring.inserted + rows))
        ring._syncer.sync()
        assert writer.take(no_pause) is not None
    inserted = ring.inserted
    assert inserted > counting_frames.CAPACITY
    live = ring.live()
    writer.close()
    ring.close()
    restore_run(tmp_path / "snapshot", tmp_path / "new")
    found = counting_frames.open_ring(tmp_path / "new" / "replay")
    assert found.live() == live
    numbers = np.arange(*live)
    columns = {
        "obs": np.empty((len(numbers), 4, 5, 3), np.uint8),
        "action": np.empty(len(numbers), np.int64),
        "next_obs": np.empty((len(numbers), 4, 5, 3), np.uint8),
    }
    found.gather(numbers % len(found.columns["action"]), columns)
    counting_frames.assert_stacks(columns, numbers)
    found.close()


def test_a_directory_that_is_a_link_to_nothing_is_away(tmp_path: Path, learners: ExitStack) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    learner = Learner(tmp_path / "run", tmp_path / "link")
    learners.callback(learner.stop)
    with pytest.raises(FileNotFoundError, match=r"is a link to .*unmounted, and there is nothing"):
        learner.take()


COPIES = """
import sys
from pathlib import Path
from vedette_services.run.from_snapshot import restore_run

def wait(run):
    print(run, flush=True)
    sys.stdin.read()

restore_run(Path(sys.argv[1]), Path(sys.argv[2]), wait)
"""


@contextlib.contextmanager
def copying(learner: Learner, out: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that makes a run from the snapshot, and the directory that it copies into."""
    command = [sys.executable, "-c", COPIES, str(learner.snapshot), str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_what_a_start_left_that_was_killed_while_it_copied_is_removed_by_the_next_one(
    learner: Learner, tmp_path: Path
) -> None:
    learner.insert(300)
    learner.sync()
    learner.take()
    with copying(learner, tmp_path / "new") as (process, aside):
        assert (aside / "replay").is_dir()
        process.kill()
        process.wait()
    elsewhere = aside.with_name(".new.7.1.12.new")
    elsewhere.mkdir()
    of_another = aside.with_name(aside.name.replace(".new.", ".newer.", 1))
    of_another.mkdir()
    lines = remove_leftovers(tmp_path / "new")
    assert lines[0] == f"removed {aside}: a start that was killed has left it"
    assert f"{elsewhere} stays: it is of another host" in lines[1]
    assert len(lines) == 2
    assert not aside.exists()
    assert of_another.is_dir()
    restore_run(learner.snapshot, tmp_path / "new")
    assert_restored(tmp_path / "new", 300)


def test_two_starts_into_one_directory_at_a_time_take_the_snapshot_over_once(
    learner: Learner, tmp_path: Path
) -> None:
    """The later one would take it from the first, and find the name taken."""
    learner.take()
    with copying(learner, tmp_path / "new") as (process, aside):
        assert remove_leftovers(tmp_path / "new") == []
        with pytest.raises(NoSnapshotError, match=rf"process {process.pid} makes .*/new now"):
            restore_run(learner.snapshot, tmp_path / "new")
        assert (aside / "replay").is_dir()
        learner.take()


def test_a_start_whose_name_is_taken_meanwhile_takes_no_snapshot_over(
    learner: Learner, tmp_path: Path
) -> None:
    learner.take()

    def take_name(run: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "mine").touch()

    with pytest.raises(NoSnapshotError, match="new is there already"):
        restore_run(learner.snapshot, tmp_path / "new", take_name)
    learner.take()

"""After a power failure a replay goes on from its last sync: no row torn, made up or twice."""

import contextlib
import errno
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from kinds_of_rows import KINDS, Kind, Machine, assert_whole
from lost_pages import lose_pages
from power_failure import PowerFailure, RecordedDisk

from vedette_rl.errors import RlError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.export import LiveRows
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter, check_ring, recover_replay
from vedette_rl.replay.syncing import read_synced

CAPACITY = 1500
GUARD = 400


def open_ring(directory: Path, kind: Kind, interval_s: float = 1.0) -> RingWriter:
    return open_writer(
        directory,
        kind.row,
        CAPACITY,
        run_id="counting",
        guard=GUARD,
        shared=kind.shared,
        sync_interval_s=interval_s,
    )


def insert(ring: RingWriter, kind: Kind, rows: int) -> None:
    if ring.room < rows:
        ring._syncer.extend()
        rows = min(rows, max(20, ring.room))
    ring.append(kind.batch(ring.inserted, rows), rows)
    ring.commit(kind.stamp(ring.inserted + rows))


def kill(ring: RingWriter) -> None:
    ring._held.close()


class Progress:
    """Inserts, syncs and restarts at random until the power fails."""

    def __init__(self, directory: Path, kind: Kind, chance: random.Random) -> None:
        self.directory = directory
        self.kind = kind
        self.chance = chance
        self.committed = self.synced = 0
        self.ring: RingWriter | None = None

    def begin(self, disk: RecordedDisk) -> None:
        disk.meanwhile = lambda: None
        ring = self.ring = open_ring(self.directory, self.kind)
        assert ring.stamp == (self.kind.stamp(ring.inserted) if ring.inserted else b"")
        self.committed = ring.inserted
        disk.meanwhile = self.insert_meanwhile

    def insert_meanwhile(self) -> None:
        """Rows that come while the columns are synced, and not while the record is."""
        ring = self.ring
        rows = self.chance.randint(0, 60)
        if ring is None or ring.pending or not 0 < rows <= ring.room:
            return
        if self.chance.random() < 0.5 and not ring._syncer._record_lock.locked():
            insert(ring, self.kind, rows)
            self.committed = ring.inserted

    def go_on(self, disk: RecordedDisk) -> None:
        """Do a random thing."""
        assert self.ring is not None
        rarely = ("note", "sync", "sync", "extend", "kill", "end")
        match self.chance.choice(("insert",) * 12 + rarely):
            case "insert":
                insert(self.ring, self.kind, self.chance.randint(1, self.chance.choice((4, 90))))
                self.committed = self.ring.inserted
            case "note":
                disk.note()
            case "sync":
                latest = self.ring.inserted
                self.ring._syncer.sync()
                self.synced = max(self.synced, latest)
            case "extend":
                self.ring._syncer.extend()
            case "kill":
                kill(self.ring)
                self.begin(disk)
                assert self.ring.inserted == self.committed
            case "end":
                disk.meanwhile = lambda: None
                self.ring.close()
                self.synced = self.committed
                self.begin(disk)


def run_until_the_power_fails(
    directory: Path, image: Path, kind: Kind, chance: random.Random
) -> Progress:
    """Work in `directory`, and leave in `image` what the disk has."""
    progress = Progress(directory, kind, chance)
    with RecordedDisk(directory.parent, chance, syncs=int(1.3 ** chance.uniform(0, 22))) as disk:
        try:
            progress.begin(disk)
            for _ in range(chance.randint(1, 300)):
                progress.go_on(disk)
        except PowerFailure:
            pass
        disk.lose_power(image)
    if progress.ring is not None:
        kill(progress.ring)
    return progress


def recover_with_failures(directory: Path, image: Path, chance: random.Random) -> Path:
    """Recover, with more power failures on the way; the folder that is recovered at last."""
    for attempt in range(chance.randint(0, 3)):
        after = image.with_name(f"{image.name}-{attempt}")
        with RecordedDisk(image, chance, syncs=chance.randint(0, 6)) as disk:
            with contextlib.suppress(PowerFailure):
                recover_replay(image / directory.name)
            disk.lose_power(after)
        image = after
    return image / directory.name


def lose_power_once(tmp_path: Path, kind: Kind, seed: int) -> int:
    """One life of a replay that a power failure ends; the rows that were lost."""
    chance = random.Random(seed)
    directory = tmp_path / "disk" / "replay"
    image = tmp_path / "image"
    directory.parent.mkdir()
    progress = run_until_the_power_fails(directory, image, kind, chance)
    record = read_synced(image / directory.name)
    bound = record.bound if record else 0
    found = recover_with_failures(directory, image, chance)
    stamp = check_ring(found, kind.row, CAPACITY, run_id="counting", shared=kind.shared)
    ring = open_ring(found, kind)
    assert progress.synced <= ring.inserted <= progress.committed
    assert stamp == ring.stamp == (kind.stamp(ring.inserted) if ring.inserted else b"")
    assert_whole(ring, kind)
    if kind.shared is None:
        assert ring.live()[0] <= max(0, ring.inserted - CAPACITY, bound - CAPACITY - GUARD)
    lost = progress.committed - ring.inserted
    for _ in range(chance.randint(0, 40)):
        insert(ring, kind, chance.randint(1, 90))
        assert_whole(ring, kind)
    ring.close()
    return lost


def lose_power_often(tmp_path: Path, kind: Kind, seeds: range) -> None:
    lost = []
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        lost.append(lose_power_once(tmp_path / str(seed), kind, seed))
    assert 0 < sum(map(bool, lost)) < len(lost)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_power_failures_leave_the_replay_of_the_last_sync(
    tmp_path: Path, machine: Machine, kind: str
) -> None:
    lose_power_often(tmp_path, KINDS[kind], range(10))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_power_failures_leave_the_replay_of_the_last_sync(
    tmp_path: Path, machine: Machine, kind: str
) -> None:
    lose_power_often(tmp_path, KINDS[kind], range(1000, 1200))


def test_a_writer_waits_at_the_bound_until_the_disk_has_a_higher_one(
    tmp_path: Path, machine: Machine
) -> None:
    ring = open_ring(tmp_path, KINDS["rows"])
    while ring.room >= 100:
        insert(ring, KINDS["rows"], 100)
    rows = ring.room + 1
    with pytest.raises(ValueError, match=f"{rows} rows are appended where"):
        ring.append(KINDS["rows"].batch(ring.inserted, rows), rows)
    ring._syncer.extend()
    assert ring.room == GUARD


def test_a_ring_that_turns_over_faster_than_it_is_synced_begins_empty_and_keeps_its_stamp(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["frames"]
    ring = open_ring(tmp_path, kind)
    insert(ring, kind, 50)
    ring._syncer.sync()
    for _ in range(60):
        insert(ring, kind, 50)
    kill(ring)
    lose_pages(tmp_path)
    found = open_ring(tmp_path, kind)
    assert (found.inserted, found.size, found.stamp) == (50, 0, kind.stamp(50))
    for _ in range(60):
        insert(found, kind, 50)
        assert_whole(found, kind)


def test_a_power_failure_within_a_record_leaves_the_one_before(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["rows"]
    ring = open_ring(tmp_path, kind)
    for _ in range(2):
        insert(ring, kind, 50)
        ring._syncer.sync()
    kill(ring)
    content = bytearray((tmp_path / "synced").read_bytes())
    content[content.rindex(kind.stamp(100))] ^= 1
    (tmp_path / "synced").write_bytes(content)
    lose_pages(tmp_path)
    assert open_ring(tmp_path, kind).live() == (0, 50)


def test_rows_are_gone_whose_frames_the_writer_may_have_overwritten(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["frames"]
    ring = open_ring(tmp_path, kind)
    for _ in range(600):
        insert(ring, kind, 4)  # eight frames for four rows: frames are kept for fewer rows
        if ring.inserted % 400 == 0:
            ring._syncer.sync()
    synced = read_synced(tmp_path)
    entries = ring.shared
    assert synced is not None
    assert entries is not None
    for entry in range(synced.commit.shared, synced.shared_bound):
        entries[entry % len(entries)] = 255  # as no frame is
    kill(ring)
    found = open_ring(tmp_path, kind)
    assert found.inserted == 2400
    assert 400 < found.size < 1000
    assert_whole(found, kind)


def test_a_replay_that_is_never_synced_begins_empty_after_a_power_failure(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["rows"]
    ring = open_ring(tmp_path, kind, interval_s=0.0)
    insert(ring, kind, 50)
    ring.close()
    ring = open_ring(tmp_path, kind, interval_s=0.0)
    insert(ring, kind, 50)
    kill(ring)
    lose_pages(tmp_path)
    found = recover_replay(tmp_path)
    assert found is not None
    assert "recovered to its last sync: 0 rows kept, 50 lost" in str(found)
    assert recover_replay(tmp_path) is None
    assert open_ring(tmp_path, kind).live() == (50, 50)


@pytest.mark.parametrize("name", KINDS)
def test_a_replay_without_a_record_of_its_syncs_resumes_and_begins_empty_after_a_power_failure(
    tmp_path: Path, machine: Machine, name: str
) -> None:
    kind = KINDS[name]
    ring = open_ring(tmp_path, kind)
    insert(ring, kind, 50)
    kill(ring)
    (tmp_path / "synced").unlink()
    ring = open_ring(tmp_path, kind)
    assert ring.size == 50
    assert_whole(ring, kind)
    kill(ring)
    (tmp_path / "synced").unlink()
    lose_pages(tmp_path)
    with LiveRows(tmp_path) as rows:
        assert len(rows) == 0
    assert check_ring(tmp_path, kind.row, CAPACITY, run_id="counting", shared=kind.shared)
    found = recover_replay(tmp_path)
    assert "synced is missing or damaged: its rows are lost, it begins empty" in str(found)
    ring = open_ring(tmp_path, kind)
    assert (ring.live(), ring.stamp) == ((50, 50), kind.stamp(50))
    insert(ring, kind, 50)
    assert_whole(ring, kind)


def test_a_replay_that_was_closed_loses_nothing(tmp_path: Path, machine: Machine) -> None:
    ring = open_ring(tmp_path, KINDS["rows"])
    insert(ring, KINDS["rows"], 50)
    ring.close()
    lose_pages(tmp_path)
    assert recover_replay(tmp_path) is None
    again = open_ring(tmp_path, KINDS["rows"])
    kill(again)  # it has written nothing: what it found still holds
    assert open_ring(tmp_path, KINDS["rows"]).live() == (0, 50)


def test_a_replay_at_rest_is_read_as_a_start_would_recover_it(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["rows"]
    ring = open_ring(tmp_path, kind)
    for rows in (90, 90, 20):
        insert(ring, kind, rows)
        if rows == 90:
            ring._syncer.sync()
    kill(ring)
    lose_pages(tmp_path)
    with LiveRows(tmp_path) as rows_at_rest:
        np.testing.assert_array_equal(rows_at_rest.column("action"), np.arange(180))
    assert open_ring(tmp_path, kind).live() == (0, 180)


def test_priorities_begin_anew_with_the_rows_that_are_left(
    tmp_path: Path, machine: Machine
) -> None:
    kind = KINDS["rows"]
    config = ReplayConfig(prioritized=True)
    ring = open_ring(tmp_path, kind)
    for _ in range(20):
        insert(ring, kind, 90)
    ring._syncer.sync()
    insert(ring, kind, 90)
    reader = RingReader(tmp_path)
    replay = PrioritizedReplay(
        reader, np.random.default_rng(0), config, memory=open_priorities(reader)
    )
    replay.update_priority(replay.sample(32).indices, np.full(32, 9.0))
    state = replay.get_state()
    kill(ring)
    lose_pages(tmp_path)
    ring = open_ring(tmp_path, kind)
    oldest, inserted = ring.live()
    reader = RingReader(tmp_path)
    assert (inserted, reader.live()) == (1800, (oldest, inserted))
    assert 300 < oldest < 900
    replay = PrioritizedReplay(
        reader, np.random.default_rng(0), config, memory=open_priorities(reader)
    )
    drawn = np.concatenate([replay.sample(64).indices for _ in range(200)])
    assert set(drawn) == set(range(oldest, inserted))
    np.testing.assert_array_equal(replay.sample(64).weights, 1.0)
    insert(ring, kind, 90)  # as many rows as the lost ones, of the same numbers
    insert(ring, kind, 90)
    replay = PrioritizedReplay(RingReader(tmp_path), np.random.default_rng(0), config)
    replay.set_state(state)
    assert not replay.goes_on
    np.testing.assert_array_equal(replay.sample(64).weights, 1.0)


def test_after_the_machine_stopped_priorities_of_rows_that_are_left_go_on(
    tmp_path: Path, machine: Machine
) -> None:
    """Those of a checkpoint that had seen no other; rows that readers saw later may be gone."""
    kind = KINDS["rows"]
    config = ReplayConfig(prioritized=True)
    ring = open_ring(tmp_path, kind)
    states = []
    for _ in range(2):
        insert(ring, kind, 90)
        replay = PrioritizedReplay(RingReader(tmp_path), np.random.default_rng(0), config)
        replay.sample(32)
        states.append(replay.get_state())
    ring._syncer.sync()
    kill(ring)
    machine.starts += 1
    ring = open_ring(tmp_path, kind)
    reader = RingReader(tmp_path)
    assert reader.branch != states[0]["branch"]
    insert(ring, kind, 90)
    for state, seen in zip(states, (90, 180), strict=True):
        replay = PrioritizedReplay(reader, np.random.default_rng(0), config)
        replay.set_state(state)
        assert replay.goes_on, seen
    later = {**states[1], "seen": 181}  # of a row whose number was used again since
    replay.set_state(later)
    assert not replay.goes_on


def test_a_disk_that_fails_ends_the_writer_by_name(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = open_ring(tmp_path, KINDS["rows"])
    monkeypatch.setattr(os, "fdatasync", fail)
    ring._syncer._short.set()
    ring._syncer._extend_often(1.0)
    with pytest.raises(RlError, match="cannot be synced: Input/output error: check"):
        insert(ring, KINDS["rows"], 50)


def fail(_: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_is_inserted_is_synced_beside_the_writer(tmp_path: Path) -> None:
    kind = KINDS["rows"]
    ring = open_ring(tmp_path, kind, interval_s=0.001)
    until = time.monotonic() + 30
    while (found := read_synced(tmp_path)) is None or found.commit.inserted < 2000:
        assert time.monotonic() < until
        if ring.room >= 50:
            insert(ring, kind, 50)
    assert found.commit.stamp == kind.stamp(found.commit.inserted)
    ring.close()
    assert open_ring(tmp_path, kind).inserted == ring.inserted

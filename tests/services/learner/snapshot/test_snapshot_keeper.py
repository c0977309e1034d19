"""No start answers anybody before it is in the snapshot, or has an epoch that is reserved there."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from configurations import configured
from starts import spec_of

from vedette_services.errors import SnapshotAwayError, SnapshotTakenError, StoppedWaitingError
from vedette_services.host.processes import StopSignals, WakeupEvent
from vedette_services.learner.gateway.safe_batches import SnapshotStamp
from vedette_services.learner.snapshot.keeper import SnapshotKeeper
from vedette_services.learner.snapshot.process import SnapshotProcess
from vedette_services.learner.snapshot.writer import SnapshotWriter
from vedette_services.learner.supervisor import Supervisor
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.from_snapshot import restore_run
from vedette_services.run.replay_starts import ReplayStarts
from vedette_services.run.snapshot_directory import SnapshotDirectory
from vedette_services.run.status_files import StatusReader, clear_status_records
from vedette_services.status.records import SnapshotProgress, StatusRecordReader
from vedette_services.status.status import SnapshotStatus


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    signals = StopSignals([])
    yield signals
    signals.close()


@pytest.fixture
def spec(tmp_path: Path) -> LearnerSpec:
    return make_spec(tmp_path / "run", tmp_path / "snapshot")


def make_spec(out: Path, snapshot: Path, *more: str) -> LearnerSpec:
    settings = ("replay.capacity=6000", f"learner.snapshot={snapshot}", *more)
    run = RunDirectory(out)
    run.make()
    spec = spec_of(
        run, run.ensure_id(), configured(*settings, env="CartPole-v1"), Address("127.0.0.1", 5555)
    )
    spec.write()
    return spec


def wait_for(
    reader: StatusReader, until: Callable[[SnapshotStatus], bool], seconds: float = 30.0
) -> SnapshotStatus:
    """The snapshot's part of the status, once it is as it should be."""
    deadline = time.monotonic() + seconds
    while not until(found := reader.read().snapshot):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def begin(spec: LearnerSpec, stop: StopSignals) -> SnapshotKeeper:
    """A start, up to where gateway and trainer are started."""
    clear_status_records(spec.run)
    keeper = SnapshotKeeper(spec)
    try:
        keeper.begin(stop)
        keeper.check_epoch(spec.run.identity().epoch + 1)
        spec.run.begin_epoch()
    except BaseException:
        keeper.close()
        raise
    return keeper


def test_a_start_is_in_the_snapshot_before_anybody_is_answered(
    spec: LearnerSpec, stop: StopSignals, tmp_path: Path
) -> None:
    keeper = begin(spec, stop)
    newest = SnapshotDirectory(tmp_path / "snapshot").look().whole
    assert newest is not None
    assert newest.start == ReplayStarts.read(spec.run.replay).newest
    assert SnapshotStamp(spec.run.safe_map).read() == newest.ring.stamp
    keeper.end()
    last = SnapshotDirectory(tmp_path / "snapshot").look().whole
    assert last is not None
    assert last.number == newest.number + 1


def test_the_status_has_the_newest_generation_and_why_no_newer_one_is_written(
    tmp_path: Path, stop: StopSignals
) -> None:
    spec = make_spec(tmp_path / "run", tmp_path / "snapshot", "learner.snapshot_interval_s=1")
    keeper = begin(spec, stop)
    reader = StatusReader(spec)
    first = reader.read().snapshot
    assert (first.directory, first.state) == (str(tmp_path / "snapshot"), "written")
    assert (first.failures, first.failing) == (0, "")
    (tmp_path / "snapshot").rename(tmp_path / "away")
    away = wait_for(reader, lambda found: bool(found.failing))
    assert "No such file or directory" in away.failing
    assert (away.state, away.failures) == ("away", 1)
    assert away.generation is not None, "what was written counts"
    (tmp_path / "away").rename(tmp_path / "snapshot")
    back = wait_for(reader, lambda found: not found.failing)
    assert (back.state, back.generation, back.failures) == ("written", away.generation + 1, 0)
    keeper.end()


def test_a_process_that_died_has_written_what_its_successor_goes_on_from(
    spec: LearnerSpec, stop: StopSignals
) -> None:
    begin(spec, stop).close()
    written = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress).read()
    with contextlib.closing(WakeupEvent()) as end:
        found = SnapshotProcess(spec, end)._progress
    assert found == written
    assert found.state == "written"


def test_the_first_start_is_refused_where_the_directory_cannot_be_made(
    tmp_path: Path, stop: StopSignals
) -> None:
    spec = make_spec(tmp_path / "run", tmp_path / "missing" / "snapshot")
    with pytest.raises(SnapshotAwayError, match="No such file or directory"):
        begin(spec, stop)


def test_a_start_without_the_directory_takes_only_epochs_that_were_reserved(
    spec: LearnerSpec, stop: StopSignals, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(spec, stop).end()
    (tmp_path / "snapshot").rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        keeper = begin(spec, stop)
    assert "starting without it" in caplog.text
    assert SnapshotStamp(spec.run.safe_map).read() == b"", "nothing is safe"
    reserved = ReplayStarts.read(spec.run.replay).reserved
    keeper.check_epoch(reserved)
    with pytest.raises(SnapshotAwayError, match=f"epoch {reserved + 1} is not reserved"):
        keeper.check_epoch(reserved + 1)
    keeper.close()
    (tmp_path / "away").rename(tmp_path / "snapshot")
    begin(spec, stop).end()


def test_a_start_whose_epochs_are_used_up_waits_for_the_directory(
    spec: LearnerSpec, stop: StopSignals, tmp_path: Path
) -> None:
    begin(spec, stop).end()
    (tmp_path / "snapshot").rename(tmp_path / "away")
    starts = ReplayStarts.read(spec.run.replay)
    spec.run._write_identity(replace(spec.run.identity(), epoch=starts.reserved))
    stop.request()
    with pytest.raises(StoppedWaitingError):
        begin(spec, stop)


def test_a_folder_that_cannot_be_written_is_logged_once_until_it_can(
    spec: LearnerSpec,
    stop: StopSignals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin(spec, stop).end()
    wakeup = WakeupEvent()
    process = SnapshotProcess(spec, wakeup)
    files = itertools.count()

    def refuse(*_: object) -> None:  # another file at each try
        raise PermissionError(errno.EPERM, "Operation not permitted", f"file-{next(files)}")

    for _ in range(2):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setattr(SnapshotWriter, "take", refuse)
            for _ in range(3):
                process._take()
        process._take()
    wakeup.close()
    said = [record.args for record in caplog.records if record.name == "vedette.snapshot"]
    assert said == [
        ("Operation not permitted (file-0)",),
        ("Operation not permitted (file-3)",),
    ]


def test_a_learner_that_was_replaced_ends_at_its_start_and_while_it_serves(
    spec: LearnerSpec, stop: StopSignals, tmp_path: Path
) -> None:
    keeper = begin(spec, stop)
    restore_run(tmp_path / "snapshot", tmp_path / "new")
    keeper.end()  # its last generation, which it may not write any more
    with pytest.raises(SnapshotTakenError):
        keeper.watch()
    with pytest.raises(SnapshotTakenError):
        begin(spec, stop)
    new = make_spec(tmp_path / "new", tmp_path / "snapshot")
    begin(new, stop).end()


def test_a_run_whose_folder_and_snapshot_are_another_ones_is_refused(
    spec: LearnerSpec, stop: StopSignals, tmp_path: Path
) -> None:
    begin(spec, stop).end()
    shutil.rmtree(spec.run.root)
    other = make_spec(tmp_path / "run", tmp_path / "snapshot")
    with pytest.raises(SnapshotTakenError):
        begin(other, stop)


def test_a_start_without_the_setting_is_marked_where_there_was_a_snapshot(
    spec: LearnerSpec, stop: StopSignals
) -> None:
    begin(spec, stop).end()
    marked = len(ReplayStarts.read(spec.run.replay).starts)
    learner = spec.config.learner.model_copy(update={"snapshot": None})
    without = replace(spec, config=spec.config.model_copy(update={"learner": learner}))
    Supervisor(without, None, on_loaded=lambda: None)._begin()
    assert len(ReplayStarts.read(spec.run.replay).starts) == marked + 1


def test_after_a_kill_the_next_start_follows_its_own_generations(
    spec: LearnerSpec, stop: StopSignals
) -> None:
    begin(spec, stop).close()  # as a kill leaves it: nothing has emptied `live`
    before = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress).read().number
    supervisor = Supervisor(spec, None, on_loaded=lambda: None)
    assert supervisor._records.snapshot.read() == SnapshotProgress()
    with contextlib.closing(SnapshotKeeper(spec)) as keeper:
        keeper.begin(stop)
        assert supervisor._records.snapshot.read().number == before + 1

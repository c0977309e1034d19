"""What the learner's processes tell each other."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from vedette_rl.storage.state_file import write_state
from vedette_services.run.directory import RunDirectory
from vedette_services.run.status_files import clear_status_records
from vedette_services.status.records import (
    SnapshotProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import Eval


def test_a_board_is_empty_until_it_is_written(tmp_path: Path) -> None:
    assert StatusRecordReader(tmp_path / "map", TrainerStatus).read() == TrainerStatus()


def test_the_newest_board_wins(tmp_path: Path) -> None:
    reader = StatusRecordReader(tmp_path / "map", TrainerStatus)
    writer = StatusRecordWriter(tmp_path / "map", TrainerStatus)
    for opt_steps in range(10):
        writer.write(TrainerStatus(opt_steps=opt_steps, record={"loss": 0.5}))
    assert reader.read() == TrainerStatus(opt_steps=9, record={"loss": 0.5})


def test_reading_again_without_news_gives_the_same_object(tmp_path: Path) -> None:
    writer = StatusRecordWriter(tmp_path / "map", Eval)
    writer.write(Eval(version=1))
    reader = StatusRecordReader(tmp_path / "map", Eval)
    assert reader.read() is reader.read()


def test_a_writer_that_let_go_can_be_followed_by_another(tmp_path: Path) -> None:
    first = StatusRecordWriter(tmp_path / "map", TrainerStatus)
    first.write(TrainerStatus(opt_steps=1))
    first.close()
    second = StatusRecordWriter(tmp_path / "map", TrainerStatus)
    assert StatusRecordReader(tmp_path / "map", TrainerStatus).read().opt_steps == 1
    second.write(TrainerStatus(opt_steps=2))
    assert StatusRecordReader(tmp_path / "map", TrainerStatus).read().opt_steps == 2


def test_the_best_evaluation_of_earlier_starts_is_known_before_the_evaluator_is_there(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    clear_status_records(run)
    assert StatusRecordReader(run.evaluation_map, Eval).read() == Eval()
    write_state(run.best, {"model": {}}, {"return_mean": 12.5, "version": 70})
    clear_status_records(run)
    found = StatusRecordReader(run.evaluation_map, Eval).read()
    assert found == Eval(best_return_mean=12.5, best_version=70)


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_nothing_of_a_snapshot_of_an_earlier_start_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    record = StatusRecordWriter(run.snapshot_map, SnapshotProgress)
    record.write(SnapshotProgress("written", 7))
    record.close()
    run.safe_map.write_bytes(b"safe")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    clear_status_records(run)
    assert StatusRecordReader(run.snapshot_map, SnapshotProgress).read() == SnapshotProgress()
    assert not run.safe_map.exists()

"""What gives way on a disk that fills up: records first, for the checkpoints that follow."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import JsonlRecorder
from vedette_rl.recording.pausing_recorder import PausingRecorder
from vedette_rl.recording.reading import read_curves
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config import RunConfig
from vedette_services.learner.disk_room import DiskRoom
from vedette_services.learner.trainer.run_recorder import open_recorder
from vedette_services.run.directory import RunDirectory
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.status import Disk
from vedette_services.status.wait_reason import describe_wait

MIB = 1 << 20


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes free on the disk, to be changed."""
    found = {"bytes": 100 * MIB}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=found["bytes"], total=1000 * MIB)
    )
    return found


def test_records_give_way_while_less_is_free_than_the_next_checkpoints_need(
    tmp_path: Path, free: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = RunDirectory(tmp_path)
    room = DiskRoom(run)
    assert room.measure(0.0) == Disk(100 * MIB, 1000 * MIB, 16 * MIB)
    checkpoint = Checkpoints(run.checkpoints, keep=1).save(10, {"x": "y" * (30 * MIB)}, {})
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    reserve = 16 * MIB + 2 * size
    free["bytes"] = reserve - 1
    assert room.measure(9.0).free_bytes == 100 * MIB  # it is measured every ten seconds
    assert not room.is_short
    disk = room.measure(10.0)
    assert disk.reserve_bytes == reserve
    assert room.is_short
    assert f"are left on the disk of {tmp_path}: records are not written, so" in disk.short
    said = describe_wait(TrainerStatus(phase="training", disk=disk), GatewayStatus())
    assert said == disk.short
    free["bytes"] = reserve + 1
    assert room.measure(20.0).short  # not at once again
    free["bytes"] = 2 * reserve
    assert room.measure(30.0).short == ""
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def test_a_directory_that_is_gone_is_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = DiskRoom(RunDirectory(tmp_path / "gone"))
    assert room.measure(0.0) == Disk()
    assert not room.is_short


def test_what_is_stored_while_a_recorder_pauses_is_in_the_next_means(tmp_path: Path) -> None:
    paused = {"now": False}
    recorder = PausingRecorder(JsonlRecorder(tmp_path / "records.jsonl"), lambda: paused["now"])
    for step, loss in ((10, 1.0), (20, 2.0), (30, 6.0)):
        paused["now"] = step == 20
        recorder.store({"train/loss": loss})
        recorder.flush(step)
        recorder.write({"replay/size": 1.0}, step)
    recorder.close()
    curves = read_curves(tmp_path).curves
    assert curves["train/loss"].steps.tolist() == [10, 30]
    assert curves["train/loss"].values.tolist() == [1.0, 4.0]
    assert curves["replay/size"].steps.tolist() == [10, 30]


class Elsewhere:
    """A recorder that writes to no file of ours."""

    written: ClassVar[list[int]] = []

    def __init__(self, run: Path) -> None:
        pass

    def write(self, record: Record, step: int) -> None:
        self.written.append(step)

    def store(self, record: Record) -> None: ...

    def flush(self, step: int) -> None: ...

    def write_text(self, name: str, text: str) -> None: ...

    def close(self) -> None: ...


def test_only_recorders_into_our_files_give_way(tmp_path: Path) -> None:
    config = RunConfig.model_validate(
        {
            "env": {"id": "CartPole-v1"},
            "agent": {"name": "dqn"},
            "learner": {"recorders": ["jsonl", f"{__name__}:Elsewhere"]},
        }
    )
    recorder = open_recorder(config, tmp_path, lambda: True)
    recorder.write({"x": 1.0}, 7)
    recorder.close()
    assert Elsewhere.written == [7]
    assert (tmp_path / "records.jsonl").read_bytes() == b""

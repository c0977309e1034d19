"""A recorder that outlives a full disk, and event files cut back on resume."""

import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vedette_rl.core import Record, Recorder
from vedette_rl.errors import RecordingError
from vedette_rl.recording import tensorboard
from vedette_rl.recording.file_recorder import CsvRecorder
from vedette_rl.recording.registry import SurvivingRecorder, TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder, parse_event, purge_events


class Disk:
    """Makes recorders on a disk that is full or not."""

    def __init__(self) -> None:
        self.full = False
        self.made = 0
        self.now = 0.0
        self.written: list[int] = []

    def make(self) -> Recorder:
        if self.full:
            raise self.error()
        self.made += 1
        return DiskRecorder(self)

    def error(self) -> RecordingError:
        return RecordingError(Path("x"), "No space left on device")


class DiskRecorder(TeeRecorder):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self.disk = disk

    def write(self, record: Record, step: int) -> None:
        if self.disk.full:
            raise self.disk.error()
        self.disk.written.append(step)

    def close(self) -> None:
        if self.disk.full:
            raise self.disk.error()


def test_a_full_disk_is_said_once_and_recording_goes_on_in_a_new_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk()
    recorder = SurvivingRecorder(disk.make, clock=lambda: disk.now, reopen_after_s=10)
    recorder.write({"a": 1}, 1)
    disk.full = True
    for step in range(2, 40):
        disk.now += 1
        recorder.write({"a": 1}, step)
    disk.full = False
    disk.now += 10
    recorder.write({"a": 1}, 40)
    recorder.flush(41)
    recorder.close()
    assert disk.written == [1, 40]
    assert disk.made == 2
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "No space left on device; training goes on" in said[0]


def test_a_directory_that_cannot_be_written_from_the_start_is_survived(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = SurvivingRecorder(lambda: TensorboardRecorder(tmp_path / "file" / "below"))
    recorder.write({"a": 1}, 1)
    recorder.store({"a": 1})
    recorder.write_text("a", "b")
    recorder.flush(2)
    recorder.close()


def test_a_folder_of_records_that_is_removed_is_said_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    folder = tmp_path / "tensorboard"
    recorder = SurvivingRecorder(
        lambda: TeeRecorder([TensorboardRecorder(folder), CsvRecorder(tmp_path / "records.csv")]),
        clock=lambda: now,
        reopen_after_s=10,
    )
    recorder.store({"train/loss": 1.0})
    recorder.flush(1)
    shutil.rmtree(folder)
    recorder.store({"train/loss": 2.0})
    recorder.flush(2)
    now = 11.0
    recorder.store({"train/loss": 3.0})
    recorder.flush(3)
    recorder.close()
    assert steps(folder, "train/loss") == [3]
    said = [record.message for record in caplog.records]
    assert "it was removed; training goes on, and recording is tried again" in said[0]
    assert said[1:] == ["recording again"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_records_of_a_run_that_is_moved_go_along_and_those_of_a_removed_file_do_not(
    tmp_path: Path, goes_on: bool
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    recorders = [TensorboardRecorder(run / "tensorboard"), CsvRecorder(run / "records.csv")]
    if goes_on:
        run.rename(tmp_path / "moved")
        run.mkdir()  # of somebody else
    else:
        for recorder in recorders:
            recorder.path.rename(recorder.path.with_name("rotated"))
    for recorder in recorders:
        recorder.store({"train/loss": 1.0})
        if goes_on:
            recorder.flush(1)
            continue
        with pytest.raises(RecordingError, match="it was removed"):
            recorder.flush(1)
    for recorder in recorders:
        recorder.close()
    if goes_on:
        assert steps(tmp_path / "moved" / "tensorboard", "train/loss") == [1]
        assert list(run.iterdir()) == []


def is_training(name: str) -> bool:
    return name.startswith("train/")


def recorded(directory: Path) -> Path:
    recorder = TensorboardRecorder(directory)
    for step in range(0, 50, 10):
        recorder.write({"train/loss": float(step)}, step)
        recorder.write({"rollout/ep_rew_mean": 1.0, "eval/x": 2.0}, step * 8)
    recorder.write_text("config", "x = 1")
    recorder.flush(50)
    recorder.close()
    return recorder.path


def steps(directory: Path, name: str) -> list[int]:
    found = EventAccumulator(str(directory))
    found.Reload()
    return [event.step for event in found.Scalars(name)]


def test_curves_are_cut_back_to_where_a_run_goes_on(tmp_path: Path) -> None:
    recorded(tmp_path)
    found = purge_events(tmp_path, 20, is_training)
    assert (found.removed, found.last_other_step) == (2, 320)
    again = TensorboardRecorder(tmp_path, clock=lambda: 4e9)
    again.write({"train/loss": 1.0}, 30)
    again.close()
    assert steps(tmp_path, "train/loss") == [0, 10, 20, 30]
    assert steps(tmp_path, "rollout/ep_rew_mean") == [0, 80, 160, 240, 320]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_files_with_nothing_to_cut_are_left_alone(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    before = (path.stat().st_ino, path.read_bytes())
    assert purge_events(tmp_path, 40, is_training).removed == 0
    assert (path.stat().st_ino, path.read_bytes()) == before
    assert purge_events(tmp_path / "none", 0, is_training).last_other_step == 0


def test_of_a_large_file_with_nothing_to_cut_only_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def parse(record: bytes) -> object:
        parsed.append(record)
        return parse_event(record)

    monkeypatch.setattr(tensorboard, "parse_event", parse)
    monkeypatch.setattr(tensorboard, "_END_BYTES", 300)
    recorder = TensorboardRecorder(tmp_path)
    for step in range(1000):
        recorder.write({"train/loss": float(step)}, step)
        recorder.write({"rollout/ep_rew_mean": step / 2}, step * 8)
    recorder.close()
    found = purge_events(tmp_path, 999, is_training)
    assert (found.removed, found.last_other_step) == (0, 7992)
    assert found.last_other_values == {"rollout/ep_rew_mean": 499.5}
    assert 0 < len(parsed) < 10
    found = purge_events(tmp_path, 989, is_training)
    assert (found.removed, found.last_other_step) == (10, 7992)
    assert steps(tmp_path, "train/loss") == list(range(990))
    assert steps(tmp_path, "rollout/ep_rew_mean") == list(range(0, 8000, 8))


def test_a_large_file_is_cut_in_little_memory(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path)
    for _ in range(100):
        recorder.write_text("config", "x" * 80_000)
    recorder.write({"train/loss": 1.0}, 10)
    recorder.write({"train/loss": 1.0}, 30)
    recorder.close()
    size = recorder.path.stat().st_size
    tracemalloc.start()
    assert purge_events(tmp_path, 20, is_training).removed == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 2
    assert steps(tmp_path, "train/loss") == [10]


def test_a_file_that_ends_in_half_a_record_loses_only_that(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with path.open("ab") as file:
        file.write(struct.pack("<Q", 100) + b"half of it")
    assert purge_events(tmp_path, 0, is_training).removed == 4
    assert steps(tmp_path, "train/loss") == [0]
    assert steps(tmp_path, "eval/x") == [0, 80, 160, 240, 320]

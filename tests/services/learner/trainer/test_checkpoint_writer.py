"""Checkpoints beside the training, on a disk that fails for a while."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vedette_rl.core import State
from vedette_rl.errors import CheckpointError, RlError
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import Throttle, no_throttle, read_state
from vedette_services.errors import RunMovedError, RunTakenOverError
from vedette_services.learner.trainer.background import SHARE, CheckpointWriter


class FailingDisk(Checkpoints):
    """Full for the first `failures` writes."""

    def __init__(self, root: Path, failures: int) -> None:
        super().__init__(root, keep=2)
        self.failures = failures
        self.tries = 0
        self.wrote, self.failed, self.go_on = (threading.Event() for _ in range(3))
        self.go_on.set()

    def save(
        self,
        opt_steps: int,
        state: State,
        meta: Mapping[str, Any],
        throttle: Throttle = no_throttle,
    ) -> Path:
        self.tries += 1
        if self.tries <= self.failures:
            raise CheckpointError(self.root, "write", "No space left on device")
        self.failed.set()
        self.go_on.wait(10)
        path = super().save(opt_steps, state, meta, throttle)
        self.wrote.set()
        return path


def test_a_checkpoint_that_failed_is_written_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk(tmp_path, failures=3)
    writer = CheckpointWriter(disk, retry_s=0.01)
    writer.save(7, {"x": np.arange(3)}, {"sampled": 5})
    assert disk.wrote.wait(10)
    assert writer.close(10) == ""
    state, meta = read_state(tmp_path / "7")
    assert (state["x"].tolist(), meta) == ([0, 1, 2], {"sampled": 5})
    said = [record.message for record in caplog.records]
    assert sum("No space left" in line for line in said) == 1
    assert said[-1] == "checkpoint 7 is written now"


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_an_agent_that_has_diverged_is_not_written(tmp_path: Path, broken: float) -> None:
    writer = CheckpointWriter(Checkpoints(tmp_path, keep=1))
    moments = {"q.bias": np.ones(3, np.float32)}
    whole = {"opt_steps": 7, "adam": {"step": 7, "exp_avg_sq": moments}}
    writer.save(7, {"agent": whole}, {})
    assert writer.close(10) == ""
    writer = CheckpointWriter(Checkpoints(tmp_path, keep=1))
    later = {"q.bias": np.array([1.0, broken], np.float32)}
    writer.save(9, {"agent": {**whole, "adam": {"exp_avg_sq": later}}, "limiter": np.inf}, {})
    with pytest.raises(RlError, match=r"adam/exp_avg_sq/q\.bias .* optimization step 9\."):
        writer.close(10)
    assert [path.name for path in Checkpoints(tmp_path, keep=1).list()] == ["7"]


def test_the_status_tells_step_and_age_of_the_newest_and_why_another_fails(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=2).save(5, {}, {})
    os.utime(tmp_path / "5", (time.time() - 3600, time.time() - 3600))
    disk = FailingDisk(tmp_path, failures=2)
    writer = CheckpointWriter(disk, retry_s=0.01)
    found = writer.status()
    assert (found.opt_steps, found.failures, found.failing) == (5, 0, "")
    assert found.age_s == pytest.approx(3600, abs=60)
    disk.go_on.clear()
    writer.save(7, {}, {})
    assert disk.failed.wait(10)
    found = writer.status()
    assert (found.opt_steps, found.failures) == (5, 2)
    assert found.failing == "No space left on device"
    disk.go_on.set()
    assert writer.close(10) == ""
    found = writer.status()
    assert (found.opt_steps, found.failures, found.failing) == (7, 0, "")
    assert found.age_s == pytest.approx(0, abs=60)


def test_a_newer_state_takes_the_place_of_one_that_failed(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, failures=1)
    writer = CheckpointWriter(disk, retry_s=60)
    writer.save(1, {}, {})
    writer.save(2, {}, {})
    assert writer.close(10) == ""
    assert (tmp_path / "2").is_dir()


def test_closing_tries_once_more_and_says_when_the_last_state_is_lost(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, failures=100)
    writer = CheckpointWriter(disk, retry_s=60)
    writer.save(1, {}, {})
    assert writer.close(10) == "No space left on device"
    assert 1 <= disk.tries <= 2


def test_closing_without_work_is_at_once_and_well(tmp_path: Path) -> None:
    assert CheckpointWriter(Checkpoints(tmp_path, keep=1)).close(10) == ""


class BusyDisk(Checkpoints):
    """A write that works for `work_s`, gives way once and is done."""

    def __init__(self, root: Path, work_s: float) -> None:
        super().__init__(root, keep=1)
        self.work_s = work_s
        self.rested_s = 0.0
        self.worked = threading.Event()
        self.wrote = threading.Event()

    def save(
        self,
        opt_steps: int,
        state: State,
        meta: Mapping[str, Any],
        throttle: Throttle = no_throttle,
    ) -> Path:
        until = time.thread_time() + self.work_s
        while time.thread_time() < until:
            pass
        self.worked.set()
        began = time.monotonic()
        throttle()
        self.rested_s = time.monotonic() - began
        self.wrote.set()
        return self.root


def test_a_write_rests_until_its_work_was_a_small_share_of_the_time(tmp_path: Path) -> None:
    disk = BusyDisk(tmp_path, work_s=0.01)
    writer = CheckpointWriter(disk)
    writer.save(1, {}, {})
    assert disk.wrote.wait(10)
    assert disk.rested_s >= 0.01 * (1 / SHARE - 1)
    assert writer.close(10) == ""


def test_a_close_ends_the_rest_of_a_write(tmp_path: Path) -> None:
    disk = BusyDisk(tmp_path, work_s=2.0)  # would rest for most of a minute
    writer = CheckpointWriter(disk)
    writer.save(1, {}, {})
    assert disk.worked.wait(30)
    assert writer.close(10) == ""


def test_nothing_is_written_where_a_runs_directory_was_until_it_is_back(tmp_path: Path) -> None:
    away = threading.Event()
    tried = threading.Semaphore(0)

    def check() -> None:
        tried.release()
        if away.is_set():
            raise RunMovedError(tmp_path / "run", "it was removed")

    disk = FailingDisk(tmp_path / "run" / "checkpoints", failures=0)
    writer = CheckpointWriter(disk, check=check, retry_s=0.01)
    away.set()
    writer.save(7, {"x": np.arange(3)}, {})
    for _ in range(3):
        assert tried.acquire(timeout=10)
    assert writer.status().failing == "it was removed while its learner runs"
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    away.clear()
    assert disk.wrote.wait(10)
    assert writer.close(10) == ""
    assert writer.status().opt_steps == 7


def test_a_learner_that_was_replaced_writes_no_checkpoint(tmp_path: Path) -> None:
    def check() -> None:
        raise RunTakenOverError(tmp_path, "process 12 on gpu-2")

    disk = FailingDisk(tmp_path, failures=0)
    writer = CheckpointWriter(disk, check=check, retry_s=0.01)
    writer.save(7, {"x": np.arange(3)}, {})
    with pytest.raises(RunTakenOverError, match="process 12 on gpu-2 has taken the run over"):
        writer.close(10)
    assert disk.tries == 0

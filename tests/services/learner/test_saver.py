"""Checkpoints beside the training, on a disk that fails for a while."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vedette_rl.checkpoint import Checkpoints, read_state
from vedette_rl.core import State
from vedette_rl.errors import CheckpointError
from vedette_services.learner.saver import Saver


class FailingDisk(Checkpoints):
    """Full for the first `failures` writes."""

    def __init__(self, root: Path, failures: int) -> None:
        super().__init__(root, keep=2)
        self.failures, self.tries = failures, 0
        self.wrote = threading.Event()

    def save(self, opt_steps: int, state: State, meta: Mapping[str, Any]) -> Path:
        self.tries += 1
        if self.tries <= self.failures:
            raise CheckpointError(self.root, "write", "No space left on device")
        path = super().save(opt_steps, state, meta)
        self.wrote.set()
        return path


def test_a_checkpoint_that_failed_is_written_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk(tmp_path, failures=3)
    saver = Saver(disk, retry_s=0.01)
    saver.save(7, {"x": np.arange(3)}, {"sampled": 5})
    assert disk.wrote.wait(10)
    assert saver.close(10)
    state, meta = read_state(tmp_path / "7")
    assert (state["x"].tolist(), meta) == ([0, 1, 2], {"sampled": 5})
    said = [record.message for record in caplog.records]
    assert sum("No space left" in line for line in said) == 1
    assert said[-1] == "checkpoint 7 is written now"


def test_a_newer_state_takes_the_place_of_one_that_failed(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, failures=1)
    saver = Saver(disk, retry_s=60)
    saver.save(1, {}, {})
    saver.save(2, {}, {})
    assert saver.close(10)
    assert (tmp_path / "2").is_dir()


def test_closing_tries_once_more_and_says_when_the_last_state_is_lost(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, failures=100)
    saver = Saver(disk, retry_s=60)
    saver.save(1, {}, {})
    assert not saver.close(10)
    assert 1 <= disk.tries <= 2


def test_closing_without_work_is_at_once_and_well(tmp_path: Path) -> None:
    assert Saver(Checkpoints(tmp_path, keep=1)).close(10)

"""A run's directory is renamed or removed while its learner runs: it is said, and no success."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starts import lines_of_start  # of tests/support

from vedette_services.config import read_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import read_summary

TRAINS = (
    *("run", "--env", "CartPole-v1", "--agent", "dqn", "preset=none", "learner.eval_interval=0"),
    *("learner.warmup_period=64", "learner.save_interval=20", "agent.hidden_sizes=[8]"),
    *("actors.count=1", "actors.envs_per_actor=2", "replay.capacity=2000"),
    "stop.max_seconds=120",
)
WAIT_S = 180.0


def wait_for(what: Callable[[], bool], who: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert who.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def train(out: Path, log: Path, *how: str) -> subprocess.Popen[bytes]:
    """Train in a directory until there is a checkpoint."""
    command = [sys.executable, "-m", "vedette.cli", *TRAINS, *how, "--out", str(out)]
    with log.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed)
    wait_for(lambda: RunDirectory(out).newest_checkpoint() is not None, process)
    return process


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(WAIT_S)
    finally:
        process.kill()


pytestmark = pytest.mark.timeout(600)

MODES = [("--in-process",), pytest.param((), marks=pytest.mark.slow)]


@pytest.mark.parametrize("how", MODES)
def test_a_run_that_is_renamed_says_so_and_goes_on_where_it_is(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    out = tmp_path / "run"
    renamed = tmp_path / "renamed"
    log = tmp_path / "log"
    process = train(out, log, *how)
    out.rename(renamed)
    moved = f"{out}: it was renamed to {renamed} while its learner runs"
    why = f"no checkpoint can be written ({moved.partition(': ')[2]})"
    wait_for(lambda: why in log.read_text(), process)  # the status
    said = log if how else renamed / "log" / "learner.log"
    loud = f"{moved}: no checkpoint is written, and the end will be no success"
    wait_for(lambda: loud in said.read_text(), process)
    status = stop(process)
    assert status == 1, log.read_text()
    assert not out.exists()
    kept = RunDirectory(renamed).newest_checkpoint()
    assert f"{moved}; a resume begins at optimization step {kept:,}" in log.read_text()
    assert not read_summary(renamed).exit_reason
    saved = read_config(renamed / "config.toml")
    lines = lines_of_start(saved, renamed, in_process=bool(how))
    assert any(f"at optimization step {kept:,}" in line for line in lines), lines


@pytest.mark.slow
def test_a_run_that_is_removed_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    log = tmp_path / "log"
    process = train(out, log, "--in-process")
    out.rename(tmp_path / "gone")  # at once, so that no file is made meanwhile
    shutil.rmtree(tmp_path / "gone")
    wait_for(lambda: "it was removed while its learner runs" in log.read_text(), process)
    assert stop(process) == 1
    assert not out.exists()

"""A disk that fills up: it shows, training goes on, and what crashes comes back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Daemons, balances, flows, free_address, kill_child, status, wait_for

from vedette_services.run.outcome import read_summary
from vedette_services.status.records import StatusRecordReader, TrainerStatus

pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]

QUICK = (
    "agent.hidden_sizes=[16]",
    "learner.warmup_period=200",
    "learner.eval_interval=0",
    "learner.save_interval=10",
    "learner.recorders=[]",
    "actors.n_buffer=20",
    "env.kwargs.sleep_s=0.002",
    "replay.capacity=10000",
    "replay.samples_per_insert=8",
    "agent.batch_size=32",
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "vedette", str(place)])
    if made.returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free; returns the file that takes it all."""
    file = disk / "full"
    with file.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"x" * 4096):
                pass
        except OSError:
            return file
    raise AssertionError("the disk took everything")


def test_on_a_full_disk_checkpoints_fail_visibly_and_what_crashes_comes_back(
    daemons: Daemons, small_disk: Path
) -> None:
    address = free_address()
    command = (
        *("learner", "learner", "--env", "counting_env:Count-v0", "--agent", "dqn"),
        *("--bind", address, "--out", small_disk / "run", *QUICK),
    )
    learner = daemons.start(*command)
    arguments = ("--learner", address, "--count", 1, "--allow-import", "counting_env")
    actors = daemons.start("actors", "actors", *arguments)
    saved = wait_for(lambda: status(address).get("checkpoint", {}).get("opt_steps"), "checkpoint")
    full = fill(small_disk)
    wait_for(lambda: status(address).get("checkpoint", {}).get("failures"), "failed checkpoint")
    found = status(address)
    assert found["checkpoint"]["failing"] == "No space left on device"
    assert "no checkpoint can be written (No space left on device)" in found["waits"]
    kill_child(learner, "trainer")
    wait_for(lambda: status(address).get("epoch") == 2, "trainer that came back")
    flows(address, 50)
    learner.kill9()
    learner = daemons.start(*command)
    wait_for(lambda: status(address).get("epoch") == 3, "learner that came back")
    flows(address, 50)
    full.unlink()
    wait_for(
        lambda: (status(address).get("checkpoint", {}).get("opt_steps") or 0) > saved + 50,
        "newer checkpoint",
    )
    assert learner.stop() == 0
    actors.kill9()
    assert "provenance.json not written: No space left on device" in learner.log
    assert balances(read_summary(small_disk / "run")["samples"])


def test_a_stopped_run_goes_on_though_its_disk_is_full(daemons: Daemons, small_disk: Path) -> None:
    run = small_disk / "run"
    command = ("run", "--env", "counting_env:Count-v0", "--agent", "dqn", "--out", run, *QUICK)
    first = daemons.start("first", *command, "actors.count=1")
    wait_for(lambda: any((run / "checkpoints").glob("[0-9]*")), "checkpoint")
    assert first.stop() == 0
    before, full = read_summary(run), fill(small_disk)
    again = daemons.start("again", *command)
    wait_for(lambda: _trained(run) > (before.opt_steps or 0) + 50, "training that goes on")
    full.unlink()
    assert again.stop() == 0
    assert read_summary(run).epoch == 2
    assert balances(read_summary(run)["samples"])


def test_what_is_collected_before_the_disk_is_full_is_a_whole_data_set(
    daemons: Daemons, small_disk: Path
) -> None:
    minari = pytest.importorskip("minari")
    full = fill(small_disk)
    out = small_disk / "demos"
    os.truncate(full, full.stat().st_size - (600 << 10))
    always_right = "numpy:ndim"  # of an observation: 1
    command = ("collect", "--policy", always_right, "--env", "CartPole-v1", "--out", out)
    recording = daemons.start("recording", *command, "--episodes", 1000)
    assert recording.wait(60) == 1
    assert "data set demos-v0: no room for another" in recording.log
    data = minari.MinariDataset(out)
    assert data.total_episodes == len(list(data.iterate_episodes())) > 3


def _trained(run: Path) -> int:
    """Optimization steps, as the maps of the learner have them."""
    return StatusRecordReader(run / "live" / "learning.map", TrainerStatus).read().opt_steps

"""The same on a real file system: copies of its device, taken while a writer writes, are mounted.

A copy has what the file system has written to its device, and nothing that lay in memory alone, as
after a power failure. It takes root, and loop devices.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from counting_rows import DTYPE, StartInserting, stamp
from kinds_of_rows import KINDS, Machine, assert_whole

from vedette_rl.replay.ring import RingWriter

CAPACITY = 6000
GUARD = 800
CUTS = 40


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    """The file system in `image`, at a folder."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True, capture_output=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)  # a failed test may hold a file


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A device with a new ext4, in memory."""
    path = Path("/dev/shm") / f"vedette-test-{os.getpid()}.img"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True, capture_output=True)
        with mounted(path, tmp_path / "probe"):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        path.unlink()
        pytest.skip(f"no file system can be mounted here: {error}")
    return path


def stop(pid: int) -> None:
    """Stop all threads of a process; those in a sync end it first."""
    os.kill(pid, signal.SIGSTOP)
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    until = time.monotonic() + 30
    while any((task / "stat").read_text().rpartition(") ")[2][0] != "T" for task in tasks):
        assert time.monotonic() < until


def copy_at_once(image: Path, copy: Path) -> None:
    """Copy a device on which nothing is written meanwhile."""
    while True:
        shutil.copyfile(image, copy)
        again = copy.with_suffix(".again")
        shutil.copyfile(image, again)
        if copy.read_bytes() == again.read_bytes():
            again.unlink()
            return


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_power_failures_on_ext4_leave_the_replay_of_the_last_sync(
    tmp_path: Path, image: Path, machine: Machine, start_program: StartInserting
) -> None:
    chance = random.Random(0)
    kept = list[int]()
    try:
        with mounted(image, tmp_path / "disk") as disk:
            child = start_program("synced_rows.py", disk / "replay", CAPACITY, GUARD)
            assert child.stdout is not None
            synced = int(child.stdout.readline())
            for cut in range(CUTS):
                for _ in range(chance.randint(1, 5)):
                    synced = int(child.stdout.readline())
                time.sleep(chance.uniform(0.0, 0.05))
                stop(child.pid)
                copy_at_once(image, tmp_path / "copy.img")
                os.kill(child.pid, signal.SIGCONT)
                with mounted(tmp_path / "copy.img", tmp_path / f"after-{cut}") as after:
                    ring = RingWriter.open(
                        after / "replay", DTYPE, CAPACITY, run_id="counting", guard=GUARD
                    )
                    assert ring.inserted >= synced
                    assert ring.stamp == stamp(ring.inserted)
                    assert_whole(ring, KINDS["rows"])
                    kept.append(ring.size)
                    ring._held.close()
                    del ring
    finally:
        image.unlink()
    assert min(kept[-10:]) > CAPACITY // 2

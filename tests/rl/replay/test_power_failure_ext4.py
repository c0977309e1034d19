"""The same on a real file system: copies of its device, taken while a writer writes, are mounted.

A copy has what the file system has written to its device, and nothing that lay in memory alone, as
after a power failure. It takes root, and loop devices.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from counting_rows import DTYPE, StartInserting, stamp
from ext4_image import NoLoopDeviceError, copy_at_once, make_ext4, mounted, stop
from kinds_of_rows import KINDS, Machine, assert_whole

from vedette_rl.replay.ring import RingWriter

CAPACITY = 6000
GUARD = 800
CUTS = 40


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A device with a new ext4, in memory."""
    path = Path("/dev/shm") / f"vedette-test-{os.getpid()}.img"
    try:
        make_ext4(path, 64 << 20, tmp_path / "probe")
    except NoLoopDeviceError as error:
        pytest.skip(str(error))
    return path


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

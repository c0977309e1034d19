"""``kill -9`` of a writer at any moment leaves a replay that is whole."""

import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from counting_rows import DTYPE, StartInserting, assert_rows, stamp

from vedette_rl.replay.ring import RingReader, RingWriter

CAPACITY = 3000
GUARD = 500


def assert_whole(directory: Path, before: int) -> int:
    """Every live row is the one of its number, and the stamp is that of the same commit."""
    seen = RingReader(directory).inserted
    ring = RingWriter.open(directory, DTYPE, CAPACITY, run_id="counting", guard=GUARD)
    assert ring.stamp == (stamp(ring.inserted) if ring.inserted else b"")
    assert ring.inserted >= max(seen, before)
    numbers = np.arange(max(0, ring.inserted - CAPACITY), ring.inserted)
    places = numbers % (CAPACITY + GUARD)
    assert_rows({name: column[places] for name, column in ring.columns.items()}, numbers)
    ring._held.close()  # let go without the care of a close
    return ring.inserted


def kill_again_and_again(directory: Path, start_inserting: StartInserting, times: int) -> None:
    chance = random.Random(times)
    inserted = 0
    for _ in range(times):
        child = start_inserting(directory, CAPACITY, GUARD)
        assert child.stdout is not None
        assert int(child.stdout.readline()) == inserted
        time.sleep(chance.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=10)
        inserted = assert_whole(directory, inserted)
    assert inserted > CAPACITY


def test_ten_kills_leave_the_replay_whole(tmp_path: Path, start_inserting: StartInserting) -> None:
    kill_again_and_again(tmp_path, start_inserting, 10)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_kills_leave_the_replay_whole(
    tmp_path: Path, start_inserting: StartInserting
) -> None:
    kill_again_and_again(tmp_path, start_inserting, 200)


def test_a_kill_while_the_replay_is_made_leaves_one_that_opens(
    tmp_path: Path, start_inserting: StartInserting
) -> None:
    for attempt in range(8):
        directory = tmp_path / str(attempt)
        child = start_inserting(directory, CAPACITY, GUARD)
        until = time.monotonic() + 30
        while not directory.exists() and time.monotonic() < until:
            time.sleep(0.0005)
        time.sleep(0.0005 * attempt)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=10)
        ring = RingWriter.open(directory, DTYPE, CAPACITY, run_id="counting", guard=GUARD)
        assert ring.stamp == (stamp(ring.inserted) if ring.inserted else b"")
        ring.close()

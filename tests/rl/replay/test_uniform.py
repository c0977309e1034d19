"""Uniform replay: what it draws, and that a writer at full speed never tears a sample."""

import time
from pathlib import Path

import numpy as np
import pytest
from counting_rows import BATCH, DTYPE, StartInserting, assert_rows, insert

from vedette_rl.errors import ReplayOverrunError
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay, draw


def memory_ring(inserted: int) -> MemoryRing:
    ring = MemoryRing(DTYPE, 100, guard=20)
    insert(ring, inserted)
    return ring


class InsertingDuringTheGather(MemoryRing):
    """A ring whose writer inserts `burst` rows whenever the reader looks at the cursor."""

    burst = 0
    times = 0

    @property
    def inserted(self) -> int:
        if self.times > 0:
            self.times -= 1
            burst = self.burst
            self.burst = 0
            insert(self, burst)
            self.burst = burst
        return super().inserted


@pytest.mark.parametrize("inserted", [1, 7, 99, 100, 101, 119, 120, 121, 5000])
def test_samples_are_live_rows_under_their_own_numbers(inserted: int) -> None:
    replay = UniformReplay(memory_ring(inserted), np.random.default_rng(0))
    assert len(replay) == min(inserted, 100)
    assert replay.inserted == inserted
    for batch_size in (1, 64, 256):
        sample = replay.sample(batch_size)
        assert sample.weights is None
        assert sample.indices.shape == (batch_size,)
        assert sample.indices.min() >= max(0, inserted - 100)
        assert sample.indices.max() < inserted
        assert_rows(sample.columns, sample.indices)


def test_every_live_row_is_as_likely() -> None:
    replay = UniformReplay(memory_ring(130), np.random.default_rng(1))
    counts = np.bincount(
        np.concatenate([replay.sample(1000).indices.copy() for _ in range(100)]) - 30, minlength=100
    )
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 160  # 99 degrees of freedom: above with a chance of 1 in 10,000


def test_draws_reach_both_ends_and_no_further() -> None:
    numbers = draw(np.random.default_rng(0), 5, 8, 1000)
    assert sorted(set(numbers.tolist())) == [5, 6, 7]


def test_the_columns_are_the_buffers_own_and_used_again() -> None:
    replay = UniformReplay(memory_ring(100), np.random.default_rng(0))
    assert replay.sample(8).columns["action"] is replay.sample(8).columns["action"]


def test_rows_overwritten_during_the_copy_are_drawn_again() -> None:
    ring = InsertingDuringTheGather(DTYPE, 100, guard=20)
    insert(ring, 100)
    replay = UniformReplay(ring, np.random.default_rng(0))
    for _ in range(50):
        # before the copy, the check after it, and the next of each
        ring.burst = 37
        ring.times = 4
        sample = replay.sample(64)
        assert ring.times == 0
        assert sample.indices.min() >= ring.inserted - 100 - 2 * 37
        assert_rows(sample.columns, sample.indices)


def test_a_writer_that_always_outruns_the_reader_is_an_error_not_a_hang() -> None:
    ring = InsertingDuringTheGather(DTYPE, 10, guard=20)
    insert(ring, 10)
    ring.burst = 40
    ring.times = 1_000_000
    with pytest.raises(ReplayOverrunError, match=r"10 rows were overwritten .* replay.capacity"):
        UniformReplay(ring, np.random.default_rng(0)).sample(4)


def test_a_writer_at_full_speed_never_tears_a_sample(
    tmp_path: Path, start_inserting: StartInserting
) -> None:
    RingWriter.open(tmp_path, DTYPE, 100, run_id="counting", guard=8192).close()
    child = start_inserting(tmp_path, 100, 8192)
    assert child.stdout is not None
    assert child.stdout.readline() == "0\n"
    ring = RingReader(tmp_path, batch_rows=BATCH)
    replay = UniformReplay(ring, np.random.default_rng(0))
    until = time.monotonic() + 2.0
    while not replay.inserted and time.monotonic() < until + 30:
        time.sleep(0.001)
    samples = 0
    while time.monotonic() < until:
        sample = replay.sample(256)
        assert_rows(sample.columns, sample.indices)
        samples += 1
    assert child.poll() is None
    assert samples > 100
    assert ring.inserted > 100 * 100  # the ring went round many times meanwhile

"""The copy of a ring on a device has the ring's rows, whatever the writer does meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import counting_frames
import counting_rows
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds_of_rows import KINDS, Kind
from numpy.typing import NDArray

from vedette_rl.device_loader import RingLoader, copy_ring
from vedette_rl.device_ring import FOLLOW_S, DeviceRing, ring_bytes
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import MemoryFrameRing, open_reader, open_writer
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay

CPU = torch.device("cpu")
CAPACITY, GUARD = counting_frames.CAPACITY, counting_frames.GUARD


def new_ring(kind: Kind) -> Any:
    if kind.shared is None:
        return MemoryRing(kind.row, CAPACITY, guard=GUARD)
    return MemoryFrameRing(kind.row, CAPACITY, kind.shared, guard=GUARD)


def append(ring: Any, kind: Kind, rows: int) -> None:
    """Append rows, at most as many as there is room for, and commit."""
    rows = min(rows, ring.room)
    if rows:
        ring.append(kind.batch(ring.inserted + ring.pending, rows), rows)


def fill(ring: Any, kind: Kind, rows: int) -> None:
    """Insert so many rows."""
    until = ring.inserted + rows
    while ring.inserted < until:
        append(ring, kind, min(90, until - ring.inserted))
        ring.commit()


def at_once(ring: Any) -> DeviceRing:
    """A copy that follows at every call."""
    ticks = iter(range(10**9))
    return DeviceRing(ring, CPU, clock=lambda: float(next(ticks)))


def gathered(copy: DeviceRing, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    return {name: column.numpy() for name, column in copy.gather_batch(numbers).items()}


def assert_whole(copy: DeviceRing, kind: Kind) -> None:
    """Every row that may be drawn is the one of its number, of the right type and shape."""
    numbers = np.arange(*copy.live())
    if len(numbers):
        kind.assert_rows(gathered(copy, numbers), numbers)


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 90), st.booleans(), st.booleans()), max_size=50
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=25, deadline=None)
@given(before=st.integers(0, 4000), steps=STEPS)
def test_it_has_the_rows_of_its_ring(
    kind: Kind, before: int, steps: list[tuple[int, int, bool, bool]]
) -> None:
    """The ring may be empty or have wrapped around before; some rows are not committed."""
    ring = new_ring(kind)
    fill(ring, kind, before)
    copy = at_once(ring)
    for batches, rows, commits, restarts in steps:
        for _ in range(batches):
            append(ring, kind, rows)
        if commits:
            ring.commit()
        if restarts:
            copy = at_once(ring)
        copy.follow()
        assert copy.live() == ring.live()
        assert_whole(copy, kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rows_that_are_not_followed_yet_are_not_drawn(kind: Kind) -> None:
    ring, now = new_ring(kind), [0.0]
    copy = DeviceRing(ring, CPU, clock=lambda: now[0])
    fill(ring, kind, 100)
    copy.follow()
    fill(ring, kind, 3000)  # all that the copy has is overwritten in the ring, not in the copy
    copy.follow()
    assert (copy.live(), copy.inserted) == ((0, 100), 3100)
    assert_whole(copy, kind)
    now[0] += FOLLOW_S
    copy.follow()
    assert copy.live() == ring.live()
    assert_whole(copy, kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("overtakes", [1, 3, 1000])
def test_rows_that_are_overwritten_while_they_are_copied_are_not_drawn(
    kind: Kind, overtakes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two reads of the cursor the writer inserts, up to all rows anew."""
    ring = new_ring(kind)
    fill(ring, kind, 2000)
    copy, live, left = at_once(ring), ring.live, [40]
    rng = np.random.default_rng(overtakes)

    def overtaken() -> tuple[int, int]:
        found: tuple[int, int] = live()
        if left[0]:
            left[0] -= 1
            fill(ring, kind, int(rng.integers(1, overtakes + 1)))
        return found

    monkeypatch.setattr(ring, "live", overtaken)
    for _ in range(20):
        copy.follow()
        oldest, inserted = copy.live()
        assert oldest < inserted
        assert_whole(copy, kind)
    left[0] = 0
    copy.follow()
    assert copy.live() == live()
    assert_whole(copy, kind)


def test_a_writer_that_always_overtakes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["rows"]
    ring = new_ring(kind)
    copy, live = at_once(ring), ring.live

    def overtaken() -> tuple[int, int]:
        fill(ring, kind, 2 * CAPACITY)
        found: tuple[int, int] = live()
        return found

    monkeypatch.setattr(ring, "live", overtaken)
    with pytest.raises(ReplayOverrunError):
        copy.follow()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prioritized", [False, True])
def test_batches_are_those_that_the_ring_itself_gives(kind: Kind, prioritized: bool) -> None:
    """Draws, weights, priorities and every column, bit by bit."""
    ring = new_ring(kind)

    def replay() -> UniformReplay | PrioritizedReplay:
        rng = np.random.default_rng(5)
        return (
            PrioritizedReplay(ring, rng, ReplayConfig())
            if prioritized
            else UniformReplay(ring, rng)
        )

    plain, followed = replay(), replay()
    loader = RingLoader(followed, at_once(ring), 32)
    with pytest.raises(EmptyReplayError):
        loader.load()
    errors = np.random.default_rng(0)
    for _ in range(40):
        fill(ring, kind, 70)
        expected, found = plain.sample(32), loader.load()
        np.testing.assert_array_equal(found.indices, expected.indices)
        assert found.batch.keys() == expected.columns.keys()
        for name, column in expected.columns.items():
            ours = found.batch[name].numpy()
            np.testing.assert_array_equal(ours, column, err_msg=name)
            assert ours.dtype == column.dtype
        assert (found.weights is None) == (expected.weights is None)
        if found.weights is not None and expected.weights is not None:
            np.testing.assert_array_equal(found.weights.numpy(), expected.weights)
        if "version" in expected.columns:
            np.testing.assert_array_equal(found.versions, expected.columns["version"])
        td_errors = errors.random(32).astype(np.float32)
        for each, indices in ((plain, expected.indices), (followed, found.indices)):
            each.update_priority(indices, td_errors)


def test_its_batches_stay_where_they_are() -> None:
    kind = KINDS["frames"]
    ring = new_ring(kind)
    fill(ring, kind, 500)
    loader = RingLoader(
        PrioritizedReplay(ring, np.random.default_rng(0), ReplayConfig()), at_once(ring), 16
    )
    first = loader.load()
    places = {name: tensor.data_ptr() for name, tensor in first.batch.items()}
    for _ in range(5):
        fill(ring, kind, 300)
        again = loader.load()
        assert again.batch is first.batch
        assert again.weights is first.weights
        assert {name: tensor.data_ptr() for name, tensor in again.batch.items()} == places


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_trainer_that_starts_again_copies_what_is_live_on_disk(
    kind: Kind, tmp_path: Path
) -> None:
    def writer() -> Any:
        return open_writer(
            tmp_path / "replay",
            kind.row,
            CAPACITY,
            run_id="counting",
            guard=GUARD,
            shared=kind.shared,
        )

    ring = writer()
    fill(ring, kind, 2 * CAPACITY + 33)
    for rows in (0, 700):
        fill(ring, kind, rows)
        copy = at_once(open_reader(tmp_path / "replay"))
        copy.follow()
        assert copy.live() == ring.live()
        assert_whole(copy, kind)
        ring.close()
        ring = writer()
        copy.follow()
        assert_whole(copy, kind)
    ring.close()


def test_entries_of_any_type_and_size_come_back_as_they_were() -> None:
    fields = [
        (f"c{n}", dtype, shape)
        for n, (dtype, shape) in enumerate(
            (dtype, shape)
            for dtype in ("?", "u1", "<i2", "<u2", "<u4", "<i4", "<u8", "<f2", "<f4", "<f8")
            for shape in ((), (3,), (2, 4))
        )
    ]
    ring, rng = MemoryRing(np.dtype(fields), 50, guard=20), np.random.default_rng(0)
    kept = {
        name: rng.integers(0, 2, (40, *column.shape[1:])).astype(column.dtype)
        * (True if column.dtype.kind == "b" else column.dtype.type(113))
        for name, column in ring.columns.items()
    }
    for part in (slice(0, 20), slice(20, 40)):
        ring.append({name: column[part] for name, column in kept.items()}, 20)
        ring.commit()
    copy = at_once(ring)
    copy.follow()
    numbers = rng.permutation(40)
    for name, column in gathered(copy, numbers).items():
        np.testing.assert_array_equal(column, kept[name][numbers], err_msg=name)
        assert column.dtype == kept[name].dtype


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_it_takes_the_bytes_that_were_asked_for(kind: Kind) -> None:
    ring = new_ring(kind)
    copy = DeviceRing(ring, torch.device("meta"))
    taken = [*copy._copies.values(), *copy._frame_copies.values()]
    assert sum(tensor.nbytes for tensor in taken) == ring_bytes(ring)


def test_a_replay_that_does_not_fit_is_not_copied_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring = new_ring(KINDS["rows"])
    assert copy_ring(ring, CPU, ring_bytes(ring)) is not None
    with caplog.at_level(logging.WARNING):
        assert copy_ring(ring, CPU, 1_000) is None
    (line,) = caplog.messages
    assert "is not copied to cpu (1 kB are free for it)" in line
    assert "replay.capacity" in line


def test_a_device_out_of_memory_is_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")

    ring = new_ring(KINDS["frames"])
    monkeypatch.setattr(torch, "zeros", full)
    with caplog.at_level(logging.WARNING):
        assert copy_ring(ring, CPU, 10**12) is None
    (line,) = caplog.messages
    assert "(CUDA out of memory)" in line


def test_counting_rows_count() -> None:
    """What all of this stands on: a wrong row is seen."""
    columns = counting_rows.rows(5, 3)
    with pytest.raises(AssertionError):
        counting_rows.assert_rows(columns, np.arange(6, 9))

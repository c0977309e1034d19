"""The copy of a ring on a device has the ring's rows, whatever the writer does meanwhile."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from strict_cuda import StrictCuda

from vedette_rl.core.protocols import implements
from vedette_rl.device import loader as loader_module
from vedette_rl.device.cuda_graphs import CudaCapture
from vedette_rl.device.loader import (
    CpuLoader,
    DeviceBatch,
    DeviceLoader,
    LoaderAhead,
    PinnedLoader,
    RankLoader,
    RingLoader,
    SideStream,
    copy_ring,
    copy_rings,
)
from vedette_rl.device.ring import FOLLOW_S, DeviceRing, DeviceRings, are_alike, ring_bytes
from vedette_rl.errors import EmptyReplayError, ReplayOverrunError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import MemoryFrameRing, open_reader, open_writer
from vedette_rl.replay.mixed import NUMBER_BITS, MixedReplay, Source
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay

CPU = torch.device("cpu")
CAPACITY = counting_frames.CAPACITY
GUARD = counting_frames.GUARD


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StrictCuda:
    return StrictCuda(monkeypatch)


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


def every_time() -> Callable[[], float]:
    """A clock by which a copy follows at every call."""
    ticks = iter(range(10**9))
    return lambda: float(next(ticks))


def at_once(ring: Any) -> DeviceRing:
    """A copy that follows at every call."""
    return DeviceRing(ring, CPU, clock=every_time())


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
    ring = new_ring(kind)
    now = [0.0]
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
    copy = at_once(ring)
    live = ring.live
    doubtful_below = ring.doubtful_below
    left = [40]
    rng = np.random.default_rng(overtakes)

    def insert() -> None:
        if left[0]:
            left[0] -= 1
            fill(ring, kind, int(rng.integers(1, overtakes + 1)))

    def overtaken() -> tuple[int, int]:
        found: tuple[int, int] = live()
        insert()
        return found

    def overtaken_again(seen: int) -> int:
        below: int = doubtful_below(seen)
        insert()
        return below

    monkeypatch.setattr(ring, "live", overtaken)
    monkeypatch.setattr(ring, "doubtful_below", overtaken_again)
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
    fill(ring, kind, 10)
    copy = at_once(ring)
    doubtful_below = ring.doubtful_below

    def overtaken(seen: int) -> int:
        fill(ring, kind, 2 * CAPACITY)
        below: int = doubtful_below(seen)
        return below

    monkeypatch.setattr(ring, "doubtful_below", overtaken)
    with pytest.raises(ReplayOverrunError):
        copy.follow()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prioritized", [False, True])
def test_batches_are_those_that_the_ring_itself_gives(kind: Kind, prioritized: bool) -> None:
    """Draws, weights, priorities and every column, bit by bit."""
    ring = new_ring(kind)

    plain, followed = (replay_of(ring, np.random.default_rng(5), prioritized) for _ in range(2))
    loader = RingLoader(followed, at_once(ring), 32)
    with pytest.raises(EmptyReplayError):
        loader.load()
    errors = np.random.default_rng(0)
    for _ in range(40):
        fill(ring, kind, 70)
        expected = plain.sample(32)
        found = loader.load()
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
    ring = MemoryRing(np.dtype(fields), 50, guard=20)
    rng = np.random.default_rng(0)
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
    taken = [*copy._room.columns.values(), *copy._room.frames.values()]
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


def test_a_copy_is_announced_before_it_is_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take minutes, in which nothing else is said."""

    def copies(*_: Any, **__: Any) -> None:
        assert caplog.messages == [f"the replay is copied to cpu: {format_bytes(ring_bytes(ring))}"]
        raise torch.OutOfMemoryError

    ring = new_ring(KINDS["rows"])
    monkeypatch.setattr(loader_module, "DeviceRing", copies)
    with caplog.at_level(logging.INFO):
        assert copy_ring(ring, CPU, 10**12) is None


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


# Several sources, and replays that the device has no room for


def replay_of(ring: Any, rng: np.random.Generator, prioritized: bool) -> Any:
    return PrioritizedReplay(ring, rng, ReplayConfig()) if prioritized else UniformReplay(ring, rng)


def mixed(rings: Sequence[Any], shares: Sequence[float], prioritized: bool) -> MixedReplay:
    """The last of the sources is whole, where there are several; the others grow."""
    rng = np.random.default_rng(5)
    last = len(shares) - 1
    named = [
        Source(f"s{k}", replay_of(ring, rng, prioritized), share, grows=k < last or k == 0)
        for k, (ring, share) in enumerate(zip(rings[1:], shares, strict=True))
    ]
    return MixedReplay(replay_of(rings[0], rng, prioritized), named)


def assert_same(found: DeviceBatch, expected: DeviceBatch) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.batch.keys() == expected.batch.keys()
    for name, column in expected.batch.items():
        assert found.batch[name].dtype == column.dtype
        assert torch.equal(found.batch[name], column), name
    assert (found.weights is None) == (expected.weights is None)
    if found.weights is not None and expected.weights is not None:
        assert torch.equal(found.weights, expected.weights)
    assert (found.versions is None) == (expected.versions is None)
    if found.versions is not None:
        np.testing.assert_array_equal(found.versions, expected.versions)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prioritized", [False, True])
@settings(max_examples=10, deadline=None)
@given(
    before=st.lists(st.integers(1, 3000), min_size=2, max_size=4),
    shares=st.lists(st.floats(0.05, 0.3), min_size=3, max_size=3),
    steps=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.booleans()), max_size=12),
)
def test_batches_of_several_sources_are_those_of_their_rings(
    kind: Kind,
    prioritized: bool,
    before: list[int],
    shares: list[float],
    steps: list[tuple[int, int, bool]],
) -> None:
    """Some rings have wrapped around, two of them grow, and a trainer may start again."""
    rings = [new_ring(kind) for _ in before]
    for ring, rows in zip(rings, before, strict=True):
        fill(ring, kind, rows)

    def loaders() -> tuple[DeviceLoader, DeviceLoader]:
        plain, followed = (mixed(rings, shares[: len(rings) - 1], prioritized) for _ in range(2))
        copies = DeviceRings(rings, CPU, clock=every_time())
        return CpuLoader(plain, 33, CPU), RingLoader(followed, copies, 33)

    pair = loaders()
    errors = np.random.default_rng(0)
    for of_actors, of_source, restarts in [(0, 0, False), *steps]:
        fill(rings[0], kind, of_actors)
        fill(rings[1], kind, of_source)
        if restarts:
            pair = loaders()
        expected, found = (loader.load() for loader in pair)
        assert_same(found, expected)
        assert_numbered(kind, found, len(rings))
        td_errors = errors.random(33).astype(np.float32)
        for loader, batch in zip(pair, (expected, found), strict=True):
            loader._replay.update_priority(batch.indices, td_errors)  # type: ignore[attr-defined]


def assert_numbered(kind: Kind, found: DeviceBatch, sources: int) -> None:
    """Each row is the one of its number, in a ring of its source."""
    of_rows = found.indices >> NUMBER_BITS
    numbers = found.indices & ((1 << NUMBER_BITS) - 1)
    columns = {name: column.numpy() for name, column in found.batch.items()}
    np.testing.assert_array_equal(columns.pop("source"), of_rows)
    assert set(of_rows) <= set(range(sources))
    kind.assert_rows(columns, numbers)


def test_batches_of_sources_in_one_array_are_drawn_with_the_same_random_numbers(
    tmp_path: Path,
) -> None:
    kind = KINDS["rows"]
    for name, rows in (("actors", 2500), ("data", 700)):
        writer = open_writer(tmp_path / name, kind.row, CAPACITY, run_id="counting", guard=GUARD)
        fill(writer, kind, rows)
        writer.close()

    def replay() -> MixedReplay:
        readers = [open_reader(tmp_path / name) for name in ("actors", "data")]
        return mixed(readers, [0.3], prioritized=False)

    plain, followed = replay(), replay()
    assert plain._joined is not None
    copies = DeviceRings(followed.rows, CPU, clock=every_time())
    ours, theirs = CpuLoader(plain, 32, CPU), RingLoader(followed, copies, 32)
    for _ in range(10):
        assert_same(theirs.load(), ours.load())


def test_all_sources_are_copied_or_none(caplog: pytest.LogCaptureFixture) -> None:
    rings = [new_ring(KINDS["rows"]) for _ in range(3)]
    assert are_alike(rings)
    assert not are_alike([*rings, new_ring(KINDS["frames"])])
    need = sum(map(ring_bytes, rings))
    assert copy_rings(rings, CPU, need) is not None
    with caplog.at_level(logging.WARNING):
        assert copy_rings(rings, CPU, need - 1) is None
    assert "are free for it" in caplog.text


def pinned_loader(replay: Any, batch_size: int) -> PinnedLoader:
    return PinnedLoader(replay, batch_size, SideStream(CPU))


def loaded_by(cuda: StrictCuda, loader: DeviceLoader) -> DeviceBatch:
    """The next batch, which the GPU has then; the one behind it is drawn, where it can be."""
    with cuda:
        batch = loader.load()
        if implements(loader, LoaderAhead):
            loader.draw_ahead()
    cuda.synchronize()
    return batch


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("sources", [1, 3])
def test_batches_by_pinned_memory_are_those_of_the_replay_one_ahead(
    kind: Kind, prioritized: bool, sources: int, cuda: StrictCuda
) -> None:
    """Also where priorities come a batch late."""
    rings = [new_ring(kind) for _ in range(sources)]

    for ring in rings:
        fill(ring, kind, 200)
    plain, pinned = drawn_from(rings, prioritized), drawn_from(rings, prioritized)
    ours = CpuLoader(plain, 32, CPU)
    loader = pinned_loader(pinned, 32)
    errors = np.random.default_rng(0)
    ahead = copied(ours.load())
    for _ in range(20):
        expected = ahead
        found = loaded_by(cuda, loader)
        ahead = copied(ours.load())
        assert_same(found, expected)
        fill(rings[0], kind, 90)  # the batch ahead was drawn before
        td_errors = errors.random(32).astype(np.float32)
        for each, indices in ((plain, expected.indices), (pinned, found.indices)):
            each.update_priority(indices, td_errors)
    cuda.check()


def copied(batch: DeviceBatch) -> DeviceBatch:
    """A batch that the next one does not overwrite."""
    return replace(
        batch,
        batch={name: tensor.clone() for name, tensor in batch.batch.items()},
        weights=None if batch.weights is None else batch.weights.clone(),
        indices=batch.indices.copy(),
        versions=None if batch.versions is None else batch.versions.copy(),
    )


@pytest.mark.parametrize("sources", [1, 2])
def test_memory_that_copies_use_is_not_written_before_they_are_done(
    sources: int, cuda: StrictCuda
) -> None:
    """Nobody waits for the device but the loader: steps read each batch later than it is loaded."""
    kind = KINDS["rows"]
    rings = [new_ring(kind) for _ in range(sources)]
    for ring in rings:
        fill(ring, kind, 300)
    rng = np.random.default_rng(0)
    loader = pinned_loader(
        mixed(rings, [0.5], prioritized=True) if sources == 2 else UniformReplay(rings[0], rng), 16
    )
    seen = torch.zeros(())
    with cuda:
        for _ in range(6):
            batch = loader.load()
            loader.draw_ahead()
            for tensor in batch.batch.values():
                seen += tensor.sum()
        cuda.check()
    assert len(loader._copies[0]) == len(loader._pinned[0]) > 3


def test_uniform_rows_are_gathered_into_pinned_memory_itself(cuda: StrictCuda) -> None:
    kind = KINDS["frames"]
    ring = new_ring(kind)
    fill(ring, kind, 300)
    replay = UniformReplay(ring, np.random.default_rng(0))
    loader = pinned_loader(replay, 16)
    places = set()
    loaded_by(cuda, loader)  # pins memory for two batches of the form that the replay gives
    for _ in range(8):
        loaded_by(cuda, loader)
        places.add(replay._columns["obs"].ctypes.data)
    assert places == {slot["obs"].data_ptr() for slot in loader._pinned}


def test_an_error_of_a_draw_is_the_loaders(cuda: StrictCuda) -> None:
    ring = new_ring(KINDS["rows"])
    loader = pinned_loader(UniformReplay(ring, np.random.default_rng(0)), 16)
    with pytest.raises(EmptyReplayError):
        loaded_by(cuda, loader)
    fill(ring, KINDS["rows"], 50)
    found = loaded_by(cuda, loader)
    KINDS["rows"].assert_rows({k: t.numpy() for k, t in found.batch.items()}, found.indices)


def drawn_from(rings: Sequence[Any], prioritized: bool) -> Any:
    """A replay of one ring, or of several sources."""
    if len(rings) == 1:
        return replay_of(rings[0], np.random.default_rng(5), prioritized)
    return mixed(rings, [0.25, 0.25], prioritized)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("sources", [1, 3])
def test_batches_that_a_graph_gathers_are_those_of_the_rings(
    kind: Kind, prioritized: bool, sources: int, cuda: StrictCuda
) -> None:
    """Rows come in between, rings wrap around, and sources share a batch otherwise each time."""
    rings = [new_ring(kind) for _ in range(sources)]
    for ring in rings:
        fill(ring, kind, 200)

    plain, followed = drawn_from(rings, prioritized), drawn_from(rings, prioritized)
    ours = CpuLoader(plain, 32, CPU)
    with cuda:
        loader = RingLoader(followed, captured_copy(rings), 32)
    errors = np.random.default_rng(0)
    for step in range(12):
        expected, found = ours.load(), loaded_by(cuda, loader)
        assert_same(found, expected)
        assert cuda.replayed == max(0, step - 2)
        td_errors = errors.random(32).astype(np.float32)
        for each, batch in ((plain, expected), (followed, found)):
            each.update_priority(batch.indices, td_errors)
        fill(rings[step % 2 if sources > 1 else 0], kind, 700)  # the last one is whole
    cuda.check()
    assert cuda.captured == 1


def captured_copy(rings: Sequence[Any]) -> DeviceRing | DeviceRings:
    """A copy that follows at every call, and gathers by graphs."""
    if len(rings) == 1:
        return DeviceRing(rings[0], CPU, clock=every_time(), capture=CudaCapture(CPU))
    return DeviceRings(rings, CPU, clock=every_time(), capture=CudaCapture(CPU))


def test_a_batch_of_another_size_is_gathered_by_a_graph_of_its_own(cuda: StrictCuda) -> None:
    kind = KINDS["rows"]
    ring = new_ring(kind)
    fill(ring, kind, 300)
    with cuda:
        copy = captured_copy([ring])
        copy.follow()
    for rows in (*[8] * 6, 12, *[9] * 6):
        numbers = np.arange(rows)
        with cuda:
            batch = copy.gather_batch(numbers)
        cuda.synchronize()
        kind.assert_rows({name: column.numpy() for name, column in batch.items()}, numbers)
    cuda.check()
    assert cuda.captured == 2
    assert len(cuda.held) == 1


def test_a_gather_that_waits_for_the_device_goes_on_as_it_is_and_says_so_once(
    cuda: StrictCuda, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = torch.index_select

    def waits(*arguments: Any, **keywords: Any) -> torch.Tensor:
        selected = select(*arguments, **keywords)
        selected.sum().item()
        return selected

    monkeypatch.setattr(torch, "index_select", waits)
    kind = KINDS["rows"]
    ring = new_ring(kind)
    fill(ring, kind, 300)
    plain, followed = (replay_of(ring, np.random.default_rng(5), False) for _ in range(2))
    ours = CpuLoader(plain, 32, CPU)
    with cuda:
        loader = RingLoader(followed, captured_copy([ring]), 32)
    for _ in range(8):
        assert_same(loaded_by(cuda, loader), ours.load())
    cuda.check()
    assert cuda.captured == 0
    (line,) = caplog.messages
    assert "is not captured" in line
    assert "it waits for the device at" in line


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("sources", [1, 3])
def test_a_copy_that_is_given_up_leaves_the_replay_to_its_own_rows(
    prioritized: bool, sources: int, cuda: StrictCuda
) -> None:
    kind = KINDS["rows"]
    rings = [new_ring(kind) for _ in range(sources)]
    for ring in rings:
        fill(ring, kind, 200)

    plain, copied_one = drawn_from(rings, prioritized), drawn_from(rings, prioritized)
    ours = CpuLoader(plain, 32, CPU)
    with cuda:
        copy = captured_copy(rings)
    memory = weakref.ref(next(iter(copy._room.columns.values())))
    given_up = RingLoader(copied_one, copy, 32)
    loader: Any = given_up
    del copy
    for n in range(9):
        if n == 6:
            assert len(cuda.held) == 1
            given_up.give_up_copy()
            assert memory() is None
            assert len(cuda.held) == 0  # its graph
            loader = pinned_loader(copied_one, 32)
        expected = ours.load()
        assert_same(loaded_by(cuda, loader), expected)
    cuda.check()


def test_ranks_copy_from_pinned_memory(cuda: StrictCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["rows"]
    ring = new_ring(kind)
    fill(ring, kind, 300)
    monkeypatch.setattr(loader_module, "broadcast", lambda tensor: None)
    replay = replay_of(ring, np.random.default_rng(5), True)
    loader = RankLoader(replay, 16, CPU, copy_replay=False)
    with cuda:
        torch.cuda.set_sync_debug_mode("warn")  # warnings are errors here
        loaded = loader.load()
        torch.cuda.set_sync_debug_mode("default")
        cuda.check()
    assert cuda.pinned_copies == len(loaded.batch) + 1  # and the weights
    kind.assert_rows({k: t.numpy() for k, t in loaded.batch.items()}, loaded.indices)


def test_ranks_gather_their_parts_by_graphs(
    cuda: StrictCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS["rows"]
    ring = new_ring(kind)
    fill(ring, kind, 300)
    monkeypatch.setattr(loader_module, "broadcast", lambda tensor: None)
    plain, followed = (replay_of(ring, np.random.default_rng(5), True) for _ in range(2))
    ours = CpuLoader(plain, 16, CPU)
    with cuda:
        loader = RankLoader(followed, 16, CPU, copy_replay=True, capture=CudaCapture(CPU))
        assert loader._ring is not None
        loader._ring.follow()
    for _ in range(6):
        assert_same(loaded_by(cuda, loader), ours.load())
    cuda.check()
    assert cuda.captured == 1


def test_counting_rows_count() -> None:
    """What all of this stands on: a wrong row is seen."""
    columns = counting_rows.rows(5, 3)
    with pytest.raises(AssertionError):
        counting_rows.assert_rows(columns, np.arange(6, 9))

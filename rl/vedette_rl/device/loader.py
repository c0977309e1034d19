"""The loader of batches: copies the replay's arrays to tensors on the agent's device.

On a CPU the tensors share the arrays' memory and nothing is copied. On a GPU batches are gathered
in a copy of the replay, which follows it; where the GPU has no room for one, the next batch is
gathered into pinned memory and copied on a stream of its own while the agent works on this one.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core import ReplayBuffer, Sample
from vedette_rl.core.columns import LEARNED, VERSION, Columns
from vedette_rl.core.learning import BlockBatch
from vedette_rl.device import host_copy
from vedette_rl.device.cuda_graphs import Capture
from vedette_rl.device.host_copy import Event, Reached, mark_work
from vedette_rl.device.ranks import broadcast, ranks
from vedette_rl.device.ring import DeviceRing, DeviceRings, are_alike, ring_bytes
from vedette_rl.device.room import stage
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.drawn_sequences import DrawnSequences
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.mixed_sequences import MixedSequences
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.queue import CHOSEN, QueueReplay
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.uniform import DrawnRows, UniformReplay

log = logging.getLogger("vedette.trainer")

C = TypeVar("C")
Tensors = dict[str, torch.Tensor]

COPY_SHARE = 0.8
"""Of a GPU's free memory: networks, their optimizers and the batch need the rest."""


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """A batch on the device.

    Args:
        batch: a column each ``(B, *shape)``, of sequences ``(B, L, *shape)`` as
            `vedette_rl.replay.drawn_sequences` has them; overwritten by the next load.
        weights: importance-sampling weights ``(B,)`` or None.
        indices: the rows' numbers ``(B,)``, for `ReplayBuffer.update_priority`.
        versions: the model version behind each row ``(B,)``, of sequences behind each that is
            learned from; None where the replay has no such column.
        sources_only: the batch is drawn from named sources only, without samples of actors.
        lags: optimization steps between the weights and the models behind the rows, where they are
            known otherwise than by versions; None: they are not.
    """

    batch: Mapping[str, torch.Tensor]
    weights: torch.Tensor | None
    indices: NDArray[Any]
    versions: NDArray[Any] | None
    sources_only: bool = False
    lags: NDArray[Any] | None = None


class DeviceLoader(Protocol):
    """Draws batches and brings them to the device."""

    def load(self) -> DeviceBatch:
        """The next batch."""
        ...


class LoaderAhead(DeviceLoader, Protocol):
    """A loader that can draw the next batch while the device works on this one."""

    @property
    def is_ahead(self) -> bool:
        """True if the batch of the next `load` is drawn already."""
        ...

    def draw_ahead(self) -> None:
        """Draw the batch of the next `load` now."""
        ...


def make_loader(
    replay: ReplayBuffer,
    batch_size: int,
    device: torch.device,
    *,
    copy_replay: bool = True,
    capture: Capture | None = None,
) -> DeviceLoader:
    """The loader that suits the device.

    Args:
        replay: a uniform or prioritized one draws from the copy from now on, where there is one.
        batch_size: rows of a batch.
        device: the device of the batches.
        copy_replay: copy it to a GPU that has room for it.
        capture: records how batches are gathered in the copy; None: each operation is started by
            itself.
    """
    if isinstance(replay, QueueReplay):
        return BlockLoader(replay, batch_size, device)
    if ranks().count > 1:
        return RankLoader(replay, batch_size, device, copy_replay=copy_replay, capture=capture)
    if not host_copy.is_asynchronous(device):
        return CpuLoader(replay, batch_size, device)
    if copy_replay and (ring := _copied(replay, device, capture)) is not None:
        return RingLoader(replay, ring, batch_size)
    return PinnedLoader(replay, batch_size, SideStream(device))


def _copied(
    replay: ReplayBuffer, device: torch.device, capture: Capture | None
) -> DeviceRing | DeviceRings | None:
    """A copy of a replay on a GPU; None where there can be none, with the reason logged."""
    if isinstance(replay, MixedReplay):
        if are_alike(replay.rows):
            return copy_rings(replay.rows, device, _free_bytes(device), capture)
        log.info("sources with other columns than each other's are not copied to %s", device)
    elif type(replay) in (UniformReplay, PrioritizedReplay) or isinstance(replay, DrawnSequences):
        assert isinstance(replay, DrawnRows)
        return copy_ring(replay.rows, device, _free_bytes(device), capture)
    else:
        log.info("a replay of your own is not copied to %s", device)
    return None


def _free_bytes(device: torch.device) -> int:
    gc.collect()
    torch.cuda.empty_cache()  # what an earlier copy had in this process counts as used until then
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * COPY_SHARE)


def copy_ring(
    rows: Rows, device: torch.device, free_bytes: int, capture: Capture | None = None
) -> DeviceRing | None:
    """A copy of a ring on a device; None where it has no room for it, which is said."""
    need = ring_bytes(rows)
    return _copy(lambda: DeviceRing(rows, device, capture=capture), device, need, free_bytes)


def copy_rings(
    rows: Sequence[Rows], device: torch.device, free_bytes: int, capture: Capture | None = None
) -> DeviceRings | None:
    """Copies of the rings of all sources; None where a device has no room, which is said."""
    need = sum(map(ring_bytes, rows))
    return _copy(lambda: DeviceRings(rows, device, capture=capture), device, need, free_bytes)


def _copy(make: Callable[[], C], device: torch.device, need: int, free_bytes: int) -> C | None:
    if need > free_bytes:
        reason = f"{format_bytes(free_bytes)} are free for it"
    else:
        log.info("the replay is copied to %s: %s", device, format_bytes(need))
        try:
            return make()
        except torch.OutOfMemoryError as error:
            reason = str(error).partition(". ")[0]
    log.warning(
        "the replay of %s is not copied to %s (%s): every batch is copied from the host's memory; "
        "a smaller replay.capacity would fit",
        format_bytes(need),
        device,
        reason,
    )
    return None


class RingLoader:
    """Batches that are gathered on the device.

    Args:
        replay: draws from `ring` from now on.
        ring: the copy of its rows.
        batch_size: rows of a batch.
    """

    def __init__(
        self, replay: ReplayBuffer, ring: DeviceRing | DeviceRings, batch_size: int
    ) -> None:
        self._replay = replay
        self._ring = ring
        self._batch_size = batch_size
        self._weights: torch.Tensor | None = None
        ring.follow()  # so that the replay has its rows when it is asked how many
        if isinstance(ring, DeviceRings):
            assert isinstance(replay, MixedReplay)
            replay.use_copies(ring.rings)
        else:
            assert isinstance(replay, DrawnRows)
            replay.use_rows(ring)

    @property
    def is_captured(self) -> bool:
        """True once batches are gathered by graphs."""
        return self._ring.is_captured

    def follow_each_look(self) -> None:
        """Have the copy follow at each look, however soon it is."""
        copy = self._ring
        for ring in copy.rings if isinstance(copy, DeviceRings) else (copy,):
            ring.follow_s = 0.0

    def give_up_copy(self) -> None:
        """Have the replay draw from its own rows again, and free the memory of the copy; this
        loader is not used any more."""
        copy = self._ring
        del self._ring  # whoever has the loader still must not keep the memory
        if isinstance(copy, DeviceRings):
            assert isinstance(self._replay, MixedReplay)
            self._replay.use_copies([ring.original for ring in copy.rings])
        else:
            assert isinstance(self._replay, DrawnRows)
            self._replay.use_rows(copy.original)

    def load(self) -> DeviceBatch:
        sample = self._replay.sample(self._batch_size)
        batch = self._gather(sample)
        weights = None
        if sample.weights is not None:
            staged = stage(sample.weights, self._ring.device).view(torch.float32).view(-1)
            if self._weights is None:
                self._weights = staged.to(self._ring.device, copy=True)
            weights = self._weights.copy_(staged, non_blocking=True)
        versions = _versions(sample.columns)
        return DeviceBatch(
            batch, weights, sample.indices, versions, _draws_sources_only(self._replay)
        )

    def _gather(self, sample: Sample) -> Mapping[str, torch.Tensor]:
        """The columns of what was drawn just now."""
        replay = self._replay
        if isinstance(replay, (DrawnSequences, MixedSequences)):
            return self._ring.gather_windows(replay.windows, replay.first)
        return self._ring.gather_batch(sample.indices)


class CpuLoader:
    """Tensors over the replay's own arrays: for a CPU; other devices copy synchronously."""

    def __init__(self, replay: ReplayBuffer, batch_size: int, device: torch.device) -> None:
        self._replay = replay
        self._batch_size = batch_size
        self._device = device
        self._arrays: Mapping[str, NDArray[Any]] | None = None
        self._batch: dict[str, torch.Tensor] = {}

    def load(self) -> DeviceBatch:
        sample = self._replay.sample(self._batch_size)
        if self._device.type != "cpu" or self._arrays is not sample.columns:
            self._arrays = sample.columns
            self._batch = {
                name: torch.from_numpy(column).to(self._device)
                for name, column in sample.columns.items()
            }
        return DeviceBatch(
            self._batch,
            # A copy: torch's own memory is aligned, as the columns are.
            None
            if sample.weights is None
            else torch.from_numpy(sample.weights).to(self._device, copy=True),
            sample.indices,
            _versions(sample.columns),
            _draws_sources_only(self._replay),
        )


class BlockLoader:
    """Minibatches of a queue's blocks: a block is brought to the device once, into tensors that
    stay where they are, and then the places of each minibatch.

    On a CPU the tensors are over the replay's own arrays, and nothing is copied.
    """

    def __init__(self, replay: QueueReplay, batch_size: int, device: torch.device) -> None:
        self._replay = replay
        self._batch_size = batch_size
        self._device = device
        self._copies = device.type != "cpu" or host_copy.is_asynchronous(device)
        self._batch: BlockBatch | None = None

    def load(self) -> DeviceBatch:
        replay = self._replay
        sample = replay.sample(self._batch_size)
        place = replay.minibatch
        batch = self._batch
        if batch is None:
            batch = self._batch = BlockBatch(
                {
                    name: torch.from_numpy(column).to(self._device, copy=self._copies)
                    for name, column in sample.columns.items()
                }
            )
        elif self._copies:
            for name, tensor in batch.items():
                if place.begins_block or name == CHOSEN:
                    _copy_into(tensor, sample.columns[name])
        batch.place = place
        versions = _versions(sample.columns)
        return DeviceBatch(batch, None, sample.indices, versions, lags=replay.lags)


def _copy_into(tensor: torch.Tensor, column: NDArray[Any]) -> None:
    """Copy a column into a tensor; a GPU does it behind the work that it was given before, and the
    caller does not wait."""
    if host_copy.is_asynchronous(tensor.device):
        staged = stage(column, tensor.device).view(tensor.dtype).view(tensor.shape)
        tensor.copy_(staged, non_blocking=True)
    else:
        tensor.copy_(torch.from_numpy(column))


def _versions(columns: Columns) -> NDArray[Any] | None:
    """The versions of the models that made what is learned from, if they are known."""
    versions = columns.get(VERSION)
    learned = columns.get(LEARNED)  # of sequences, which have other rows, too
    return versions if versions is None or learned is None else versions[learned]


def _draws_sources_only(replay: ReplayBuffer) -> bool:
    return isinstance(replay, MixedReplay) and replay.sources_only


class RankLoader:
    """This rank's part of each batch, which rank 0 draws: it tells the others the rows.

    ::

        loaded = loader.load()                          # rank 0
        loader.end()                                    # behind the last one

        while (loaded := loader.follow()) is not None:  # the others
            agent.opt(loaded.batch, loaded.weights)

    What `load` returns has the indices and the versions of the whole batch.

    Args:
        replay: uniform or prioritized; of ranks but 0 its rows are read, and never its draws.
        batch_size: rows of the whole batch.
        device: the device of this rank.
        copy_replay: copy it to a GPU that has room for it.
        capture: as `make_loader` has it.
    """

    def __init__(
        self,
        replay: ReplayBuffer,
        batch_size: int,
        device: torch.device,
        *,
        copy_replay: bool,
        capture: Capture | None = None,
    ) -> None:
        assert isinstance(replay, DrawnRows), "other replays are refused with several ranks"
        self._replay = replay
        self._device = device
        self._part = ranks().part(batch_size)
        self._order = np.zeros(1 + batch_size, _ORDER)
        self._ring = None
        if host_copy.is_asynchronous(device) and copy_replay:
            self._ring = copy_ring(replay.rows, device, _free_bytes(device), capture)
        if self._ring is not None and not ranks().number:
            replay.use_rows(self._ring)

    @property
    def has_copy(self) -> bool:
        """True if batches are gathered in a copy on the device."""
        return self._ring is not None

    def load(self) -> DeviceBatch:
        sample = self._replay.sample(len(self._order) - 1)
        head = self._order[:1]
        rows = self._order[1:]
        head["number"] = 1
        rows["number"] = sample.indices
        if sample.weights is not None:
            head["weight"] = 1.0
            rows["weight"] = sample.weights
        broadcast(torch.from_numpy(self._order.view(np.int64)))
        columns = {name: column[self._part] for name, column in sample.columns.items()}
        loaded = self._loaded(columns)
        return replace(loaded, indices=sample.indices, versions=_versions(sample.columns))

    def follow(self) -> DeviceBatch | None:
        """The next batch's part; None: rank 0 has ended."""
        broadcast(torch.from_numpy(self._order.view(np.int64)))
        if not self._order["number"][0]:
            return None
        numbers = self._numbers
        if self._ring is not None:
            self._ring.follow(int(numbers.max()) + 1)
            np.maximum(numbers, self._ring.live()[0], out=numbers)  # ours has overwritten these
            return self._loaded({})
        columns = self._replay.gather(numbers)
        self._replay.redraw_stale(numbers, columns)
        return self._loaded(columns)

    def end(self) -> None:
        """Tell the other ranks that there is no further batch."""
        self._order["number"] = 0
        broadcast(torch.from_numpy(self._order.view(np.int64)))

    @property
    def _numbers(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self._order["number"][1:][self._part])

    def _loaded(self, columns: Columns) -> DeviceBatch:
        numbers = self._numbers
        batch: Mapping[str, torch.Tensor]
        if self._ring is None:
            arrays = columns.items()
            batch = {name: _to_device(array, self._device) for name, array in arrays}
        else:
            batch = self._ring.gather_batch(numbers)
        weights = None
        if self._order["weight"][0]:
            own = np.ascontiguousarray(self._order["weight"][1:][self._part], np.float32)
            weights = _to_device(own, self._device)
        return DeviceBatch(batch, weights, numbers, columns.get(VERSION))


def _to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy on the device; a GPU takes it from pinned memory, for which the host does not wait."""
    tensor = torch.from_numpy(array)
    if host_copy.is_asynchronous(device):
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


_ORDER = np.dtype([("number", np.int64), ("weight", np.float64)])
"""A row of the batch; before them whether there is a batch, and whether it has weights."""


class SideStream:
    """Copies from pinned memory to a GPU on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # untyped in torch

    def pin(self, array: NDArray[Any]) -> torch.Tensor:
        """The array in pinned memory."""
        return torch.from_numpy(array).pin_memory()

    def room(self, pinned: torch.Tensor) -> torch.Tensor:
        """Memory on the device for a copy of it."""
        return torch.empty(pinned.shape, dtype=pinned.dtype, device=self._device)

    def copy(self, pinned: Tensors, copies: Tensors) -> Event:
        """Begin to copy, behind what the device was given until now; return its end's event."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for name, tensor in pinned.items():
                copies[name].copy_(tensor, non_blocking=True)
            return mark_work(self._device)

    def hand_over(self, copied: Event) -> None:
        """Have what the device is given from now on wait for the copies."""
        assert isinstance(copied, torch.cuda.Event), "of `copy`"
        torch.cuda.current_stream(self._device).wait_event(copied)


class _Slot(NamedTuple):
    """A batch in pinned memory, and its copy on the device."""

    indices: NDArray[Any]
    versions: NDArray[Any] | None
    copies: Tensors
    copied: Event
    sources_only: bool


class PinnedLoader:
    """Gathers into pinned memory and copies without blocking: a batch ahead, where it is asked to.

    There are two buffers in the host's memory and two on the device, which are used in turn. The
    copy to one of them waits, on the device, for the step that read it.

    Args:
        replay: uniform and prioritized ones gather into the pinned memory themselves.
        batch_size: rows of a batch.
        stream: copies.
    """

    def __init__(self, replay: ReplayBuffer, batch_size: int, stream: SideStream) -> None:
        self._replay = replay
        self._batch_size = batch_size
        self._stream = stream
        self._pinned: list[Tensors] = [{}, {}]
        self._columns: list[Columns] = [{}, {}]  # the same memory
        self._copies: list[Tensors] = [{}, {}]
        self._copied: list[Event] = [Reached(), Reached()]
        self._turn = 0
        self._ahead: _Slot | None = None

    @property
    def is_ahead(self) -> bool:
        return self._ahead is not None

    def draw_ahead(self) -> None:
        assert self._ahead is None, "one batch is ahead, no more"
        self._ahead = self._fetch()

    def load(self) -> DeviceBatch:
        slot = self._ahead or self._fetch()
        self._ahead = None
        self._stream.hand_over(slot.copied)
        batch = dict(slot.copies)
        weights = batch.pop(_WEIGHTS, None)
        return DeviceBatch(batch, weights, slot.indices, slot.versions, slot.sources_only)

    def _fetch(self) -> _Slot:
        """Draw a batch into the other pinned buffer and start its copy."""
        self._turn ^= 1
        pinned, columns = self._pinned[self._turn], self._columns[self._turn]
        copies = self._copies[self._turn]
        self._copied[self._turn].synchronize()  # the device may be behind, and still read there
        if columns and isinstance(self._replay, DrawnRows):
            self._replay.use_buffers(columns)
        sample = self._replay.sample(self._batch_size)
        weights = {} if sample.weights is None else {_WEIGHTS: sample.weights}
        for name, column in (*sample.columns.items(), *weights.items()):
            if name not in pinned:
                pinned[name] = self._stream.pin(column)
                copies[name] = self._stream.room(pinned[name])
                if name != _WEIGHTS:
                    columns[name] = pinned[name].numpy()
            elif columns.get(name) is not column:
                np.copyto(pinned[name].numpy(), column)
        self._copied[self._turn] = self._stream.copy(pinned, copies)
        return _Slot(
            sample.indices.copy(),  # the replay writes its own over them at the next draw
            _versions(columns),
            copies,
            self._copied[self._turn],
            _draws_sources_only(self._replay),
        )


_WEIGHTS = "weights"  # no column of a batch: the wire's are named by `vedette_rl.core.columns`

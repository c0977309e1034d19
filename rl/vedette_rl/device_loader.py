"""From the replay's arrays to tensors on the agent's device.

On a CPU the tensors share the arrays' memory and nothing is copied. On a GPU batches are gathered
in a copy of the replay, which follows it; where the GPU has no room for one, the next batch is
gathered into pinned memory and copied on a stream of its own while the agent works on this one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core import ReplayBuffer, Sample
from vedette_rl.core.columns import VERSION, Columns
from vedette_rl.device_ring import DeviceRing, ring_bytes, stage
from vedette_rl.ranks import broadcast, ranks
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.uniform import DrawnRows, UniformReplay
from vedette_rl.storage.system import bytes_text

log = logging.getLogger("vedette.trainer")

COPY_SHARE = 0.8
"""Of a GPU's free memory: networks, their optimizers and the batch need the rest."""


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """A batch on the device.

    Args:
        batch: a column each ``(B, *shape)``, overwritten by the next load.
        weights: importance-sampling weights ``(B,)`` or None.
        indices: the rows' numbers ``(B,)``, for `ReplayBuffer.update_priority`.
        versions: the model version behind each row ``(B,)``; None where the replay has no such
            column.
        alone: drawn of named sources alone, in place of the samples of actors.
    """

    batch: Mapping[str, torch.Tensor]
    weights: torch.Tensor | None
    indices: NDArray[Any]
    versions: NDArray[Any] | None
    alone: bool = False


class DeviceLoader(Protocol):
    """Draws batches and brings them to the device."""

    def load(self) -> DeviceBatch:
        """The next batch."""
        ...


def make_loader(
    replay: ReplayBuffer, batch_size: int, device: torch.device, *, copy_replay: bool = True
) -> DeviceLoader:
    """The loader that suits the device.

    Args:
        replay: a uniform or prioritized one draws from the copy from now on, where there is one.
        batch_size: rows of a batch.
        device: of the batches.
        copy_replay: copy it to a GPU that has room for it.
    """
    if ranks().count > 1:
        return RankLoader(replay, batch_size, device, copy_replay=copy_replay)
    if device.type != "cuda":
        return CpuLoader(replay, batch_size, device)
    copies = type(replay) in (UniformReplay, PrioritizedReplay)
    if copy_replay and not copies:
        log.info("a replay of several sources, or of your own, is not copied to %s", device)
    elif copy_replay:
        assert isinstance(replay, DrawnRows)
        if ring := copy_ring(replay.rows, device, _free_bytes(device)):
            return RingLoader(replay, ring, batch_size)
    return CudaLoader(replay, batch_size, device)


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * COPY_SHARE)


def copy_ring(rows: Rows, device: torch.device, free_bytes: int) -> DeviceRing | None:
    """A copy of a ring on a device; None where it has no room for it, which is said."""
    need = ring_bytes(rows)
    if need > free_bytes:
        reason = f"{bytes_text(free_bytes)} are free for it"
    else:
        try:
            ring = DeviceRing(rows, device)
        except torch.OutOfMemoryError as error:
            reason = str(error).partition(". ")[0]
        else:
            log.info("the replay is copied to %s: %s", device, bytes_text(need))
            return ring
    log.warning(
        "the replay of %s is not copied to %s (%s): every batch is copied from the host's memory; "
        "a smaller replay.capacity would fit",
        *(bytes_text(need), device, reason),
    )
    return None


class RingLoader:
    """Batches that are gathered on the device.

    Args:
        replay: draws from `ring` from now on.
        ring: the copy of its rows.
        batch_size: rows of a batch.
    """

    def __init__(self, replay: DrawnRows, ring: DeviceRing, batch_size: int) -> None:
        self._replay, self._ring, self._batch_size = replay, ring, batch_size
        self._weights: torch.Tensor | None = None
        replay.rows = ring

    def load(self) -> DeviceBatch:
        self._ring.follow()
        sample = self._replay.sample(self._batch_size)
        batch = self._ring.gather_batch(sample.indices)
        weights = None
        if sample.weights is not None:
            staged = stage(sample.weights, self._ring.device).view(torch.float32).view(-1)
            if self._weights is None:
                self._weights = staged.to(self._ring.device, copy=True)
            weights = self._weights.copy_(staged, non_blocking=True)
        return DeviceBatch(batch, weights, sample.indices, sample.columns.get("version"))


class CpuLoader:
    """Tensors over the replay's own arrays: for a CPU; other devices copy synchronously."""

    def __init__(self, replay: ReplayBuffer, batch_size: int, device: torch.device) -> None:
        self._replay, self._batch_size, self._device = replay, batch_size, device
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
            None if sample.weights is None else torch.from_numpy(sample.weights).to(self._device),
            sample.indices,
            sample.columns.get("version"),
            _draws_alone(self._replay),
        )


def _draws_alone(replay: ReplayBuffer) -> bool:
    return isinstance(replay, MixedReplay) and replay.alone


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
        device: of this rank.
        copy_replay: copy it to a GPU that has room for it.
    """

    def __init__(
        self, replay: ReplayBuffer, batch_size: int, device: torch.device, *, copy_replay: bool
    ) -> None:
        assert isinstance(replay, DrawnRows), "other replays are refused with several ranks"
        self._replay, self._device = replay, device
        self._part = ranks().part(batch_size)
        self._order = np.zeros(1 + batch_size, _ORDER)
        self._ring = None
        if device.type == "cuda" and copy_replay:
            self._ring = copy_ring(replay.rows, device, _free_bytes(device))
        if self._ring is not None and not ranks().number:
            replay.rows = self._ring

    def load(self) -> DeviceBatch:
        if self._ring is not None:
            self._ring.follow()
        sample = self._replay.sample(len(self._order) - 1)
        head, rows = self._order[:1], self._order[1:]
        head["number"] = 1
        rows["number"] = sample.indices
        if sample.weights is not None:
            head["weight"], rows["weight"] = 1.0, sample.weights
        broadcast(torch.from_numpy(self._order.view(np.int64)))
        columns = {name: column[self._part] for name, column in sample.columns.items()}
        loaded = self._loaded(columns)
        return replace(loaded, indices=sample.indices, versions=sample.columns.get(VERSION))

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
            batch = {name: torch.from_numpy(array).to(self._device) for name, array in arrays}
        else:
            batch = self._ring.gather_batch(numbers)
        weights = None
        if self._order["weight"][0]:
            own = np.ascontiguousarray(self._order["weight"][1:][self._part], np.float32)
            weights = torch.from_numpy(own).to(self._device)
        return DeviceBatch(batch, weights, numbers, columns.get(VERSION))


_ORDER = np.dtype([("number", np.int64), ("weight", np.float64)])
"""A row of the batch; before them whether there is a batch, and whether it has weights."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A batch in pinned memory, its copy on the device, and the event that ends the copy."""

    pinned: dict[str, torch.Tensor]
    device: dict[str, torch.Tensor]
    copied: torch.cuda.Event
    sample: Sample
    weights: torch.Tensor | None
    alone: bool


class CudaLoader:
    """One batch ahead: gathered into pinned memory and copied without blocking."""

    def __init__(self, replay: ReplayBuffer, batch_size: int, device: torch.device) -> None:
        self._replay, self._batch_size, self._device = replay, batch_size, device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # untyped in torch
        self._pinned: list[dict[str, torch.Tensor]] = [{}, {}]
        self._copied = [torch.cuda.Event() for _ in self._pinned]  # type: ignore[no-untyped-call]
        self._turn = 0
        self._ahead: _Slot | None = None

    def load(self) -> DeviceBatch:
        slot = self._ahead or self._fetch()
        current = torch.cuda.current_stream(self._device)
        current.wait_event(slot.copied)
        weights = () if slot.weights is None else (slot.weights,)
        for tensor in (*slot.device.values(), *weights):
            tensor.record_stream(current)  # its memory is not given away while the agent reads it
        self._ahead = self._fetch()
        versions = slot.pinned.get("version")
        return DeviceBatch(
            slot.device,
            slot.weights,
            slot.sample.indices,
            None if versions is None else versions.numpy(),
            slot.alone,
        )

    def _fetch(self) -> _Slot:
        """Draw a batch into the other pinned buffer and start its copy."""
        self._turn ^= 1
        pinned, copied = self._pinned[self._turn], self._copied[self._turn]
        copied.synchronize()  # the device may be behind, and still read from there
        sample = self._replay.sample(self._batch_size)
        for name, column in sample.columns.items():
            if name not in pinned:
                pinned[name] = torch.from_numpy(np.empty_like(column)).pin_memory()
            np.copyto(pinned[name].numpy(), column)
        with torch.cuda.stream(self._stream):
            device = {
                name: tensor.to(self._device, non_blocking=True) for name, tensor in pinned.items()
            }
            weights = (
                None
                if sample.weights is None
                else torch.from_numpy(sample.weights).to(self._device, non_blocking=True)
            )
            copied.record(self._stream)
        indices = sample.indices.copy()  # the replay writes its own over them at the next draw
        drawn = Sample(sample.columns, indices)
        return _Slot(pinned, device, copied, drawn, weights, _draws_alone(self._replay))

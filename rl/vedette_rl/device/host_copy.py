"""Copies of tensors in the host's memory; the caller waits for them only when it reads them.

On a CPU a copy is there at once. On a GPU it is begun on the device and read when an event says
that it is done, so the loop that begins it continues meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.learning import State, Total
from vedette_rl.storage.buffer_pool import BufferPool

if TYPE_CHECKING:
    import torch  # those who wait for copies need not load it

T = TypeVar("T")


class Event(Protocol):
    """The end of work that a device was given; `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """True once it is reached."""
        ...

    def synchronize(self) -> None:
        """Wait for it."""
        ...


def is_asynchronous(device: torch.device) -> bool:
    """Return True of a device whose work is still to be done when the call that gave it returns."""
    return device.type == "cuda"


class Reached:
    """The event of work that is done when it is given: a CPU's."""

    def query(self) -> bool:
        """True."""
        return True

    def synchronize(self) -> None:
        """Do nothing."""


def mark_work(device: torch.device) -> Event:
    """Return the event of the end of all work that this thread gave the device until now."""
    if not is_asynchronous(device):
        return Reached()
    import torch

    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
    event.record(torch.cuda.current_stream(device))
    return event


class HostCopy:
    """The values of a tensor, once `done`.

    Args:
        host: the memory on the CPU in which they arrive.
        event: the event of their arrival.
    """

    def __init__(self, host: torch.Tensor, event: Event) -> None:
        self._host = host
        self._event = event

    @property
    def done(self) -> bool:
        """True once the values are there."""
        return self._event.query()

    def array(self) -> NDArray[Any]:
        """The values; waits for them."""
        self._event.synchronize()
        return self._host.numpy()


def read_later(tensor: torch.Tensor) -> HostCopy:
    """Begin to copy a small result, which later work of the device may overwrite."""
    tensor = tensor.detach()
    if not is_asynchronous(tensor.device):
        return HostCopy(tensor.to("cpu", copy=True), Reached())
    import torch

    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return HostCopy(host, mark_work(tensor.device))


def snapshot(tensor: torch.Tensor, memory: BufferPool) -> HostCopy:
    """Begin to copy a large tensor as it is now, while the device continues its work.

    Args:
        tensor: float32.
        memory: the pool from which the copy of a CPU's tensor comes.
    """
    import torch

    tensor = tensor.detach()
    if not is_asynchronous(tensor.device):
        copy = torch.from_numpy(memory.allocate(tensor.nbytes).view(np.float32))
        copy.view(tensor.shape).copy_(tensor)
        return HostCopy(copy.view(tensor.shape), Reached())
    return _copies_aside(tensor.device).begin(tensor)


class _CopiesAside:
    """Copies of large tensors on a stream of their own.

    What is copied is kept until the copy is done. `Tensor.record_stream` would tell torch's
    allocator to do so; but after a capture that failed it may never free such memory again.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # untyped in torch
        self._kept: list[tuple[torch.Tensor, HostCopy]] = []

    def begin(self, tensor: torch.Tensor) -> HostCopy:
        """Begin to copy a tensor as it is now."""
        import torch

        self._kept = [kept for kept in self._kept if not kept[1].done]
        frozen = tensor.clone()  # on the device, in microseconds: the next step may change it
        self._stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(self._stream):
            copied = read_later(frozen)
        self._kept.append((frozen, copied))
        return copied


@cache
def _copies_aside(device: torch.device) -> _CopiesAside:
    return _CopiesAside(device)


class Pending(Generic[T]):
    """A value that is made when it is first read, of copies that were begun before.

    Args:
        make: makes it; it may wait for the copies.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    @cached_property
    def value(self) -> T:
        """The value."""
        return self._make()


class PendingArrays(Mapping[str, NDArray[Any]]):
    """Arrays by name, made when the first is read."""

    def __init__(self, make: Callable[[], dict[str, NDArray[Any]]]) -> None:
        self._arrays = Pending(make)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays.value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays.value)

    def __len__(self) -> int:
        return len(self._arrays.value)


class DeviceScalars(Mapping[str, float]):
    """Scalars of an optimization step by name; a copy of them is begun, and read when asked for.

    Args:
        names: the names of the scalars.
        values: ``(len(names),)``.
        totals: names of those that add up.
    """

    def __init__(
        self, names: tuple[str, ...], values: torch.Tensor, totals: Collection[str] = ()
    ) -> None:
        self._names = names
        self._totals = totals
        self._copy = read_later(values)

    @property
    def done(self) -> bool:
        """True once reading waits for nothing."""
        return self._copy.done

    @cached_property
    def _scalars(self) -> dict[str, float]:
        values = zip(self._names, self._copy.array().tolist(), strict=True)
        return {name: Total(x) if name in self._totals else x for name, x in values}

    def __getitem__(self, name: str) -> float:
        return self._scalars[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def settled(state: State) -> State:
    """A state without `Pending` leaves: waits for their copies."""
    return {
        name: settled(leaf)
        if isinstance(leaf, dict)
        else leaf.value
        if isinstance(leaf, Pending)
        else leaf
        for name, leaf in state.items()
    }

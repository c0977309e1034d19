"""Captures a step on a CPU as a CUDA graph does on a GPU: by operation and address.

While a step is recorded, what it moves is put back afterwards. A replay calls the same operations
on the same memory, without a line of the step's Python: a decision that was made in Python while it
was recorded is made for ever, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from vedette_rl.agents.captured_step import NotCapturableError

WAITS = ("aten._local_scalar_dense.default", "aten.nonzero.default", "aten.equal.default")
"""Operations whose result Python reads, for which a GPU is waited for."""


class RecordedOperations:
    """A `Capture` on the CPU.

    Args:
        generators: whose random numbers the step draws.
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = (torch.default_generator, *generators)
        self.recorded = 0
        self.replayed = 0

    def warm_up(self, work: Callable[[], None]) -> None:
        work()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        states = [generator.get_state() for generator in self._generators]
        recording = Recording()
        try:
            with recording:
                work()
        finally:
            recording.put_back()
            for generator, state in zip(self._generators, states, strict=True):
                generator.set_state(state)
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            for call in recording.calls:
                call()

        return replay


class Recording(TorchDispatchMode):
    """Records the operations of a block, which it does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []
        self.moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._made: set[int] = set()
        self._alive: list[object] = []  # addresses are given to nobody else

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if str(func) in WAITS:
            raise NotCapturableError(f"{func} waits for the device")
        written = [
            tensor
            for argument, value in _named(func, args, kwargs)
            if _is_written(func, argument)
            for tensor in tree_leaves(value)
        ]
        for tensor in written:
            self._keep(tensor)
        out = func(*args, **kwargs)
        self._alive.append((args, kwargs, out))
        given = {_place(tensor) for tensor in _tensors((args, kwargs))}
        fresh = [tensor for tensor in _tensors(out) if _place(tensor) not in given]
        self._made |= {_place(tensor) for tensor in fresh}
        if fresh or written:  # else it is a view of memory that is there
            bare, bare_kwargs, outputs = tree_map(_without_history, (args, kwargs, fresh))
            self.calls.append(lambda: _again(func, bare, bare_kwargs, outputs))
        return out

    def put_back(self) -> None:
        """Undo what was moved in memory that was there before."""
        for tensor, before in self.moved.values():
            tensor.copy_(before)

    def _keep(self, tensor: torch.Tensor) -> None:
        """Remember what was there before the step."""
        if _place(tensor) not in self._made | self.moved.keys():
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self.moved[_place(tensor)] = whole, whole.clone()


@torch.no_grad()
def _again(func: Any, args: Any, kwargs: Any, fresh: list[torch.Tensor]) -> None:
    out = func(*args, **kwargs)
    if fresh:
        for place, tensor in zip(fresh, _tensors(out), strict=True):
            place.copy_(tensor)


def _without_history(leaf: object) -> object:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _is_written(func: Any, argument: Any) -> bool:
    """Whether an operation writes an argument; of running statistics the schema does not say so."""
    if "batch_norm" in str(func) and argument.name.startswith("running_"):
        return True
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _named(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata

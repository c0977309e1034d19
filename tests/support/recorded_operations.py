"""Records the work of a step on a CPU as a CUDA graph does on a GPU: by operation and address.

What a step moves while it is recorded is put back afterwards. A replay calls the same operations on
the same memory, without a line of the step's Python: a decision that was made in Python while it
was recorded is made for ever, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


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
        written = [
            tensor
            for argument, value in named_arguments(func, args, kwargs)
            if is_written(func, argument)
            for tensor in tree_leaves(value)
        ]
        for tensor in written:
            self._keep(tensor)
        out = func(*args, **kwargs)
        self._alive.append((args, kwargs, out))
        given = {place_of(tensor) for tensor in tensors_in((args, kwargs))}
        fresh = [tensor for tensor in tensors_in(out) if place_of(tensor) not in given]
        self._made |= {place_of(tensor) for tensor in fresh}
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
        if place_of(tensor) not in self._made | self.moved.keys():
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self.moved[place_of(tensor)] = whole, whole.clone()


@torch.no_grad()
def _again(func: Any, args: Any, kwargs: Any, fresh: list[torch.Tensor]) -> None:
    out = func(*args, **kwargs)
    if fresh:
        for place, tensor in zip(fresh, tensors_in(out), strict=True):
            place.copy_(tensor)


def _without_history(leaf: object) -> object:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def is_written(func: Any, argument: Any) -> bool:
    """Whether an operation writes an argument; of running statistics the schema does not say so."""
    if "batch_norm" in str(func) and argument.name.startswith("running_"):
        return True
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def named_arguments(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def tensors_in(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def place_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata

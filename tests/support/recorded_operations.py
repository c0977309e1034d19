"""Records the work of a step on a CPU as a CUDA graph does on a GPU: by operation and address.

What a step moves while it is recorded is put back afterwards. A replay calls the same operations on
the same memory, without a line of the step's Python: a decision that was made in Python while it
was recorded is made for ever, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


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
        written = written_by(func, args, kwargs)
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


def written_by(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operation writes."""
    places, names = _written_arguments(func)
    values = [args[place] for place in places if place < len(args)]
    return tensors_in([*values, *(kwargs[name] for name in names if name in kwargs)])


@cache
def _written_arguments(func: Any) -> tuple[list[int], list[str]]:
    """Places and names of the arguments that an operation writes; of running statistics its schema
    does not say so."""
    written = [
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or ("batch_norm" in str(func) and argument.name.startswith("running_"))
    ]
    return [place for place, _ in written], [name for _, name in written]


def tensors_in(tree: object) -> list[torch.Tensor]:
    """The tensors among arguments or results, in lists and dictionaries, too."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return []
    return [tensor for part in tree for tensor in tensors_in(part)]


def place_of(tensor: torch.Tensor) -> int:
    """The memory that a tensor is a view of."""
    return tensor.untyped_storage()._cdata

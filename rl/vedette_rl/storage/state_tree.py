"""A state taken apart into tensors by path and a tree of JSON, and put together again.

In the tree, an object with one key that begins with ``$`` represents a value that JSON has not:
``{"$tensor": path}``, ``{"$array": path}``, ``{"$tuple": [...]}``, ``{"$float": "nan"}`` and
``{"$dict": [[key, value], ...]}`` for keys that are no plain strings.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


class StateTypeError(TypeError):
    """A leaf of a state is of a type that is not saved."""

    def __init__(self, path: str, leaf: object) -> None:
        super().__init__(f"{path or 'the state'} is a {type(leaf).__name__}, which is not saved")


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor's bytes, with its safetensors dtype and its shape."""

    dtype: str
    shape: list[int]
    data: NDArray[np.uint8]


Leaves = dict[str, TensorData]
OpenTensors = Callable[[str], Any]
"""Opens the tensors with a framework's name (``numpy``, ``pt``), as `safetensors.safe_open`."""


def split_state(state: Any) -> tuple[Any, Leaves]:  # whatever an agent keeps
    """The tree and the tensors by path.

    Raises:
        StateTypeError: names the leaf that is of no type that is saved.
    """
    leaves: Leaves = {}
    return _split(state, "", leaves), leaves


def join_state(tree: Any, open_tensors: OpenTensors) -> Any:
    """The state that `split_state` took apart. torch is imported only if a tensor was saved."""
    frameworks: dict[str, Any] = {}

    def tensor(framework: str, name: str) -> Any:
        if framework not in frameworks:
            frameworks[framework] = open_tensors(framework)
        return frameworks[framework].get_tensor(name)

    return _join(tree, tensor)


def _split(node: Any, path: str, leaves: Leaves) -> Any:  # whatever JSON knows
    match node:
        case None | bool() | int() | str():
            return node
        case np.bool_() | np.integer() | np.floating():
            return _split(node.item(), path, leaves)
        case float():
            return node if math.isfinite(node) else {"$float": str(node)}
        case np.ndarray():
            return {"$array": _keep(node, node.dtype.name, node, path, leaves)}
        case dict():
            return _split_dict(node, path, leaves)
        case list():
            return [_split(inner, f"{path}/{i}", leaves) for i, inner in enumerate(node)]
        case tuple():
            return {"$tuple": _split(list(node), path, leaves)}
    torch = sys.modules.get("torch")  # where it was never imported there are no tensors
    if torch is not None and isinstance(node, torch.Tensor):
        dtype = str(node.dtype).removeprefix("torch.")
        bare = node
        if node.dtype == torch.bfloat16:  # numpy has not all of torch's types, but the bytes of all
            bare = node.contiguous().reshape(-1).view(torch.uint8)
        return {"$tensor": _keep(node, dtype, bare.numpy(force=True), path, leaves)}
    raise StateTypeError(path, node)


def _split_dict(node: dict[Any, Any], path: str, leaves: Leaves) -> Any:
    pairs = [(key, _split(inner, f"{path}/{key}", leaves)) for key, inner in node.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in node):
        return dict(pairs)
    for key in node:
        if not isinstance(key, (str, int)):
            raise StateTypeError(f"{path}: the key {key!r}", key)
    return {"$dict": [[key, inner] for key, inner in pairs]}


def _keep(node: Any, dtype: str, data: NDArray[Any], path: str, leaves: Leaves) -> str:
    if dtype not in _DTYPES:
        raise StateTypeError(path, node)
    name = path.lstrip("/")
    while name in leaves or name in ("", "__metadata__"):  # keys "1" and 1 make one path
        name += "'"
    data = np.ascontiguousarray(data)
    little = data if data.dtype.byteorder != ">" else data.astype(data.dtype.newbyteorder("<"))
    shape = [int(size) for size in node.shape]
    leaves[name] = TensorData(_DTYPES[dtype], shape, little.reshape(-1).view(np.uint8))
    return name


def _join(node: Any, tensor: Callable[[str, str], Any]) -> Any:
    match node:
        case list():
            return [_join(inner, tensor) for inner in node]
        case {"$array": str(name)}:
            return tensor("numpy", name)
        case {"$tensor": str(name)}:
            return tensor("pt", name)
        case {"$tuple": list(inner)}:
            return tuple(_join(item, tensor) for item in inner)
        case {"$float": str(text)}:
            return float(text)
        case {"$dict": list(pairs)}:
            return {key: _join(inner, tensor) for key, inner in pairs}
        case dict():
            return {key: _join(inner, tensor) for key, inner in node.items()}
        case _:
            return node

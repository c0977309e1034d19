"""States on disk: written atomically, verified when read, and never unpickled.

A state is a dict of dicts. Its tensors and arrays go into ``state.safetensors`` under their paths
(``optimizer/state/0/exp_avg``); all the rest of it is JSON in that file's metadata, so that one
rename makes the whole of it visible. ``meta.json`` beside it is a copy for people to read.

In that JSON, an object with one key that begins with ``$`` represents a value that JSON has not:
``{"$tensor": path}``, ``{"$array": path}``, ``{"$tuple": [...]}``, ``{"$float": "nan"}`` and
``{"$dict": [[key, value], ...]}`` for keys that are no plain strings.

::

    write_state(run / "best", {"model": arrays}, {"version": 70})
    state, meta = read_state(run / "best")
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import mmap
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vedette_rl.core import State
from vedette_rl.errors import CheckpointError, CheckpointFormatError
from vedette_rl.storage.atomic_files import replacing, sync_directory
from vedette_rl.storage.regular_files import open_regular, parse_json
from vedette_rl.storage.system import sync_file
from vedette_rl.storage.unfinished import remove_unfinished
from vedette_rl.storage.write_errors import describe_write_error

STATE_FILE = "state.safetensors"
META_FILE = "meta.json"
FORMAT = 2
_PARTS_MAX = 1024  # of one gathered write: Linux's IOV_MAX

Parts = list[memoryview]
"""A file's bytes, piece after piece."""

Throttle = Callable[[], None]
"""Called between two pieces of a write, to let what runs beside it have the processor."""


def no_throttle() -> None:
    """Does not wait."""


def write_state(
    directory: str | Path, state: State, meta: Mapping[str, Any], throttle: Throttle = no_throttle
) -> None:
    """Write `state` into `directory` atomically: a reader sees it whole, or what was there before.

    It is on the disk when this returns.

    Args:
        directory: made if it is not there, as is the folder around it, and no other; one that is
            there keeps its other files.
        state: leaves are tensors, arrays, numbers, strings, booleans or None.
        meta: facts about it in JSON's types.
        throttle: see `Throttle`.

    Raises:
        CheckpointError: the disk is full, the directory read-only, or a leaf is of another type.
            What was there before is still there.
    """
    directory = Path(directory)
    try:
        files = _files(state, meta)
    except (TypeError, ValueError) as e:
        raise CheckpointError(directory, "write", str(e)) from e
    throttle()
    try:
        if directory.is_dir():
            _write_into(directory, files, throttle)
        else:
            _write_new(directory, files, throttle)
    except OSError as e:
        raise CheckpointError(directory, "write", describe_write_error(e, directory)) from e


def read_state(directory: str | Path) -> tuple[State, dict[str, Any]]:
    """The state and meta in `directory`. Tensors are on the CPU.

    Raises:
        CheckpointError: there is none, or it is torn or foreign.
    """
    path = Path(directory) / STATE_FILE
    with _raise_as_unreadable(path):
        metadata = _whole_metadata(path)
        tree, meta = parse_json(metadata["state"]), parse_json(metadata["meta"])
        state = _join(tree, functools.cache(functools.partial(safe_open, path)))
    if not isinstance(state, dict) or not isinstance(meta, dict):
        raise CheckpointError(path, "read", "it is torn or foreign (no state in it)")
    return state, meta


def check_state(directory: str | Path) -> dict[str, Any]:
    """Verify that the state in `directory` is what was written, without making its tensors; return
    its meta.

    Raises:
        CheckpointError: as `read_state`.
    """
    path = Path(directory) / STATE_FILE
    with _raise_as_unreadable(path):
        meta: dict[str, Any] = parse_json(_whole_metadata(path)["meta"])
    return meta


@contextlib.contextmanager
def _raise_as_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as e:  # the second is torch's, of a file that it cannot open
        raise CheckpointError(path, "read", getattr(e, "strerror", None) or str(e)) from e
    except (SafetensorError, ValueError, KeyError, TypeError) as e:
        raise CheckpointError(path, "read", f"it is torn or foreign ({e})") from e


def _whole_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file's header, after the checksum of all bytes was verified."""
    with open_regular(path):  # it may be none, and no other library asks
        pass
    with safe_open(path, framework="numpy") as file:
        metadata: dict[str, str] = file.metadata() or {}
    written = metadata.get("format")
    if written is None or not (written.isascii() and written.isdecimal()):
        raise CheckpointError(path, "read", f"its format is {written!r}")
    if int(written) != FORMAT:
        raise CheckpointFormatError(path, int(written), FORMAT)
    if metadata["crc32"] != _digest_of_file(path, metadata):
        raise CheckpointError(path, "read", "it is damaged: its bytes are not what was written")
    return metadata


def _write_new(directory: Path, files: dict[str, Parts], throttle: Throttle) -> None:
    # Not its parents: a run that was renamed meanwhile must not get a second place.
    directory.parent.mkdir(exist_ok=True)
    with replacing(directory) as aside:
        aside.mkdir()
        for name, parts in files.items():
            _write_file(aside / name, parts)
            throttle()
        sync_directory(aside)
    sync_directory(directory.parent)
    throttle()


def _write_into(directory: Path, files: dict[str, Parts], throttle: Throttle) -> None:
    remove_unfinished(directory)
    for name, parts in files.items():
        with replacing(directory / name) as aside:
            _write_file(aside, parts)
        throttle()
    sync_directory(directory)


def _files(state: State, meta: Mapping[str, Any]) -> dict[str, Parts]:
    """The contents of a checkpoint by file; the state first."""
    leaves: Leaves = {}
    tree = _split(state, "", leaves)
    pairs = [f"{json.dumps(str(key))}: {json.dumps(value)}" for key, value in meta.items()]
    metadata = {
        "format": str(FORMAT),
        "state": json.dumps(tree),
        "meta": "{" + ", ".join(pairs) + "}",
    }
    metadata["crc32"] = _digest(metadata, [leaf.data.data for leaf in leaves.values()])
    readable = "{\n  " + ",\n  ".join(pairs) + "\n}\n"
    return {STATE_FILE: _safetensors(leaves, metadata), META_FILE: [memoryview(readable.encode())]}


def _safetensors(leaves: Leaves, metadata: dict[str, str]) -> Parts:
    """The format of github.com/huggingface/safetensors: u64 length of the header, the header in
    JSON, the data. Written here because the library would copy all data once more, and reports a
    full disk in its own words."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, leaf in leaves.items():
        begin, end = end, end + leaf.data.nbytes
        offsets = [begin, end]
        header[name] = {"dtype": leaf.dtype, "shape": leaf.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return [memoryview(head), *(leaf.data.data for leaf in leaves.values())]


def _digest(metadata: Mapping[str, str], parts: Parts) -> str:
    """Return the checksum of all that a reader takes for numbers: a flipped bit changes those."""
    checksum = zlib.crc32((metadata["state"] + metadata["meta"]).encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}"


def _digest_of_file(path: Path, metadata: Mapping[str, str]) -> str:
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        data = memoryview(whole)[8 + int.from_bytes(whole[:8], "little") :]
        try:
            return _digest(metadata, [data])
        finally:
            data.release()  # or the map cannot be closed


def _write_file(path: Path, parts: Parts) -> None:
    """All of it is on the disk when this returns.

    A training loop beside it waits whenever this thread has the interpreter, so the whole file is
    one call of the system and no Python between its tensors.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while parts:
            parts = _remaining_parts(parts, os.writev(descriptor, parts[:_PARTS_MAX]))
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _remaining_parts(parts: Parts, written: int) -> Parts:
    """The rest of `parts` beyond the first `written` bytes."""
    for place, part in enumerate(parts):
        if written < part.nbytes:
            return [part[written:], *parts[place + 1 :]]
        written -= part.nbytes
    return []


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
"""Tensors by path."""


def _split(node: Any, path: str, leaves: Leaves) -> Any:  # whatever JSON knows
    """The tree of a state; its tensors and arrays are added to `leaves`."""
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


def _join(node: Any, tensors: Callable[[str], Any]) -> Any:
    """The state of a tree. `tensors` opens the file for a framework: torch is imported only if a
    tensor was saved."""
    match node:
        case list():
            return [_join(inner, tensors) for inner in node]
        case {"$array": str(name)}:
            return tensors("numpy").get_tensor(name)
        case {"$tensor": str(name)}:
            return tensors("pt").get_tensor(name)
        case {"$tuple": list(inner)}:
            return tuple(_join(item, tensors) for item in inner)
        case {"$float": str(text)}:
            return float(text)
        case {"$dict": list(pairs)}:
            return {key: _join(inner, tensors) for key, inner in pairs}
        case dict():
            return {key: _join(inner, tensors) for key, inner in node.items()}
        case _:
            return node

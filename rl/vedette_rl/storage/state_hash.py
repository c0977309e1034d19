"""A hash of a state, a dict of dicts: equal where every leaf is, bit by bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

HASH_BYTES = 16


def hash_state(state: Mapping[str, Any]) -> bytes:
    """Hash path, dtype, shape and bytes of each leaf, in the order of the paths.

    Args:
        state: leaves are tensors, arrays, numbers, strings, booleans, None or tuples of these; a
            tensor and an array of the same values have the same hash.
    """
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for path, leaf in sorted(_leaves(state, ()), key=lambda item: item[0]):
        digest.update(repr(path).encode())
        for part in _parts(leaf):
            digest.update(part)
    return digest.digest()


def _leaves(
    state: Mapping[Any, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not state:
        yield path, "{}"
    for name, value in state.items():
        inner = (*path, str(name))
        if isinstance(value, Mapping):
            yield from _leaves(value, inner)
        else:
            yield inner, value


def _parts(leaf: Any) -> Iterator[Any]:  # of bytes
    if hasattr(leaf, "detach"):
        import torch  # not for who hashes arrays alone

        whole = leaf.detach().cpu().contiguous()
        dtype = str(leaf.dtype).removeprefix("torch.")
        yield f"{dtype}{list(leaf.shape)}".encode()
        yield whole.view(-1).view(torch.uint8).numpy().data if whole.numel() else b""
    elif isinstance(leaf, np.ndarray):
        yield f"{leaf.dtype}{list(leaf.shape)}".encode()
        yield np.ascontiguousarray(leaf).view(np.uint8).data if leaf.size else b""
    elif isinstance(leaf, np.generic):
        yield from _parts(leaf.item())
    else:
        yield f"{type(leaf).__name__} {leaf!r}".encode()

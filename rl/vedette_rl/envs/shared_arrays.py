"""Finds environments whose instances give one and the same array.

A simulator with one buffer for all that it makes, of its class or its C library, writes over what
another instance gave a moment before: of eight environments that are stepped and then read, all
show the last one. What they give is copied before the next is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np


def share_memory(given: Sequence[Any]) -> bool:
    """True if two of these values, each of another environment, have an array in the same memory.

    Args:
        given: observations or results of steps, of any nesting.
    """
    places: set[int] = set()
    for value in given:
        own = set(_places(value))
        if own & places:
            return True
        places |= own
    return False


def _places(value: Any) -> Iterator[int]:
    """Addresses of arrays; a list of numbers is one, too."""
    if isinstance(value, np.ndarray):
        if value.size:
            yield value.__array_interface__["data"][0]
    elif _is_tensor(value):
        yield value.data_ptr()
    elif isinstance(value, dict):
        yield from _places_of(value.values())
    elif isinstance(value, tuple):
        yield from _places_of(value)
    elif isinstance(value, list):
        yield id(value)
        yield from _places_of(value)


def _places_of(values: Iterable[Any]) -> Iterator[int]:
    for value in values:
        yield from _places(value)


def copied(value: Any) -> Any:
    """The value with copies of its arrays."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if _is_tensor(value):
        return value.clone()
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(copied(inner) for inner in value)
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value


def _is_tensor(value: Any) -> bool:
    """True for torch's, which is not imported for this."""
    return type(value).__module__ == "torch" and hasattr(value, "data_ptr")

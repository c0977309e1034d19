"""Arrays in nested dictionaries, as JAX has weights, and by one name each, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette_rl.errors import NestedArraysError

SEPARATOR = "/"
"""Between the keys of an array's name."""


def flatten_arrays(arrays: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return arrays by one name each: ``{"dense": {"kernel": k}}`` is ``{"dense/kernel": k}``.

    Raises:
        NestedArraysError: a key is no text, or two arrays have one name.
    """
    flat: dict[str, Any] = {}
    for key, value in arrays.items():
        if not isinstance(key, str):
            raise NestedArraysError(f"the key {key!r} below {prefix or 'the top'!r} is no text")
        name = f"{prefix}{key}"
        found = {name: value}
        if isinstance(value, Mapping):
            found = flatten_arrays(value, f"{name}{SEPARATOR}")
        for each, array in found.items():
            if each in flat:
                raise NestedArraysError(f"two arrays are called {each!r}")
            flat[each] = array
    return flat


def nest_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays in nested dictionaries: what `flatten_arrays` was given."""
    nested: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split(SEPARATOR)
        here = nested
        for key in path:
            here = here.setdefault(key, {})
        here[last] = array
    return nested

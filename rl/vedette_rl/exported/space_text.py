"""Gymnasium's spaces as JSON, and back."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.errors import SpaceLayoutError

Text = dict[str, Any]
"""Of JSON's types."""


def space_to_json(space: gym.Space[Any]) -> Text:
    """A space as JSON.

    Raises:
        SpaceLayoutError: it is of a kind that agents do not take.
    """
    match space:
        case gs.Box():
            return {
                "kind": "Box",
                "dtype": np.dtype(space.dtype).str,
                "shape": list(space.shape),
                "low": _bounds_to_json(space.low),
                "high": _bounds_to_json(space.high),
            }
        case gs.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case gs.MultiDiscrete():
            start = np.asarray(space.start)
            return {
                "kind": "MultiDiscrete",
                "nvec": space.nvec.tolist(),
                "start": start.tolist(),
            }
        case gs.MultiBinary():
            return {"kind": "MultiBinary", "n": np.asarray(space.n).tolist()}
        case gs.Dict():
            inner = [[str(key), space_to_json(part)] for key, part in space.spaces.items()]
            return {"kind": "Dict", "spaces": inner}
        case gs.Tuple():
            return {"kind": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
        case _:
            raise SpaceLayoutError("exported", space, "it has no text")


def space_from_json(text: Text) -> gym.Space[Any]:
    """The space that `space_to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    match text["kind"]:
        case "Box":
            dtype, shape = np.dtype(text["dtype"]), tuple(text["shape"])
            if dtype.kind not in "fiub":
                raise ValueError(f"a Box of {dtype}")
            low, high = (_bounds_from_json(text[end], shape, dtype) for end in ("low", "high"))
            return gs.Box(low, high, shape, dtype.type)
        case "Discrete":
            return gs.Discrete(int(text["n"]), start=int(text["start"]))
        case "MultiDiscrete":
            return gs.MultiDiscrete(np.array(text["nvec"]), start=np.array(text["start"]))
        case "MultiBinary":
            return gs.MultiBinary(text["n"])
        case "Dict":
            parts = [(str(key), space_from_json(part)) for key, part in text["spaces"]]
            return gs.Dict(OrderedDict(parts))  # any other mapping is sorted
        case "Tuple":
            return gs.Tuple([space_from_json(part) for part in text["spaces"]])
        case kind:
            raise ValueError(f"a space of kind {kind!r}")


def _bounds_to_json(bounds: NDArray[Any]) -> Any:  # a number or text, or a list of them
    """One number where all are the same: an image's bounds are as large as the image."""
    if bounds.size and (bounds == bounds.flat[0]).all():
        return _number(bounds.flat[0].item())
    return [_number(bound.item()) for bound in bounds.flat]


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)  # JSON knows no infinity


def _bounds_from_json(found: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if isinstance(found, list):
        numbers = [float(x) if isinstance(x, str) else x for x in found]
        return np.array(numbers, dtype).reshape(shape)
    return np.full(shape, float(found) if isinstance(found, str) else found, dtype)

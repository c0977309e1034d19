"""Spaces as JSON: for files, and for processes that are handed the spaces of an environment.

Nothing is executed when they are read: a space of a custom class comes back as the kind
of Gymnasium's that it is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import SpaceLayoutError

_SPACE_MAX = 2**26  # numbers: a file of a few bytes must not fill the memory

Text = dict[str, Any]
"""A space as JSON."""


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
            size = {"n": int(space.n), "start": int(space.start)}
            return {"kind": "Discrete", **size, **_dtype_to_json(space)}
        case gs.MultiDiscrete():
            start = np.asarray(space.start)
            return {
                "kind": "MultiDiscrete",
                "nvec": space.nvec.tolist(),
                "start": start.tolist(),
                **_dtype_to_json(space),
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
            dtype = np.dtype(text["dtype"])
            shape = tuple(map(int, text["shape"]))
            if math.prod(shape) > _SPACE_MAX:
                raise ValueError(f"a Box of {math.prod(shape):,} numbers")
            if dtype.kind not in "fiub":
                raise ValueError(f"a Box of {dtype}")
            low, high = (_bounds_from_json(text[end], shape, dtype) for end in ("low", "high"))
            return gs.Box(low, high, shape, dtype.type)
        case "Discrete":
            return gs.Discrete(int(text["n"]), start=int(text["start"]), **_dtype_from_json(text))
        case "MultiDiscrete":
            start = np.array(text["start"])
            return gs.MultiDiscrete(np.array(text["nvec"]), start=start, **_dtype_from_json(text))
        case "MultiBinary":
            if np.prod(text["n"], dtype=np.float64) > _SPACE_MAX:
                raise ValueError(f"a MultiBinary of {text['n']}")
            return gs.MultiBinary(text["n"])
        case "Dict":
            parts = [(str(key), space_from_json(part)) for key, part in text["spaces"]]
            return gs.Dict(OrderedDict(parts))  # any other mapping is sorted
        case "Tuple":
            return gs.Tuple([space_from_json(part) for part in text["spaces"]])
        case kind:
            raise ValueError(f"a space of kind {kind!r}")


def _dtype_to_json(space: gym.Space[Any]) -> Text:
    """The dtype where it is not the usual one; versions of Gymnasium that have none take none."""
    dtype = np.dtype(space.dtype)
    return {} if dtype == np.int64 else {"dtype": dtype.str}


def _dtype_from_json(text: Text) -> Any:  # the argument, where there is one
    if "dtype" not in text:
        return {}
    dtype = np.dtype(text["dtype"])
    if dtype.kind not in "iu":
        raise ValueError(f"a space of whole numbers of {dtype}")
    return {"dtype": dtype.type}


def _bounds_to_json(bounds: NDArray[Any]) -> Any:  # a number or text, or a list of them
    """One number where all are the same: an image's bounds are as large as the image."""
    if bounds.dtype.kind == "f":
        bounds = bounds.astype(np.float64)  # a long double's item() is no float of Python
    if bounds.size and (bounds == bounds.flat[0]).all():
        return _number(bounds.flat[0].item())
    return [_number(bound.item()) for bound in bounds.flat]


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)  # JSON knows no infinity


def _bounds_from_json(bounds: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if isinstance(bounds, list):
        numbers = [float(x) if isinstance(x, str) else x for x in bounds]
        return np.array(numbers, dtype).reshape(shape)
    return np.full(shape, float(bounds) if isinstance(bounds, str) else bounds, dtype)


def spaces_to_json(spaces: Spaces) -> Text:
    """The spaces of an environment, as agents see them, as JSON.

    Raises:
        SpaceLayoutError: a part is of a kind that agents do not take.
    """
    return {
        "observation": space_to_json(spaces.observation),
        "action": space_to_json(spaces.action),
        "stack": spaces.stack,
    }


def spaces_from_json(text: Text) -> Spaces:
    """The spaces that `spaces_to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    observation, action = (space_from_json(text[part]) for part in ("observation", "action"))
    # A custom policy may draw from it: runs of one seed stay the same.
    action.seed(0)
    return Spaces(observation, action, int(text["stack"]))

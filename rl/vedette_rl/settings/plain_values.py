"""Values given in Python, as a configuration file has them."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, JsonValue

_KINDS = "a configuration file has numbers, texts, true and false, lists and tables"


class NotPlainError(ValueError):
    """No configuration file can say a value.

    Args:
        path: the keys and places that lead to it within what was given; empty for all of it.
        why: what it is.
        fix: what to give in its place.
    """

    def __init__(self, path: tuple[str, ...], why: str, fix: str) -> None:
        super().__init__(f"{' '.join(filter(None, ['.'.join(path), why]))}: {fix}")
        self.path = path
        self.why = why
        self.fix = fix


def plain_value(value: Any, path: tuple[str, ...] = ()) -> Any:  # any value of a user's program
    """Return a value as a configuration file has it: a scalar of numpy as Python's, a tuple as a
    list, a path or a date as a text, settings as a table. None is returned as it is.

    Args:
        path: the keys and places that lead to it, for errors.

    Raises:
        NotPlainError: there is no such form.
    """
    match value:
        case np.generic() if type(value.item()) is not type(value):
            return plain_value(value.item(), path)
        case None | bool() | int() | float() | str():
            return value
        case os.PathLike():
            return os.fspath(value)
        case datetime.date() | datetime.time():
            return str(value)
        case BaseModel():
            return value.model_dump(mode="json", exclude_unset=True)
        case list() | tuple():
            return [plain_value(each, (*path, str(place))) for place, each in enumerate(value)]
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise NotPlainError(path, f"has the key {key!r}", f"write it as '{key}'")
            return {key: plain_value(each, (*path, key)) for key, each in value.items()}
        case np.ndarray():
            what = f"is an array of {value.dtype}, {value.shape}"
            raise NotPlainError(path, what, "give its .tolist()")
    raise NotPlainError(path, f"is {value!r}, of type {type(value).__name__}", _KINDS)


def _leaves(given: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # any JSON
    """Yield each value within tables and lists, and its place."""
    inner = given.items() if isinstance(given, dict) else ()
    if not isinstance(given, (dict, list)):
        yield path, given
    for key, value in enumerate(given) if isinstance(given, list) else inner:
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def refuse_none(given: Any, path: str) -> None:  # any JSON
    """Refuse a None, which no configuration file can say.

    Raises:
        ValueError: names its place.
    """
    for place, value in _leaves(given, path):
        if value is None:
            raise ValueError(f"{place!r} is None, which no configuration file has: leave it out")


def _plain_kwargs(given: Any) -> Any:  # whatever was given; pydantic checks what comes out
    """Arguments as a configuration file has them.

    A nan, which equals nothing, would be a change of the settings at each resume; and nobody means
    it who types the word.
    """
    plain = plain_value(given)
    for place, value in _leaves(plain):
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{place!r} is read as the number nan; write '\"nan\"' for the word")
    return plain


Kwargs = Annotated[dict[str, JsonValue], BeforeValidator(_plain_kwargs)]
"""What code of the user is given by name: numbers, texts, truth values, lists and tables."""


def _expand_home(given: Any) -> Any:  # whatever was given; pydantic checks what comes out
    """A path with the user's home in place of ``~``, which no shell replaces behind a ``=``, and
    nobody in a file."""
    is_home = isinstance(given, str) and (given == "~" or given.startswith("~/"))
    return os.path.expanduser(given) if is_home else given  # noqa: PTH111 - it may be no path


PlacePath = Annotated[str, BeforeValidator(_expand_home)]
"""The path of a file or folder on the host that reads it."""


def user_path(given: str | os.PathLike[str]) -> Path:
    """A path that a program is given, with the user's home in place of ``~``: every function for
    users that takes a path reads it by this."""
    return Path(_expand_home(os.fspath(given)))

"""Reading a map that a peer sent: every key taken once, with its type and range, and none left.

fields = Fields(unpack(frame, HEADER_MAX_BYTES), "the header")
seq = fields.integer("seq", 0, COUNT_MAX)
fields.end()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from vedette_protocol.errors import MalformedError
from vedette_protocol.limits import DEPTH_MAX, TEXT_MAX_CHARS
from vedette_protocol.topics import is_id

T = TypeVar("T", bound=str)
V = TypeVar("V")

_HEX = frozenset("0123456789abcdef")


class Fields:
    """The keys of one map that were not read yet."""

    __slots__ = ("_left", "_where")

    def __init__(self, value: object, where: str) -> None:
        if type(value) is not dict:
            raise MalformedError(f"{where} is {type(value).__name__}, expected a map")
        self._left = dict(value)
        self._where = where

    def pop(self, key: str) -> object:
        """The value of `key`, whatever it is."""
        try:
            return self._left.pop(key)
        except KeyError:
            raise MalformedError(f"{self._where} has no {key!r}") from None

    def integer(self, key: str, low: int, high: int) -> int:
        """An integer in [low, high]; a boolean is none."""
        value = self.pop(key)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(key, value, f"an integer in [{low}, {high}]")
        return value

    def number(self, key: str) -> float | None:
        """A finite float, or None."""
        value = self.pop(key)
        if value is None or (type(value) is float and math.isfinite(value)):
            return value
        raise self._wrong(key, value, "a finite float or nil")

    def boolean(self, key: str) -> bool:
        """True or False."""
        value = self.pop(key)
        if type(value) is not bool:
            raise self._wrong(key, value, "a boolean")
        return value

    def text(self, key: str) -> str:
        """A text of at most 200 characters."""
        value = self.pop(key)
        if type(value) is not str or len(value) > TEXT_MAX_CHARS:
            raise self._wrong(key, value, f"a text of at most {TEXT_MAX_CHARS} characters")
        return value

    def id(self, key: str) -> str:
        """The id of a manager or a run."""
        value = self.pop(key)
        if type(value) is not str or not is_id(value):
            raise self._wrong(key, value, "an id")
        return value

    def id_or_none(self, key: str) -> str:
        """An id, or "" for none."""
        value = self.pop(key)
        if type(value) is not str or (value != "" and not is_id(value)):
            raise self._wrong(key, value, 'an id or ""')
        return value

    def hash(self, key: str) -> str:
        """A schema's hash."""
        value = self.pop(key)
        if type(value) is not str or len(value) != 16 or not _HEX.issuperset(value):
            raise self._wrong(key, value, "16 hexadecimal digits")
        return value

    def binary(self, key: str, low: int, high: int) -> bytes:
        """Binary of `low` to `high` bytes."""
        value = self.pop(key)
        if type(value) is not bytes or not low <= len(value) <= high:
            raise self._wrong(key, value, f"binary of {low} to {high} bytes")
        return value

    def choice(self, key: str, among: tuple[T, ...]) -> T:
        """One of these words."""
        value = self.pop(key)
        for word in among:
            if type(value) is str and value == word:
                return word
        raise self._wrong(key, value, "one of " + ", ".join(among))

    def items(self, key: str, read: Callable[[object], V], limit: int) -> tuple[V, ...]:
        """A list of at most `limit` things, each read by `read`."""
        value = self.pop(key)
        if type(value) is not list or len(value) > limit:
            raise self._wrong(key, value, f"a list of at most {limit}")
        return tuple(read(item) for item in value)

    def settings(self, key: str) -> dict[str, Any]:  # Any: JSON-able, checked by whose it is
        """A map of JSON-able settings."""
        value = self.pop(key)
        if type(value) is not dict:
            raise self._wrong(key, value, "a map")
        check_settings(value, f"{self._where}'s {key!r}")
        return value

    def end(self) -> None:
        """Nothing may be left."""
        if self._left:
            raise MalformedError(f"{self._where} has unknown keys {list(self._left)!r}"[:300])

    def end_header(self) -> None:
        """Nothing but version and kind, which the decoder has seen, may be left."""
        self.pop("v")
        self.pop("k")
        self.end()

    def _wrong(self, key: str, value: object, expected: str) -> MalformedError:
        return MalformedError(
            f"{self._where}'s {key!r} is {format_value(value)}, expected {expected}"
        )


def format_value(value: object) -> str:
    """A peer's value for a message, whatever its size."""
    if isinstance(value, (list, dict)) or (isinstance(value, (str, bytes)) and len(value) > 40):
        return f"{type(value).__name__} of length {len(value)}"
    return repr(value)[:80]


def check_settings(value: object, where: str, depth: int = 0) -> None:
    """Refuse what JSON could not hold.

    Raises:
        MalformedError: a key that is no string, a value of another type, or nested too deep.
    """
    if depth > DEPTH_MAX:
        raise MalformedError(f"{where} is nested deeper than {DEPTH_MAX}")
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str:
                raise MalformedError(f"{where} has the key {format_value(key)}, expected a string")
            check_settings(inner, where, depth + 1)
    elif type(value) is list:
        for inner in value:
            check_settings(inner, where, depth + 1)
    elif value is not None and type(value) not in (str, int, float, bool):
        raise MalformedError(f"{where} holds {format_value(value)}, which is not JSON")

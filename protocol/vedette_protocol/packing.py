"""Packing and unpacking of msgpack, with limits that hold whatever a peer sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]  # it ships no types

from vedette_protocol.errors import MalformedError
from vedette_protocol.limits import COLUMNS_MAX, HEADER_MAX_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A frame's bytes. Never written after they were handed over."""

pack: Final[Callable[[object], bytes]] = msgpack.packb
"""Pack a value in msgpack."""


def unpack(frame: Buffer, max_bytes: int) -> Any:  # Any: a peer's value, of any msgpack type
    """Unpack the one msgpack value in `frame`. Its maps have no key twice.

    Raises:
        MalformedError: the frame is too long, or does not hold exactly that.
    """
    if len(frame) > max_bytes:
        raise MalformedError(f"a frame of {len(frame)} bytes, expected no more than {max_bytes}")
    try:
        return msgpack.unpackb(
            frame,
            object_pairs_hook=_unique,
            max_ext_len=0,
            max_array_len=COLUMNS_MAX,
            max_map_len=COLUMNS_MAX,
        )
    except MalformedError:
        raise
    # msgpack raises ValueError, TypeError, OverflowError, UnicodeDecodeError and its own kinds
    except Exception as error:
        raise MalformedError(f"not msgpack: {type(error).__name__}: {error}"[:300]) from error


def unpack_header(frame: Buffer) -> dict[str, Any]:  # Any: a peer's values, checked by each reader
    """Unpack the flat map in a header frame, which has no key twice.

    Raises:
        MalformedError: the frame is too long, or does not hold exactly that.
    """
    size = len(frame)
    if not 0 < size <= HEADER_MAX_BYTES:
        raise MalformedError(f"a header has 1 to {HEADER_MAX_BYTES} bytes, got {size}")
    try:
        header = msgpack.unpackb(
            frame, max_ext_len=0, max_array_len=0, max_map_len=32, max_bin_len=256
        )
    except Exception as error:
        raise MalformedError(f"not msgpack: {type(error).__name__}: {error}"[:300]) from error
    if type(header) is not dict:
        raise MalformedError(f"the header is {type(header).__name__}, expected a map")
    # msgpack keeps the last of two equal keys silently; the count it announced gives them away
    first = frame[0]
    pairs = first & 0x0F if first <= 0x8F else int.from_bytes(frame[1:3], "big")
    if first == 0xDF or len(header) != pairs:
        raise MalformedError("the header has the same key twice, or announces too many")
    return header


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MalformedError("a map has the same key twice")
    return fields

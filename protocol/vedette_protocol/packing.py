"""The door to msgpack: frames in, plain values out, whatever a peer put into the frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no types

from vedette_protocol.errors import MalformedError
from vedette_protocol.limits import COLUMNS_MAX, HEADER_MAX_BYTES, PROTOCOL_VERSION, TEXT_MAX_CHARS
from vedette_protocol.messages import Buffer

pack: Final[Callable[[object], bytes]] = msgpack.packb
"""A value's msgpack."""


def unpack(frame: Buffer, max_bytes: int) -> Any:  # Any: a peer's value, of any msgpack type
    """The one msgpack value in `frame`, its maps without duplicate keys.

    Raises:
        MalformedError: the frame is too long, or holds anything else.
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
    """The flat map in a header frame, without duplicate keys. Fast: one a batch.

    Raises:
        MalformedError: the frame is too long, or holds anything else.
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


def pack_header(kind: str, fields: Mapping[str, object]) -> bytes:
    """The header of a message of this kind."""
    return pack({"v": PROTOCOL_VERSION, "k": kind, **fields})


def clip_text(text: str) -> str:
    """The first 200 characters of `text`, fit for the wire."""
    # A lone surrogate (a file name, a traceback) has no UTF-8; it must not stop a report
    return text[:TEXT_MAX_CHARS].encode("utf-8", "replace").decode()


def check_frame_size(frame: Buffer, limit: int, what: str) -> Buffer:
    """The frame itself.

    Raises:
        MalformedError: it is longer than `limit` bytes.
    """
    if len(frame) > limit:
        raise MalformedError(f"a {what} of {len(frame)} bytes, expected no more than {limit}")
    return frame


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MalformedError("a map has the same key twice")
    return fields

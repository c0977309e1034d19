"""The format of an outbox's files.

A *segment* is the magic, then records: length (4 bytes), CRC-32 (4) of what follows, content. The
first record is the segment's header, a msgpack map; each other one is a batch: its numbers
(`_NUMBERS`), then its payload. Little-endian. A reader passes over a damaged record, and ends where
none can be.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no types

from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_protocol.packing import Buffer

MAGIC: Final = b"VedetteOutbox"
FORMAT: Final = b"\x01"
_FRAME: Final = struct.Struct("<II")
_NUMBERS: Final = struct.Struct("<QIIQQIQQ")
_BEGIN: Final = len(MAGIC) + len(FORMAT)
RECORD_BYTES: Final = _FRAME.size + _NUMBERS.size
"""Bytes of a batch's record beside its payload."""


class Numbers(NamedTuple):
    """What a batch's record has beside the payload.

    Args:
        produced, dropped: rows of the session up to this batch, this one included; the sums make
            the accounting of a session exact whose process has ended.
    """

    seq: int
    actor: int
    epoch: int
    version: int
    env_steps: int
    rows: int
    produced: int
    dropped: int


class SegmentHeader(NamedTuple):
    """The session that a segment belongs to, and what it had before.

    Args:
        manager: the id under which the session was begun.
        run_id, schema: of the rows.
        session: the incarnation.
        end: the next number, of the session before this segment.
        produced, dropped: rows of the session before this segment.
    """

    manager: str
    run_id: str
    schema: str
    session: int
    end: int
    produced: int
    dropped: int


class Record(NamedTuple):
    """A whole record of a batch in a segment's bytes.

    Args:
        offset: of the payload in the file.
        size: of the payload.
    """

    numbers: Numbers
    offset: int
    size: int


class Segment(NamedTuple):
    """What a reader finds in a segment.

    Args:
        header: None: not even that is whole.
        whole_until: the first byte that belongs to no whole record.
        left_out: the number of such bytes.
    """

    header: SegmentHeader | None
    records: list[Record]
    whole_until: int = 0
    left_out: int = 0


def encode_header(header: SegmentHeader) -> bytes:
    """Make the beginning of a segment."""
    content: bytes = msgpack.packb(header._asdict())
    return MAGIC + FORMAT + _FRAME.pack(len(content), zlib.crc32(content)) + content


def encode_numbers(numbers: Numbers, payload: Buffer) -> bytes:
    """Make a batch's record, but for the payload, which follows it."""
    content = _NUMBERS.pack(*numbers)
    crc = zlib.crc32(payload, zlib.crc32(content))
    return _FRAME.pack(len(content) + len(payload), crc) + content


def is_foreign(data: bytes) -> bool:
    """Return whether this file is of a format that is not known here. One that a power failure has
    left with zeros, or cut short, is of none."""
    number = data[len(MAGIC) : _BEGIN]
    return data.startswith(MAGIC) and number not in (FORMAT, b"", b"\0")


def read_segment(data: bytes) -> Segment:
    """Read the records of a segment that are whole.

    What is missing between two of them is known by the sums of the later one.
    """
    contents = _contents(data)
    first = next(contents, None)
    header = None if first is None else _read_header(bytes(memoryview(data)[first[0] : first[1]]))
    if first is None or header is None:
        return Segment(None, [])
    records = []
    whole = whole_until = first[1]
    for begin, end in contents:
        if end - begin <= _NUMBERS.size:
            break
        numbers = Numbers(*_NUMBERS.unpack_from(data, begin))
        offset = begin + _NUMBERS.size
        records.append(Record(numbers, offset, end - offset))
        if begin - _FRAME.size == whole_until:
            whole_until = end
        whole += end - begin + _FRAME.size
    return Segment(header, records, whole_until, len(data) - whole)


def is_whole(data: bytes, payload_bytes: int) -> bool:
    """Return whether these are the bytes of one batch's record with a payload of this size."""
    if len(data) != RECORD_BYTES + payload_bytes:
        return False
    length: int
    crc: int
    length, crc = _FRAME.unpack_from(data)
    return length == len(data) - _FRAME.size and zlib.crc32(data[_FRAME.size :]) == crc


def _contents(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each whole record's content begins and ends."""
    view = memoryview(data)
    at = _BEGIN
    if data[:at] != MAGIC + FORMAT:
        return
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        begin = at + _FRAME.size
        at = begin + length
        if length > PAYLOAD_MAX_BYTES + _NUMBERS.size or at > len(data):
            return
        if zlib.crc32(view[begin:at]) == crc:
            yield begin, at


def _read_header(content: bytes) -> SegmentHeader | None:
    try:
        return SegmentHeader(**msgpack.unpackb(content))
    except (ValueError, TypeError):  # a record of something else, whose sum is right
        return None

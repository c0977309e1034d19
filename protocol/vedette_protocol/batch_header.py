"""The batch header written out by hand, because thousands of batches travel each second.

`Batch` declares the fields like every other message, and `MessageCodec` decodes a header of any
layout. Here are the encoder, which packs what many headers have in common once, and the layout
that lets `BatchReader` read the numbers of a header without parsing the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no types

from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_protocol.messages import Batch, Buffer
from vedette_protocol.packing import pack
from vedette_protocol.wire import WireType, wire_types

_THIRTEEN_PAIRS: Final = b"\x8d"
SEQ: Final = pack("seq")
_BASE: Final = pack("base")
_pack: Final[Callable[[object], bytes]] = msgpack.Packer().pack
"""`pack` without making a packer each time. It keeps a buffer: one thread at a time has the GIL."""

_FIXINT_MAX: Final = 127
_WIDE: Final = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q"}
"""The first byte of an integer that is larger, and the struct code of the bytes that follow it."""
_HIGHEST: Final = {
    name: type_.high for name, type_ in wire_types(Batch).items() if isinstance(type_, WireType)
}


def encode_batch(batch: Batch) -> list[Buffer]:
    """Encode a batch in header and payload. The payload is handed on, not copied."""
    run_id, manager, incarnation, seq, actor, epoch, version, schema, rows, payload, base, steps = (
        batch
    )
    begin = _beginning(run_id, manager, incarnation)
    end = _end(actor, epoch, version, steps, schema, rows)
    return [b"".join((begin, _pack(seq), _BASE, _pack(base), end)), payload]


# A sender's headers differ in little: what is the same in many of them is packed once.
@functools.lru_cache(maxsize=64)
def _beginning(run_id: str, manager: str, incarnation: int) -> bytes:
    sender = {"run": run_id, "manager": manager, "incarnation": incarnation}
    return _THIRTEEN_PAIRS + pack({"v": PROTOCOL_VERSION, "k": "batch", **sender})[1:] + SEQ


@functools.lru_cache(maxsize=256)
def _end(actor: int, epoch: int, version: int, env_steps: int, schema: str, rows: int) -> bytes:
    numbers = {"actor": actor, "epoch": epoch, "version": version, "env_steps": env_steps}
    return pack({**numbers, "schema": schema, "rows": rows})[1:]


class HeaderLayout(NamedTuple):
    """One sender's header: the places and limits of its numbers, and the fields that are fixed.

    Args:
        struct: unpacks fixed bytes and numbers in turn.
        fixed: the bytes around the numbers.
        limits: the largest seq, base, actor, epoch, version and env_steps of this width.
    """

    struct: Struct
    fixed: tuple[bytes, ...]
    limits: tuple[int, ...]
    run_id: str
    manager: str
    incarnation: int
    schema: str
    rows: int


def layout_of(batch: Batch, header: bytes) -> HeaderLayout | None:
    """The layout of a batch's header; None: it is not laid out as `encode_batch` does it."""
    fixed = [_beginning(batch.run_id, batch.manager, batch.incarnation)[: -len(SEQ)]]
    codes = [">"]
    limits = []
    for key in ("seq", "base", "actor", "epoch", "version", "env_steps"):
        mark = pack(getattr(batch, key))[0]
        narrow = mark <= _FIXINT_MAX
        fixed[-1] += pack(key) + (b"" if narrow else bytes([mark]))
        codes += [f"{len(fixed[-1])}s", _WIDE.get(mark, "B")]
        limits.append(min(_HIGHEST[key], _FIXINT_MAX) if narrow else _HIGHEST[key])
        fixed.append(b"")
    fixed[-1] = pack("schema") + pack(batch.schema) + pack("rows") + pack(batch.rows)
    struct = Struct("".join([*codes, f"{len(fixed[-1])}s"]))
    if struct.size != len(header) or struct.unpack(header)[::2] != tuple(fixed):
        return None
    sender = (batch.run_id, batch.manager, batch.incarnation)
    return HeaderLayout(struct, tuple(fixed), tuple(limits), *sender, batch.schema, batch.rows)

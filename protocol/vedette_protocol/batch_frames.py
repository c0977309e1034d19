"""The one message of which thousands travel each second, written out by hand for that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no types

from vedette_protocol.errors import MalformedError
from vedette_protocol.fields import format_value
from vedette_protocol.limits import (
    ACTOR_MAX,
    COUNT_MAX,
    EPOCH_MAX,
    PAYLOAD_MAX_BYTES,
    PROTOCOL_VERSION,
    ROWS_MAX,
    U64_MAX,
)
from vedette_protocol.messages import Batch, Buffer
from vedette_protocol.packing import pack
from vedette_protocol.topics import is_id

_KEYS: Final = frozenset(
    (
        *("v", "k", "run", "manager", "incarnation", "seq", "base"),
        *("actor", "epoch", "version", "schema", "rows"),
    )
)
_HEX: Final = frozenset("0123456789abcdef")
_TWELVE_PAIRS: Final = b"\x8c"
_BASE: Final = pack("base")
_pack: Final[Callable[[object], bytes]] = msgpack.Packer().pack
"""`pack` without making a packer each time. It keeps a buffer: one thread at a time has the GIL."""


def encode_batch(batch: Batch) -> list[Buffer]:
    """Header and payload. The payload is handed on, not copied."""
    run_id, manager, incarnation, seq, actor, epoch, version, schema, rows, payload, base = batch
    begin = _beginning(run_id, manager, incarnation)
    end = _end(actor, epoch, version, schema, rows)
    return [b"".join((begin, _pack(seq), _BASE, _pack(base), end)), payload]


# A sender's headers differ in little: what is the same in many of them is packed once.
@functools.lru_cache(maxsize=64)
def _beginning(run_id: str, manager: str, incarnation: int) -> bytes:
    fields = {
        "v": PROTOCOL_VERSION,
        "k": "batch",
        "run": run_id,
        "manager": manager,
        "incarnation": incarnation,
    }
    return _TWELVE_PAIRS + pack(fields)[1:] + pack("seq")


@functools.lru_cache(maxsize=256)
def _end(actor: int, epoch: int, version: int, schema: str, rows: int) -> bytes:
    fields = {"actor": actor, "epoch": epoch, "version": version, "schema": schema, "rows": rows}
    return pack(fields)[1:]


def decode_batch(header: dict[str, Any], payload: Buffer) -> Batch:  # Any: checked here
    """The batch of these frames; the payload is not copied and not looked into.

    Raises:
        MalformedError: a key is missing, unknown, of the wrong type or out of range.
    """
    if header.keys() != _KEYS:
        odd = sorted(map(format_value, header.keys() ^ _KEYS))
        raise MalformedError(f"a batch's header lacks, or does not know, {', '.join(odd)}"[:300])
    run_id = header["run"]
    manager = header["manager"]
    incarnation = header["incarnation"]
    seq = header["seq"]
    base = header["base"]
    actor = header["actor"]
    epoch = header["epoch"]
    version = header["version"]
    schema = header["schema"]
    rows = header["rows"]
    if not (
        type(run_id) is str
        and is_id(run_id)
        and type(manager) is str
        and is_id(manager)
        and type(incarnation) is int
        and 0 <= incarnation <= U64_MAX
        and type(seq) is int
        and 0 <= seq < COUNT_MAX
        and type(base) is int
        and 0 <= base <= seq
        and type(actor) is int
        and 0 <= actor <= ACTOR_MAX
        and type(epoch) is int
        and 0 <= epoch <= EPOCH_MAX
        and type(version) is int
        and 0 <= version <= COUNT_MAX
        and type(schema) is str
        and len(schema) == 16
        and _HEX.issuperset(schema)
        and type(rows) is int
        and 1 <= rows <= ROWS_MAX
    ):
        raise MalformedError(f"a batch's header has a wrong value: {_wrong(header)}")
    if not 0 < len(payload) <= PAYLOAD_MAX_BYTES:
        raise MalformedError(
            f"a batch's payload has 1 to {PAYLOAD_MAX_BYTES} bytes, got {len(payload)}"
        )
    return Batch(
        run_id, manager, incarnation, seq, actor, epoch, version, schema, rows, payload, base
    )


def _wrong(header: dict[str, Any]) -> str:
    shown_fields = (f"{key} {format_value(header[key])}" for key in sorted(_KEYS - {"v", "k"}))
    return ", ".join(shown_fields)[:400]

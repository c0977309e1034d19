"""What managers push, read thousands of times a second: `decode_up`, and a memory for headers.

The headers of one sender differ from one another in five numbers. The first is decoded and checked
key by key; whatever equals it byte for byte, but for these numbers, needs only their ranges
checked. Anything else is decoded in full again, so what is accepted is the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from vedette_protocol.codec import decode_up
from vedette_protocol.limits import (
    ACTOR_MAX,
    COUNT_MAX,
    EPOCH_MAX,
    HEADER_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    PROTOCOL_VERSION,
)
from vedette_protocol.messages import Batch, Buffer, UpMessage
from vedette_protocol.packing import pack

_SENDERS_MAX: Final = 4096
_SEQ: Final = pack("seq")
_FIXINT_MAX: Final = 127
_tuple: Final = tuple.__new__
_WIDE: Final = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q"}
"""How msgpack marks an integer that does not fit the marking byte, and what follows."""


class _HeaderLayout(NamedTuple):
    """One sender's header: where its numbers stand, what they may be, and all that is fixed."""

    layout: struct.Struct
    fixed: tuple[Any, ...]  # the bytes around the numbers
    limits: tuple[int, int, int, int, int]  # of seq, base, actor, epoch, version
    run_id: str
    manager: str
    incarnation: int
    schema: str
    rows: int


class BatchReader:
    """Decodes what managers push. One reader for all of them: it remembers each one's form."""

    def __init__(self) -> None:
        self._forms: dict[bytes, _HeaderLayout] = {}

    def read(self, frames: Sequence[Buffer]) -> UpMessage:
        """The message; the same as `decode_up`, sooner.

        Raises:
            ProtocolError: it is none.
        """
        header = frames[0] if len(frames) == 2 else None
        if type(header) is not bytes or len(header) > HEADER_MAX_BYTES:
            return decode_up(frames)
        payload = frames[1]
        beginning = header[: header.find(_SEQ)]
        form = self._forms.get(beginning)
        if form is not None and len(header) == form.layout.size:
            layout, fixed, limits, run_id, manager, incarnation, schema, rows = form
            found = layout.unpack(header)
            _, seq, _, base, _, actor, _, epoch, _, version, _ = found
            seq_max, base_max, actor_max, epoch_max, version_max = limits
            if (
                found[::2] == fixed
                and base <= seq <= seq_max
                and base <= base_max
                and actor <= actor_max
                and epoch <= epoch_max
                and version <= version_max
                and 0 < len(payload) <= PAYLOAD_MAX_BYTES
            ):
                # Twice as fast as calling `Batch`, which does the same.
                return _tuple(
                    Batch,
                    (
                        run_id,
                        manager,
                        incarnation,
                        seq,
                        actor,
                        epoch,
                        version,
                        schema,
                        rows,
                        payload,
                        base,
                    ),
                )
        message = decode_up(frames)
        if type(message) is Batch:
            self._remember_layout(beginning, header, message)
        return message

    def _remember_layout(self, beginning: bytes, header: bytes, batch: Batch) -> None:
        """Remember the form of a header that was accepted, if it is laid out as ours are."""
        form = _header_layout_of(batch, beginning)
        if form is None or form.layout.size != len(header):
            return
        if form.layout.unpack(header)[::2] != form.fixed:
            return
        if len(self._forms) >= _SENDERS_MAX:
            self._forms.clear()  # only time is lost: everybody is decoded in full once more
        self._forms[beginning] = form


def _header_layout_of(batch: Batch, beginning: bytes) -> _HeaderLayout | None:
    head = pack(
        {
            "v": PROTOCOL_VERSION,
            "k": "batch",
            "run": batch.run_id,
            "manager": batch.manager,
            "incarnation": batch.incarnation,
        }
    )
    if beginning != b"\x8c" + head[1:]:  # the map of all twelve keys in place of these five
        return None
    fixed, codes, limits = [beginning], [">"], []
    for key, number, limit in (
        ("seq", batch.seq, COUNT_MAX - 1),
        ("base", batch.base, COUNT_MAX - 1),
        ("actor", batch.actor, ACTOR_MAX),
        ("epoch", batch.epoch, EPOCH_MAX),
        ("version", batch.version, COUNT_MAX),
    ):
        mark = pack(number)[0]
        fixed[-1] += pack(key) + (b"" if mark <= _FIXINT_MAX else bytes([mark]))
        codes += [f"{len(fixed[-1])}s", _WIDE.get(mark, "B")]
        limits.append(min(limit, _FIXINT_MAX) if mark <= _FIXINT_MAX else limit)
        fixed.append(b"")
    fixed[-1] = pack("schema") + pack(batch.schema) + pack("rows") + pack(batch.rows)
    layout = struct.Struct("".join([*codes, f"{len(fixed[-1])}s"]))
    seq_max, base_max, actor_max, epoch_max, version_max = limits
    return _HeaderLayout(
        layout,
        tuple(fixed),
        (seq_max, base_max, actor_max, epoch_max, version_max),
        batch.run_id,
        batch.manager,
        batch.incarnation,
        batch.schema,
        batch.rows,
    )

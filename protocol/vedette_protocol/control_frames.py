"""The learner's acks, stops and refusals: a header each."""

from __future__ import annotations

from typing import Final, get_args

from vedette_protocol.errors import MalformedError
from vedette_protocol.fields import Fields
from vedette_protocol.limits import ACTOR_MAX, COUNT_MAX, EPOCH_MAX, EXTRAS_MAX, U64_MAX
from vedette_protocol.messages import Ack, Buffer, Refusal, RefusalCode, Stop
from vedette_protocol.packing import clip_text, pack_header

_CODES: Final[tuple[RefusalCode, ...]] = get_args(RefusalCode)


def encode_ack(ack: Ack) -> list[Buffer]:
    """The header: an ack has no payload."""
    extras = ack.extras.to_bytes((ack.extras.bit_length() + 7) // 8, "little")
    header = pack_header(
        "ack",
        {
            "run": ack.run_id,
            "epoch": ack.epoch,
            "learner": ack.learner,
            "manager": ack.manager,
            "incarnation": ack.incarnation,
            "contiguous": ack.contiguous,
            "extras": extras,
            "rejected_batches": ack.rejected_batches,
            "rejected_rows": ack.rejected_rows,
            "credit_batches": ack.credit_batches,
            "credit_bytes": ack.credit_bytes,
            "version": ack.version,
            "first_actor": ack.first_actor,
            "reason": clip_text(ack.reason),
        },
    )
    return [header]


def decode_ack(fields: Fields) -> Ack:
    """What the header says.

    Raises:
        ProtocolError: it is none.
    """
    extras = int.from_bytes(fields.binary("extras", 0, EXTRAS_MAX // 8), "little")
    if extras & 1:
        raise MalformedError("the header's 'extras' has bit 0, which 'contiguous' speaks for")
    ack = Ack(
        run_id=fields.id_or_none("run"),
        epoch=fields.integer("epoch", 0, EPOCH_MAX),
        learner=fields.integer("learner", 0, U64_MAX),
        manager=fields.id("manager"),
        incarnation=fields.integer("incarnation", 0, U64_MAX),
        contiguous=fields.integer("contiguous", 0, COUNT_MAX),
        extras=extras,
        rejected_batches=fields.integer("rejected_batches", 0, COUNT_MAX),
        rejected_rows=fields.integer("rejected_rows", 0, COUNT_MAX),
        credit_batches=fields.integer("credit_batches", 0, COUNT_MAX),
        credit_bytes=fields.integer("credit_bytes", 0, COUNT_MAX),
        version=fields.integer("version", 0, COUNT_MAX),
        first_actor=fields.integer("first_actor", 0, ACTOR_MAX),
        reason=fields.text("reason"),
    )
    fields.end_header()
    return ack


def encode_stop(stop: Stop) -> list[Buffer]:
    """The header."""
    fields = {"run": stop.run_id, "epoch": stop.epoch, "final": stop.final}
    return [pack_header("stop", {**fields, "reason": clip_text(stop.reason)})]


def encode_refusal(refusal: Refusal) -> list[Buffer]:
    """The header."""
    fields = {"manager": refusal.manager, "incarnation": refusal.incarnation}
    return [
        pack_header(
            "refusal", {**fields, "code": refusal.code, "reason": clip_text(refusal.reason)}
        )
    ]


def decode_stop(fields: Fields) -> Stop:
    """What the header says.

    Raises:
        ProtocolError: it is none.
    """
    stop = Stop(
        run_id=fields.id("run"),
        epoch=fields.integer("epoch", 0, EPOCH_MAX),
        reason=fields.text("reason"),
        final=fields.boolean("final"),
    )
    fields.end_header()
    return stop


def decode_refusal(fields: Fields) -> Refusal:
    """What the header says.

    Raises:
        ProtocolError: it is none.
    """
    refusal = Refusal(
        manager=fields.id("manager"),
        incarnation=fields.integer("incarnation", 0, U64_MAX),
        code=fields.choice("code", _CODES),
        reason=fields.text("reason"),
    )
    fields.end_header()
    return refusal

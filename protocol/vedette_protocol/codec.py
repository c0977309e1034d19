"""Messages to frames and back. What is decoded is valid, or it is a `ProtocolError`.

`encode` gives the frames without a topic, and the decoders take them without one: whoever owns the
socket puts the topic in front and takes it off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from vedette_protocol.batch_frames import decode_batch, encode_batch
from vedette_protocol.control_frames import (
    decode_ack,
    decode_refusal,
    decode_stop,
    encode_ack,
    encode_refusal,
    encode_stop,
)
from vedette_protocol.errors import MalformedError, ProtocolError, Sender, VersionError
from vedette_protocol.fields import Fields
from vedette_protocol.limits import (
    COUNT_MAX,
    PROTOCOL_VERSION,
    ROWS_MAX,
    STATUS_MAX_BYTES,
    U64_MAX,
)
from vedette_protocol.messages import (
    Ack,
    Batch,
    Buffer,
    ControlMessage,
    Message,
    ModelChunk,
    Refusal,
    Report,
    Run,
    Status,
    Stop,
    UpMessage,
)
from vedette_protocol.model_frames import decode_chunk, encode_chunk
from vedette_protocol.packing import check_frame_size, pack_header, unpack_header
from vedette_protocol.report_frames import decode_report, encode_report
from vedette_protocol.run_frames import decode_run, encode_run
from vedette_protocol.topics import is_id


def encode(message: Message) -> list[Buffer]:
    """The frames of a message. Texts longer than 200 characters are cut.

    Raises:
        MalformedError: it would be larger than the other side accepts.
    """
    match message:
        case Batch():
            return encode_batch(message)
        case Ack():
            return encode_ack(message)
        case Report():
            return encode_report(message)
        case Run():
            return encode_run(message)
        case ModelChunk():
            return encode_chunk(message)
        case Stop():
            return encode_stop(message)
        case Refusal():
            return encode_refusal(message)
        case Status():
            return [
                pack_header("status", {}),
                check_frame_size(message.json, STATUS_MAX_BYTES, "status"),
            ]
        case _:
            assert_never(message)


def decode_up(frames: Sequence[Buffer]) -> UpMessage:
    """The message that a manager pushed. A batch's payload is the frame itself, not a copy.

    Raises:
        ProtocolError: it is none. Its `sender` is set where the header told it.
    """
    header = unpack_header(_first(frames))
    try:
        kind = _kind(header)
        if len(frames) != 2:
            raise MalformedError(f"{len(frames)} frames, expected 2")
        if kind == "batch":
            return decode_batch(header, frames[1])
        if kind == "report":
            return decode_report(Fields(header, "the header"), frames[1])
        raise MalformedError(f"no message of kind {kind!r} goes to the learner")
    except ProtocolError as error:
        error.sender = _sender(header)
        rows = header.get("rows")
        error.rows = rows if type(rows) is int and 1 <= rows <= ROWS_MAX else 0
        raise


def decode_control(frames: Sequence[Buffer]) -> ControlMessage:
    """The message that the learner published on the control channel, without its topic.

    Raises:
        ProtocolError: it is none.
    """
    header = unpack_header(_first(frames))
    kind = _kind(header)
    fields = Fields(header, "the header")
    match kind, len(frames):
        case "ack", 1:
            return decode_ack(fields)
        case "run", 2:
            return decode_run(fields, frames[1])
        case "stop", 1:
            return decode_stop(fields)
        case "refusal", 1:
            return decode_refusal(fields)
        case "status", 2:
            fields.end_header()
            return Status(bytes(check_frame_size(frames[1], STATUS_MAX_BYTES, "status")))
        case _:
            raise MalformedError(f"kind {kind!r} in {len(frames)} frames is no control message")


def decode_model(frames: Sequence[Buffer]) -> ModelChunk:
    """The chunk that the learner published on the model channel, without its topic.

    Raises:
        ProtocolError: it is none.
    """
    header = unpack_header(_first(frames))
    kind = _kind(header)
    if kind != "model" or len(frames) != 2:
        raise MalformedError(f"kind {kind!r} in {len(frames)} frames is no model chunk")
    return decode_chunk(Fields(header, "the header"), frames[1])


def _first(frames: Sequence[Buffer]) -> Buffer:
    if not frames:
        raise MalformedError("no frames")
    return frames[0]


def _kind(header: Mapping[str, Any]) -> str:
    version = header.get("v")
    if type(version) is not int:
        raise MalformedError("the header has no protocol version")
    if version != PROTOCOL_VERSION:
        raise VersionError(version, PROTOCOL_VERSION)
    kind = header.get("k")
    if type(kind) is not str or len(kind) > 16:
        raise MalformedError("the header has no kind")
    return kind


def _sender(header: Mapping[str, Any]) -> Sender | None:
    manager, incarnation = header.get("manager"), header.get("incarnation")
    if type(manager) is not str or not is_id(manager):
        return None
    if type(incarnation) is not int or not 0 <= incarnation <= U64_MAX:
        return None
    seq = header.get("seq")
    legible = type(seq) is int and 0 <= seq < COUNT_MAX
    return Sender(manager, incarnation, seq if legible else None)

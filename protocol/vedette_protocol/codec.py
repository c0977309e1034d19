"""Messages to frames and back. What is decoded is valid, or it is a `ProtocolError`.

`encode` gives the frames without a topic, and the decoders take them without one: the owner of
the socket puts the topic in front and takes it off. A batch's columns stay packed: `schema` packs,
reads and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vedette_protocol.batch_header import SEQ, HeaderLayout, encode_batch, layout_of
from vedette_protocol.errors import MalformedError, ProtocolError, Sender, VersionError
from vedette_protocol.limits import (
    COUNT_MAX,
    HEADER_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    PROTOCOL_VERSION,
    QUESTION_VERSION,
    ROWS_MAX,
    U64_MAX,
)
from vedette_protocol.messages import (
    Batch,
    Buffer,
    ControlMessage,
    Message,
    ModelChunk,
    UpMessage,
)
from vedette_protocol.packing import pack, unpack_header
from vedette_protocol.topics import is_id
from vedette_protocol.wire import CODECS, Channel, codec_of

_SENDERS_MAX: Final = 4096
_tuple: Final = tuple.__new__


def encode(message: Message) -> list[Buffer]:
    """Encode a message in frames. Texts longer than 200 characters are cut.

    Raises:
        MalformedError: it would be larger than the other side accepts.
    """
    return (
        encode_batch(message) if type(message) is Batch else CODECS[type(message)].encode(message)
    )


def encode_question(manager: str, incarnation: int) -> list[Buffer]:
    """Encode a message to the samples' port whose only answer is a refusal, code `version`, on the
    topic of `manager`. By it a host finds out if that port and the control port are one learner's;
    no manager is counted for it."""
    header = {
        "v": QUESTION_VERSION,
        "k": "report",
        "manager": manager,
        "incarnation": incarnation,
    }
    return [pack(header), b""]


def decode_up(frames: Sequence[Buffer]) -> UpMessage:
    """Decode a message from a manager. A batch's payload is the frame itself, not a copy.

    Raises:
        ProtocolError: it is none. Its `sender` is set where the header names one.
    """
    header = _header_of(frames)
    try:
        message: UpMessage = _decode(header, frames, "samples")
    except ProtocolError as error:
        error.sender = _sender(header)
        rows = header.get("rows")
        error.rows = rows if type(rows) is int and 1 <= rows <= ROWS_MAX else 0
        raise
    return message


def decode_control(frames: Sequence[Buffer]) -> ControlMessage:
    """Decode a message that the learner published on the control channel, without its topic.

    Raises:
        ProtocolError: it is none.
    """
    message: ControlMessage = _decode(_header_of(frames), frames, "control")
    return message


def decode_model(frames: Sequence[Buffer]) -> ModelChunk:
    """Decode a chunk that the learner published on the model channel, without its topic.

    Raises:
        ProtocolError: it is none.
    """
    message: ModelChunk = _decode(_header_of(frames), frames, "models")
    return message


class BatchReader:
    """Decodes messages from managers like `decode_up`, thousands of batches a second.

    The headers of one sender differ from one another in six numbers. The first is decoded key by
    key; in one that has the same bytes except for these numbers, only their ranges are checked.
    Anything else is decoded key by key again, so both accept the same frames. One reader serves all
    managers.
    """

    def __init__(self) -> None:
        self._layouts: dict[bytes, HeaderLayout] = {}

    def read(self, frames: Sequence[Buffer]) -> UpMessage:
        """Decode a message from a manager.

        Raises:
            ProtocolError: as `decode_up`.
        """
        header = frames[0] if len(frames) == 2 else None
        if type(header) is not bytes or len(header) > HEADER_MAX_BYTES:
            return decode_up(frames)
        payload = frames[1]
        beginning = header[: header.find(SEQ)]  # it tells senders apart
        layout = self._layouts.get(beginning)
        if layout is not None and len(header) == layout.struct.size:
            struct, fixed, limits, run_id, manager, incarnation, schema, rows = layout
            values = struct.unpack(header)
            _, seq, _, base, _, actor, _, epoch, _, version, _, env_steps, _ = values
            seq_max, base_max, actor_max, epoch_max, version_max, env_steps_max = limits
            if (
                values[::2] == fixed
                and base <= seq <= seq_max
                and base <= base_max
                and actor <= actor_max
                and epoch <= epoch_max
                and version <= version_max
                and env_steps <= env_steps_max
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
                        env_steps,
                    ),
                )
        message = decode_up(frames)
        if type(message) is Batch:
            self._remember(beginning, header, message)
        return message

    def _remember(self, beginning: bytes, header: bytes, batch: Batch) -> None:
        """Keep the layout of a header that was accepted, if its keys are in our order."""
        layout = layout_of(batch, header)
        if layout is None:
            return
        if len(self._layouts) >= _SENDERS_MAX:
            self._layouts.clear()  # costs time only: each sender's next header is decoded in full
        self._layouts[beginning] = layout


def _header_of(frames: Sequence[Buffer]) -> dict[str, Any]:  # Any: a peer's values
    if not frames:
        raise MalformedError("no frames")
    return unpack_header(frames[0])


def _decode(header: dict[str, Any], frames: Sequence[Buffer], channel: Channel) -> Any:
    version = header.get("v")
    if type(version) is not int:
        raise MalformedError("the header has no protocol version")
    if version != PROTOCOL_VERSION:
        raise VersionError(version, PROTOCOL_VERSION)
    kind = header.get("k")
    if type(kind) is not str or len(kind) > 16:
        raise MalformedError("the header has no kind")
    return codec_of(kind, channel).decode(header, frames)


def _sender(header: Mapping[str, Any]) -> Sender | None:
    manager, incarnation = header.get("manager"), header.get("incarnation")
    if type(manager) is not str or not is_id(manager):
        return None
    if type(incarnation) is not int or not 0 <= incarnation <= U64_MAX:
        return None
    seq = header.get("seq")
    legible = type(seq) is int and 0 <= seq < COUNT_MAX
    return Sender(manager, incarnation, seq if legible else None)

"""The target of fuzzing: feeds the decoders, and checks the messages that they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no types
from wire_examples import EXAMPLES

from vedette_protocol.codec import decode_control, decode_model, decode_up, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.ledger import Ledger
from vedette_protocol.limits import RUN_MAX_BYTES
from vedette_protocol.messages import Message
from vedette_protocol.model import ModelAssembler
from vedette_protocol.packing import unpack
from vedette_protocol.schema import Schema
from vedette_protocol.topics import parse_subscription

Decoder = Callable[[Sequence[Any]], Message]

DECODERS: Final[tuple[Decoder, ...]] = (decode_up, decode_control, decode_model)
MODELS_MAX_BYTES: Final = 1 << 20
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 255, 2**31, 2**53, 2**62, 2**63, 2**64 - 1),
    *(0.0, -0.5, 1e308, float("inf"), float("nan"), "", "a", "x" * 201, "\x00", "0" * 16, "é"),
    *(b"", b"x", b"\xff" * 8, b"\x01" * 129, [], [[]], [0] * 9, {}, {"a": {"a": {}}}, {"": 0}),
)
KEYS: Final = ("odd", "", 0, None, -1, 1.5, b"k", True, "v", "k", "x" * 300)


def feed(data: bytes) -> None:
    """Give these bytes to what their first one names. Only `ProtocolError` is swallowed."""
    if not data:
        return
    what = data[0] % 7
    rest = data[1:]
    try:
        if what < 3:
            _decode(DECODERS[what], frames_in(rest))
        elif what == 3:
            parse_subscription(rest)
        elif what == 4:
            Schema.from_wire(unpack(rest, RUN_MAX_BYTES))
        elif what == 5:
            Ledger.from_bytes(rest, 0.0).to_bytes()
        else:
            frames = spoilt(rest)
            for decoder in DECODERS:
                _decode_each(decoder, frames)
    except ProtocolError:
        return


def frames_in(data: bytes) -> list[bytes]:
    """Frames with two bytes of length before each; the last one may be short."""
    frames = []
    while len(data) >= 2 and len(frames) < 8:
        length = int.from_bytes(data[:2], "big")
        frames.append(data[2 : 2 + length])
        data = data[2 + length :]
    return frames


def spoilt(recipe: bytes) -> list[bytes]:
    """The frames of an example with values of its maps replaced, taken out or added."""
    examples = list(EXAMPLES.values())
    first = recipe[0] if recipe else 0
    frames = [bytes(frame) for frame in encode(examples[first % len(examples)])]
    for at in range(1, len(recipe) - 3, 4):
        place, key, how, value = recipe[at : at + 4]
        place %= max(1, len(frames))
        try:
            fields = msgpack.unpackb(frames[place])
        except Exception:  # noqa: BLE001 - a payload that is no map: some other edit then
            continue
        if not isinstance(fields, dict) or not fields:
            continue
        name = sorted(fields, key=repr)[key % len(fields)]
        if how % 4 == 0:
            del fields[name]
        elif how % 4 == 1:
            fields[KEYS[value % len(KEYS)]] = 1
        else:
            fields[name] = VALUES[value % len(VALUES)]
        try:
            frames[place] = msgpack.packb(fields)
        except Exception:  # noqa: BLE001 - a key that no map may have
            continue
    return frames


def _decode_each(decoder: Decoder, frames: list[bytes]) -> None:
    try:
        _decode(decoder, frames)
    except ProtocolError:
        return


def _decode(decoder: Decoder, frames: list[bytes]) -> None:
    message = decoder(frames)
    again = [bytes(frame) for frame in encode(message)]
    assert [bytes(frame) for frame in encode(decoder(again))] == again, "it means something else"
    if decoder is decode_model:
        ModelAssembler(MODELS_MAX_BYTES).add_chunk(message)  # type: ignore[arg-type]  # a chunk

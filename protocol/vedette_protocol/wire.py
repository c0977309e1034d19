"""Declarations of messages: each field names its wire type; encoding and decoding are derived.

::

    @message("stop", "control", header="run_id epoch final reason")
    @dataclass(frozen=True, slots=True)
    class Stop:
        run_id: Id
        epoch: Epoch
        reason: Text
        final: bool

A message is a header frame, which is a flat msgpack map, and for some kinds a payload frame. The
payload is one more map (of the fields that `header` leaves out) or the bytes of one raw field.

Peers of neighbouring releases understand each other: unknown keys are ignored, and a field with a
default may be missing. Only a `strict` message has exactly its keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from vedette_protocol.errors import MalformedError
from vedette_protocol.foreign_text import printable
from vedette_protocol.limits import (
    COUNT_MAX,
    DEPTH_MAX,
    EPOCH_MAX,
    PROTOCOL_VERSION,
    TEXT_MAX_CHARS,
    U64_MAX,
)
from vedette_protocol.packing import Buffer, pack, unpack
from vedette_protocol.topics import is_id

Channel: TypeAlias = Literal["samples", "control", "models"]
"""The port that a message travels on."""

M = TypeVar("M")

_HEX: Final = frozenset("0123456789abcdef")
_KEYS: Final = {"run_id": "run"}
"""Keys on the wire that are not the attribute's name."""


@dataclass(frozen=True, slots=True)
class WireType:
    """The values that a field may have on the wire, and how they are converted.

    Args:
        accepts: true for a valid value.
        expected: the valid values in words, for the error message.
        to_wire, from_wire: conversions to and from the value on the wire; None: there is none.
        high: the largest value of an integer.
    """

    accepts: Callable[[Any], bool]  # Any: a peer's value, of any msgpack type
    expected: str
    to_wire: Callable[[Any], object] | None = None  # Any: the attribute's value
    from_wire: Callable[[Any], object] | None = None  # Any: a value that was accepted
    high: int = 0


class RawPayload(NamedTuple):
    """Marks the field that is the payload frame itself, of `low` to `high` bytes.

    Args:
        copy: the decoder copies the frame into bytes of its own.
    """

    low: int
    high: int
    copy: bool = False


def integer(low: int, high: int) -> WireType:
    """Return the type of an integer in [low, high]; a boolean is none."""

    def accepts(value: object) -> bool:
        return type(value) is int and low <= value <= high

    return WireType(accepts, f"an integer in [{low}, {high}]", high=high)


def binary(low: int, high: int) -> WireType:
    """Return the type of binary of `low` to `high` bytes."""

    def accepts(value: object) -> bool:
        return type(value) is bytes and low <= len(value) <= high

    return WireType(accepts, f"binary of {low} to {high} bytes")


def bit_map(bits_max: int) -> WireType:
    """Return the type of an integer sent as little-endian binary of at most `bits_max` bits."""
    return replace(
        binary(0, bits_max // 8),
        to_wire=lambda bits: bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        from_wire=lambda data: int.from_bytes(data, "little"),
    )


def list_of(item: type, limit: int, what: str, omitted: Sequence[str] = ()) -> WireType:
    """Return the type of a list of at most `limit` maps, each of a dataclass `item`.

    Args:
        omitted: fields that are not sent where they have their defaults.
    """
    fields = FieldMap(item, wire_types(item), f"one of the {what}", omitted=omitted)

    def accepts(value: object) -> bool:
        return type(value) is list and len(value) <= limit

    def to_wire(items: tuple[object, ...]) -> list[object]:
        if len(items) > limit:
            raise MalformedError(f"{len(items)} {what}, expected at most {limit}")
        return [fields.to_wire(item) for item in items]

    def from_wire(maps: list[object]) -> tuple[object, ...]:
        return tuple(item(**fields.from_wire(one)) for one in maps)

    return WireType(accepts, f"a list of at most {limit}", to_wire, from_wire)


def optional_map(item: type, what: str) -> WireType:
    """Return the type of a map of a dataclass `item`, or nil."""
    field_map = FieldMap(item, wire_types(item), f"the {what}")

    def from_wire(value: object) -> object:
        return None if value is None else item(**field_map.from_wire(value))

    def to_wire(value: object) -> object:
        return None if value is None else field_map.to_wire(value)

    return WireType(lambda value: value is None or type(value) is dict, "a map", to_wire, from_wire)


def ids(limit: int) -> WireType:
    """Return the type of a list of at most `limit` ids."""

    def accepts(value: object) -> bool:
        return (
            type(value) is list
            and len(value) <= limit
            and all(type(text) is str and is_id(text) for text in value)
        )

    return WireType(accepts, f"a list of at most {limit} ids", list, tuple)


def _text_type(accepts: Callable[[str], bool], expected: str) -> WireType:
    return WireType(lambda value: type(value) is str and accepts(value), expected)


def _is_json(value: object, depth: int = 0) -> bool:
    if depth > DEPTH_MAX:
        return False
    if type(value) is dict:
        return all(type(key) is str and _is_json(v, depth + 1) for key, v in value.items())
    if type(value) is list:
        return all(_is_json(inner, depth + 1) for inner in value)
    return value is None or type(value) in (str, int, float, bool)


Count: TypeAlias = Annotated[int, integer(0, COUNT_MAX)]
OptionalCount: TypeAlias = Annotated[
    int | None,
    WireType(
        lambda value: value is None or (type(value) is int and 0 <= value <= COUNT_MAX),
        f"an integer in [0, {COUNT_MAX}] or nil",
    ),
]
Epoch: TypeAlias = Annotated[int, integer(0, EPOCH_MAX)]
U64: TypeAlias = Annotated[int, integer(0, U64_MAX)]
Id: TypeAlias = Annotated[str, _text_type(is_id, "an id")]
OptionalId: TypeAlias = Annotated[
    str, _text_type(lambda text: text == "" or is_id(text), 'an id or ""')
]
Hash: TypeAlias = Annotated[
    str,
    _text_type(lambda text: len(text) == 16 and _HEX.issuperset(text), "16 hexadecimal digits"),
]
Text: TypeAlias = Annotated[
    str,
    WireType(
        lambda value: type(value) is str and len(value) <= TEXT_MAX_CHARS,
        f"a text of at most {TEXT_MAX_CHARS} characters",
        to_wire=printable,
        from_wire=printable,  # it goes to logs and terminals, and the sender may be anybody
    ),
]
Mean: TypeAlias = Annotated[
    float | None,
    WireType(
        lambda value: (
            value is None
            or type(value) is int  # as libraries write a float without a fraction
            or (type(value) is float and math.isfinite(value))
        ),
        "a finite number or nil",
        from_wire=lambda value: None if value is None else float(value),
    ),
]
Settings: TypeAlias = Annotated[
    Mapping[str, Any],  # Any: JSON values; the owner of the settings checks them
    WireType(
        lambda value: type(value) is dict and _is_json(value),
        f"a map that JSON could hold, nested at most {DEPTH_MAX} deep",
    ),
]
"""Maps with string keys, lists, strings, numbers, booleans, None."""

_BOOLEAN: Final = WireType(lambda value: type(value) is bool, "a boolean")


def wire_types(cls: type) -> dict[str, WireType | RawPayload]:
    """Return the wire type of every field of a class, in the order of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _wire_type(hint) for name, hint in hints.items()}


def _wire_type(hint: Any) -> WireType | RawPayload:  # Any: a type hint
    if hint is bool:
        return _BOOLEAN
    if get_origin(hint) is Literal:
        words = get_args(hint)
        return _text_type(lambda text: text in words, "one of " + ", ".join(words))
    declared: WireType | RawPayload = get_args(hint)[1]  # of Annotated[python type, wire type]
    return declared


def _defaults(cls: type) -> dict[str, object]:
    """Return the defaults of the fields that have one."""
    if not is_dataclass(cls):
        return {}
    made = {f.name: f.default_factory for f in fields(cls) if f.default_factory is not MISSING}
    known = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    return known | {name: make() for name, make in made.items()}


class FieldMap:
    """Some fields of a class as one msgpack map.

    Args:
        names: the fields' names, in the order of the map's keys.
        where: names the map in an error message.
        strict: the map has exactly these keys.
        derived: attributes that are sent and not read, in the map's last keys.
        omitted: fields that are not sent where they have their defaults.
        fixed: keys in front with their values. The decoder has checked these values already.
    """

    def __init__(
        self,
        cls: type,
        names: Iterable[str],
        where: str,
        *,
        strict: bool = False,
        derived: Sequence[str] = (),
        omitted: Sequence[str] = (),
        **fixed: object,
    ) -> None:
        types = wire_types(cls)
        typed = [(name, _KEYS.get(name, name), types[name]) for name in names]
        self._fields = [(n, key, type_) for n, key, type_ in typed if isinstance(type_, WireType)]
        self._keys = [*(key for _, key, _ in self._fields), *derived]
        self._all_keys = frozenset((*fixed, *self._keys))
        defaults = _defaults(cls)
        optional = set() if strict else {_KEYS.get(n, n) for n in defaults}
        self._omitted = [(n, defaults[n]) for n in omitted if n in self._keys]
        self._required = self._all_keys - optional - set(derived)
        self._strict = strict
        self._converted = [(key, type_.to_wire) for _, key, type_ in self._fields if type_.to_wire]
        self._where = where
        self._fixed = fixed
        attributes = [*(name for name, _, _ in self._fields), *derived]
        if len(attributes) > 1:
            self._values: Callable[[object], tuple[object, ...]] = attrgetter(*attributes)
        else:  # attrgetter gives no tuple
            self._values = lambda message: tuple(getattr(message, name) for name in attributes)

    def to_wire(self, message: object) -> dict[str, object]:
        """Convert a message to the map."""
        packed = self._fixed.copy()
        packed.update(zip(self._keys, self._values(message), strict=True))
        for key, default in self._omitted:
            if packed[key] == default:
                del packed[key]
        for key, convert in self._converted:
            if key in packed:
                packed[key] = convert(packed[key])
        return packed

    def from_wire(self, received: object) -> dict[str, Any]:  # Any: values of the declared types
        """Check a map that a peer sent and convert it to the fields' values.

        Raises:
            ProtocolError: a key is missing or unknown, or a value is not of its type.
        """
        if type(received) is not dict:
            raise MalformedError(f"{self._where} is {type(received).__name__}, expected a map")
        if received.keys() != self._all_keys:
            wrong = self._required - received.keys()
            if self._strict:
                wrong |= received.keys() - self._all_keys
            if wrong:
                named = ", ".join(sorted(map(format_value, wrong)))
                raise MalformedError(f"{self._where} has missing or unknown keys: {named}"[:300])
        values = {}
        for name, key, type_ in self._fields:
            value = received.get(key, MISSING)
            if value is MISSING:
                continue
            if not type_.accepts(value):
                got = format_value(value)
                raise MalformedError(f"{self._where}'s {key!r} is {got}, expected {type_.expected}")
            values[name] = value if type_.from_wire is None else type_.from_wire(value)
        return values


class MessageCodec:
    """Encodes and decodes the messages of one kind.

    A message class may have a method `check`, which raises `ProtocolError` where its fields
    contradict one another. It is called for every message that is decoded.
    """

    def __init__(
        self,
        cls: type,
        kind: str,
        header: str,
        map_max: int,
        *,
        strict: bool,
        derived: str,
        omitted: str,
    ) -> None:
        types = wire_types(cls)
        raw = {name: type_ for name, type_ in types.items() if isinstance(type_, RawPayload)}
        flat = header.split() or [name for name in types if name not in raw]
        body = [name for name in types if name not in (*flat, *raw)]
        assert map_max or not body, "a payload that is a map needs a limit"
        self.kind = kind
        self.frames: Final = 2 if raw or body else 1
        left_out = omitted.split()
        self._header: Final = FieldMap(
            cls, flat, "the header", strict=strict, omitted=left_out, v=PROTOCOL_VERSION, k=kind
        )
        self._cls = cls
        self._check = getattr(cls, "check", None)
        self._body = None
        if body:
            self._body = FieldMap(
                cls, body, f"the {kind}", derived=derived.split(), omitted=left_out
            )
        self._raw, self._size = next(iter(raw.items()), ("", RawPayload(0, map_max)))

    def encode(self, message: Any) -> list[Buffer]:  # Any: of the class that was declared
        """Encode a message in its frames.

        Raises:
            MalformedError: the payload would be larger than the other side accepts.
        """
        header = pack(self._header.to_wire(message))
        if self._body is not None:
            return [header, self._checked(pack(self._body.to_wire(message)))]
        return [header, self._checked(getattr(message, self._raw))] if self._raw else [header]

    def decode(self, header: Mapping[str, Any], frames: Sequence[Buffer]) -> Any:
        """Decode a message from its frames, of which the first is unpacked already.

        Raises:
            ProtocolError: they are no message of this kind.
        """
        if len(frames) != self.frames:
            text = f"a {self.kind} message of {len(frames)} frames, expected {self.frames}"
            raise MalformedError(text)
        values = self._header.from_wire(header)
        if self._body is not None:
            values |= self._body.from_wire(unpack(frames[1], self._size.high))
        elif self._raw:
            payload = self._checked(frames[1])
            values[self._raw] = bytes(payload) if self._size.copy else payload
        message = self._cls(**values)
        if self._check is not None:
            self._check(message)
        return message

    def _checked(self, payload: Buffer) -> Buffer:
        low, high, _ = self._size
        if not low <= len(payload) <= high:
            what = f"the payload of a {self.kind} message"
            raise MalformedError(f"{what} has {low} to {high} bytes, got {len(payload)}")
        return payload


CODECS: Final[dict[type, MessageCodec]] = {}
"""The codec of every declared class."""
_BY_KIND: Final[dict[tuple[str, Channel], MessageCodec]] = {}


def message(
    kind: str,
    channel: Channel,
    *,
    header: str = "",
    map_max: int = 0,
    strict: bool = False,
    derived: str = "",
    omitted: str = "",
) -> Callable[[type[M]], type[M]]:
    """Declare a class to be a message.

    Args:
        kind: the header's `k`.
        header: names of the fields in the header, in the order of its keys; "": all but a raw one.
        map_max: the most bytes of a payload that is a map.
        strict: unknown keys are refused, and none may be missing.
        derived: names of properties that follow from other fields. They are sent for peers that do
            not compute them, and not read.
        omitted: names of fields that are not sent where they have their defaults.
    """

    def declare(cls: type[M]) -> type[M]:
        CODECS[cls] = _BY_KIND[kind, channel] = MessageCodec(
            cls, kind, header, map_max, strict=strict, derived=derived, omitted=omitted
        )
        return cls

    return declare


def codec_of(kind: str, channel: Channel) -> MessageCodec:
    """Find the codec of the messages of a kind that travel on a channel.

    Raises:
        MalformedError: there is none.
    """
    codec = _BY_KIND.get((kind, channel))
    if codec is None:
        raise MalformedError(f"no message of kind {kind!r} travels on the {channel} channel")
    return codec


def format_value(value: object) -> str:
    """Format a peer's value for an error message: short, whatever its size."""
    if isinstance(value, (list, dict)) or (isinstance(value, (str, bytes)) and len(value) > 40):
        return f"{type(value).__name__} of length {len(value)}"
    return repr(value)[:80]

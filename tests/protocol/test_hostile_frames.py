"""Frames from a peer who means no good, or is broken: a `ProtocolError`, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest
from golden_frames import channel_of
from hypothesis import example, given
from hypothesis import strategies as st
from wire_examples import EXAMPLES, SCHEMA, example_batch

from vedette_protocol.codec import decode_control, decode_model, decode_up, encode
from vedette_protocol.errors import MalformedError, ProtocolError, Sender, VersionError
from vedette_protocol.limits import CHUNK_MAX_BYTES, HEADER_MAX_BYTES, PAYLOAD_MAX_BYTES
from vedette_protocol.messages import Buffer, Report
from vedette_protocol.wire import CODECS

Decoder = Callable[[Sequence[Buffer]], object]

BY_CHANNEL: dict[str, Decoder] = {
    "samples": decode_up,
    "control": decode_control,
    "models": decode_model,
}
DECODERS: dict[str, Decoder] = {
    codec.kind: BY_CHANNEL[channel_of(EXAMPLES[codec.kind])] for codec in CODECS.values()
}
"""Of every kind of message."""

WRONG = [
    *(None, True, False, 1.5, float("nan"), float("inf"), b"bytes", [], {}, [1], {"a": 1}),
    *(-1, 2**62 + 1, 2**64 - 1, {"a": float("nan")}),
    *("", "a" * 65, "a b", "a/b", "é", "a\n", "x" * 201, "0123456789ABCDEF", "0123", b"\x01"),
]
"""Values that few fields take; `RIGHT` says which do."""


def is_text(value: object) -> bool:
    return type(value) is str and len(value) <= 200


def is_id(value: object) -> bool:
    return type(value) is str and value in ("0123456789ABCDEF", "0123")


def is_boolean(value: object) -> bool:
    return type(value) is bool


def is_number(value: object) -> bool:
    return value is None or type(value) is int or (type(value) is float and math.isfinite(value))


def is_random(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**64


def is_map(value: object) -> bool:
    return type(value) is dict


RIGHT: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(["reason", "rejected_reason", "host", "error"], is_text),
    **dict.fromkeys(["run", "manager", "code"], is_id),
    **dict.fromkeys(["incarnation", "learner", "seed"], is_random),
    **dict.fromkeys(["final", "alive"], is_boolean),
    **dict.fromkeys(["return_mean", "length_mean"], is_number),
    **dict.fromkeys(["env", "agent", "policy"], is_map),
    "extras": lambda value: value == b"bytes",
    "actors": lambda value: value == [],
    "features": lambda value: value == [],
    # Sent for those who do not compute them, and never read.
    **dict.fromkeys(["schema_hash", "model_hash"], lambda value: True),
}


def may_take(name: str, key: str, value: object) -> bool:
    """Return True if this field of this message may have this value."""
    if key == "run" and value == "":
        return name in ("ack", "report")
    if key == "actors" and name == "run":
        return is_map(value)
    right = RIGHT.get(key)
    return right is not None and right(value)


def mine(name: str) -> list[bytes]:
    return [bytes(frame) for frame in encode(EXAMPLES[name])]


def maps_of(name: str) -> list[tuple[int, dict[str, Any]]]:
    """The frames of an example that hold a map, and the map."""
    frames = mine(name)
    maps = [(0, msgpack.unpackb(frames[0]))]
    if name in ("report", "run"):
        maps.append((1, msgpack.unpackb(frames[1])))
    return maps


FIELDS = [(name, at, key) for name in DECODERS for at, fields in maps_of(name) for key in fields]
OPTIONAL = {
    *(("report", key) for key in ("base", "actors", "limit", "features")),
    *(("run", key) for key in ("schema_hash", "model_hash", "features", "policy")),
    *(("ack", key) for key in ("reason", "rejected_reason")),
}
"""Keys that may be missing: a peer of another release may not have them."""
STRICT = ("batch", "model")


def changed(name: str, at: int, change: Callable[[dict[str, Any]], object]) -> list[bytes]:
    """An example's frames with the map in frame `at` changed."""
    frames = mine(name)
    fields = msgpack.unpackb(frames[at])
    change(fields)
    frames[at] = msgpack.packb(fields)
    return frames


@pytest.mark.parametrize(("name", "at", "key"), FIELDS)
def test_every_field_is_checked_for_type_and_range(name: str, at: int, key: str) -> None:
    for value in WRONG:
        frames = changed(name, at, lambda fields, v=value: fields.update({key: v}))
        try:
            DECODERS[name](frames)
        except ProtocolError:
            taken = False
        else:
            taken = True
        assert taken == may_take(name, key, value), f"{value!r}"


@pytest.mark.parametrize("key", list(msgpack.unpackb(mine("report")[1])["actors"][0]))
def test_every_field_of_an_actors_report_is_checked(key: str) -> None:
    for value in WRONG:
        frames = changed("report", 1, lambda fields, v=value: fields["actors"][0].update({key: v}))
        try:
            decode_up(frames)
        except ProtocolError:
            taken = False
        else:
            taken = True
        assert taken == may_take("actor", key, value), f"{value!r}"


@pytest.mark.parametrize(("name", "at", "key"), FIELDS)
def test_every_field_is_needed_but_those_that_may_be_missing(name: str, at: int, key: str) -> None:
    frames = changed(name, at, lambda fields: fields.pop(key))
    if (name, key) in OPTIONAL:
        DECODERS[name](frames)
        return
    with pytest.raises(ProtocolError):
        DECODERS[name](frames)


@pytest.mark.parametrize("name", STRICT)
def test_an_unknown_field_of_a_batch_or_model_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="surprise"):
        DECODERS[name](changed(name, 0, lambda fields: fields.update(surprise=1)))


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in STRICT])
def test_an_unknown_field_of_anything_else_is_ignored(name: str) -> None:
    for at, _ in maps_of(name):
        frames = changed(name, at, lambda fields: fields.update(surprise="new"))
        assert DECODERS[name](frames) == EXAMPLES[name]


def test_an_integer_is_taken_where_a_float_is_expected() -> None:
    frames = changed("report", 1, lambda fields: fields["actors"][0].update(return_mean=100))
    report = decode_up(frames)
    assert isinstance(report, Report)
    assert (report.actors[0].return_mean, type(report.actors[0].return_mean)) == (100.0, float)


@pytest.mark.parametrize(("name", "at", "key"), FIELDS)
def test_a_field_that_comes_twice_is_refused(name: str, at: int, key: str) -> None:
    frames = mine(name)
    fields = msgpack.unpackb(frames[at])
    pairs = [*fields.items(), (key, fields[key])]
    packer = msgpack.Packer()
    packed = packer.pack_map_header(len(pairs))
    frames[at] = packed + b"".join(packer.pack(part) for pair in pairs for part in pair)
    with pytest.raises(ProtocolError, match="twice"):
        DECODERS[name](frames)


@pytest.mark.parametrize("name", DECODERS)
def test_every_count_of_frames_but_the_right_one_is_refused(name: str) -> None:
    frames = mine(name)
    for wrong in ([], frames[:-1], [*frames, b""], frames[:1] * 1000, frames[:1] + [b""] * 999):
        if len(wrong) != len(frames):
            with pytest.raises(ProtocolError):
                DECODERS[name](wrong)


@pytest.mark.parametrize("name", DECODERS)
def test_a_cut_or_lengthened_frame_is_refused(name: str) -> None:
    frames = mine(name)
    for at, _ in maps_of(name):
        frame = frames[at]
        for wrong in [frame[:size] for size in range(len(frame))] + [frame + b"\x00"]:
            with pytest.raises(ProtocolError):
                DECODERS[name]([*frames[:at], wrong, *frames[at + 1 :]])


@pytest.mark.parametrize("name", DECODERS)
def test_a_flipped_bit_never_raises_anything_else(name: str) -> None:
    frames = mine(name)
    refused = 0
    for at, _ in maps_of(name):
        for place in range(8 * len(frames[at])):
            frame = bytearray(frames[at])
            frame[place // 8] ^= 1 << place % 8
            try:
                DECODERS[name]([*frames[:at], bytes(frame), *frames[at + 1 :]])
            except ProtocolError:
                refused += 1
    assert refused > 8 * len(frames[0]) // 4


BOMBS = {
    "array of 2^32 - 1": b"\xdd\xff\xff\xff\xff",
    "map of 2^32 - 1": b"\xdf\xff\xff\xff\xff",
    "text of 2^32 - 1": b"\xdb\xff\xff\xff\xff",
    "binary of 2^32 - 1": b"\xc6\xff\xff\xff\xff",
    "nested arrays": b"\x91" * 4000,
    "nested maps": b"\x81\xa1a" * 1300,
    "empty arrays": b"\xdc\x0f\xf0" + b"\x90" * 4080,
    "extension": b"\x81\xa1v\xd4\x01\x00",
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "invalid utf-8": b"\x81\xa1v\xa2\xff\xfe",
    "never used byte": b"\xc1",
    "a number": b"\x01",
    "nil": b"\xc0",
    "an integer key": b"\x81\x01\x01",
    "a nil key": b"\x81\xc0\x01",
    "a map that lies about its length": b"\x8f\xa1v\x01",
    "trailing bytes": b"\x80\x80",
    "http": b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n",
    "zeros": bytes(200),
    "0xff": b"\xff" * 200,
    "too long": b"\x80" + bytes(HEADER_MAX_BYTES),
    "empty": b"",
}


@pytest.fixture
def not_collecting() -> Iterator[None]:
    """Without garbage collection, which takes 0.4 s when other tests have left a large heap."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("not_collecting")
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("name", DECODERS)
def test_a_bomb_is_refused_at_once(name: str, bomb: bytes) -> None:
    frames = mine(name)
    for at, _ in maps_of(name):
        begin = time.thread_time()
        with pytest.raises(ProtocolError):
            DECODERS[name]([*frames[:at], bomb, *frames[at + 1 :]])
        assert time.thread_time() - begin < 0.1


@pytest.mark.parametrize("payload", [b"\x91" * 900_000, b"\x81\xa1a" * 300_000, b"\x90" * 2**20])
@pytest.mark.parametrize("name", ["run", "report"])
def test_a_large_bomb_in_a_payload_is_refused_too(name: str, payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        DECODERS[name]([mine(name)[0], payload])


def test_settings_that_nest_too_deep_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(30):
        deep = {"a": [deep]}
    with pytest.raises(MalformedError, match="nested at most 16 deep"):
        decode_control(changed("run", 1, lambda fields: fields.update(env=deep)))


@pytest.mark.parametrize("odd", [{1: 2}, {"a": b"binary"}, {"a": [{"b": b""}]}])
def test_settings_that_are_no_json_are_refused(odd: object) -> None:
    with pytest.raises(MalformedError):
        decode_control(changed("run", 1, lambda fields: fields.update(agent=odd)))


KEYS = list(msgpack.unpackb(mine("batch")[0]))
ANY_HEADER = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text("ab-/ é\n", max_size=9),
        st.binary(max_size=9),
        st.sampled_from(["batch", "report", "host-a", "0123456789abcdef"]),
    ),
)


@given(ANY_HEADER, st.binary(max_size=20))
@example({"v": 2, "k": "batch", "manager": "m", "incarnation": 1, "seq": 2**62}, b"")
def test_any_header_is_a_message_or_a_protocol_error(fields: dict[str, Any], rest: bytes) -> None:
    for decode in (decode_up, decode_control, decode_model):
        with contextlib.suppress(ProtocolError):
            decode([msgpack.packb(fields), rest])


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_a_protocol_error(frames: list[bytes]) -> None:
    for decode in (decode_up, decode_control, decode_model):
        with pytest.raises(ProtocolError):
            decode(frames)


@pytest.mark.parametrize("seq", [2**62, 2**64 - 1, -1, True, 1.0, "1", None])
def test_a_sequence_number_that_is_none_is_refused_with_who_sent_it(seq: object) -> None:
    with pytest.raises(MalformedError) as caught:
        decode_up(changed("batch", 0, lambda fields: fields.update(seq=seq)))
    assert caught.value.sender == Sender("host-a", 0x0123456789ABCDEF, None)


@pytest.mark.parametrize("key", ["rows", "schema", "version", "run", "actor", "base"])
def test_a_legible_batch_that_is_wrong_can_be_acknowledged_as_rejected(key: str) -> None:
    with pytest.raises(MalformedError) as caught:
        decode_up(changed("batch", 0, lambda fields: fields.update({key: None})))
    assert caught.value.sender == Sender("host-a", 0x0123456789ABCDEF, 41)
    assert caught.value.rows == (0 if key == "rows" else 3)


@pytest.mark.parametrize("frames", [1, 3])
def test_a_batch_of_too_few_or_many_frames_tells_its_sender(frames: int) -> None:
    with pytest.raises(MalformedError, match="expected 2") as caught:
        decode_up([*mine("batch"), b"more"][:frames])
    assert caught.value.sender == Sender("host-a", 0x0123456789ABCDEF, 41)


@pytest.mark.parametrize("key", ["manager", "incarnation"])
def test_without_a_legible_identity_there_is_no_sender(key: str) -> None:
    with pytest.raises(MalformedError) as caught:
        decode_up(changed("batch", 0, lambda fields: fields.update({key: "a b"})))
    assert caught.value.sender is None


def test_another_version_is_said_to_be_one_with_who_speaks_it() -> None:
    frames = changed("report", 0, lambda fields: fields.update(v=3, novelty=1))
    with pytest.raises(
        VersionError, match="speaks protocol version 3, this side speaks 2"
    ) as caught:
        decode_up(frames)
    assert (caught.value.theirs, caught.value.ours) == (3, 2)
    assert caught.value.sender == Sender("host-a", 0x0123456789ABCDEF, None)


def test_a_payload_is_bounded() -> None:
    with pytest.raises(MalformedError, match=f"expected no more|1 to {PAYLOAD_MAX_BYTES} bytes"):
        decode_up(encode(example_batch(payload=bytes(PAYLOAD_MAX_BYTES + 1))))
    with pytest.raises(MalformedError, match="got 0"):
        decode_up(encode(example_batch(payload=b"")))


@pytest.mark.parametrize(
    "fields",
    [
        {"total_bytes": 2**33},
        {"total_bytes": 0},
        {"count": 2},
        {"index": 1},
        {"total_bytes": 10 * CHUNK_MAX_BYTES},
        {"total_bytes": 2**32, "count": 2**16},
        {"digest": b"short"},
        {"spec": "g" * 16},
    ],
)
def test_a_chunk_that_contradicts_itself_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        decode_model(changed("model", 0, lambda header: header.update(fields)))


def test_extras_may_not_speak_of_contiguous_itself_nor_reach_too_far() -> None:
    for extras in (b"\x01", bytes(128) + b"\x01"):
        with pytest.raises(MalformedError, match="extras"):
            decode_control(changed("ack", 0, lambda fields, e=extras: fields.update(extras=e)))


@pytest.mark.parametrize("state", ["dropped", "window_rows"])
def test_a_report_whose_counts_cannot_be_is_refused(state: str) -> None:
    with pytest.raises(MalformedError, match="more rows than it produced"):
        decode_up(changed("report", 1, lambda fields: fields.update({state: 4201})))


SCHEMA_WIRE = SCHEMA.to_wire()


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        [[]],
        [["obs", "f4", [4]]],
        [["obs", "O", [4], None, None]],
        [["obs", ">f8", [4], None, None]],
        [["obs", "f16", [4], None, None]],
        [["obs", "M8[s]", [], None, None]],
        [["obs", [["a", "f4"]], [], None, None]],
        [["obs", "f4", [-1], None, None]],
        [["obs", "f4", [0, 2**40], None, None]],
        [["obs", "f4", [2**32, 2**32], None, None]],
        [["obs", "f4", [1] * 9, None, None]],
        [["obs", "f4", [True], None, None]],
        [["obs", "f4", [4.0], None, None]],
        [["obs", "f4", 4, None, None]],
        [["", "f4", [], None, None]],
        [["x" * 129, "f4", [], None, None]],
        [["a\tb", "f4", [], None, None]],
        [[b"obs", "f4", [], None, None]],
        [["a", "f4", [], 0, 1]],
        [["a", "?", [], 0, 1]],
        [["a", "u1", [], 0, 256]],
        [["a", "i1", [], 3, 2]],
        [["a", "i8", [], True, 2]],
        [["a", "i8", [], 0.0, 2]],
        [SCHEMA_WIRE[0], SCHEMA_WIRE[0]],
        [[f"c{place}", "f4", [], None, None] for place in range(4097)],
    ],
)
@pytest.mark.parametrize("which", ["schema", "model"])
def test_a_schema_that_is_none_is_refused(which: str, wire: object) -> None:
    with pytest.raises(ProtocolError):
        decode_control(changed("run", 1, lambda fields: fields.update({which: wire})))


@pytest.mark.parametrize(
    "change",
    [
        {"request": -1},
        {"request": True},
        {"epoch": 2**31},
        {"version": None},
        {"episodes": 1.0},
        {"return_mean": float("nan")},
        {"return_std": "1"},
        {"failed": "x" * 201},
        {"cut": -1},
    ],
)
def test_an_evaluation_in_a_report_is_checked_for_type_and_range(change: dict[str, Any]) -> None:
    frames = [bytes(frame) for frame in encode(EXAMPLES["report-of-evaluation"])]
    fields = msgpack.unpackb(frames[1])
    fields["evaluation"].update(change)
    with pytest.raises(ProtocolError):
        decode_up([frames[0], msgpack.packb(fields)])
    del fields["evaluation"]["request"]
    with pytest.raises(ProtocolError):
        decode_up([frames[0], msgpack.packb(fields)])


@pytest.mark.parametrize("value", [[], 3, "evaluation"])
def test_an_evaluation_in_a_report_is_a_map_or_nil(value: object) -> None:
    frames = [bytes(frame) for frame in encode(EXAMPLES["report-of-evaluation"])]
    fields = msgpack.unpackb(frames[1])
    fields["evaluation"] = value
    with pytest.raises(ProtocolError):
        decode_up([frames[0], msgpack.packb(fields)])
    fields["evaluation"] = None
    assert decode_up([frames[0], msgpack.packb(fields)]).evaluation is None


def test_what_a_peer_of_an_earlier_release_lacks_and_ignores_is_not_sent_to_it() -> None:
    for name, keys in {
        "ack": {"evaluate", "evaluate_version"},
        "report": {"evaluation"},
        "run": {"evaluation"},
    }.items():
        assert not any(keys & fields.keys() for _, fields in maps_of(name))

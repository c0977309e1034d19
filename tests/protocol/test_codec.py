"""Messages to frames and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest
from wire_examples import EXAMPLES, REPORT, example_batch

from vedette_protocol.codec import decode_control, decode_model, decode_up, encode
from vedette_protocol.errors import MalformedError
from vedette_protocol.limits import (
    ACTORS_MAX,
    CHUNK_MAX_BYTES,
    HEADER_MAX_BYTES,
    REPORT_MAX_BYTES,
    STATUS_MAX_BYTES,
)
from vedette_protocol.messages import (
    Ack,
    ActorReport,
    Batch,
    Buffer,
    Message,
    ModelChunk,
    Report,
    Run,
    Status,
    Stop,
)


def decoder_of(message: Message) -> Callable[[Sequence[Buffer]], Message]:
    if isinstance(message, Batch | Report):
        return decode_up
    return decode_model if isinstance(message, ModelChunk) else decode_control


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_what_is_encoded_is_decoded(name: str, kind: Callable[[Buffer], Buffer]) -> None:
    message = EXAMPLES[name]
    frames = [kind(frame) for frame in encode(message)]
    assert decoder_of(message)(frames) == message
    assert len(frames[0]) <= HEADER_MAX_BYTES


def test_a_payload_is_handed_on_and_not_copied() -> None:
    batch = example_batch()
    frames = encode(batch)
    assert frames[1] is batch.payload
    decoded = decode_up(frames)
    assert isinstance(decoded, Batch)
    assert decoded.payload is batch.payload


def test_the_extremes_of_an_ack_survive() -> None:
    ack = EXAMPLES["ack"]
    assert isinstance(ack, Ack)
    full = replace(ack, contiguous=1 << 61, extras=(1 << 1024) - 2, limit=1 << 62)
    frames = encode(full)
    assert decode_control(frames) == full
    assert len(frames[0]) < 600


def test_texts_are_cut_and_made_fit_rather_than_refused() -> None:
    stop = decode_control(encode(Stop("r", 1, "\ud800" + "é" * 500, final=False)))
    assert isinstance(stop, Stop)
    assert stop.reason == "\ufffd" + "é" * 199


def test_a_text_of_a_peer_is_one_printable_line_whatever_was_sent() -> None:
    """Hosts, errors and reasons go to logs and terminals."""
    evil = "a\r\nvedette.learner: FORGED\x1b]0;title\x07\x1b[2J\x9b\u2028b\u202ec\u2066"
    [header, payload] = encode(replace(REPORT, host="HOST"))
    sent = bytes(payload).replace(b"\xa4HOST", msgpack.packb(evil))
    report = decode_up([header, sent])
    assert isinstance(report, Report)
    bad = "\ufffd"
    assert report.host == (f"a vedette.learner: FORGED{bad}]0;title{bad}{bad}[2J{bad} b{bad}c{bad}")
    assert report.host.isprintable()


def test_the_longest_report_fits() -> None:
    actor = ActorReport(2**31 - 1, True, 2**62, 2**62, 2**62, 2**62, 1.0, 1.0, "\U0001f600" * 200)
    actor = replace(actor, returns=2**62, return_sum=1.0)
    report = replace(REPORT, host="é" * 200, actors=(actor,) * ACTORS_MAX)
    frames = encode(report)
    assert len(frames[1]) <= REPORT_MAX_BYTES
    assert decode_up(frames) == report


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (replace(REPORT, actors=REPORT.actors * ACTORS_MAX), "2048 actors, expected at most 1024"),
        (
            Status(bytes(STATUS_MAX_BYTES + 1)),
            "status message has .*, got 16777217",
        ),
        (
            replace(EXAMPLES["run"], env={"id": "x" * 2_000_000}),
            "run message has .*, got 2000",
        ),
        (
            replace(EXAMPLES["model"], payload=bytes(CHUNK_MAX_BYTES + 1)),
            "model message has .*, got 1048577",
        ),
    ],
)
def test_what_the_other_side_would_refuse_is_not_sent(message: Message, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        encode(message)


def test_settings_travel_as_they_are() -> None:
    settings = {
        "none": None,
        "numbers": [0, -1, 2**63, 1.5, float("inf")],
        "nested": {"flag": True, "list": [[], {}, "text"]},
    }
    run = EXAMPLES["run"]
    assert isinstance(run, Run)
    decoded = decode_control(encode(replace(run, env=settings, agent={}, seed=2**64 - 1)))
    assert isinstance(decoded, Run)
    assert (decoded.env, decoded.agent, decoded.seed) == (settings, {}, 2**64 - 1)

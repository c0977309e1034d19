"""The wire does not drift: these bytes were fixed, and mean what they meant."""

from __future__ import annotations

import json

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest
from golden_frames import VECTORS, description
from wire_examples import (
    EXAMPLES,
    MODEL,
    SCHEMA,
    SHARING_SCHEMA,
    STEPS_SCHEMA,
    example_columns,
    sharing_columns,
    steps_columns,
)

from vedette_protocol.codec import decode_control, decode_model, decode_up, encode

DECODERS = {"samples": decode_up, "control": decode_control, "models": decode_model}
OF_BYTES = ("batch", "batch-of-frames", "batch-of-steps", "status", "model")
"""Messages whose payload is no map."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_frames_are_the_golden_ones(name: str) -> None:
    told = json.loads((VECTORS / f"{name}.json").read_text())
    golden = [(VECTORS / frame).read_bytes() for frame in told["frames"]]
    assert [bytes(frame) for frame in encode(EXAMPLES[name])] == golden


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_golden_frames_mean_what_they_are_said_to(name: str) -> None:
    text = (VECTORS / f"{name}.json").read_text()
    assert text == description(name)
    told = json.loads(text)
    golden = [(VECTORS / frame).read_bytes() for frame in told["frames"]]
    assert DECODERS[told["channel"]](golden) == EXAMPLES[name]


def test_every_golden_frame_is_looked_at() -> None:
    looked_at = {f"{name}.json" for name in EXAMPLES}
    for name, message in EXAMPLES.items():
        looked_at |= {f"{name}.{place}.bin" for place, _ in enumerate(encode(message))}
    assert {path.name for path in VECTORS.iterdir()} == looked_at


def test_the_golden_batch_holds_the_columns_it_was_made_of() -> None:
    payload = (VECTORS / "batch.1.bin").read_bytes()
    views = SCHEMA.views(payload, 3)
    for name, column in example_columns(3).items():
        assert (views[name] == column).all()
        assert views[name].dtype == column.dtype


def test_the_hashes_of_schemas_do_not_drift() -> None:
    assert SCHEMA.hash == "6991fa3efc543b5b"
    assert MODEL.hash == "0936d1d4316306d7"
    assert SHARING_SCHEMA.hash == "5e783743d5f900a1"
    assert STEPS_SCHEMA.hash == "87cc5ab1658217a4"


def test_the_golden_batch_of_frames_holds_the_columns_it_was_made_of() -> None:
    payload = (VECTORS / "batch-of-frames.1.bin").read_bytes()
    views = SHARING_SCHEMA.views(payload, 3)
    for name, column in sharing_columns(3).items():
        assert (views[name] == column).all()
        assert views[name].dtype == column.dtype
    assert payload[112:120] == bytes([6, 0, 0, 0, 0, 0, 0, 0])
    assert len(payload) == 216


def test_the_golden_batch_of_steps_holds_the_columns_it_was_made_of() -> None:
    payload = (VECTORS / "batch-of-steps.1.bin").read_bytes()
    views = STEPS_SCHEMA.views(payload, 3)
    for name, column in steps_columns(3).items():
        assert (views[name] == column).all()
        assert views[name].dtype == column.dtype
    assert payload[:160] == (VECTORS / "batch.1.bin").read_bytes()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_specification_names_every_key(name: str) -> None:
    specification = (VECTORS.parents[2] / "protocol" / "README.md").read_text()
    for frame in sorted(VECTORS.glob(f"{name}.?.bin")):
        if name in OF_BYTES and frame.name.endswith(".1.bin"):
            continue
        for key in msgpack.unpackb(frame.read_bytes()):
            assert f"`{key}`" in specification

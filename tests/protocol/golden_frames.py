"""The golden frames: `vectors/NAME.json` says what the frames `vectors/NAME.N.bin` mean.

``python tests/protocol/golden_frames.py`` writes them anew. A change of a frame that is already
there is a change of the wire, and asks for another protocol version.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from wire_examples import EXAMPLES

from vedette_protocol.codec import encode
from vedette_protocol.messages import Batch, Message, ModelChunk, Report
from vedette_protocol.schema import Schema

OMITTED = (
    *("evaluate", "evaluate_version", "evaluation", "ended", "safe", "runs"),
    *("returns", "return_sum"),
)
"""Fields that are not sent where they have their defaults."""

VECTORS = Path(__file__).parent / "vectors"


def described(value: object) -> Any:  # Any: whatever JSON holds
    """A message's value in JSON: binary as hexadecimal digits, 64-bit numbers as they are."""
    match value:
        case Schema():
            return {"hash": value.hash, "columns": value.to_wire()}
        case Batch():
            return {name: described(part) for name, part in value._asdict().items()}
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case tuple() | list():
            return [described(part) for part in value]
        case dict():
            return {key: described(part) for key, part in value.items()}
    if is_dataclass(value):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        omitted = {name for name in OMITTED if not found.get(name)}
        return {name: described(part) for name, part in found.items() if name not in omitted}
    return value


def channel_of(message: Message) -> str:
    """Return the channel of a message."""
    if isinstance(message, Batch | Report):
        return "samples"
    return "models" if isinstance(message, ModelChunk) else "control"


def description(name: str) -> str:
    """Make the contents of `vectors/NAME.json`."""
    message = EXAMPLES[name]
    frames = [f"{name}.{place}.bin" for place, _ in enumerate(encode(message))]
    told = {"channel": channel_of(message), "frames": frames, "message": described(message)}
    return json.dumps(told, indent=1) + "\n"


def write() -> None:
    """Write every example's frames and description."""
    VECTORS.mkdir(exist_ok=True)
    for name, message in EXAMPLES.items():
        (VECTORS / f"{name}.json").write_text(description(name))
        for place, frame in enumerate(encode(message)):
            (VECTORS / f"{name}.{place}.bin").write_bytes(frame)


if __name__ == "__main__":
    write()

"""The newest model in a memory map: how a trainer or a manager hands it to processes beside it.

The map has no checksum of its own. What a trainer writes carries the digest that managers look at,
so a model that a power cut tore is acted on by nobody.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from vedette_protocol.messages import Buffer
from vedette_protocol.model import body_bytes, digest_of, pack_model_parts, unpack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.newest import LatestValueReader, LatestValueWriter, read_latest_value

_HEADER = struct.Struct("<QI8s")  # epoch, bytes of the schema that follows, the body's digest
_NO_DIGEST = b"\xff" * 8  # no digest is that: a CRC-32 has four bytes of zeros


@dataclass(frozen=True, slots=True)
class MappedModel:
    """A model as it stands in the map: `body` as `vedette_protocol.model` packs it.

    Args:
        digest: of the body, as its writer made it; None: the writer is a manager, which has looked
            into it.
    """

    epoch: int
    version: int
    schema: Schema
    body: Buffer
    digest: bytes | None

    def info(self) -> ModelInfo:
        """The named arrays, as views of the body.

        Raises:
            ModelError: a value is not finite.
        """
        look = self.digest is not None
        version, arrays = unpack_model(self.body, self.schema, look=look)
        return ModelInfo(version, arrays)


class ModelMapWriter:
    """The one writer; the map is made for models of one schema."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.schema = schema
        self._text = json.dumps(schema.to_wire()).encode()
        max_bytes = _HEADER.size + len(self._text) + body_bytes(schema)
        self._map = LatestValueWriter(path, max_bytes, summed=False)

    def write(self, epoch: int, info: ModelInfo) -> None:
        """Make a model the newest, with its digest."""
        parts = pack_model_parts(info.version, info.arrays, self.schema)
        self._write(epoch, digest_of(*parts), *parts)

    def write_body(self, epoch: int, body: Buffer) -> None:
        """Make a model that is already packed the newest, once it was looked into."""
        self._write(epoch, _NO_DIGEST, body)

    def _write(self, epoch: int, digest: bytes, *body: Buffer) -> None:
        self._map.write(_HEADER.pack(epoch, len(self._text), digest), self._text, *body)


class ModelMapReader:
    """A reader; there is nothing until the first model was written."""

    def __init__(self, path: Path) -> None:
        self._map = LatestValueReader(path)
        self._seq = 0
        self._text = b""
        self._schema: Schema | None = None

    @property
    def has_new(self) -> bool:
        """Whether there is a model that `read` has not returned yet; costs a microsecond."""
        return self._map.seq != self._seq

    def read(self) -> MappedModel | None:
        """The newest model, or None before the first."""
        found = self._map.read_array()
        if found is None:
            return None
        self._seq, data = found[0], found[1].data
        epoch, length, digest = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        text = bytes(data[_HEADER.size : start])
        if self._schema is None or text != self._text:
            self._schema, self._text = Schema.from_wire(json.loads(text)), text
        version = int.from_bytes(data[start : start + 8], "little")
        given = digest if digest != _NO_DIGEST else None
        return MappedModel(epoch, version, self._schema, data[start:], given)


def holds_model(path: Path) -> bool:
    """Whether a trainer that ended left a whole model in the map at `path`.

    Raises:
        LatestValueFormatError: the file is something else.
        OSError: it cannot be read.
    """
    found = read_latest_value(path)
    if found is None:
        return False
    data = memoryview(found[1])
    if len(data) < _HEADER.size:
        return False
    length: int
    digest: bytes
    _, length, digest = _HEADER.unpack_from(data)
    return digest_of(data[_HEADER.size + length :]) == digest

"""The newest model in a memory map: how a trainer or a manager hands it to processes beside it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from vedette_protocol.messages import Buffer
from vedette_protocol.model import body_bytes, pack_parts, unpack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.newest import NewestReader, NewestWriter

_HEADER = struct.Struct("<QI")  # epoch, bytes of the schema that follows


@dataclass(frozen=True, slots=True)
class MappedModel:
    """A model as it stands in the map: `body` as `vedette_protocol.model` packs it."""

    epoch: int
    version: int
    schema: Schema
    body: Buffer

    def info(self) -> ModelInfo:
        """The named arrays, as views of the body.

        Raises:
            ModelError: a value is not finite.
        """
        version, arrays = unpack_model(self.body, self.schema)
        return ModelInfo(version, arrays)


class ModelMapWriter:
    """The one writer; the map is made for models of one schema."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.schema = schema
        self._text = json.dumps(schema.to_wire()).encode()
        self._map = NewestWriter(path, _HEADER.size + len(self._text) + body_bytes(schema))

    def write(self, epoch: int, info: ModelInfo) -> None:
        """Make a model the newest."""
        self._write(epoch, *pack_parts(info.version, info.arrays, self.schema))

    def write_body(self, epoch: int, body: Buffer) -> None:
        """Make a model that is already packed the newest."""
        self._write(epoch, body)

    def _write(self, epoch: int, *body: Buffer) -> None:
        self._map.write(_HEADER.pack(epoch, len(self._text)), self._text, *body)


class ModelMapReader:
    """A reader; there is nothing until the first model was written."""

    def __init__(self, path: Path) -> None:
        self._map = NewestReader(path)
        self._seq = 0
        self._text = b""
        self._schema: Schema | None = None

    @property
    def fresh(self) -> bool:
        """Whether there is a model that `read` has not returned yet; costs a microsecond."""
        return self._map.seq != self._seq

    def read(self) -> MappedModel | None:
        """The newest model, or None before the first."""
        found = self._map.read()
        if found is None:
            return None
        self._seq, data = found
        epoch, length = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        text = data[_HEADER.size : start]
        if self._schema is None or text != self._text:
            self._schema, self._text = Schema.from_wire(json.loads(text)), text
        version = int.from_bytes(data[start : start + 8], "little")
        return MappedModel(epoch, version, self._schema, memoryview(data)[start:])

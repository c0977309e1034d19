"""The newest model in a memory map: how a trainer or a manager hands it to processes beside it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns, ModelInfo
from vedette_rl.newest import NewestReader, NewestWriter

_HEADER = struct.Struct("<QQI")  # epoch, version, bytes of the schema that follows
_SLACK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class MappedModel:
    """A model as it stands in the map: `payload` is laid out by `schema`, one row."""

    epoch: int
    version: int
    schema: Schema
    payload: bytes

    def info(self) -> ModelInfo:
        """The named arrays, as views of the payload."""
        return ModelInfo(self.version, arrays_of(self.schema, self.payload))


def arrays_of(schema: Schema, payload: bytes | memoryview) -> Columns:
    """A model's named arrays from its one row."""
    return {name: column[0] for name, column in schema.views(payload, 1).items()}


class ModelMapWriter:
    """The one writer; the map is made for models of one schema."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.schema = schema
        self._text = json.dumps(schema.to_wire()).encode()
        size = _HEADER.size + len(self._text) + schema.payload_bytes(1) + _SLACK_BYTES
        self._map = NewestWriter(path, size)

    def write(self, epoch: int, info: ModelInfo) -> None:
        """Make a model the newest."""
        self.write_packed(epoch, info.version, pack_model(info.version, info.arrays, self.schema))

    def write_packed(self, epoch: int, version: int, payload: bytes | bytearray) -> None:
        """Make a model that is already laid out by the schema the newest."""
        self._map.write(_HEADER.pack(epoch, version, len(self._text)), self._text, payload)


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
        epoch, version, length = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        text = data[_HEADER.size : start]
        if self._schema is None or text != self._text:
            self._schema, self._text = Schema.from_wire(json.loads(text)), text
        return MappedModel(epoch, version, self._schema, data[start:])

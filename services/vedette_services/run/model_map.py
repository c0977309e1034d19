"""The latest model in a memory map, by which a trainer or a manager shares it with processes.

The map has no checksum of its own. A trainer's model carries the digest that managers check, so
nobody acts on a model that a power cut has torn.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from vedette_protocol.messages import Buffer
from vedette_protocol.model import (
    body_bytes,
    digest_of,
    expand_arrays,
    in_float16,
    pack_model_parts,
    round_arrays,
    unpack_model,
)
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.storage.latest_value import LatestValueReader, LatestValueWriter, read_latest_value

_HEADER = struct.Struct("<QQI8s")  # epoch, env steps, bytes of the schema behind, body's digest
_NO_DIGEST = b"\xff" * 8  # no digest is that: a CRC-32 has four bytes of zeros


@dataclass(frozen=True, slots=True)
class MappedModel:
    """A model in the map; `body` is packed by `vedette_protocol.model`.

    Args:
        digest: of the body; None: the writer is a manager, which has checked the body.
        env_steps: environment steps in the replay when it was made; 0 in a manager's map.
    """

    epoch: int
    version: int
    schema: Schema
    body: Buffer
    digest: bytes | None
    env_steps: int = 0

    def info(self) -> ModelInfo:
        """Return the named arrays as views of the body; those that travelled in 16 bits expanded.

        Raises:
            ModelError: a value is not finite.
        """
        # A manager has checked the values before it wrote the body, and writes no digest
        travelled = self.digest is None
        version, arrays = unpack_model(self.body, self.schema, check=not travelled)
        return ModelInfo(version, expand_arrays(arrays) if travelled else arrays)


class ModelMapWriter:
    """The map's one writer, for models of one schema.

    Args:
        path: of the map.
        schema: of the models.
        sent: of a second map, for the models as they travel in float16; None: they travel as they
            are. Rounding takes 0.3 s for 100 MB, for which a gateway has no time.
    """

    def __init__(self, path: Path, schema: Schema, sent: Path | None = None) -> None:
        self.schema = schema
        self._sent = ModelMapWriter(sent, in_float16(schema)) if sent and sent != path else None
        self._text = json.dumps(schema.to_wire()).encode()
        max_bytes = _HEADER.size + len(self._text) + body_bytes(schema)
        self._map = LatestValueWriter(path, max_bytes, summed=False)

    def write(self, epoch: int, info: ModelInfo, env_steps: int = 0) -> None:
        """Write a model with its digest."""
        if self._sent is not None:  # first: what is in this map was in that one
            rounded = round_arrays(info.arrays, self.schema)
            self._sent.write(epoch, ModelInfo(info.version, rounded), env_steps)
        parts = pack_model_parts(info.version, info.arrays, self.schema)
        self._write(epoch, env_steps, digest_of(*parts), *parts)

    def write_body(self, epoch: int, body: Buffer) -> None:
        """Write a packed model that was checked, without a digest."""
        self._write(epoch, 0, _NO_DIGEST, body)

    @property
    def path(self) -> Path:
        """Of the map."""
        return self._map.path

    def copy_to(self, path: Path) -> ModelMapWriter:
        """Make a second map that holds the last model, too, and return its writer."""
        made = ModelMapWriter(path, self.schema)
        if newest := self._map.value():
            made._map.write(newest)
        return made

    def close(self) -> None:
        """Let another process become the writer; the last model stays."""
        self._map.close()
        if self._sent is not None:
            self._sent.close()

    def _write(self, epoch: int, env_steps: int, digest: bytes, *body: Buffer) -> None:
        header = _HEADER.pack(epoch, env_steps, len(self._text), digest)
        self._map.write(header, self._text, *body)


class ModelMapReader:
    """A reader of the map, which may be opened before its first model is written."""

    def __init__(self, path: Path) -> None:
        self._map = LatestValueReader(path)
        self._seq = 0
        self._text = b""
        self._schema: Schema | None = None

    @property
    def has_new(self) -> bool:
        """True if there is a model that `read` has not returned yet; costs a microsecond."""
        return self._map.seq != self._seq

    def read(self) -> MappedModel | None:
        """Return the latest model; None before the first."""
        found = self._map.read_array()
        if found is None:
            return None
        self._seq = found[0]
        data = found[1].data
        epoch, env_steps, length, digest = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        text = bytes(data[_HEADER.size : start])
        if self._schema is None or text != self._text:
            self._schema = Schema.from_wire(json.loads(text))
            self._text = text
        version = int.from_bytes(data[start : start + 8], "little")
        given = digest if digest != _NO_DIGEST else None
        return MappedModel(epoch, version, self._schema, data[start:], given, env_steps)


def holds_model(path: Path) -> bool:
    """Return True if a trainer that ended left a whole model in the map at `path`.

    Raises:
        LatestValueFormatError: the file is not such a map.
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
    *_, length, digest = _HEADER.unpack_from(data)
    return digest_of(data[_HEADER.size + length :]) == digest

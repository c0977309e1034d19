"""Models on the wire: packed into one body, cut into chunks, put together again.

A body is the version (8 bytes, unsigned, little-endian), then the payload of one row of the
model's schema.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import ModelError, SchemaError
from vedette_protocol.limits import CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, COUNT_MAX, MODEL_MAX_BYTES
from vedette_protocol.messages import Buffer, ModelChunk
from vedette_protocol.schema import Columns, Schema

_VERSION_BYTES: Final = 8


def body_bytes(schema: Schema) -> int:
    """Bytes of the body of any model of this schema."""
    return _VERSION_BYTES + schema.payload_bytes(1)


def pack_model(version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema) -> bytes:
    """The body of a model.

    Raises:
        ModelError: the arrays are not those of the schema: says which differs.
    """
    return b"".join(pack_model_parts(version, arrays, schema))


def pack_model_parts(
    version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema
) -> list[Buffer]:
    """The body of a model in parts, for who writes it somewhere: nothing is copied.

    Raises:
        ModelError: as `pack_model`.
    """
    names = [column.name for column in schema.columns]
    if arrays.keys() != set(names):
        text = f"the model is not of its spec: expected {names}, got {list(arrays)}"
        raise ModelError(text[:400])
    parts: list[Buffer] = [version.to_bytes(_VERSION_BYTES, "little")]
    for column in schema.columns:
        array = arrays[column.name]
        if array.dtype != column.numpy_dtype or array.shape != column.shape:
            raise ModelError(
                f"the model is not of its spec: array {column.name!r}: expected "
                f"{column.numpy_dtype}{list(column.shape)}, got {array.dtype}{list(array.shape)}"
            )
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if padding := -column.row_bytes % 8:
            parts.append(bytes(padding))
    return parts


def check_model(version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema) -> None:
    """Refuse a model that no reader would act on.

    Raises:
        ModelError: a value is not finite.
    """
    try:
        schema.check_values(arrays)
    except SchemaError as error:
        raise ModelError(f"model {version}: {error}") from error


def unpack_model(body: Buffer, schema: Schema, *, look: bool = True) -> tuple[int, Columns]:
    """Version and arrays of a body. The arrays are read-only views of it.

    Args:
        look: into the values, too; False: somebody has, whom we trust.

    Raises:
        ModelError: the body is not one of this schema, or has a value that is not finite.
    """
    expected = body_bytes(schema)
    if len(body) != expected:
        raise ModelError(f"a model of this spec has {expected} bytes, got {len(body)}")
    version = int.from_bytes(body[:_VERSION_BYTES], "little")
    if version > COUNT_MAX:
        raise ModelError(f"a model's version is at most {COUNT_MAX}, got {version}")
    try:
        rows = schema.views(memoryview(body)[_VERSION_BYTES:], 1)
    except SchemaError as error:
        raise ModelError(f"model {version}: {error}") from error
    if look:
        check_model(version, rows, schema)
    return version, {name: row[0, ...] for name, row in rows.items()}


@dataclass(slots=True)
class Digest:
    """CRC-32 of what comes piece by piece: it notices what was torn or mixed up.

    Nobody is kept out by it, nor would be by any digest without a key: that is CURVE's work.
    """

    crc: int = 0

    def update(self, piece: Buffer) -> None:
        """Go on with the next bytes. Other threads run meanwhile."""
        self.crc = zlib.crc32(piece, self.crc)

    @property
    def value(self) -> bytes:
        """Of all so far: 8 bytes, little-endian."""
        return self.crc.to_bytes(8, "little")


def digest_of(*parts: Buffer) -> bytes:
    """The digest that every chunk of a body carries; of one in parts, too."""
    digest = Digest()
    for part in parts:
        digest.update(part)
    return digest.value


def chunk_count(total_bytes: int, chunk_bytes: int = CHUNK_MAX_BYTES) -> int:
    """How many chunks a body of so many bytes is cut into."""
    return -(-total_bytes // min(max(chunk_bytes, CHUNK_MIN_BYTES), CHUNK_MAX_BYTES))


def split_into_chunks(
    run_id: str,
    epoch: int,
    spec: str,
    body: Buffer,
    *,
    digest: bytes | None = None,
    chunk_bytes: int = CHUNK_MAX_BYTES,
) -> Iterator[ModelChunk]:
    """The chunks of a body, of nearly equal size; payloads are views of it.

    Args:
        digest: `digest_of(body)`, where it is known.
        chunk_bytes: the most that a chunk may have, at least 64 KiB.

    Raises:
        ModelError: the body is empty or larger than the wire carries.
    """
    total_bytes = len(body)
    if not _VERSION_BYTES < total_bytes <= MODEL_MAX_BYTES:
        raise ModelError(f"a model of {total_bytes} bytes, expected at most {MODEL_MAX_BYTES}")
    version = int.from_bytes(body[:_VERSION_BYTES], "little")
    digest = digest or digest_of(body)
    count = chunk_count(total_bytes, chunk_bytes)
    size = -(-total_bytes // count)
    view = memoryview(body).toreadonly()
    for index in range(count):
        payload = view[index * size : (index + 1) * size]
        yield ModelChunk(run_id, epoch, version, spec, index, count, total_bytes, digest, payload)


@dataclass(frozen=True, slots=True)
class CompleteModel:
    """A model of which every chunk arrived. Acted on only if run and spec are the agreed ones."""

    run_id: str
    epoch: int
    version: int
    spec: str
    body: Buffer


@dataclass(slots=True)
class _PartialModel:
    """What has arrived of one model."""

    first: ModelChunk
    body: memoryview
    have: bytearray  # one flag a chunk
    missing: int
    hashed: int = 0  # chunks from the first on of which the digest is known
    digest: Digest = field(default_factory=Digest)

    def add_chunk(self, chunk: ModelChunk) -> None:
        """Take a chunk in that was not there before."""
        start = chunk.index * -(-chunk.total_bytes // chunk.count)
        self.body[start : start + len(chunk.payload)] = chunk.payload
        self.have[chunk.index] = 1
        self.missing -= 1
        if chunk.index == self.hashed:  # in order, while others are still on their way
            self.digest.update(chunk.payload)
            self.hashed += 1

    def is_whole(self) -> bool:
        """Whether the bytes give the digest that every chunk named."""
        whole = self.hashed == self.first.count
        return (self.digest.value if whole else digest_of(self.body)) == self.first.digest

    def belongs(self, chunk: ModelChunk) -> bool:
        first = self.first
        return (
            first.digest == chunk.digest
            and first.count == chunk.count
            and first.total_bytes == chunk.total_bytes
            and first.spec == chunk.spec
        )


def _new_memory(length: int) -> NDArray[np.uint8]:
    return np.empty(length, np.uint8)  # numpy's: its pages come many at a time


class ModelAssembler:
    """Puts models together; the newest complete one wins.

    It holds at most one body. Chunks may come in any order and more than once. A newer model drops
    what has arrived of an older one; an older one than the newest complete is ignored. Models are
    ordered by (epoch, version) within a run; a chunk of another run begins anew, because the
    model may arrive before the run message that announces it.

    Args:
        max_bytes: the largest body to accept, `body_bytes(schema)` where the schema is known.
        memory: gives room for a body of so many bytes.
    """

    def __init__(
        self,
        max_bytes: int = MODEL_MAX_BYTES,
        memory: Callable[[int], NDArray[np.uint8]] = _new_memory,
    ) -> None:
        self.max_bytes, self._memory = max_bytes, memory
        self._run_id = ""
        self._newest = (-1, -1)
        self._partial: _PartialModel | None = None

    @property
    def newest_model(self) -> tuple[int, int]:
        """(epoch, version) of the newest complete model; (-1, -1) before the first."""
        return self._newest

    @property
    def missing(self) -> int:
        """Chunks that the model under way still lacks; 0 if none is under way."""
        return 0 if self._partial is None else self._partial.missing

    def reset(self) -> None:
        """Accept any model again: after sockets were remade, the same version may come anew."""
        self._newest = (-1, -1)
        self._partial = None

    def add_chunk(self, chunk: ModelChunk) -> CompleteModel | None:
        """Take a chunk in; the model that it completes, or None.

        Raises:
            ModelError: the model is too large, or its bytes do not give its digest: it is dropped.
        """
        partial = self._partial_model_of(chunk)
        if partial is None or partial.have[chunk.index]:
            return None
        first = partial.first
        partial.add_chunk(chunk)
        if partial.missing:
            return None
        self._partial = None
        if not partial.is_whole():
            raise ModelError(f"model {first.version}: the bytes do not give the digest")
        if int.from_bytes(partial.body[:_VERSION_BYTES], "little") != first.version:
            raise ModelError(f"model {first.version}: the body says another version")
        self._newest = (first.epoch, first.version)
        return CompleteModel(first.run_id, first.epoch, first.version, first.spec, partial.body)

    def _partial_model_of(self, chunk: ModelChunk) -> _PartialModel | None:
        """What has arrived of this chunk's model; None if it is not wanted."""
        if chunk.run_id != self._run_id:
            self.reset()
            self._run_id = chunk.run_id
        model = (chunk.epoch, chunk.version)
        if model <= self._newest:
            return None
        partial = self._partial
        if partial is not None:
            under_way = (partial.first.epoch, partial.first.version)
            if model < under_way:
                return None
            if model == under_way and partial.belongs(chunk):
                return partial
        if chunk.total_bytes > self.max_bytes:
            raise ModelError(
                f"model {chunk.version} has {chunk.total_bytes} bytes, "
                f"expected no more than {self.max_bytes}"
            )
        body = self._memory(chunk.total_bytes).data
        self._partial = _PartialModel(chunk, body, bytearray(chunk.count), chunk.count)
        return self._partial

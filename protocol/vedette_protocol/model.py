"""Models on the wire: packing into one body, splitting into chunks, assembling the chunks.

A body is the version (8 bytes, unsigned, little-endian), then the payload of one row of the
model's schema.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.column import Column, Columns
from vedette_protocol.errors import ModelError, SchemaError
from vedette_protocol.limits import CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, COUNT_MAX, MODEL_MAX_BYTES
from vedette_protocol.messages import Buffer, ModelChunk
from vedette_protocol.schema import Schema

_VERSION_BYTES: Final = 8


def body_bytes(schema: Schema) -> int:
    """Return the size of the body of a model of this schema."""
    return _VERSION_BYTES + schema.payload_bytes(1)


def pack_model(version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema) -> bytes:
    """Pack a model into its body.

    Raises:
        ModelError: an array is missing or unknown, or of another dtype or shape than the schema's.
    """
    return b"".join(pack_model_parts(version, arrays, schema))


def pack_model_parts(
    version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema
) -> list[Buffer]:
    """Pack a model into the parts of its body, without copying them.

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


@contextmanager
def _schema_errors(version: int) -> Iterator[None]:
    """Raise what the schema refuses as an error of the model."""
    try:
        yield
    except SchemaError as error:
        raise ModelError(f"model {version}: {error}") from error


def check_model(version: int, arrays: Mapping[str, NDArray[Any]], schema: Schema) -> None:
    """Refuse a model with a value that is not finite.

    Raises:
        ModelError: names the array.
    """
    with _schema_errors(version):
        schema.check_values(arrays)


def unpack_model(body: Buffer, schema: Schema, *, check: bool = True) -> tuple[int, Columns]:
    """Unpack version and arrays of a body. The arrays are read-only views of it.

    Args:
        check: refuse values that are not finite. False where a trusted process has checked them.

    Raises:
        ModelError: the body does not fit the schema, or has a value that is not finite.
    """
    expected = body_bytes(schema)
    if len(body) != expected:
        raise ModelError(f"a model of this spec has {expected} bytes, got {len(body)}")
    version = int.from_bytes(body[:_VERSION_BYTES], "little")
    if version > COUNT_MAX:
        raise ModelError(f"a model's version is at most {COUNT_MAX}, got {version}")
    with _schema_errors(version):
        rows = schema.views(memoryview(body)[_VERSION_BYTES:], 1)
    if check:
        check_model(version, rows, schema)
    return version, {name: row[0, ...] for name, row in rows.items()}


def in_float16(schema: Schema) -> Schema:
    """Return the schema of models whose weights travel in 16 bits: arrays of float32 with two
    dimensions or more. Biases and statistics are few, and keep their digits."""
    return Schema(tuple(replace(c, dtype="f2") if _travels_short(c) else c for c in schema.columns))


def round_arrays(arrays: Mapping[str, NDArray[Any]], schema: Schema) -> Columns:
    """Return arrays of this schema as those of `in_float16`.

    What is finite stays finite: numbers beyond float16's range become its largest.
    """
    short = {c.name: _rounded(arrays[c.name]) for c in schema.columns if _travels_short(c)}
    return {**arrays, **short}


def expand_arrays(arrays: Mapping[str, NDArray[Any]]) -> Columns:
    """Return arrays of which those in 16 bits are float32 again, as networks take them."""
    return {
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in arrays.items()
    }


def _travels_short(column: Column) -> bool:
    return column.dtype == "f4" and len(column.shape) > 1


def _rounded(array: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore", under="ignore"):
        short = array.astype("<f2")
    if not np.isfinite(short).all():  # what was not finite before shows that the agent diverged
        beyond = np.isinf(short) & np.isfinite(array)
        short[beyond] = np.copysign(np.finfo(np.float16).max, array[beyond])
    return short


def digest_of(*parts: Buffer) -> bytes:
    """Compute the digest of a body, which may be given in parts. Every chunk carries it.

    It is the CRC-32 in 8 bytes, little-endian. It detects damage and mixed-up chunks, and does not
    authenticate: CURVE does that.
    """
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return _digest(crc)


def _digest(crc: int) -> bytes:
    return crc.to_bytes(8, "little")


def chunk_count(total_bytes: int, chunk_bytes: int = CHUNK_MAX_BYTES) -> int:
    """Return the number of chunks of a body of `total_bytes`."""
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
    """Split a body into chunks of nearly equal size. Payloads are views of it.

    Args:
        digest: `digest_of(body)`, where it is known.
        chunk_bytes: the largest size of a chunk, at least 64 KiB.

    Raises:
        ModelError: the body is empty, or larger than `MODEL_MAX_BYTES`.
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
    """A model of which every chunk has arrived. Use it only if run and spec are the agreed ones."""

    run_id: str
    epoch: int
    version: int
    spec: str
    body: Buffer


@dataclass(slots=True)
class _PartialModel:
    """A model of which some chunks have arrived."""

    first: ModelChunk
    body: memoryview
    have: bytearray  # a flag per chunk
    missing: int
    hashed: int = 0  # number of chunks, from the first on, that are in the checksum
    crc: int = 0

    def add_chunk(self, chunk: ModelChunk) -> None:
        """Add a chunk that was missing."""
        start = chunk.index * -(-chunk.total_bytes // chunk.count)
        self.body[start : start + len(chunk.payload)] = chunk.payload
        self.have[chunk.index] = 1
        self.missing -= 1
        if chunk.index == self.hashed:  # in order, while others are still on their way
            self.crc = zlib.crc32(chunk.payload, self.crc)
            self.hashed += 1

    def is_whole(self) -> bool:
        """Return True if the body has the digest that its chunks carry."""
        whole = self.hashed == self.first.count
        return (_digest(self.crc) if whole else digest_of(self.body)) == self.first.digest

    def belongs(self, chunk: ModelChunk) -> bool:
        first = self.first
        return (
            first.digest == chunk.digest
            and first.count == chunk.count
            and first.total_bytes == chunk.total_bytes
            and first.spec == chunk.spec
        )


def _new_memory(length: int) -> NDArray[np.uint8]:
    return np.empty(length, np.uint8)  # faster than bytearray: huge pages, no zeroing


class ModelAssembler:
    """Assembles models from chunks. The newest complete model wins.

    It holds at most one body. Chunks may arrive in any order and more than once. A chunk of a newer
    model discards an incomplete older one; chunks of models up to the newest complete one are
    ignored. Models are ordered by (epoch, version) within a run. A chunk of another run resets
    the assembler, because a model may arrive before its run message.

    Args:
        max_bytes: the largest body to accept; `body_bytes(schema)` where the schema is known.
        memory: allocates an array of so many bytes for a body.
    """

    def __init__(
        self,
        max_bytes: int = MODEL_MAX_BYTES,
        memory: Callable[[int], NDArray[np.uint8]] = _new_memory,
    ) -> None:
        self.max_bytes = max_bytes
        self._memory = memory
        self._run_id = ""
        self.newest_model = (-1, -1)
        """(epoch, version) of the newest complete model; (-1, -1) before the first."""
        self._partial: _PartialModel | None = None

    @property
    def missing(self) -> int:
        """Number of chunks that the incomplete model still lacks; 0 if there is none."""
        return 0 if self._partial is None else self._partial.missing

    def reset(self) -> None:
        """Accept any model again. After new sockets the same version may be sent again."""
        self.newest_model = (-1, -1)
        self._partial = None

    def add_chunk(self, chunk: ModelChunk) -> CompleteModel | None:
        """Add a chunk. Return the model that it completes, or None.

        Raises:
            ModelError: the model is discarded, because it is too large or its digest is wrong.
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
            raise ModelError(f"model {first.version}: its bytes do not match its digest")
        if int.from_bytes(partial.body[:_VERSION_BYTES], "little") != first.version:
            raise ModelError(f"model {first.version}: its body has another version")
        self.newest_model = (first.epoch, first.version)
        return CompleteModel(first.run_id, first.epoch, first.version, first.spec, partial.body)

    def _partial_model_of(self, chunk: ModelChunk) -> _PartialModel | None:
        """Return the incomplete model of this chunk; None if the chunk is not needed."""
        if chunk.run_id != self._run_id:
            self.reset()
            self._run_id = chunk.run_id
        model = (chunk.epoch, chunk.version)
        if model <= self.newest_model:
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

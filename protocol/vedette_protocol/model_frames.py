"""A piece of a model info."""

from __future__ import annotations

from vedette_protocol.errors import MalformedError
from vedette_protocol.fields import Fields
from vedette_protocol.limits import (
    CHUNK_MAX_BYTES,
    CHUNK_MIN_BYTES,
    COUNT_MAX,
    EPOCH_MAX,
    MODEL_MAX_BYTES,
)
from vedette_protocol.messages import Buffer, ModelChunk
from vedette_protocol.packing import check_frame_size, pack_header


def encode_chunk(chunk: ModelChunk) -> list[Buffer]:
    """Header and payload; the payload is handed on, not copied."""
    fields = {
        "run": chunk.run_id,
        "epoch": chunk.epoch,
        "version": chunk.version,
        "spec": chunk.spec,
        "index": chunk.index,
        "count": chunk.count,
        "total_bytes": chunk.total_bytes,
        "digest": chunk.digest,
    }
    return [
        pack_header("model", fields),
        check_frame_size(chunk.payload, CHUNK_MAX_BYTES, "model chunk"),
    ]


def decode_chunk(fields: Fields, payload: Buffer) -> ModelChunk:
    """What the header says, with the payload as it came.

    Raises:
        ProtocolError: it is none.
    """
    total_bytes = fields.integer("total_bytes", 1, MODEL_MAX_BYTES)
    count = fields.integer("count", 1, -(-total_bytes // CHUNK_MIN_BYTES))
    index = fields.integer("index", 0, count - 1)
    chunk = ModelChunk(
        run_id=fields.id("run"),
        epoch=fields.integer("epoch", 0, EPOCH_MAX),
        version=fields.integer("version", 0, COUNT_MAX),
        spec=fields.hash("spec"),
        index=index,
        count=count,
        total_bytes=total_bytes,
        digest=fields.binary("digest", 8, 8),
        payload=payload,
    )
    fields.end_header()
    chunk_bytes = -(-total_bytes // count)
    expected = min(chunk_bytes, total_bytes - index * chunk_bytes)
    if not 0 < expected <= CHUNK_MAX_BYTES or len(payload) != expected:
        raise MalformedError(
            f"chunk {index} of {count} of {total_bytes} bytes has {len(payload)}, "
            f"expected {expected}, no more than {CHUNK_MAX_BYTES}"
        )
    return chunk

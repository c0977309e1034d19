"""Sends models in chunks: the latest one wins, and a large one never blocks the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.messages import Buffer
from vedette_protocol.model import chunk_count, split_into_chunks

Frames = list[Buffer]

_SMALL_QUEUE = 64
_CHUNK_BYTES = 256 << 10  # the reader's work on one falls into the time of the next
_CHUNKS_A_TURN = 32  # at most 8 MB are copied before the gateway polls its other sockets


@dataclass(frozen=True, slots=True)
class PackedModel:
    """A model as it travels: `body` as `vedette_protocol.model` packs it, and its digest."""

    run_id: str
    epoch: int
    spec: str
    body: Buffer
    digest: bytes | None = None


class ModelPublisher:
    """Sends models in chunks, a few at a turn, skipping versions while one is going out."""

    def __init__(self) -> None:
        self.latest: PackedModel | None = None
        self._broadcast: PackedModel | None = None  # to start as soon as the last one is out
        self._joiners: list[bytes] = []  # private topics that wait for the latest
        self._going_out: Iterator[Frames] | None = None

    def publish(self, model: PackedModel) -> None:
        """Send a newer model to everybody."""
        self.latest = self._broadcast = model

    def on_subscribed(self, topic: bytes) -> None:
        """Send the latest model to a private topic that somebody subscribed to."""
        if topic not in self._joiners:
            self._joiners.append(topic)

    @property
    def queue_chunks(self) -> int:
        """Chunks that may wait for one reader: four models.

        A queue that was full takes nothing until half of it is sent (libzmq's low-water mark). With
        room for four models, one fits whole wherever the gap ends, so a connection that is too slow
        for every version still gets some of them complete. All readers' queues share the same
        bytes.
        """
        count = chunk_count(len(self.latest.body), _CHUNK_BYTES) if self.latest else 0
        return max(_SMALL_QUEUE, 4 * count + 4)

    @property
    def busy(self) -> bool:
        """True while there is something to send."""
        waiting = self._broadcast is not None or bool(self._joiners)
        return self._going_out is not None or (waiting and self.latest is not None)

    def next_messages(self) -> list[Frames]:
        """Return the next few messages, topic first; [] if nothing is going out."""
        if self._going_out is None:
            self._going_out = self._next()
        messages: list[Frames] = []
        while self._going_out is not None and len(messages) < _CHUNKS_A_TURN:
            message = next(self._going_out, None)
            if message is None:
                self._going_out = self._next()
                break
            messages.append(message)
        return messages

    def _next(self) -> Iterator[Frames] | None:
        if self.latest is None:
            return None
        if self._joiners:
            return self._messages(self._joiners.pop(0), self.latest)
        if self._broadcast is not None:
            model = self._broadcast
            self._broadcast = None
            return self._messages(topics.ALL, model)
        return None

    def _messages(self, topic: bytes, model: PackedModel) -> Iterator[Frames]:
        for chunk in split_into_chunks(
            model.run_id,
            model.epoch,
            model.spec,
            model.body,
            digest=model.digest,
            chunk_bytes=_CHUNK_BYTES,
        ):
            yield [topic, *encode(chunk)]

"""Asking a learner how its run is doing, over the control port."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import zmq

from vedette_protocol import topics
from vedette_protocol.codec import decode_control
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Status
from vedette_services.addresses import Address
from vedette_services.sockets import control_sub


def ask_status(address: Address, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """The status of the learner at `address`, or None if none answers within `timeout_s`."""
    with StatusAsker(address) as asker:
        return asker.ask(timeout_s)


class StatusAsker:
    """Asks again and again over one connection."""

    def __init__(self, address: Address) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = control_sub(self._context, address)

    def __enter__(self) -> StatusAsker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._context.destroy(linger=0)

    def ask(self, timeout_s: float = 5.0) -> dict[str, Any] | None:
        """The status now; None if none comes within `timeout_s`."""
        topic = topics.status_topic(secrets.token_hex(8))
        self._socket.setsockopt(zmq.SUBSCRIBE, topic)  # the question: a topic that nobody else has
        try:
            return self._answer(topic, time.monotonic() + timeout_s)
        finally:
            self._socket.setsockopt(zmq.UNSUBSCRIBE, topic)

    def _answer(self, topic: bytes, deadline: float) -> dict[str, Any] | None:
        while (left := deadline - time.monotonic()) > 0:
            if not self._socket.poll(int(left * 1000) + 1):
                continue
            frames = self._socket.recv_multipart()
            if frames[0] != topic:
                continue
            try:
                message = decode_control(frames[1:])
            except ProtocolError:
                continue  # not a learner of ours; the deadline bounds the patience with it
            if isinstance(message, Status):
                answer: dict[str, Any] = json.loads(message.json)
                return answer
        return None

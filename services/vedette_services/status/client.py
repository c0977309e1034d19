"""Asking a learner how its run is doing, over the control port."""

from __future__ import annotations

import secrets
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_protocol import messages, topics
from vedette_protocol.codec import decode_control
from vedette_protocol.errors import ProtocolError, VersionError
from vedette_services.errors import RefusedError
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import CONTROL, EVENTS, HandshakeMonitor
from vedette_services.net.keys import ClientKeys
from vedette_services.net.sockets import control_sub
from vedette_services.status.schema import decode, printable_json
from vedette_services.status.status import Status


def ask_status(
    address: Address, timeout_s: float = 5.0, keys: ClientKeys | None = None
) -> Status | None:
    """Return the status of the learner at `address`; None if none answers within `timeout_s`.

    Raises:
        RefusedError: the learner does not let us in.
    """
    with StatusClient(address, keys) as asker:
        return asker.ask(timeout_s)


class StatusClient:
    """Asks a learner for its status, again and again over one connection.

    Args:
        keys: ours and the learner's; None: neither encrypt nor authenticate.

    Raises:
        AddressError: the learner's name does not resolve.
    """

    def __init__(self, address: Address, keys: ClientKeys | None = None) -> None:
        self.address = address
        self.end = self.place = ""
        self.silence_reason = ""
        first, *others = address.resolved()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = control_sub(self._context, first, others=others, keys=keys, events=EVENTS)
        self._monitor = self._socket.get_monitor_socket()
        self._handshake = HandshakeMonitor(address, keys, CONTROL)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def __enter__(self) -> StatusClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=0)

    def ask(self, timeout_s: float = 5.0) -> Status | None:
        """Return the status now; None if none comes within `timeout_s`.

        Raises:
            RefusedError: the learner does not let us in.
        """
        text = self.ask_json(timeout_s)
        return None if text is None else decode(Status, text)

    def ask_json(self, timeout_s: float = 5.0) -> bytes | None:
        """Like `ask`, but return the JSON, with the fields of other versions and printable texts.

        Raises:
            RefusedError: the learner does not let us in.
        """
        topic = topics.status_topic(secrets.token_hex(8))
        self._socket.setsockopt(
            zmq.SUBSCRIBE, topic
        )  # the question: a topic that no other client has
        try:
            return self._answer(topic, time.monotonic() + timeout_s)
        finally:
            self._socket.setsockopt(zmq.UNSUBSCRIBE, topic)

    def _answer(self, topic: bytes, deadline: float) -> bytes | None:
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(self._poller.poll(int(left * 1000) + 1))
            if self._monitor in ready:
                self._poll_monitor()
            if self._socket not in ready:
                continue
            frames = self._socket.recv_multipart()
            if frames[0] != topic:
                continue
            try:
                message = decode_control(frames[1:])
            except VersionError as error:
                raise RefusedError(f"the learner at {self.address}: {error}") from error
            except ProtocolError:
                continue  # not of a learner
            if isinstance(message, messages.Status) and (text := printable_json(message.json)):
                return text
        return None

    def _poll_monitor(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            refused = self._handshake.on_event(event["event"], event["value"])
            if refused:
                raise RefusedError(refused)

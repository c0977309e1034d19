"""Finds out why a learner refuses a connection.

libzmq tries again for ever, or gives up for good, and reports neither. The events of a socket's
monitor, and the greeting that the other side sends, leave one explanation.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.net.sockets import probe_socket

EVENTS: Final[int] = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
"""The events to monitor on a connecting socket."""

SAMPLES: Final = 0
CONTROL: Final = 1
MODELS: Final = 2
"""The three ports, counted from the address's own."""

KEY_REFUSED: Final = 400  # what the other side's ZAP handler answers; other codes may pass
_FAILED = (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
_LOOK_EVERY_S = 1.0
_LOOK_WAIT_S = 0.5
_AT_ONCE_S = 2.0  # a connection that fails later may have met a learner that was busy
_IN_A_ROW = 2  # a learner that starts or ends closes connections, too, but not again and again

# ZMTP 3: a signature, the revision and its minor; the mechanism's name stands in bytes 12 to 31.
_OUR_GREETING: Final = struct.pack(">B8xBBB", 0xFF, 0x7F, 3, 1)
_GREETING_BYTES: Final = 64


class HandshakeMonitor:
    """Reads a connecting socket's monitor; says when there is no point in going on.

    Args:
        address: the learner's.
        keys: the keys that the socket shows.
        port: the port of the address's three that the socket connects to.
    """

    def __init__(self, address: Address, keys: ClientKeys | None, port: int = SAMPLES) -> None:
        self._address = address
        self._keys = keys
        self._port = port
        self._connected_at = float("-inf")
        self._look_at = float("-inf")
        self._failed = 0  # times in a row that a learner was there and the handshake failed

    def on_event(self, event: int, value: int) -> str:
        """A sentence that explains why the other side will never let us in; "" while it may.

        Waits half a second at most, once a second at most.
        """
        now = time.monotonic()
        if event == zmq.EVENT_CONNECTED:
            self._connected_at = now
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._failed = 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == KEY_REFUSED:
            return self._refused_key()
        elif event in _FAILED and now - self._connected_at < _AT_ONCE_S and now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            mechanism = probe_mechanism(self._address, self._port)
            # A proxy or tunnel takes connections for a learner that is away, and closes them.
            self._failed = self._failed + 1 if mechanism == "CURVE" else 0
            return self._explain(mechanism)
        return ""

    def _explain(self, mechanism: str | None) -> str:
        learner = f"the learner at {self._address}"
        keys = self._keys
        if mechanism == "CURVE" and keys is None:
            return (
                f"{learner} lets in only known keys; start with --keys DIR, a folder that "
                "`vedette keys add` makes beside the learner"
            )
        if mechanism == "NULL" and keys is not None:
            return (
                f"{learner} runs without keys, so that it cannot be told from another; start it "
                "with --keys, or give --insecure here if you trust the network"
            )
        if mechanism == "CURVE" and keys is not None and self._failed >= _IN_A_ROW:
            return (
                f"{learner} has another key than learner.toml says; copy this host's folder again "
                "from the learner's --keys folder"
            )
        return ""

    def _refused_key(self) -> str:
        name = f" {self._keys.pair.name!r}" if self._keys else ""
        return (
            f"the learner at {self._address} refused this host's key{name}; "
            "`vedette keys list` beside the learner shows whom it lets in"
        )


_DECIDED = zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED


def time_handshake(
    address: Address, keys: ClientKeys | None, port: int, wait_s: float
) -> float | None:
    """Complete a handshake, which no learner counts as a failed one.

    Returns:
        The seconds until the port took the connection; None if the handshake failed, or there was
        none within `wait_s`.
    """
    began = time.monotonic()
    deadline = began + wait_s
    connected_s = 0.0
    with zmq.Context() as context:
        socket = probe_socket(context, address, port, keys, EVENTS | _DECIDED)
        monitor = socket.get_monitor_socket()
        try:
            while (left := deadline - time.monotonic()) > 0:
                if not monitor.poll(int(left * 1000) + 1):
                    continue
                event = recv_monitor_message(monitor)["event"]
                if event == zmq.EVENT_CONNECTED:
                    connected_s = time.monotonic() - began
                elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    return connected_s
                else:
                    return None
            return None
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)


def probe_mechanism(
    address: Address, port: int = SAMPLES, wait_s: float = _LOOK_WAIT_S
) -> str | None:
    """The security that a ZMTP peer asks for: ``NULL``, ``CURVE``, ...

    Returns:
        "" where something answers that speaks no ZMTP 3, None where nothing does within `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    try:
        place = (address.host, address.port + port)
        with socket.create_connection(place, timeout=wait_s) as connection:
            connection.sendall(_OUR_GREETING)
            greeting = b""
            while len(greeting) < _GREETING_BYTES:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                piece = connection.recv(_GREETING_BYTES - len(greeting))
                if not piece:
                    break
                greeting += piece
    except OSError:
        return None
    return parse_greeting(greeting)


def parse_greeting(greeting: bytes) -> str | None:
    """The mechanism that a greeting names; "" if it is not of ZMTP 3, None if there is none."""
    if not greeting:
        return None
    if len(greeting) < _GREETING_BYTES or greeting[0] != 0xFF or not greeting[9] & 1:
        return ""
    if greeting[10] < 3:
        return ""
    name = greeting[12:32].rstrip(b"\0")
    return name.decode("ascii", "replace") if name.isalnum() else ""

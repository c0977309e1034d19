"""Relays a learner's control port in small packets.

Where answers come through this and not directly, something on the way drops large packets and says
nothing: a VPN or tunnel with a smaller MTU, and a firewall that drops ICMP.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

from vedette_services.net.addresses import Address

SEGMENT_BYTES = 536
"""Of data in a packet: with its headers 576 bytes, which every network carries (RFC 879)."""

_CONNECT_S = 3.0
_POLL_S = 0.5
_READ_BYTES = 65_536


class SmallPackets:
    """A relay on loopback. As a context, it ends with its connections.

    ::

        with SmallPackets(address) as relay, StatusClient(relay.address, keys) as asker:
            status = asker.ask(8.0)

    Args:
        address: the learner's; its control port is relayed.
    """

    def __init__(self, address: Address) -> None:
        self._target = address.host, address.port + 1
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: dict[socket.socket, socket.socket] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._relay, name="small packets", daemon=True)

    @property
    def address(self) -> Address:
        """The address whose control port is the relay."""
        return Address("127.0.0.1", self._listener.getsockname()[1] - 1)

    def __enter__(self) -> SmallPackets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        for end in (*self._ends, self._listener):
            end.close()

    def _relay(self) -> None:
        while not self._closed.is_set():
            readable, _, _ = select.select([self._listener, *self._ends], [], [], _POLL_S)
            for end in readable:
                if end is self._listener:
                    self._accept()
                elif end in self._ends:  # its other end may just have been closed
                    self._pass_on(end)

    def _accept(self) -> None:
        ours, _ = self._listener.accept()
        theirs = socket.socket(socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET)
        try:
            # Before it connects: the learner is told how much we take in a packet.
            theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            theirs.settimeout(_CONNECT_S)
            theirs.connect(self._target)
        except OSError:
            ours.close()
            theirs.close()
            return
        self._ends[ours] = theirs
        self._ends[theirs] = ours

    def _pass_on(self, end: socket.socket) -> None:
        other = self._ends[end]
        data = b""
        with suppress(OSError):
            data = end.recv(_READ_BYTES)
            other.sendall(data)
        if not data:
            for closed in (end, other):
                self._ends.pop(closed).close()

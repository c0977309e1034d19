"""The gateway's door: its three bound sockets, and who comes through."""

from __future__ import annotations

import logging
import resource
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from vedette_services import sockets
from vedette_services.addresses import Address
from vedette_services.errors import PortInUseError
from vedette_services.keys import LearnerKeys
from vedette_services.learner.complaints import Complaints
from vedette_services.learner.doorkeeper import Doorkeeper

log = logging.getLogger("vedette.gateway")

_BIND_WAIT_S = 5.0  # a learner killed a moment ago lets go of its ports within a second
_EVENTS_A_TURN = 64
_FILES_WANTED = 65_536  # a flood of connections must not use up what the replay's files need
_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_ACCEPT_FAILED
)

Socket = zmq.Socket[bytes]


class Door:
    """Binds samples, control and models; with keys, lets in only those that are listed.

    Args:
        address: where to bind.
        keys: None: everybody who reaches the address may come in.

    Raises:
        PortInUseError: a port is taken.
    """

    def __init__(self, address: Address, keys: LearnerKeys | None) -> None:
        _raise_file_limit()
        self._address, self._keys = address, keys
        self._context: zmq.Context[Socket] = zmq.Context()
        self._context.setsockopt(zmq.MAX_SOCKETS, 1024)
        self._keeper: Doorkeeper | None = None
        self.poller = zmq.Poller()
        self._handshakes = 0
        self._complained = (0, 0)
        if keys is not None:
            self._keeper = Doorkeeper(self._context, keys, time.monotonic())
            self.poller.register(self._keeper.socket, zmq.POLLIN)
        self._open()

    def _open(self) -> None:
        self.samples = self._bind(sockets.samples_pull)
        self.control = self._bind(sockets.control_xpub)
        self.models = self._bind(sockets.models_xpub)
        self._monitors = []
        for socket in (self.samples, self.control, self.models):
            self.poller.register(socket, zmq.POLLIN)
            self._monitors.append(socket.get_monitor_socket(_FAILED))

    def _bind(self, make: sockets.Maker) -> Socket:
        deadline = time.monotonic() + _BIND_WAIT_S
        while True:
            try:
                return make(self._context, self._address, self._keys)
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                    raise PortInUseError(self._address, error.strerror) from error
                time.sleep(0.1)

    def turn(self) -> None:
        """Answer those who knock, and count those who could not even do that."""
        if self._keeper is not None:
            self._keeper.turn()
        for monitor in self._monitors:
            for _ in range(_EVENTS_A_TURN):
                if not monitor.poll(0):
                    break
                recv_monitor_message(monitor)
                self._handshakes += 1

    def key_of(self, frame: zmq.Frame) -> str | None:
        """The name of the key that a message came with: "" without keys, None if it is unknown."""
        if self._keeper is None:
            return ""
        try:
            name = frame.get("User-Id")
        except zmq.ZMQError:
            return None  # cannot be: the door is enforced
        return name if isinstance(name, str) else None

    @property
    def refused(self) -> dict[str, int]:
        """How many keys and handshakes were refused."""
        keys = 0 if self._keeper is None else self._keeper.refused
        return {"keys": keys, "handshakes": self._handshakes}

    def complain(self, complaints: Complaints) -> None:
        """Say what was refused since the last time."""
        keys = 0 if self._keeper is None else self._keeper.refused
        if self._keeper is not None and keys > self._complained[0]:
            complaints.add("refused", self._keeper.last_refused)
        if self._handshakes > self._complained[1]:
            new = self._handshakes - self._complained[1]
            complaints.add("handshakes", f"{new} connections were not those of a vedette")
        self._complained = keys, self._handshakes

    def close_out(self, now: float) -> None:
        """End the connections of those whose key was taken off the list.

        libzmq cannot end one connection: all are, and whoever may come back is back in a moment
        and sends again what was not acknowledged.
        """
        if self._keeper is None:
            return
        gone = self._keeper.closed_out(now)
        if gone:
            log.warning("closing out %s: every manager connects anew", ", ".join(sorted(gone)))
            self._shut()
            self._open()

    def _shut(self, linger_ms: int = 0) -> None:
        for socket in (self.samples, self.control, self.models):
            self.poller.unregister(socket)
            socket.disable_monitor()
            socket.close(linger=linger_ms)
        self._monitors.clear()

    def close(self) -> None:
        """Shut, once the last words have gone out or 0.2 s are over."""
        self._shut(200)
        if self._keeper is not None:
            self._keeper.close()
        self._context.term()


def _raise_file_limit() -> None:
    """As many open files as this process may have, so that a flood does not stop the accepting."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""The gateway's three bound sockets, and the connections that fail their handshake."""

from __future__ import annotations

import logging
import os
import socket as tcp
import struct
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress

import zmq

from vedette_protocol.limits import HEADER_MAX_BYTES, PAYLOAD_MAX_BYTES
from vedette_protocol.messages import Buffer
from vedette_services.errors import PortInUseError
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.system import is_established, raise_file_limit
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import LearnerKeys
from vedette_services.net.zap import ZapHandler

log = logging.getLogger("vedette.gateway")

_BIND_WAIT_S = 5.0  # the ports of a learner killed a moment ago are free within a second
_EVENTS_A_TURN = 1024
_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED
_SAMPLES_EVENTS = _EVENTS | zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILED
_NOBLOCK = int(zmq.NOBLOCK)
_EVENT = struct.Struct("=hi")

Socket = zmq.Socket[bytes]


class GatewaySockets:
    """Binds the sockets for samples, control and models; with keys, admits only listed clients.

    Args:
        address: the address to bind.
        keys: None: everybody who reaches the address is admitted.
        model_queue: chunks of models that may wait for each reader.
        copies: payloads are so small that a copy costs less than a zero-copy frame.

    Raises:
        PortInUseError: a port is taken.
    """

    def __init__(
        self, address: Address, keys: LearnerKeys | None, model_queue: int, *, copies: bool = False
    ) -> None:
        raise_file_limit()
        self._address = address
        self._keys = keys
        self._model_queue = model_queue
        self._copies = copies
        self._context: zmq.Context[Socket] = zmq.Context()
        self._zap: ZapHandler | None = None
        self.poller = zmq.Poller()
        self._monitors: dict[Socket, Socket] = {}
        self._failed_handshakes: dict[Socket, FailedHandshakes] = {}
        self._failed_before = 0  # of sockets that are closed
        self._cut_connections = CutConnections()
        self._keys_logged = 0
        if keys is not None:
            self._zap = ZapHandler(self._context, keys, time.monotonic())
            self.poller.register(self._zap.socket, zmq.POLLIN)
        self._open()

    def _open(self) -> None:
        self.samples = self._bind(sockets.samples_pull, _SAMPLES_EVENTS)
        self.control = self._bind(sockets.control_xpub)
        self.models = self._bind(self._make_models)

    def _make_models(
        self, context: zmq.Context[Socket], address: Address, keys: LearnerKeys | None
    ) -> Socket:
        return sockets.models_xpub(context, address, keys, self._model_queue)

    def _monitor(self, socket: Socket, events: int) -> Socket:
        """Make a monitor of the socket's connections."""
        # The time, too: a socket that is bound again may have the id of one that was closed.
        endpoint = f"inproc://gateway-{id(socket):x}-{time.monotonic_ns():x}"
        socket.monitor(endpoint, events)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.LINGER, 0)
        # libzmq's I/O thread, and with it every connection, waits while this queue is full.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.connect(endpoint)
        return monitor

    def _bind(self, make: sockets.Maker, events: int = _EVENTS) -> Socket:
        deadline = time.monotonic() + _BIND_WAIT_S
        while True:
            try:
                socket = make(self._context, self._address, self._keys)
                break
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                    why = error.strerror
                    number = error.errno
                    raise PortInUseError(self._address, why, number) from error
                time.sleep(0.1)
        self.poller.register(socket, zmq.POLLIN)
        self._monitors[socket] = monitor = self._monitor(socket, events)
        self._failed_handshakes[socket] = FailedHandshakes(time.monotonic())
        self.poller.register(monitor, zmq.POLLIN)
        return socket

    def poll(self, wait_ms: int, *, samples: bool) -> dict[object, int]:
        """Wait for messages; answer ZAP requests and count connections.

        Args:
            samples: also wait for samples.

        Returns:
            The sockets and descriptors that are ready.
        """
        self.poller.register(self.samples, zmq.POLLIN if samples else 0)  # 0 takes it out
        ready: dict[object, int] = dict(self.poller.poll(wait_ms))
        if self._zap is not None and self._zap.socket in ready:
            self._zap.answer_requests()
        for socket, monitor in self._monitors.items():
            if monitor in ready:
                self._count_connections(socket, monitor)
        return ready

    def _count_connections(self, socket: Socket, monitor: Socket) -> None:
        samples = socket is self.samples
        handshakes = self._failed_handshakes[socket]
        for _ in range(_EVENTS_A_TURN):
            try:
                event_frames = monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                if samples:
                    self._cut_connections.on_all_read()
                return
            event, value = _EVENT.unpack_from(event_frames[0])
            if samples:
                self._cut_connections.on_event(event, value)
            if event == zmq.EVENT_ACCEPTED:
                handshakes.accepted += 1
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                handshakes.completed += 1
            elif event == zmq.EVENT_ACCEPT_FAILED:
                handshakes.failed += 1

    def set_model_queue(self, chunks: int) -> None:
        """Set the chunks of models that may wait for each reader; further ones are dropped.

        If that is more than before, all readers have to reconnect. libzmq 4.3.5 can change the
        queues of open connections, but also sends the change to one that has just closed and whose
        memory is freed: this crashed the gateway when many clients came and went.
        """
        if chunks > self._model_queue:
            self._model_queue = chunks
            self._unbind(self.models)
            self.models = self._bind(self._make_models)

    def receive(self) -> tuple[list[Buffer], str | None]:
        """Receive a message from the samples' socket, and the name of the sender's key.

        Our messages have at most two frames: frames behind the second are read as the next message.
        A large payload is a view of the frame, a small one a copy (`copies`). The name is ""
        without keys, and None if the key is unknown.

        Raises:
            zmq.Again: there is no message now.
        """
        # Not `recv_multipart`, which asks the socket after each frame whether more come.
        receive = self.samples.recv
        first = receive(_NOBLOCK, copy=False)
        key = "" if self._zap is None else _key_of(first)
        contents: list[Buffer] = [
            first.bytes if len(first) <= HEADER_MAX_BYTES else first.buffer,
        ]
        if first.more:
            contents.append(
                receive(_NOBLOCK) if self._copies else receive(_NOBLOCK, copy=False).buffer
            )
        return contents, key

    def discard_samples(self) -> None:
        """Drop the messages that have come, a bounded number of them."""
        for _ in range(_EVENTS_A_TURN):
            try:
                self.samples.recv_multipart(_NOBLOCK, copy=False)
            except zmq.Again:
                return

    @property
    def admitted(self) -> frozenset[str]:
        """The names of the admitted keys; none without keys."""
        return frozenset() if self._zap is None else self._zap.names

    def names_of(self, keys: Collection[str]) -> frozenset[str]:
        """Return the names of those admitted keys that are among `keys`, as keys (Z85) or names."""
        return frozenset() if self._zap is None else self._zap.names_of(keys)

    @property
    def refused(self) -> dict[str, int]:
        """The number of refused keys, of connections whose handshake has failed for certain, and of
        those that were cut."""
        keys = 0 if self._zap is None else self._zap.refused
        frames = self._cut_connections.count
        handshakes = sum(each.count for each in self._failed_handshakes.values())
        return {"keys": keys, "handshakes": self._failed_before + handshakes, "frames": frames}

    def log_refusals(self, refusals: RateLimitedLog, now: float) -> None:
        """Log what was refused since the last call."""
        if self._zap is not None and self._zap.refused > self._keys_logged:
            self._keys_logged = self._zap.refused
            refusals.add("refused", self._zap.last_refused)
        if why := self._cut_connections.pop_reason():
            refusals.add("frames", why)
        if new := sum(each.count_new(now) for each in self._failed_handshakes.values()):
            refusals.add("connections", f"{new} of no vedette, or of one with other keys or none")

    def close_removed_keys(self, now: float) -> None:
        """End the connections of clients whose key was removed from the list.

        libzmq cannot end a single connection, so all are ended. Other clients reconnect at once and
        send again what was not acknowledged.
        """
        if self._zap is None:
            return
        gone = self._zap.poll_removed_keys(now)
        if gone:
            log.warning("closing out %s: every manager connects again", ", ".join(sorted(gone)))
            self._close_sockets()
            self._open()

    def _close_sockets(self, linger_ms: int = 0) -> None:
        for socket in (self.samples, self.control, self.models):
            self._unbind(socket, linger_ms)

    def _unbind(self, socket: Socket, linger_ms: int = 0) -> None:
        monitor = self._monitors.pop(socket)
        # Peers whose handshake is under way are cut by this: none of them has failed.
        self._failed_before += self._failed_handshakes.pop(socket).count
        if socket is self.samples:
            self._cut_connections.forget_all()
        for one in (socket, monitor):
            if one in self.poller:
                self.poller.unregister(one)
        socket.disable_monitor()
        monitor.close(linger=0)
        socket.close(linger=linger_ms)

    def close(self) -> None:
        """Close, once the last messages are sent or 0.2 s are over."""
        self._close_sockets(200)
        if self._zap is not None:
            self._zap.close()
        self._context.term()


def _key_of(frame: zmq.Frame) -> str | None:
    try:
        name = frame.get("User-Id")
    except zmq.ZMQError:
        return None  # cannot be: ZAP is enforced
    return name if isinstance(name, str) else None


_WATCHED_MAX = 64


class CutConnections:
    """Counts connections for samples that libzmq ended itself: after a frame beyond the limit, or
    bytes that are no frame.

    It does so without a word, and the socket's monitor says only that a connection has ended. But a
    second descriptor shows whether the other side had closed it. There is one for the newest
    connections: one that is cut is made again, and cut again.

    libzmq may have closed a connection, and accepted another under the same number, before its
    acceptance is read here. Only if no end of it had been told after the second descriptor was
    made, that one is surely of this connection.
    """

    def __init__(self) -> None:
        self.count = 0
        self._peers: dict[int, tcp.socket] = {}  # by libzmq's descriptor, oldest first
        self._unsure: set[int] = set()  # descriptors accepted since all events were read
        self._failing = False  # the next connection to end failed its handshake
        self._reason = ""

    def on_event(self, event: int, descriptor: int) -> None:
        """Take an event of the samples' monitor."""
        if event == zmq.EVENT_ACCEPTED:
            self._watch(descriptor)
        elif event & _HANDSHAKE_FAILED:
            self._failing = True
        elif event == zmq.EVENT_DISCONNECTED:
            sure = descriptor in self._peers and descriptor not in self._unsure
            if sure and not self._failing:
                self._examine(self._peers[descriptor])
            self._forget(descriptor)
            self._failing = False

    def on_all_read(self) -> None:
        """Take note that no further event is there."""
        self._unsure.clear()

    def pop_reason(self) -> str:
        """Return why the last connection was cut; "" if none was since the last call."""
        reason = self._reason
        self._reason = ""
        return reason

    def forget_all(self) -> None:
        """Close the second descriptors."""
        for descriptor in list(self._peers):
            self._forget(descriptor)

    def _watch(self, descriptor: int) -> None:
        self._forget(descriptor)
        self._unsure.add(descriptor)
        if len(self._peers) >= _WATCHED_MAX:
            self._forget(next(iter(self._peers)))
        with suppress(OSError):  # it has ended already, or there is no descriptor left
            second = os.dup(descriptor)
            try:
                self._peers[descriptor] = tcp.socket(fileno=second)
            except OSError:
                os.close(second)

    def _forget(self, descriptor: int) -> None:
        if peer := self._peers.pop(descriptor, None):
            peer.close()

    def _examine(self, peer: tcp.socket) -> None:
        try:
            host = peer.getpeername()[0]
        except OSError:
            return
        if is_established(peer):
            self.count += 1
            self._reason = (
                f"a connection of {host} was cut: a frame is larger than {PAYLOAD_MAX_BYTES:,} "
                "bytes, or damaged; make batches smaller (actors.n_buffer)"
            )


SETTLED_S = 4.0
"""libzmq ends a handshake after 3 s (HANDSHAKE_IVL): one that is incomplete by now has failed."""

STALL_S = 2.0
"""After so long without a poll, peers may have given up on connections that were not answered."""


class FailedHandshakes:
    """Counts connections of a bound socket that were accepted, completed, and failed for certain.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, now: float) -> None:
        self.accepted = self.completed = self.failed = 0
        self._past: deque[tuple[float, int]] = deque([(now, 0)])  # when, and accepted by then
        self._polled_at = now
        self._excused = 0
        self._excusing_since: float | None = None
        self._reported = 0

    @property
    def count(self) -> int:
        """Those that have failed for certain, as `count_new` has returned them."""
        return self._reported

    def count_new(self, now: float) -> int:
        """Return the certain failures that were not reported before; call several times a second.

        It may be too low while other connections complete, and catches up.
        """
        if now - self._polled_at > STALL_S and self._excusing_since is None:
            self._excusing_since = now
        self._polled_at = now
        self._past.append((now, self.accepted))
        while len(self._past) > 1 and self._past[1][0] <= now - SETTLED_S:
            self._past.popleft()
        settled = self._past[0][1] if self._past[0][0] <= now - SETTLED_S else 0
        certain = max(0, settled - self.completed - self._excused)
        if self._excusing_since is not None:
            # The gateway stood still, and peers gave up on their connections meanwhile.
            if now - self._excusing_since > SETTLED_S:
                self._excusing_since = None
                unwelcomed = max(0, self.accepted - self.completed)
                self._excused = max(0, unwelcomed + self.failed - self._reported)
            return 0
        new_failures = max(0, certain + self.failed - self._reported)
        self._reported += new_failures
        return new_failures


_REST_S = 0.002
_SHARE_S = 3e-5  # added for each manager, which makes a commit larger
_MOST_S = 0.005


class ReceiveBackoff:
    """Pauses the samples' socket after it was drained, so that more batches share a commit.

    The first batch after a silence is taken at once. Other sockets are served meanwhile.
    """

    def __init__(self) -> None:
        self.managers = 0
        self._until = 0.0

    def start(self, now: float) -> None:
        """Begin a pause."""
        self._until = now + min(_MOST_S, _REST_S + _SHARE_S * self.managers)

    def remaining_ms(self, now: float) -> int:
        """Return the rest of the pause, rounded; 0 when it is over."""
        return max(0, round(1e3 * (self._until - now)))

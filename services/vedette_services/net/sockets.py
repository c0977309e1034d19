"""The sockets and their options: one place, each option with its reason.

Three rules hold everywhere: no ZMTP heartbeats (with a full queue they abort the process, libzmq
#3937), nothing blocks for ever (LINGER 0, polls with a bound), and a queue's high-water mark is
never what limits it: credit is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import cast

import zmq

from vedette_protocol import topics
from vedette_protocol.limits import (
    CHUNK_MAX_BYTES,
    HEADER_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    STATUS_MAX_BYTES,
)
from vedette_protocol.messages import Buffer
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys, LearnerKeys

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
Maker = Callable[[Context, Address, LearnerKeys | None], Socket]
"""Makes one of the learner's bound sockets."""

_send = cast("Callable[[Socket, Buffer, int, bool], object]", zmq.backend.Socket.send)
"""The function below `zmq.Socket.send`, at half the price."""

_COPIED_BYTES = zmq.COPY_THRESHOLD  # smaller frames are copied; read here once, it costs less
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_IPV4 = re.compile(r"tcp://[0-9.]+:[0-9]+")

ZAP_DOMAIN = b"vedette"
"""The name under which the sockets ask who may connect, and the ZAP handler answers."""

_SMALL = 4096  # what a peer may send to a socket that expects next to nothing; CURVE needs > 256


def _open(
    context: Context,
    kind: int,
    *,
    send_queue: int = 1000,
    receive_queue: int = 1000,
    largest_bytes: int = _SMALL,
    dead_ms: int = 20_000,
    kernel_bytes: int = 0,
) -> Socket:
    """Open a socket.

    Args:
        send_queue, receive_queue: whole messages.
        largest_bytes: a larger frame closes its connection.
        dead_ms: TCP_MAXRT: must exceed any stall of the other side.
        kernel_bytes: SO_SNDBUF and SO_RCVBUF; 0 leaves them to the kernel.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)  # accounting is by acks, never by what libzmq still holds
    socket.setsockopt(zmq.SNDHWM, send_queue)
    socket.setsockopt(zmq.RCVHWM, receive_queue)
    socket.setsockopt(zmq.MAXMSGSIZE, largest_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 3000)  # silent peers hold a connection no longer
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    socket.setsockopt(zmq.TCP_MAXRT, dead_ms)  # never keepalive without it
    if kernel_bytes:
        socket.setsockopt(zmq.SNDBUF, kernel_bytes)
        socket.setsockopt(zmq.RCVBUF, kernel_bytes)
    if kind in (zmq.PUSH, zmq.SUB):
        socket.setsockopt(zmq.CONNECT_TIMEOUT, 1500)  # do not wait out the SYN's back-off
        # libzmq adds no jitter of its own once there is a maximum: a herd would come back as one
        socket.setsockopt(zmq.RECONNECT_IVL, random.randint(50, 500))
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    else:
        socket.setsockopt(zmq.BACKLOG, 1024)
    if kind == zmq.XPUB:
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every joiner is seen, also the second on a topic
    return socket


def _choose_family(socket: Socket, endpoint: str) -> None:
    """Let a socket speak IPv6, but where its address is IPv4: some kernels have no IPv6."""
    socket.setsockopt(zmq.IPV6, int(not _IPV4.fullmatch(endpoint)))


def _bind(socket: Socket, endpoint: str, keys: LearnerKeys | None) -> Socket:
    """Bind; where there are keys, only those that the ZAP handler knows are let in."""
    _choose_family(socket, endpoint)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.pair.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        # Without it every peer is admitted whenever no handler answers for the domain: CURVE fails
        # open.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        socket.close(linger=0)  # an open one would hold its context for ever
        raise
    return socket


def _connect(
    socket: Socket,
    endpoint: str,
    keys: ClientKeys | None,
    *,
    events: int = 0,
    subscriptions: Sequence[bytes] = (),
) -> Socket:
    """Connect: with our key and the learner's, if there are keys, and monitored for `events`."""
    _choose_family(socket, endpoint)
    for subscription in subscriptions:
        socket.setsockopt(zmq.SUBSCRIBE, subscription)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.learner)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.pair.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.pair.secret)
    # The monitor first: a handshake may fail before `connect` returns.
    monitor = socket.get_monitor_socket(events) if events else None
    try:
        socket.connect(endpoint)
    except zmq.ZMQError:
        if monitor is not None:
            socket.disable_monitor()
            monitor.close(linger=0)
        socket.close(linger=0)
        raise
    return socket


def send_now(socket: Socket, frames: Sequence[Buffer]) -> None:
    """Send a message without waiting. Large frames are not copied: never write to them again.

    Raises:
        zmq.Again: the socket takes none now.
    """
    # What `send_multipart` does, at a third of its price: there every flag is added up as an enum.
    for frame in frames[:-1]:
        _send(socket, frame, _NOW_AND_MORE, len(frame) < _COPIED_BYTES)
    _send(socket, frames[-1], _NOW, len(frames[-1]) < _COPIED_BYTES)


def samples_pull(context: Context, address: Address, keys: LearnerKeys | None = None) -> Socket:
    """The learner's end for samples, bound. Always drained: credit keeps its queue short."""
    socket = _open(
        context,
        zmq.PULL,
        receive_queue=4096,
        largest_bytes=PAYLOAD_MAX_BYTES,
        kernel_bytes=1 << 20,  # bounds what is in flight
    )
    return _bind(socket, address.samples, keys)


def samples_push(
    context: Context, address: Address, keys: ClientKeys | None = None, events: int = 0
) -> Socket:
    """A manager's end for samples, connecting; `get_monitor_socket` reports `events`."""
    socket = _open(context, zmq.PUSH, send_queue=4096, kernel_bytes=1 << 20)
    # Its own queue goes with the connection, so that resending on a new one sends each batch once.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    return _connect(socket, address.samples, keys, events=events)


def probe_socket(
    context: Context, address: Address, port: int, keys: ClientKeys | None, events: int
) -> Socket:
    """A socket that completes its handshake at one of a learner's three ports and sends nothing."""
    endpoint = (address.samples, address.control, address.models)[port]
    socket = _open(context, zmq.SUB if port else zmq.PUSH)
    return _connect(socket, endpoint, keys, events=events)


def control_xpub(context: Context, address: Address, keys: LearnerKeys | None = None) -> Socket:
    """The learner's end for runs, acks, stops and status, bound."""
    return _bind(_open(context, zmq.XPUB), address.control, keys)


def control_sub(
    context: Context,
    address: Address,
    *subscriptions: bytes,
    others: Sequence[Address] = (),
    keys: ClientKeys | None = None,
    events: int = 0,
) -> Socket:
    """The end of a manager, or of who asks for the status, for control, connecting.

    `get_monitor_socket` reports `events`.

    Args:
        others: more addresses of the same learner: whatever comes from any of them is received.
    """
    socket = _open(context, zmq.SUB, largest_bytes=STATUS_MAX_BYTES + HEADER_MAX_BYTES)
    _connect(socket, address.control, keys, events=events, subscriptions=subscriptions)
    for other in others:
        _choose_family(socket, other.control)
        socket.connect(other.control)
    return socket


def models_xpub(
    context: Context, address: Address, keys: LearnerKeys | None = None, queue: int = 1000
) -> Socket:
    """The learner's end for models, bound; `queue` chunks may wait for each reader."""
    socket = _open(context, zmq.XPUB, send_queue=queue, dead_ms=30_000)
    return _bind(socket, address.models, keys)


def models_sub(
    context: Context, address: Address, *subscriptions: bytes, keys: ClientKeys | None = None
) -> Socket:
    """A manager's end for models, connecting. A thread of its own must always receive."""
    socket = _open(
        context,
        zmq.SUB,
        receive_queue=8192,
        largest_bytes=CHUNK_MAX_BYTES + HEADER_MAX_BYTES,
        dead_ms=30_000,
        kernel_bytes=4 << 20,
    )
    return _connect(socket, address.models, keys, subscriptions=subscriptions)


def manager_subscriptions(manager: str) -> tuple[bytes, bytes]:
    """The topics of a manager, on control and on models: everybody's and its own."""
    return topics.ALL, topics.manager_topic(manager)

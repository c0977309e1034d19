"""A network in memory on a virtual clock, and real sockets in its place.

Every manager has one connection to the gateway with three channels, as it has three sockets:
samples up, control and models down. A channel keeps its order and loses nothing.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import zmq

from vedette_protocol import topics
from vedette_protocol.messages import Buffer
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import LearnerKeys
from vedette_services.net.zap import ZapHandler

Frames: TypeAlias = list[Buffer]
Channel: TypeAlias = Literal["samples", "control", "models"]


class VirtualClock:
    """A clock that runs only in `advance`, and makes the calls that are due.

    ::

        clock.call_at(clock.now + 0.5, report)
        clock.advance(1.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()  # calls of one moment keep their order

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Schedule a call."""
        heapq.heappush(self._due, (at, next(self._numbers), call))

    def advance(self, seconds: float) -> None:
        """Let this time pass; a call that is due may advance the clock further."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            at, _, call = heapq.heappop(self._due)
            self.now = max(self.now, at)
            call()
        self.now = max(self.now, until)


class ManagerEnd(Protocol):
    """A manager, as seen by the network."""

    def on_connected(self) -> None:
        """Note that the connection is made."""
        ...

    def on_disconnected(self) -> None:
        """Note that the connection is lost."""
        ...

    def on_control(self, frames: Frames) -> None:
        """Take a message of the control channel, topic first."""
        ...

    def on_model_chunk(self, frames: Frames) -> None:
        """Take a message of the models' channel, topic first."""
        ...


class GatewayEnd(Protocol):
    """The gateway, as seen by the network."""

    def on_samples(self, frames: Frames) -> None:
        """Take a batch or a report."""
        ...

    def on_subscription(self, channel: Channel, event: bytes) -> None:
        """Take a subscription to the control or the models' channel."""
        ...


@dataclass(slots=True)
class Line:
    """One manager's connection."""

    manager: str
    end: ManagerEnd
    made: int = 0  # times connected; messages of earlier connections are lost
    up: bool = False


class MemoryNetwork:
    """Carries frames between managers and one gateway.

    Args:
        clock: the clock of the messages' delays.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._lines: dict[str, Line] = {}
        self._gateway: GatewayEnd | None = None

    # Connections

    def attach(self, gateway: GatewayEnd) -> None:
        """Make the gateway listen: every manager is connected."""
        self._gateway = gateway
        for line in self._lines.values():
            self._connect(line)

    def detach(self) -> None:
        """Disconnect the gateway; messages in flight are lost."""
        self._gateway = None
        for line in self._lines.values():
            self._disconnect(line)

    def open(self, manager: str, end: ManagerEnd) -> None:
        """Connect a manager."""
        line = self._lines[manager] = Line(manager, end)
        self._connect(line)

    def close(self, manager: str) -> None:
        """Disconnect a manager; messages in flight are lost."""
        line = self._lines.pop(manager, None)
        if line is not None:
            line.made += 1

    def ask_for_models(self, manager: str) -> None:
        """Subscribe a manager to models again."""
        line = self._lines.get(manager)
        if line is not None and line.up:
            self._carry(line, "samples", self._subscribe(line, "models"), certain=True)

    def _connect(self, line: Line) -> None:
        if self._gateway is None:
            return
        line.made = line.made + 1
        line.up = True
        for channel in ("control", "models"):
            self._carry(line, "samples", self._subscribe(line, channel), certain=True)
        self._carry(line, "control", line.end.on_connected, certain=True)

    def _subscribe(self, line: Line, channel: Channel) -> Callable[[], None]:
        gateway = self._gateway
        assert gateway is not None, "connections need a gateway"
        return lambda: gateway.on_subscription(
            channel, b"\x01" + topics.manager_topic(line.manager)
        )

    def _disconnect(self, line: Line) -> None:
        line.made += 1
        if line.up:
            line.up = False
            line.end.on_disconnected()

    # Messages

    def send_up(self, manager: str, frames: Frames) -> bool:
        """Send a batch or a report; False if the manager is not connected."""
        line = self._lines.get(manager)
        gateway = self._gateway
        if line is None or gateway is None or not line.up:
            return False
        self._carry(line, "samples", lambda: gateway.on_samples(frames))
        return True

    def publish(self, channel: Channel, frames: Frames) -> None:
        """Send a message to the subscribers of its first frame, the topic."""
        topic = bytes(frames[0])
        if topic == topics.ALL:
            for line in list(self._lines.values()):
                self._send_down(line, channel, frames)
        elif (subscriber := self._lines.get(topic[2:-1].decode())) is not None:
            self._send_down(subscriber, channel, frames)

    def _send_down(self, line: Line, channel: Channel, frames: Frames) -> None:
        if line.up:
            end = line.end
            receive = end.on_control if channel == "control" else end.on_model_chunk
            self._carry(line, channel, lambda: receive(frames))

    def _carry(
        self, line: Line, channel: Channel, arrive: Callable[[], None], *, certain: bool = False
    ) -> None:
        """Deliver a message, unless the connection is made again before; `certain`: no fault may
        befall it."""
        made = line.made

        def arrived() -> None:
            if line.made == made:
                arrive()

        self.clock.call_at(self.clock.now, arrived)


_POLL_MS = 5


class SocketNetwork(MemoryNetwork):
    """Binds a learner's sockets for a gateway of this process, on a clock that keeps real time.

    ::

        network = SocketNetwork(address)            # or with keys
        gateway = GatewayHost(state, ring, network, rows_per_batch)
        network.open_sockets()
        while ...: network.serve()              # a turn of a few milliseconds
        network.close_sockets()                 # as by a kill -9
    """

    def __init__(self, address: Address, keys: LearnerKeys | None = None) -> None:
        super().__init__(VirtualClock())
        self._address = address
        self.keys = keys
        """Of the sockets that are opened next; whom they admit may connect."""
        self._zap: ZapHandler | None = None
        self._context: sockets.Context = zmq.Context()
        self._sockets: dict[Channel, sockets.Socket] = {}
        self._served_at = time.monotonic()
        self.stood_still_s = 0.0
        """The longest time from one turn to the next."""

    def attach(self, gateway: GatewayEnd) -> None:
        """Give what comes to this gateway."""
        self._gateway = gateway

    def detach(self) -> None:
        """Drop what comes from now on."""
        self._gateway = None

    def open_sockets(self) -> None:
        """Bind them.

        Raises:
            zmq.ZMQError: a port is taken.
        """
        makers: tuple[tuple[Channel, sockets.Maker], ...] = (
            ("samples", sockets.samples_pull),
            ("control", sockets.control_xpub),
            ("models", sockets.models_xpub),
        )
        if self.keys is not None:
            self._zap = ZapHandler(self._context, self.keys, time.monotonic())
        for channel, make in makers:
            self._sockets[channel] = make(self._context, self._address, self.keys)

    def close_sockets(self) -> None:
        """Close them at once, with whatever was not read or not sent."""
        for socket in self._sockets.values():
            socket.close(linger=0)
        self._sockets.clear()
        if self._zap is not None:
            self._zap.close()
            self._zap = None

    def end(self) -> None:
        """Close everything."""
        self.close_sockets()
        self._context.term()

    def serve(self) -> None:
        """Take what has come, and make the calls that are due."""
        poller = zmq.Poller()
        for socket in self._sockets.values():
            poller.register(socket, zmq.POLLIN)
        if self._zap is not None:
            poller.register(self._zap.socket, zmq.POLLIN)
        ready = dict(poller.poll(_POLL_MS))
        for channel, socket in list(self._sockets.items()):
            if socket in ready:
                self.on_message(channel, socket.recv_multipart())
        if self._zap is not None and self._zap.socket in ready:
            self._zap.answer_requests()
        now = time.monotonic()
        passed_s = now - self._served_at
        self._served_at = now
        self.stood_still_s = max(self.stood_still_s, passed_s)
        self.clock.advance(passed_s)

    def on_message(self, channel: Channel, frames: Sequence[bytes]) -> None:
        """Give a message, or a subscription, to the gateway."""
        if self._gateway is None:
            return
        if channel == "samples":
            self._gateway.on_samples(list(frames))
        else:
            self._gateway.on_subscription(channel, frames[0])

    def publish(self, channel: Channel, frames: Frames) -> None:
        """Send a message to all that subscribe to its first frame, the topic."""
        if channel in self._sockets:
            self._sockets[channel].send_multipart(frames)

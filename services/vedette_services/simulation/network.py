"""A network in memory on a virtual clock, and the faults that a seed draws for it.

Every manager has one connection to the gateway with three channels, as it has three sockets:
samples up, control and models down. Without faults, a channel keeps its order and loses nothing.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from vedette_protocol import topics
from vedette_protocol.messages import Buffer

Frames: TypeAlias = list[Buffer]
Channel: TypeAlias = Literal["samples", "control", "models"]
Seconds: TypeAlias = tuple[float, float]
"""Least and greatest value of a uniform draw."""

GATEWAY = ""
"""The gateway's name in a fault plan."""


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


@dataclass(frozen=True, slots=True)
class TimedFault:
    """A fault of one host: its connection is cut, or it is killed."""

    at: float
    kind: Literal["cut", "silent cut", "kill"]
    host: str
    seconds: float  # until the connection works again, or the host is started again


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of a network, all drawn from one seed. Without arguments there are none.

    Args:
        drop, repeat, reorder: shares of messages that are lost, that come twice, and that later
            ones may overtake.
        delay_s: of every message.
        late_s: further delay of a message that may be overtaken.
        cuts_per_s, cut_s: rate for each connection, and duration. Every other cut is silent:
            messages vanish, and neither side is notified.
        kills_per_s, down_s: rate for each host, and time until it is started again.
        until_s: there are no new faults from this time on.
    """

    seed: int = 0
    drop: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    delay_s: Seconds = (0.0, 0.0)
    late_s: Seconds = (0.0, 1.0)
    cuts_per_s: float = 0.0
    cut_s: Seconds = (0.1, 10.0)
    kills_per_s: float = 0.0
    down_s: Seconds = (0.1, 10.0)
    until_s: float = math.inf

    def timed(self, hosts: Iterable[str]) -> list[TimedFault]:
        """List every cut and kill until `until_s`, in order; `GATEWAY` is killed and never cut."""
        found: list[TimedFault] = []
        for host in hosts:
            rng = random.Random(f"{self.seed} {host}")
            if host != GATEWAY:
                for at in _moments(rng, self.cuts_per_s, self.until_s):
                    kind: Literal["cut", "silent cut"] = rng.choice(("cut", "silent cut"))
                    found.append(TimedFault(at, kind, host, rng.uniform(*self.cut_s)))
            found += [
                TimedFault(at, "kill", host, rng.uniform(*self.down_s))
                for at in _moments(rng, self.kills_per_s, self.until_s)
            ]
        return sorted(found, key=lambda fault: fault.at)


def _moments(rng: random.Random, per_s: float, until_s: float) -> Iterator[float]:
    at = 0.0
    while per_s and (at := at + rng.expovariate(per_s)) < until_s:
        yield at


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
class _Line:
    """One manager's connection."""

    manager: str
    end: ManagerEnd
    made: int = 0  # times connected; messages of earlier connections are lost
    up: bool = False
    last: dict[Channel, float] = field(default_factory=dict)  # when the latest message arrives


class MemoryNetwork:
    """Carries frames between managers and one gateway.

    Args:
        clock: of the messages' delays.
        plan: the faults; the owner of the hosts applies cuts and kills, see `FaultPlan.timed`.
    """

    def __init__(self, clock: VirtualClock, plan: FaultPlan | None = None) -> None:
        self.clock = clock
        self._plan = plan or FaultPlan()
        self._rng = random.Random(self._plan.seed)
        self._faulty = plan is not None
        self._lines: dict[str, _Line] = {}
        self._cut: set[str] = set()  # managers
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
        line = self._lines[manager] = _Line(manager, end)
        self._connect(line)

    def close(self, manager: str) -> None:
        """Disconnect a manager; messages in flight are lost."""
        line = self._lines.pop(manager, None)
        if line is not None:
            line.made += 1

    def cut(self, manager: str, seconds: float, *, silent: bool) -> None:
        """Cut a manager's connection for this time.

        Args:
            silent: messages vanish meanwhile, and neither side is notified.
        """
        if manager in self._cut:
            return
        self._cut.add(manager)
        if not silent and (line := self._lines.get(manager)) is not None:
            self._disconnect(line)

        def restore() -> None:
            self._cut.remove(manager)
            if (line := self._lines.get(manager)) is not None and not line.up:
                self._connect(line)

        self.clock.call_at(self.clock.now + seconds, restore)

    def ask_for_models(self, manager: str) -> None:
        """Subscribe a manager to models anew."""
        line = self._lines[manager]
        self._carry(line, "samples", self._subscribe(line, "models"), certain=True)

    def _connect(self, line: _Line) -> None:
        if self._gateway is None or line.manager in self._cut:
            return
        line.made, line.up = line.made + 1, True
        line.last.clear()
        for channel in ("control", "models"):
            self._carry(line, "samples", self._subscribe(line, channel), certain=True)
        self._carry(line, "control", line.end.on_connected, certain=True)

    def _subscribe(self, line: _Line, channel: Channel) -> Callable[[], None]:
        gateway = self._gateway
        assert gateway is not None, "connections need a gateway"
        return lambda: gateway.on_subscription(
            channel, b"\x01" + topics.manager_topic(line.manager)
        )

    def _disconnect(self, line: _Line) -> None:
        line.made += 1
        if line.up:
            line.up = False
            line.end.on_disconnected()

    # Messages

    def send_up(self, manager: str, frames: Frames) -> bool:
        """Send a batch or a report; False if the manager is not connected."""
        line, gateway = self._lines.get(manager), self._gateway
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
        elif (found := self._lines.get(topic[2:-1].decode())) is not None:
            self._send_down(found, channel, frames)

    def _send_down(self, line: _Line, channel: Channel, frames: Frames) -> None:
        if line.up:
            end = line.end
            receive = end.on_control if channel == "control" else end.on_model_chunk
            self._carry(line, channel, lambda: receive(frames))

    def _carry(
        self, line: _Line, channel: Channel, arrive: Callable[[], None], *, certain: bool = False
    ) -> None:
        """Deliver a message, or drop, repeat or delay it; `certain` ones have no faults."""
        now, made = self.clock.now, line.made

        def arrived() -> None:
            if line.made == made and (certain or line.manager not in self._cut):
                arrive()

        if not self._faulty:
            self.clock.call_at(now, arrived)
            return
        plan, rng = self._plan, self._rng
        faults = not certain and now < plan.until_s
        if faults and rng.random() < plan.drop:
            return
        for _ in range(1 + (faults and rng.random() < plan.repeat)):
            at = now + rng.uniform(*plan.delay_s)
            if faults and rng.random() < plan.reorder:
                at += rng.uniform(*plan.late_s)
            else:
                at = line.last[channel] = max(at, line.last.get(channel, at))
            self.clock.call_at(at, arrived)

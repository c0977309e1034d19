"""A simulated machine: a clock that may run wrongly, a network card, and a process that may stop.

What runs on it (`ManagerHost`, `GatewayHost`) takes it for the network and for the clock. Stopped
for a while (SIGSTOP, a slow disk), it takes all that came meanwhile afterwards, in order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from faulty_network import FaultyNetwork  # beside this file

from vedette_services.simulation.network import Channel, Frames, GatewayEnd, ManagerEnd


class MachineKilledError(Exception):
    """The process that is running was killed: it goes no further."""


class SignedFrames(list):  # type: ignore[type-arg]  # of frames
    """Frames that came over a connection with a key."""

    key = ""


class Machine:
    """One host. Times that it is asked for or gives are its own clock's.

    Args:
        key: name of its connection's key.
        offset_s, rate: what its clock shows at time 0, and how fast it runs.
    """

    def __init__(
        self, name: str, network: FaultyNetwork, *, key: str, offset_s: float, rate: float
    ) -> None:
        self.name = name
        self.key = key
        self.clock = self
        self.killed = False
        self._network = network
        self._world = network.clock
        self._offset_s = offset_s
        self._rate = rate
        self._stops = 0
        self.awake_at = 0.0  # since then it has run without a stop, if it is `awake`
        self._backlog: deque[Callable[[], None]] = deque()
        self.overheard: deque[tuple[float, Frames]] | None = None
        """Takes what it sends, for those who replay it."""

    # The clock

    @property
    def now(self) -> float:
        """The time that its clock shows."""
        return self._offset_s + self._rate * self._world.now

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Schedule a call."""
        self._world.call_at((at - self._offset_s) / self._rate, partial(self.run, call))

    # The process

    @property
    def awake(self) -> bool:
        """True unless it is stopped, or still works off what came meanwhile."""
        return not (self._stops or self._backlog)

    def run(self, call: Callable[[], None]) -> None:
        """Make a call now, or once it runs again; never once it was killed."""
        if self.killed:
            return
        if self._stops or self._backlog:
            self._backlog.append(call)
            return
        with suppress(MachineKilledError):  # what it was doing ends here
            call()

    def kill(self) -> None:
        """End the process at once, wherever it is."""
        self.killed = True

    def pause(self, seconds: float) -> None:
        """Stop the process for this time."""
        self._stops += 1
        self._world.call_at(self._world.now + seconds, self._resume)

    def block(self, seconds: float) -> None:
        """Wait in a system call: the others go on meanwhile.

        Raises:
            MachineKilledError: it was killed meanwhile.
        """
        self._stops += 1
        self._world.advance(seconds)
        self._stops -= 1
        self.awake_at = self._world.now
        if self.killed:
            raise MachineKilledError
        self._world.call_at(self._world.now, self._work_off)

    def _resume(self) -> None:
        self._stops -= 1
        self.awake_at = self._world.now
        self._work_off()

    def _work_off(self) -> None:
        backlog = self._backlog
        self._backlog = deque()
        while backlog and not (self._stops or self._backlog):  # one may have blocked
            self.run(backlog.popleft())
        self._backlog.extendleft(reversed(backlog))

    # The network card

    # Its name is its own, whatever manager id it uses.

    def open(self, _: str, end: ManagerEnd) -> None:
        self._network.open(self.name, _ManagerPort(self, end))

    def close(self, _: str) -> None:
        self._network.close(self.name)

    def ask_for_models(self, _: str) -> None:
        self._network.ask_for_models(self.name)

    def send_up(self, _: str, frames: Frames) -> bool:
        signed = SignedFrames(frames)
        signed.key = self.key
        if self.overheard is not None:
            self.overheard.append((self._world.now, frames))
        return self._network.send_up(self.name, signed)

    def attach(self, gateway: GatewayEnd) -> None:
        self._network.attach(_GatewayPort(self, gateway))

    def detach(self) -> None:
        self._network.detach()

    def publish(self, channel: Channel, frames: Frames) -> None:
        self._network.publish(channel, frames)


class _ManagerPort:
    def __init__(self, machine: Machine, end: ManagerEnd) -> None:
        self._machine = machine
        self._end = end

    def on_connected(self) -> None:
        self._machine.run(self._end.on_connected)

    def on_disconnected(self) -> None:
        self._machine.run(self._end.on_disconnected)

    def on_control(self, frames: Frames) -> None:
        self._machine.run(lambda: self._end.on_control(frames))

    def on_model_chunk(self, frames: Frames) -> None:
        self._machine.run(lambda: self._end.on_model_chunk(frames))


class _GatewayPort:
    def __init__(self, machine: Machine, end: GatewayEnd) -> None:
        self._machine = machine
        self._end = end

    def on_samples(self, frames: Frames) -> None:
        self._machine.run(lambda: self._end.on_samples(frames))

    def on_subscription(self, channel: Channel, event: bytes) -> None:
        self._machine.run(lambda: self._end.on_subscription(channel, event))


def skewed_clock(rng: random.Random, most: float) -> dict[str, float]:
    """Draw the clock of a machine: up to `most` faster or slower than it should run."""
    return {"offset_s": rng.uniform(0.0, 1e5), "rate": rng.uniform(1.0 - most, 1.0 + most)}

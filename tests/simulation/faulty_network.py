"""A network that drops, repeats, delays and reorders messages and cuts connections, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vedette_protocol import topics
from vedette_services.simulation.network import (
    Channel,
    Frames,
    Line,
    ManagerEnd,
    MemoryNetwork,
    VirtualClock,
)

Seconds: TypeAlias = tuple[float, float]
"""Least and greatest value of a uniform draw."""

Cut: TypeAlias = Literal["seen", "silent", "up", "down", "models"]
"""Both sides are notified; or messages vanish both ways, or one way, or models alone do."""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """The faults of single messages.

    Args:
        drop, repeat, reorder: shares of messages that are lost, that come twice, and that later
            ones may overtake.
        delay_s: of every message, also without faults.
        late_s: further delay of a message that may be overtaken.
        until_s: no faults from this time on.
    """

    drop: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    delay_s: Seconds = (0.0, 0.0)
    late_s: Seconds = (0.0, 1.0)
    until_s: float = 0.0


class FaultyNetwork(MemoryNetwork):
    """A `MemoryNetwork` with faults. After `faults.until_s` only delays are left.

    Several machines may use one id.

    Args:
        id_of: gives the manager id that a machine uses.
    """

    def __init__(
        self,
        clock: VirtualClock,
        faults: NetworkFaults,
        rng: random.Random,
        id_of: Callable[[str], str],
    ) -> None:
        super().__init__(clock)
        self._id_of = id_of
        self._copies: set[str] = set()  # machines whose id another one uses, too
        self.carried = 0
        self._faults = faults
        self._rng = rng
        self._cuts: dict[str, Cut] = {}
        self._last: dict[tuple[str, Channel], float] = {}  # when the latest message arrives

    def open(self, manager: str, end: ManagerEnd) -> None:
        """Connect a machine."""
        if self._id_of(manager) != manager:
            self._copies.add(manager)
        super().open(manager, end)

    def publish(self, channel: Channel, frames: Frames) -> None:
        """Send a message to the subscribers of its first frame, the topic."""
        super().publish(channel, frames)
        for name in sorted(self._copies):
            if name in self._lines and bytes(frames[0]) == topics.manager_topic(self._id_of(name)):
                self._send_down(self._lines[name], channel, frames)

    def _subscribe(self, line: Line, channel: Channel) -> Callable[[], None]:
        return super()._subscribe(Line(self._id_of(line.manager), line.end), channel)

    def cut(self, name: str, seconds: float, kind: Cut) -> None:
        """Cut a host's connection for this time, unless it is cut."""
        if name in self._cuts:
            return
        self._cuts[name] = kind
        if kind == "seen" and (line := self._lines.get(name)) is not None:
            self._disconnect(line)

        def restore() -> None:
            del self._cuts[name]
            if (line := self._lines.get(name)) is not None and not line.up:
                self._connect(line)

        self.clock.call_at(self.clock.now + seconds, restore)

    def _connect(self, line: Line) -> None:
        if self._cuts.get(line.manager, "models") == "models":
            super()._connect(line)

    def _carry(
        self, line: Line, channel: Channel, arrive: Callable[[], None], *, certain: bool = False
    ) -> None:
        self.carried += 1
        now = self.clock.now
        made = line.made
        faults = self._faults
        rng = self._rng
        cuts = self._cuts
        name = line.manager
        way = "up" if channel == "samples" else "down"

        def arrived() -> None:
            if line.made == made and (
                certain or name not in cuts or cuts[name] not in ("seen", "silent", way, channel)
            ):
                arrive()

        unsafe = not certain and now < faults.until_s
        if unsafe and rng.random() < faults.drop:
            return
        for _ in range(1 + (unsafe and rng.random() < faults.repeat)):
            at = now + rng.uniform(*faults.delay_s)
            if unsafe and rng.random() < faults.reorder:
                at += rng.uniform(*faults.late_s)
            else:
                at = self._last[name, channel] = max(at, self._last.get((name, channel), at))
            self.clock.call_at(at, arrived)

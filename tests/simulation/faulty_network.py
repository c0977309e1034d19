"""A network that drops, repeats, delays and reorders messages and cuts connections, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vedette_services.simulation.network import Channel, Line, MemoryNetwork, VirtualClock

Seconds: TypeAlias = tuple[float, float]
"""Least and greatest value of a uniform draw."""

Cut: TypeAlias = Literal["seen", "silent", "up", "down"]
"""Both sides are notified; or messages vanish both ways, or one way."""


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
    """A `MemoryNetwork` with faults. After `faults.until_s` only delays are left."""

    def __init__(self, clock: VirtualClock, faults: NetworkFaults, rng: random.Random) -> None:
        super().__init__(clock)
        self.carried = 0
        self._faults, self._rng = faults, rng
        self._cuts: dict[str, Cut] = {}
        self._last: dict[tuple[str, Channel], float] = {}  # when the latest message arrives

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
        if line.manager not in self._cuts:
            super()._connect(line)

    def _carry(
        self, line: Line, channel: Channel, arrive: Callable[[], None], *, certain: bool = False
    ) -> None:
        self.carried += 1
        now, made, faults, rng = self.clock.now, line.made, self._faults, self._rng
        cuts, name, way = self._cuts, line.manager, "up" if channel == "samples" else "down"

        def arrived() -> None:
            if line.made == made and (
                certain or name not in cuts or (cuts[name] != way and cuts[name] in ("up", "down"))
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

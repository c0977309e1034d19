"""Many managers in one process: the real daemon's sockets, timers and state, without actors."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from vedette_services.actors.actor_process import ActorProcess, ActorProcesses
from vedette_services.actors.connection import Identity
from vedette_services.actors.instructions import Instruction, StartActor
from vedette_services.actors.manager import Manager
from vedette_services.actors.manager_state import ManagerState
from vedette_services.host.processes import StopSignals
from vedette_services.net.addresses import Address


class _Hurried(ActorProcesses):
    poll_ms = 0  # each has its turn soon


class _Idle(Manager[ActorProcess]):
    """A manager that starts nobody."""

    def _execute(self, instruction: Instruction) -> None:
        if not isinstance(instruction, StartActor):
            super()._execute(instruction)

    def turn(self, signals: StopSignals) -> None:
        self._run_once(signals)

    def end(self) -> None:
        self._end()


class Herd:
    """So many managers, each given its turn. As a context, they end.

    Args:
        place: for their maps.
    """

    def __init__(self, address: Address, count: int, place: Path) -> None:
        self._signals = StopSignals(signals=())
        self._managers: list[_Idle] = []
        for i in range(count):
            state = ManagerState(
                Identity(f"herd-{i}", "here", str(address)),
                count=1,
                allow_import=frozenset(),
                incarnation=lambda: secrets.randbits(64),
                jitter=random.random,
                now=time.monotonic(),
            )
            directory = place / f"herd-{i}"
            directory.mkdir()
            actors = _Hurried(partial(Path, directory))
            self._managers.append(_Idle(lambda: address, f"herd-{i}", state, actors))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for manager in self._managers:
            manager.end()

    def turn_for(self, seconds: float) -> None:
        """Give everybody turns for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._turn()

    def turn_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Give everybody turns until something holds, looked at twice a second, or fail."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
            self.turn_for(0.5)

    def _turn(self) -> None:
        for manager in self._managers:
            manager.turn(self._signals)
        time.sleep(0.005)

"""Tells a process that stands still from one that takes long, by the heartbeat that each writes.

A loop that has not come round is no fault by itself: networks are compiled for minutes, a graph is
captured, a checkpoint is read from a slow disk, a debugger holds the process. So what the process
does meanwhile decides how long it rightly may:

====================================================  ==================================
its process is stopped (SIGSTOP)                      `STOPPED_S`
its main thread is in one call, at one place          `CALL_S`
its main thread moves, it compiles, or it starts      `LOOP_S`
a debugger or tracer holds it, or is loaded in it     for ever
a training loop of the user                           for ever
====================================================  ==================================

Beyond that it counts as hung.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vedette_services.status.records import Heartbeat, StatusRecordReader
from vedette_services.status.status import Heartbeats

SAID_S = 10.0
"""A loop that has not come round for so long is in the status."""
STOPPED_S = 30.0
CALL_S = 300.0
LOOP_S = 1800.0

JUDGED = ("trainer", "gateway", "supervisor")
"""Processes that may hang. The evaluator waits for environments, whose limit is configured
(`evaluation.episode_timeout_s`): the supervisor holds it to that."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A process whose loop has not come round for a while.

    Args:
        process: its name.
        seconds: since its loop came round last, or since its start.
        reason: what it does, or what holds it.
        overdue: the time as a multiple of what it rightly may take; from 1 on it is hung.
    """

    process: str
    seconds: float
    reason: str
    overdue: float

    @property
    def is_hung(self) -> bool:
        return self.overdue >= 1.0

    def __str__(self) -> str:
        stood = f"the {self.process} has stood still for {self.seconds:.0f} s"
        return f"{stood}: {self.reason}"


def find_standstill(
    process: str, beat: Heartbeat, now: float, state: str = "", since: float = 0.0
) -> Standstill | None:
    """Return the standstill of a process; None while its loop comes round, or is starting.

    Args:
        beat: its heartbeat; an empty one says nothing.
        now: by the clock of the heartbeats, which stands while the machine is suspended.
        state: as `vedette_services.host.system.process_state` returns it.
        since: nothing before counts: who asks stood still as well.
    """
    begun = max(beat.turn_s, beat.began_s)
    loop_s = now - max(begun, since)
    if not begun or loop_s < SAID_S:
        return None
    overdue = loop_s / LOOP_S
    starts = not beat.turn_s
    if state == "stopped":
        overdue = max(overdue, loop_s / STOPPED_S)
    elif not (starts or beat.compiles):
        overdue = max(overdue, (now - max(begun, beat.moved_s, since)) / CALL_S)
    if state == "traced" or beat.debugged or not beat.bounded:
        overdue = 0.0
    if starts and state != "stopped" and overdue < 1.0:
        return None  # the phase says that it starts
    return Standstill(process, loop_s, _describe(beat, now, state), overdue)


def _describe(beat: Heartbeat, now: float, state: str) -> str:
    at = f", at {beat.place}" if beat.place else ""
    if not beat.bounded:
        return "the training loop has neither drawn a batch nor waited for one"
    if state == "traced":
        return f"a debugger or tracer holds its process {beat.pid}"
    if state == "stopped":
        return f"its process is stopped (`kill -CONT {beat.pid}` lets it go on)"
    if beat.debugged:
        return f"a debugger is loaded in it{at}"
    if not beat.turn_s:
        return f"it is starting{at}"
    if beat.compiles:
        return f"it compiles networks{at}"
    if state == "uninterruptible":
        return f"its process waits for a disk or a driver{at}"
    if now - beat.beat_s > SAID_S or not beat.place:
        return f"its process gives no sign{at}"
    return f"it is{at.lstrip(',')}"


class HeartbeatReader:
    """Reads the heartbeats of a run's processes.

    Args:
        path_of: returns the map of a process's heartbeat.
        state_of: returns the state of a process, as `process_state` does.
    """

    def __init__(self, path_of: Callable[[str], Path], state_of: Callable[[int], str]) -> None:
        self._state_of = state_of
        self._records = {
            name: StatusRecordReader(path_of(name), Heartbeat) for name in (*JUDGED, "evaluator")
        }

    def read(self, process: str) -> Heartbeat:
        """Return the last heartbeat of a process; an empty one where there is none."""
        return self._records[process].read()

    def standstill(self, process: str, now: float, since: float = 0.0) -> Standstill | None:
        """Return the standstill of a process, as `find_standstill` does."""
        beat = self.read(process)
        if now - max(beat.turn_s, beat.began_s) < SAID_S:
            return None  # without asking the system for its state
        state = self._state_of(beat.pid) if beat.pid else ""
        return find_standstill(process, beat, now, state, since)

    def ages(self, now: float) -> Mapping[str, float]:
        """Return the seconds since each loop came round, of the processes that have a heartbeat."""
        beats = {name: reader.read() for name, reader in self._records.items()}
        came_round = {name: max(beat.turn_s, beat.began_s) for name, beat in beats.items()}
        return {name: round(max(0.0, now - at_s), 3) for name, at_s in came_round.items() if at_s}


PAUSE_S = 5.0
"""A longer time between two of the supervisor's own rounds: it stood still too (a suspended
machine, a frozen container), and so nobody is judged by the time before."""


class OwnPauses:
    """Notes when the process that judges others stood still itself."""

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self.since = 0.0
        """When it went on; what was before does not count."""

    def note(self, now: float) -> None:
        """Note a round of its own loop."""
        if self._asked_at is not None and now - self._asked_at > PAUSE_S:
            self.since = now
        self._asked_at = now


@dataclass(frozen=True, slots=True)
class Liveness:
    """What the heartbeats say at a moment: `numbers` for the status, and who stands still."""

    numbers: Heartbeats = field(default_factory=Heartbeats)
    standstills: tuple[Standstill, ...] = ()

    @classmethod
    def read(
        cls, beats: HeartbeatReader, now: float, *, is_training_over: bool, since: float = 0.0
    ) -> Liveness:
        """Read it.

        Args:
            since: as `find_standstill` has it.
            is_training_over: the trainer only waits for the last evaluation.
        """
        ages = beats.ages(now)
        judged = [name for name in JUDGED if not (is_training_over and name == "trainer")]
        found = [beats.standstill(name, now, since) for name in judged]
        standstills = tuple(one for one in found if one is not None)
        hung = [one for one in standstills if one.is_hung]
        return cls(
            Heartbeats(
                **{f"{name}_s": age for name, age in ages.items()},
                hung=len(hung),
                processes=", ".join(one.process for one in hung),
                reason="; ".join(map(str, hung)),
            ),
            standstills,
        )

    def stands_still(self, process: str) -> bool:
        """Return True if a process stands still."""
        return any(one.process == process for one in self.standstills)


def restart_threshold(restarts: int) -> float:
    """Return the multiple of what a process rightly may take, beyond which it is started again.

    It is first said, and doubles with each restart that brought nothing.
    """
    return math.ldexp(2.0, restarts)

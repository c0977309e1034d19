"""Decides what is done about a process that stands still: said, said louder, started again."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import NamedTuple

from vedette_services.status.heartbeats import Standstill, restart_threshold


class Line(NamedTuple):
    """A line for the log."""

    level: int
    text: str


class Verdict(NamedTuple):
    """What is to be done about a process now.

    Args:
        lines: for the log.
        restart: why it is to be started again; "" if it is not.
    """

    lines: tuple[Line, ...] = ()
    restart: str = ""


class _Stage(IntEnum):
    NONE = 0
    SAID = 1
    HUNG = 2


class StandstillWatch:
    """Follows one process.

    ::

        still = heartbeat_reader.standstill(name, now, own_pauses.since)
        verdict = standstill_watch.judge(still, restarts)
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._stage = _Stage.NONE
        self._seconds = 0.0

    def judge(self, standstill: Standstill | None, restarts: int) -> Verdict:
        """Return what is to be done.

        Args:
            standstill: of the process now; None: it works.
            restarts: those for standing still that brought nothing.
        """
        if standstill is None:
            return self._end()
        self._seconds = standstill.seconds
        if standstill.overdue >= restart_threshold(restarts):
            self._stage = _Stage.NONE
            return Verdict(restart=str(standstill))
        if standstill.is_hung and self._stage < _Stage.HUNG:
            self._stage = _Stage.HUNG
            factor = restart_threshold(restarts) / standstill.overdue
            left_s = standstill.seconds * (factor - 1.0)
            text = f"{standstill}; unless it goes on, it is started again in {left_s:.0f} s"
            return Verdict((Line(logging.ERROR, text),))
        if self._stage is _Stage.NONE:
            self._stage = _Stage.SAID
            level = logging.WARNING if standstill.overdue else logging.INFO
            return Verdict((Line(level, str(standstill)),))
        return Verdict()

    def _end(self) -> Verdict:
        if self._stage is _Stage.NONE:
            return Verdict()
        self._stage = _Stage.NONE
        text = f"the {self._process} works again; it stood still for {self._seconds:.0f} s"
        return Verdict((Line(logging.INFO, text),))

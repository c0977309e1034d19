"""The actors of a host: who plays, who died and why, who starts again and when."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Literal

from vedette_protocol.messages import ActorReport
from vedette_services.actors.stats import ActorStats

HEALTHY_S = 60.0
"""An actor that lived so long begins its back-off, and its record of errors, anew."""

DEATHS_AT_START = 5
"""So many deaths in a row without one step played, and nobody can play here."""

START_TIMEOUT_S = 180.0
"""Imports and building the environments may take so long."""

_ERROR_CHARS = 200

SeatState = Literal["empty", "alive", "leaving"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a seat stays empty after a death, and at most after several in a row."""

    first_s: float = 0.5
    last_s: float = 30.0

    def after(self, backoff_s: float) -> float:
        """The next wait, after one of `backoff_s`; 0: there was none."""
        return min(self.last_s, 2 * backoff_s if backoff_s else self.first_s)


@dataclass(slots=True)
class Seat:
    """One actor's place: the processes in it come and go."""

    index: int
    state: SeatState = "empty"
    start_at: float = 0.0
    started_at: float = 0.0
    moved_at: float = 0.0  # when its env steps were last seen to change, or it waited for us
    backoff_s: float = 0.0  # once it has died; 0: as the run says
    processes: int = 0
    stats: ActorStats = field(default_factory=ActorStats)
    env_steps_before: int = 0  # of the processes before
    episodes_before: int = 0
    error: str = ""
    why_killed: str = ""

    def report(self) -> ActorReport:
        return ActorReport(
            id=self.index,
            alive=self.state != "empty",
            restarts=max(0, self.processes - 1),
            env_steps=self.env_steps_before + self.stats.env_steps,
            episodes=self.episodes_before + self.stats.episodes,
            version=max(0, self.stats.version),
            return_mean=self.stats.return_mean,
            length_mean=self.stats.length_mean,
            error=(self.error or self.stats.error)[:_ERROR_CHARS],
        )


class Roster:
    """Seats and their back-off. Times are the caller's `now`, in seconds."""

    def __init__(self, count: int) -> None:
        self.seats = [Seat(index) for index in range(count)]
        self.closed = False  # nobody is started any more
        self._backoff = Backoff()
        self._deaths_at_start = 0
        self._last_tick: float | None = None

    def due(self, now: float) -> list[Seat]:
        """Empty seats whose back-off is over."""
        if self.closed:
            return []
        return [seat for seat in self.seats if seat.state == "empty" and now >= seat.start_at]

    def started(self, seat: Seat, now: float) -> None:
        """A process took the seat."""
        seat.state = "alive"
        seat.started_at = seat.moved_at = now
        seat.processes += 1
        seat.stats = ActorStats()
        seat.why_killed = ""

    def on_stats(self, index: int, stats: ActorStats, now: float) -> None:
        """What the process in the seat tells of itself."""
        seat = self.seats[index]
        if stats.env_steps != seat.stats.env_steps or stats.waits_for_us:
            seat.moved_at = now
        if stats.env_steps > 0:
            self._deaths_at_start = 0
        if now - seat.started_at > HEALTHY_S:
            seat.error = ""
        seat.stats = stats

    def on_tick(self, now: float) -> None:
        """Time in which this process itself was stopped is nobody's standstill."""
        if self._last_tick is not None and (gap := now - self._last_tick) > 2.0:
            for seat in self.seats:
                seat.moved_at += gap
        self._last_tick = now

    def hung(self, now: float, step_timeout_s: float) -> list[Seat]:
        """Actors that stand still though nothing holds them; each is told once."""
        hung = []
        for seat in self.seats:
            if seat.state != "alive" or seat.why_killed:
                continue
            starting = seat.stats.state == "starting"
            since = seat.started_at if starting else seat.moved_at
            limit = max(START_TIMEOUT_S, step_timeout_s) if starting else step_timeout_s
            if now - since > limit:
                what = "did not start" if starting else "made no step"
                seat.why_killed = f"{what} within {limit:g} s: killed"
                hung.append(seat)
        return hung

    def vacate(self, index: int, code: int, cause: str, now: float) -> str:
        """The process in the seat is gone.

        Args:
            cause: the exception that ended it, in one line; "" where it left no word.

        Returns:
            Why it died, or "" if it was asked to go.
        """
        seat = self.seats[index]
        asked = seat.state == "leaving"
        played = seat.stats.env_steps
        seat.env_steps_before += played
        seat.episodes_before += seat.stats.episodes
        seat.stats = ActorStats(
            version=seat.stats.version,
            return_mean=seat.stats.return_mean,
            length_mean=seat.stats.length_mean,
        )
        seat.state = "empty"
        if asked:
            seat.start_at = now
            return "" if code == 0 or seat.why_killed else cause or _how_it_ended(code)
        if now - seat.started_at > HEALTHY_S:
            seat.backoff_s = 0.0
        if played == 0:
            self._deaths_at_start += 1
        seat.error = seat.why_killed or cause or _how_it_ended(code)
        seat.backoff_s = self._backoff.after(seat.backoff_s)
        seat.start_at = now + seat.backoff_s
        return seat.error

    def close(self) -> None:
        """Nobody is started again; whoever plays is expected to end."""
        self.closed = True
        for seat in self.seats:
            if seat.state == "alive":
                seat.state = "leaving"

    def replace(self, now: float, backoff: Backoff) -> list[Seat]:
        """Another run begins: seats start afresh; returns those whose process must go first."""
        self._backoff = backoff
        going = [seat for seat in self.seats if seat.state == "alive"]
        for seat in self.seats:
            seat.start_at, seat.backoff_s, seat.error = now, 0.0, ""
        for seat in going:
            seat.state, seat.why_killed = "leaving", "another run begins"
        return going

    def despair(self, why: str) -> None:
        """Nobody can play here: that is what is wrong with every actor, from the first on."""
        self.seats = self.seats or [Seat(0)]
        for seat in self.seats:
            seat.state, seat.error = "empty", why

    @property
    def alive(self) -> list[Seat]:
        """Seats with a process in them."""
        return [seat for seat in self.seats if seat.state != "empty"]

    @property
    def hopeless(self) -> bool:
        """Whether actors only ever die here, before their first step."""
        return self._deaths_at_start >= DEATHS_AT_START

    def reports(self) -> tuple[ActorReport, ...]:
        return tuple(seat.report() for seat in self.seats)


def _how_it_ended(code: int) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with status {code}"

"""The actors of a host: their processes and deaths, and when they start again."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vedette_protocol.messages import ActorReport
from vedette_rl.envs.failures import MOST_FAILURES, PROGRESS_STEPS
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.standstill import describe_standstill
from vedette_services.host.stack_request import StackFrame

HEALTHY_S = 60.0
"""An actor that lived so long has its back-off and its record of errors reset."""

DEATHS_AT_START = 5
"""After so many deaths in a row without one step played, no actor can play here."""

FRUITLESS_DEATHS = 3
"""After so many exceptions in a row without progress (see `ActorRecord.progressed`), at least one
of every actor, none can play here for long."""

START_TIMEOUT_S = 180.0
"""Imports and building the environments may take so long."""

_ERROR_CHARS = 200

ActorPresence = Literal["empty", "alive", "leaving"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before an actor is started after a death, and the longest after several in a row."""

    first_s: float = 0.5
    last_s: float = 30.0

    def after(self, backoff_s: float) -> float:
        """The next wait, after one of `backoff_s`; 0: there was none."""
        return min(self.last_s, 2 * backoff_s if backoff_s else self.first_s)


@dataclass(slots=True)
class ActorRecord:
    """One actor's place: the processes in it come and go."""

    index: int
    state: ActorPresence = "empty"
    start_at: float = 0.0
    started_at: float = 0.0
    plays_since: float = 0.0  # its process; until it plays, now
    fruitless_deaths: int = 0  # in a row, of exceptions
    progressed_at: float = 0.0  # when its env steps were last seen to change, or it waited for us
    backoff_s: float = 0.0  # once it has died; 0: as the run says
    processes: int = 0
    stats: ActorStats = field(default_factory=ActorStats)
    env_steps_before: int = 0  # of the processes before
    episodes_before: int = 0
    failures_before: int = 0
    returns_before: int = 0
    return_sum_before: float = 0.0
    error: str = ""
    last_error: str = ""  # in this run, of its processes and environments
    why_killed: str = ""
    stood_s: float = 0.0  # for longer, when it was found to stand still

    def progressed(self, now: float) -> bool:
        """Return whether something has come of its process, so that it may die and start again:
        steps for a minute, or for each failure of an environment, and its own, 1,000 steps; 100
        where episodes end."""
        if self.stats.env_steps and now - self.plays_since > HEALTHY_S:
            return True
        wanted = PROGRESS_STEPS / MOST_FAILURES if self.stats.episodes else PROGRESS_STEPS
        return self.stats.env_steps >= wanted * (self.stats.failures + 1)

    def report(self, *, ended: bool = False) -> ActorReport:
        """Report its counts and what is wrong with it now.

        Args:
            ended: nobody plays any more: what was wrong is reported, too.
        """
        error = self.error or self.stats.error or (self.last_error if ended else "")
        return ActorReport(
            id=self.index,
            alive=self.state != "empty",
            restarts=max(0, self.processes - 1),
            env_steps=self.env_steps_before + self.stats.env_steps,
            episodes=self.episodes_before + self.stats.episodes,
            version=max(0, self.stats.version),
            return_mean=self.stats.return_mean,
            length_mean=self.stats.length_mean,
            error=error[:_ERROR_CHARS],
            returns=self.returns_before + self.stats.returns,
            return_sum=self.return_sum_before + self.stats.return_sum,
        )


class Roster:
    """The actors of a host and their back-off. Times are the caller's `now`, in seconds.

    Args:
        count: the number of actors.
        gives_up: no actor is started again for ever if each dies of an exception soon.
    """

    def __init__(self, count: int, *, gives_up: bool = False) -> None:
        self.actors = [ActorRecord(index) for index in range(count)]
        self.closed = False  # no actor is started any more
        self._backoff = Backoff()
        self._deaths_at_start = 0
        self._gives_up = gives_up

    def due_actors(self, now: float) -> list[ActorRecord]:
        """Actors without a process whose back-off is over."""
        if self.closed:
            return []
        return [actor for actor in self.actors if actor.state == "empty" and now >= actor.start_at]

    def on_started(self, actor: ActorRecord, now: float) -> None:
        """The actor's process was started."""
        actor.state = "alive"
        actor.started_at = actor.progressed_at = actor.plays_since = now
        actor.processes += 1
        actor.stats = ActorStats()
        actor.why_killed = ""

    def on_start_refused(self, index: int, why: str, now: float) -> float:
        """The system started no process for the actor, which is no death of it.

        Returns:
            Seconds until it is tried again.
        """
        actor = self.actors[index]
        actor.state = "empty"
        actor.processes -= 1
        actor.error = why
        actor.backoff_s = self._backoff.after(actor.backoff_s)
        actor.start_at = now + actor.backoff_s
        return actor.backoff_s

    def on_stats(self, index: int, stats: ActorStats, now: float) -> None:
        """The actor's process published its statistics."""
        actor = self.actors[index]
        began = stats.state != actor.stats.state  # environments may have been made for long
        if began or stats.env_steps != actor.stats.env_steps or stats.waits_for_manager:
            actor.progressed_at = now
        if stats.env_steps > 0:
            self._deaths_at_start = 0
        if now - actor.started_at > HEALTHY_S:
            actor.error = ""
        if stats.state in ("starting", "waiting for a model"):
            actor.plays_since = now
        actor.stats = stats
        actor.last_error = stats.error or actor.last_error

    def on_paused(self, seconds: float, now: float) -> None:
        """Leave the time in which this process itself stood still, until now, out of the actors'
        standstill."""
        for actor in self.actors:
            actor.progressed_at = min(actor.progressed_at + seconds, now)

    def find_hung(self, now: float, step_timeout_s: float) -> list[ActorRecord]:
        """Actors that stand still though nothing holds them; each is told once."""
        hung = []
        for actor in self.actors:
            if actor.state != "alive" or actor.why_killed:
                continue
            starting = actor.stats.state == "starting"
            makes = starting or actor.stats.state == "making an environment again"
            since = actor.started_at if starting else actor.progressed_at
            limit = max(START_TIMEOUT_S, step_timeout_s) if makes else step_timeout_s
            if now - since > limit:
                actor.stood_s = limit
                actor.why_killed = f"made no step within {limit:g} s: killed"
                hung.append(actor)
        return hung

    def on_inspected(self, index: int, frames: Sequence[StackFrame]) -> str:
        """An actor that stands still has said where; returns why it is killed."""
        actor = self.actors[index]
        actor.why_killed = describe_standstill(frames, actor.stood_s)
        return actor.why_killed

    def on_exited(self, index: int, code: int, cause: str, now: float) -> str:
        """The actor's process is gone.

        Args:
            cause: the exception that ended it, in one line; "" where it left no word.

        Returns:
            Why it died, or "" if it was asked to go.
        """
        actor = self.actors[index]
        asked = actor.state == "leaving"
        fruitless = bool(cause) and not actor.why_killed and not actor.progressed(now)
        played = actor.stats.env_steps
        actor.env_steps_before += played
        actor.episodes_before += actor.stats.episodes
        actor.failures_before += actor.stats.failures
        actor.returns_before += actor.stats.returns
        actor.return_sum_before += actor.stats.return_sum
        actor.stats = ActorStats(
            version=actor.stats.version,
            return_mean=actor.stats.return_mean,
            length_mean=actor.stats.length_mean,
        )
        actor.state = "empty"
        if asked:
            actor.start_at = now
            return "" if code == 0 or actor.why_killed else cause or _describe_exit(code)
        if now - actor.started_at > HEALTHY_S:
            actor.backoff_s = 0.0
        if played == 0:
            self._deaths_at_start += 1
        actor.fruitless_deaths = actor.fruitless_deaths + 1 if fruitless else 0
        actor.error = actor.last_error = actor.why_killed or cause or _describe_exit(code)
        actor.backoff_s = self._backoff.after(actor.backoff_s)
        actor.start_at = now + actor.backoff_s
        return actor.error

    def close(self) -> None:
        """Start no actor any more; those that play are expected to end."""
        self.closed = True
        for actor in self.actors:
            if actor.state == "alive":
                actor.state = "leaving"

    def begin_run(self, now: float, backoff: Backoff) -> list[ActorRecord]:
        """Another run begins: actors start afresh; returns those whose process must go first."""
        self._backoff = backoff
        going = [actor for actor in self.actors if actor.state == "alive"]
        for actor in self.actors:
            actor.start_at = now
            actor.backoff_s = 0.0
            actor.error = actor.last_error = ""
        for actor in going:
            actor.state = "leaving"
            actor.why_killed = "another run begins"
        return going

    def mark_all_failed(self, why: str) -> None:
        """Report this error for every actor: none can play here."""
        self.actors = self.actors or [ActorRecord(0)]
        for actor in self.actors:
            actor.state = "empty"
            actor.error = why

    @property
    def alive_actors(self) -> list[ActorRecord]:
        """Actors that have a process."""
        return [actor for actor in self.actors if actor.state != "empty"]

    @property
    def is_hopeless(self) -> bool:
        """Return whether actors only die here, before their first step or before anything comes of
        it."""
        if self._deaths_at_start >= DEATHS_AT_START:
            return True
        deaths = [actor.fruitless_deaths for actor in self.actors]
        return self._gives_up and all(deaths) and sum(deaths) >= FRUITLESS_DEATHS

    @property
    def failures(self) -> int:
        """Failures of single environments, which were made again."""
        return sum(actor.failures_before + actor.stats.failures for actor in self.actors)

    def reports(self) -> tuple[ActorReport, ...]:
        return tuple(actor.report(ended=self.closed) for actor in self.actors)


def _describe_exit(code: int) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with status {code} and no error: its environment's code ended the process"

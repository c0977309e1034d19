"""The managers as the learner sees them: their last report, when it came, who is gone."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from vedette_protocol.messages import ActorReport, Report
from vedette_rl.storage.atomic_files import write_json
from vedette_services.host.rate_limited import RateLimitedLog
from vedette_services.learner.lag import RateMeter
from vedette_services.run.status import Actor, Manager, Window
from vedette_services.run.status_records import GONE_AFTER_S

FORGET_AFTER_S = 3600.0  # silence after which it is no longer shown
MEMBERS_MAX = 1024  # as many as the ledger keeps
STATUS_BYTES = 3 << 20  # what all managers together may take in a status, some 10,000 actors


@dataclass(slots=True)
class FleetMember:
    """One manager's last report, its actors as the status shows them, its rate of samples."""

    report: Report
    seen: float
    actors: tuple[Actor, ...]
    gone: bool = False
    rate: RateMeter = field(default_factory=RateMeter)
    samples_per_sec: float = 0.0


class Fleet:
    """Who has reported, by manager id.

    Args:
        figures_time: turns a `now` into the time that rates are measured by.
    """

    def __init__(self, figures_time: Callable[[float], float] = lambda now: now) -> None:
        self._figures_time = figures_time
        self._members: dict[str, FleetMember] = {}

    def on_report(self, report: Report, now: float) -> bool:
        """Take a report; True if the manager was unknown, gone, or is another incarnation."""
        member = self._members.get(report.manager)
        same = member is not None and member.report.incarnation == report.incarnation
        new = member is None or member.gone or not same
        rate = member.rate if member is not None and same else RateMeter()
        gone = report.state == "gone"
        actors = tuple(_actor(actor, alive=actor.alive and not gone) for actor in report.actors)
        self._members[report.manager] = FleetMember(
            report, now, actors, gone, rate, rate.update(report.produced, self._figures_time(now))
        )
        if len(self._members) > MEMBERS_MAX:
            self._forget_one(report.manager)
        return new

    def _forget_one(self, but: str) -> None:
        """Of those that are gone, or of all, the one that has been silent longest."""
        others = [(not x.gone, x.seen, m) for m, x in self._members.items() if m != but]
        del self._members[min(others)[2]]

    def on_batch(self, manager: str, now: float) -> None:
        """A batch is a sign of life too."""
        if member := self._members.get(manager):
            member.seen = now

    def newly_gone(self, now: float) -> list[str]:
        """Managers that have been silent for too long since the last call."""
        found: list[str] = []
        for member in self._members.values():
            if not member.gone and now - member.seen > GONE_AFTER_S:
                member.gone = True
                member.actors = tuple(replace(actor, alive=False) for actor in member.actors)
                found.append(member.report.manager)
        for manager in [m for m, x in self._members.items() if now - x.seen > FORGET_AFTER_S]:
            del self._members[manager]
        return found

    def knows(self, manager: str) -> bool:
        """Whether a manager has reported and is not forgotten yet."""
        return manager in self._members

    def actors(self, manager: str) -> int:
        """How many actors a manager runs, as it said last; 1 if it has not."""
        member = self._members.get(manager)
        return max(1, len(member.report.actors)) if member else 1

    @property
    def present(self) -> list[str]:
        """Managers that are not gone."""
        return [manager for manager, member in self._members.items() if not member.gone]

    @property
    def draining(self) -> list[str]:
        """Managers that are leaving and hand in what they have."""
        return [m for m in self.present if self._members[m].report.state == "draining"]

    def status(self, now: float) -> tuple[Manager, ...]:
        """`managers` of the status.

        Actors that would make it too long are left out and counted as `actors_hidden`.
        """
        room = STATUS_BYTES
        found = []
        for _, member in sorted(self._members.items()):
            shown = []
            for actor in member.actors:
                room -= 300 + 12 * len(actor.error)  # the most that it takes as JSON
                if room < 0:
                    break
                shown.append(actor)
            found.append(_manager(member, tuple(shown), now))
        return tuple(found)


def _manager(member: FleetMember, actors: tuple[Actor, ...], now: float) -> Manager:
    report = member.report
    return Manager(
        id=report.manager,
        incarnation=report.incarnation,
        host=report.host[:64],
        state="gone" if member.gone else report.state,
        left=report.state == "gone",
        samples_per_sec=0.0 if member.gone else round(member.samples_per_sec, 1),
        actors=actors,
        actors_hidden=len(report.actors) - len(actors),
        window=Window(report.window_batches, report.window_bytes),
        last_seen_s=round(max(0.0, now - member.seen), 3),
    )


def _actor(report: ActorReport, *, alive: bool) -> Actor:
    return Actor(
        id=report.id,
        alive=alive,
        restarts=report.restarts,
        env_steps=report.env_steps,
        episodes=report.episodes,
        version=report.version,
        return_mean=report.return_mean,
        length_mean=report.length_mean,
        error=report.error,
    )


log = logging.getLogger("vedette.gateway")

_AGAIN_S = 1.0

IDS_MAX = 1024
"""Ids that one key may have at a time, as many as the ledger keeps managers (replicas that share a
key have one each); with one more it gives up the one not heard of for longest."""


class ManagerIds:
    """Which key each manager id belongs to, kept in a file of the run directory.

    Args:
        path: the file, reread at the gateway's start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owner: dict[str, str] = {}  # by id, the one heard of last at the end
        self._changed = False
        self._failures = RateLimitedLog()
        self._again_at = 0.0
        if path.exists():
            found = json.loads(path.read_text())
            self._owner = {str(manager): str(key) for manager, key in found.items()}

    def claim(self, manager: str, key: str) -> bool:
        """Whether this key may speak for this manager; the first one that asks may."""
        owner = self._owner.get(manager)
        if owner is None:
            self._bind(manager, key)
            return True
        if owner == key:
            self._owner[manager] = self._owner.pop(manager)
        return owner == key

    def _bind(self, manager: str, key: str) -> None:
        own = [taken for taken, owner in self._owner.items() if owner == key]
        if len(own) >= IDS_MAX:
            del self._owner[own[0]]
        self._owner[manager] = key
        self._changed = True

    def save(self) -> None:
        """Write the file, if anything is new; where that fails, again a second later."""
        if not self._changed or time.monotonic() < self._again_at:
            return
        try:
            write_json(self._path, self._owner)
        except OSError as error:  # a full disk, no descriptors left: who is served stays served
            self._again_at = time.monotonic() + _AGAIN_S
            if self._failures.first("owners"):
                log.warning("whose key each id belongs to is not written: %s", error)
        else:
            self._changed = False
            self._failures.reset("owners")

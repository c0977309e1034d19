"""The managers as the learner sees them: their last reports, silence and rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vedette_protocol.limits import ACCOUNTS_MAX
from vedette_protocol.messages import OUTBOX, ActorReport, Report
from vedette_services.status.rate_meter import RateMeter
from vedette_services.status.records import GONE_AFTER_S
from vedette_services.status.status import ActorStatus, ManagerStatus, WindowStatus

FORGET_AFTER_S = 3600.0  # silence after which it is no longer shown
STATUS_BYTES = 3 << 20  # of all managers in a status: about 10,000 actors
BOTH_ALIVE_S = 3.0
"""Two incarnations of a manager that report side by side for so long are two processes. Reports
that were under way when a process was killed come for a shorter time."""
_CLAIMS_MAX = 4  # incarnations of one manager that are watched


@dataclass(slots=True)
class _Claim:
    """An incarnation that reports under an id: since when, and when it did last."""

    report: Report
    since: float
    seen: float


@dataclass(slots=True)
class FleetMember:
    """One manager's last report, its actors as the status shows them, its rate of samples.

    Args:
        claims: the incarnations that reported a moment ago, in the order of their first reports.
    """

    report: Report
    seen: float
    actors: tuple[ActorStatus, ...]
    gone: bool = False
    rate: RateMeter = field(default_factory=RateMeter)
    samples_per_sec: float = 0.0
    claims: list[_Claim] = field(default_factory=list)


class Fleet:
    """The managers that have reported, by id.

    Args:
        rates_clock: turns a `now` into the time that rates are measured in.
        max_managers: the most managers of which the last report is kept.
    """

    def __init__(
        self,
        rates_clock: Callable[[float], float] = lambda now: now,
        max_managers: int = ACCOUNTS_MAX,
    ) -> None:
        self._rates_clock = rates_clock
        self._max_managers = max_managers
        self._members: dict[str, FleetMember] = {}

    def on_report(self, report: Report, now: float, inserted: int = 0) -> bool:
        """Take a report; True if the manager was unknown, gone, or is another incarnation.

        Args:
            inserted: rows of this incarnation in the replay until now.
        """
        member = self._members.get(report.manager)
        if report.ended and member is not None:  # it says nothing of the process that sends it
            member.seen = now
            return False
        claims = _update_claims(member.claims if member else [], report, now)
        if member is not None and claims and claims[-1].report is not report:
            member.claims = claims
            member.seen = now
            return False  # the report shown stays that of a newer incarnation
        same = member is not None and member.report.incarnation == report.incarnation
        new = member is None or member.gone or not same
        rate = member.rate if member is not None and same else RateMeter()
        gone = report.state == "gone"
        actors = tuple(_actor(actor, alive=actor.alive and not gone) for actor in report.actors)
        samples_per_sec = rate.update(inserted, self._rates_clock(now))
        self._members[report.manager] = FleetMember(
            report, now, actors, gone, rate, samples_per_sec, claims
        )
        if len(self._members) > self._max_managers:
            self._forget_one(report.manager)
        return new

    def has_left(self, report: Report) -> bool:
        """Return True if this incarnation of a manager has said that it leaves."""
        member = self._members.get(report.manager)
        if member is None or member.report.incarnation != report.incarnation:
            return False
        return member.report.state == "gone"

    def pop_rivals(self, manager: str) -> tuple[Report, Report] | None:
        """Return reports of two live processes with this id, the later one's last; it is forgotten.

        An incarnation that was silent for `BOTH_ALIVE_S` is later than one that reported since.
        """
        claims = self._members[manager].claims
        for later in claims[1:]:
            if min(claims[0].seen, later.seen) - later.since >= BOTH_ALIVE_S:
                claims.remove(later)
                return claims[0].report, later.report
        return None

    def _forget_one(self, but: str) -> None:
        """Forget the manager that was silent longest, of those gone if there are any."""
        others = [(not x.gone, x.seen, m) for m, x in self._members.items() if m != but]
        del self._members[min(others)[2]]

    def on_batch(self, manager: str, now: float) -> None:
        """Note that a batch came, which is a sign of life."""
        if member := self._members.get(manager):
            member.seen = now

    def newly_gone(self, now: float) -> list[str]:
        """Return the managers that have gone since the last call."""
        gone: list[str] = []
        for member in self._members.values():
            if not member.gone and now - member.seen > GONE_AFTER_S:
                member.gone = True
                member.actors = tuple(replace(actor, alive=False) for actor in member.actors)
                gone.append(member.report.manager)
        for manager in [m for m, x in self._members.items() if now - x.seen > FORGET_AFTER_S]:
            del self._members[manager]
        return gone

    def knows(self, manager: str) -> bool:
        """Return True if a manager has reported and is not forgotten yet."""
        return manager in self._members

    def actors(self, manager: str) -> int:
        """Return the number of actors in a manager's last report; 1 if there is none."""
        member = self._members.get(manager)
        return max(1, len(member.report.actors)) if member else 1

    @property
    def alive_actors(self) -> dict[str, dict[int, int]]:
        """The environment steps of the actors that are alive, by index, of each manager that is not
        gone."""
        return {
            manager: {actor.id: actor.env_steps for actor in member.actors if actor.alive}
            for manager, member in self._members.items()
            if not member.gone
        }

    @property
    def present(self) -> list[str]:
        """The managers that are not gone."""
        return [manager for manager, member in self._members.items() if not member.gone]

    def is_draining(self, manager: str) -> bool:
        """Return True if a manager is leaving and sends what it holds."""
        member = self._members.get(manager)
        return member is not None and not member.gone and member.report.state == "draining"

    def has_outbox(self, manager: str) -> bool:
        """Return True if a manager keeps what it holds in files, which outlive it."""
        member = self._members.get(manager)
        return member is not None and OUTBOX in member.report.features

    def status(self, now: float) -> tuple[ManagerStatus, ...]:
        """Return `managers` of the status; actors beyond `STATUS_BYTES` are only counted."""
        room = STATUS_BYTES - 300 * len(self._members)
        managers = []
        for _, member in sorted(self._members.items()):
            shown = []
            for actor in member.actors:
                room -= 300 + 12 * len(actor.error)  # its size as JSON, at most
                if room < 0:
                    break
                shown.append(actor)
            managers.append(_manager(member, tuple(shown), now))
        return tuple(managers)


def _update_claims(claims: list[_Claim], report: Report, now: float) -> list[_Claim]:
    """Return the incarnations that report now under an id, those that begin last at the end."""
    alive = [
        claim
        for claim in claims
        if now - claim.seen < BOTH_ALIVE_S
        and (claim.report.incarnation != report.incarnation or report.state != "gone")
    ]
    same = next((c for c in alive if c.report.incarnation == report.incarnation), None)
    if same is not None:
        same.report = report
        same.seen = now
    elif report.state != "gone" and len(alive) < _CLAIMS_MAX:
        alive.append(_Claim(report, now, now))
    return alive


def _manager(member: FleetMember, actors: tuple[ActorStatus, ...], now: float) -> ManagerStatus:
    report = member.report
    return ManagerStatus(
        id=report.manager,
        incarnation=report.incarnation,
        host=report.host[:64],
        state="gone" if member.gone else report.state,
        left=report.state == "gone",
        samples_per_sec=0.0 if member.gone else round(member.samples_per_sec, 1),
        actors=actors,
        actors_hidden=len(report.actors) - len(actors),
        window=WindowStatus(report.window_batches, report.window_bytes, report.delay_s or 0.0),
        outbox=OUTBOX in report.features,
        memory_rows=report.memory_rows,
        failures=report.failures,
        last_seen_s=round(max(0.0, now - member.seen), 3),
    )


def _actor(report: ActorReport, *, alive: bool) -> ActorStatus:
    return ActorStatus(
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

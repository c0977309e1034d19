"""The managers as the learner sees them: last reports, silence, rates and policy lag; and those
that it refuses: an id of another key, no place, an id that another one uses."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.errors import LedgerFullError, RetiredError
from vedette_protocol.ledger import Ledger
from vedette_protocol.limits import ACCOUNTS_MAX
from vedette_protocol.messages import ActorReport, Batch, Buffer, Refusal, Report
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.status.records import GONE_AFTER_S
from vedette_services.status.status import Actor, Lag, Manager, Refused, Window
from vedette_services.status.stop_conditions import ENV_STEPS_REACHED

FORGET_AFTER_S = 3600.0  # silence after which it is no longer shown
STATUS_BYTES = 3 << 20  # of all managers in a status: about 10,000 actors
BOTH_ALIVE_S = 3.0
"""Two incarnations of a manager that report side by side for so long are two processes. Reports
that were under way when a process was killed come for a shorter time."""
_RATE_WINDOW_S = 5.0
_CLAIMS_MAX = 4  # incarnations of one manager that are watched


class RateMeter:
    """Measures the growth of a count per second over a sliding window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, total: int, now: float) -> float:
        """Add the current total; returns its growth per second over the window (0.0 at first)."""
        seen = self._seen
        seen.append((now, total))
        while len(seen) > 2 and now - seen[1][0] >= _RATE_WINDOW_S:
            seen.popleft()
        then, before = seen[0]
        return (total - before) / (now - then) if now > then else 0.0


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
    actors: tuple[Actor, ...]
    gone: bool = False
    rate: RateMeter = field(default_factory=RateMeter)
    samples_per_sec: float = 0.0
    claims: list[_Claim] = field(default_factory=list)


class Fleet:
    """The managers that have reported, by id.

    Args:
        figures_time: turns a `now` into the time that rates are measured in.
        max_managers: of which the last report is kept.
    """

    def __init__(
        self,
        figures_time: Callable[[float], float] = lambda now: now,
        max_managers: int = ACCOUNTS_MAX,
    ) -> None:
        self._figures_time, self._max_managers = figures_time, max_managers
        self._members: dict[str, FleetMember] = {}

    def on_report(self, report: Report, now: float, inserted: int = 0) -> bool:
        """Take a report; True if the manager was unknown, gone, or is another incarnation.

        Args:
            inserted: rows of this incarnation in the replay until now.
        """
        member = self._members.get(report.manager)
        claims = _update_claims(member.claims if member else [], report, now)
        if member is not None and claims and claims[-1].report is not report:
            member.claims, member.seen = claims, now  # a newer incarnation is the one shown
            return False
        same = member is not None and member.report.incarnation == report.incarnation
        new = member is None or member.gone or not same
        rate = member.rate if member is not None and same else RateMeter()
        gone = report.state == "gone"
        actors = tuple(_actor(actor, alive=actor.alive and not gone) for actor in report.actors)
        samples_per_sec = rate.update(inserted, self._figures_time(now))
        self._members[report.manager] = FleetMember(
            report, now, actors, gone, rate, samples_per_sec, claims
        )
        if len(self._members) > self._max_managers:
            self._forget_one(report.manager)
        return new

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
        """Return the managers that were found gone since the last call."""
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
        """Return True if a manager has reported and is not forgotten yet."""
        return manager in self._members

    def actors(self, manager: str) -> int:
        """Return the number of actors in a manager's last report; 1 if there is none."""
        member = self._members.get(manager)
        return max(1, len(member.report.actors)) if member else 1

    @property
    def present(self) -> list[str]:
        """The managers that are not gone."""
        return [manager for manager, member in self._members.items() if not member.gone]

    def is_draining(self, manager: str) -> bool:
        """Return True if a manager is leaving and sends what it holds."""
        member = self._members.get(manager)
        return member is not None and not member.gone and member.report.state == "draining"

    def status(self, now: float) -> tuple[Manager, ...]:
        """Return `managers` of the status; actors beyond `STATUS_BYTES` are only counted."""
        room = STATUS_BYTES - 300 * len(self._members)
        found = []
        for _, member in sorted(self._members.items()):
            shown = []
            for actor in member.actors:
                room -= 300 + 12 * len(actor.error)  # its size as JSON, at most
                if room < 0:
                    break
                shown.append(actor)
            found.append(_manager(member, tuple(shown), now))
        return tuple(found)


def _update_claims(claims: list[_Claim], report: Report, now: float) -> list[_Claim]:
    """Return the incarnations that report now under an id, those that begin last at the end."""
    alive = [
        claim
        for claim in claims
        if now - claim.seen < BOTH_ALIVE_S
        and (claim.report.incarnation != report.incarnation or report.state != "gone")
    ]
    own = next((c for c in alive if c.report.incarnation == report.incarnation), None)
    if own is not None:
        own.report, own.seen = report, now
    elif report.state != "gone" and len(alive) < _CLAIMS_MAX:
        alive.append(_Claim(report, now, now))
    return alive


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


# Who is refused

_REFUSALS_A_TURN = 64
_RIVALS_MAX = 256  # refused incarnations whose reason is remembered
_RIVALS_SHOWN_S = 60.0


class Admission:
    """Decides who is refused, counts it, and keeps the refusals to be sent.

    Args:
        rejections: where it is logged.
    """

    def __init__(self, ledger: Ledger, rejections: RateLimitedLog) -> None:
        self._ledger, self._rejections = ledger, rejections
        self.ids = self.places = self.rivals = self.late = 0
        self._refusals: list[Refusal] = []
        self._rivals: dict[int, str] = {}  # why an incarnation is refused for good
        self._last_rivals = (float("-inf"), "")  # when, and what

    def refuse_id(self, manager: str, incarnation: int, key: str, *, tell: bool) -> None:
        """Refuse a key that uses an id of another one.

        Args:
            tell: send it a refusal.
        """
        self.ids += 1
        self._rejections.add(
            "refused", f"key {key!r} speaks for manager {manager!r} of another key"
        )
        # Sent only to an incarnation that the owner never used: the topic is also the owner's, and
        # an impostor may name the owner's incarnation, or that of a second process of the owner.
        owned = incarnation in self._rivals or self._ledger.has_account(manager, incarnation)
        if tell and not owned:
            reason = f"the manager id {manager!r} belongs to another key; choose another id (--id)"
            self.refuse(manager, incarnation, "id", reason)

    def refuse(self, manager: str, incarnation: int, code: str, reason: str) -> None:
        """Send a refusal with the next acks."""
        if len(self._refusals) < _REFUSALS_A_TURN:
            self._refusals.append(Refusal(manager, incarnation, code, reason))

    def refuse_place(self, error: RetiredError | LedgerFullError, now: float) -> None:
        """Refuse an incarnation that has no account: else it would wait for ever."""
        assert error.sender is not None, "the ledger names the sender"
        manager, incarnation, _ = error.sender
        why = self._rivals.get(incarnation)
        if why is None:
            self.places += 1
            self._rejections.add("refused", str(error))
        else:
            self._last_rivals = now, why
        self.refuse(manager, incarnation, "id", why or str(error))

    def refuse_rival(self, first: Report, later: Report, now: float) -> None:
        """Refuse the later one of two live processes with one id: the other holds a window."""
        why = (
            f"two managers use the id {first.manager}: {first.host} and {later.host}; the one that "
            f"came later, on {later.host}, is refused: start it with another id (--id)"
        )
        self._ledger.retire(later.manager, later.incarnation)
        self._rivals[later.incarnation] = why
        if len(self._rivals) > _RIVALS_MAX:
            del self._rivals[next(iter(self._rivals))]
        self._last_rivals = now, why
        self.rivals += 1
        self._rejections.add("refused", why)
        self.refuse(later.manager, later.incarnation, "id", why)

    def reject_late(self, batch: Batch) -> None:
        """Reject a batch that came after the run's last environment step."""
        self.late += batch.rows
        self._ledger.reject_batch(batch, ENV_STEPS_REACHED)

    def pop_refusals(self) -> list[list[Buffer]]:
        """Return the messages to send now."""
        refusals, self._refusals = self._refusals, []
        return [[topics.manager_topic(refusal.manager), *encode(refusal)] for refusal in refusals]

    def refused(self, connections: Mapping[str, int] | None, *, credit: int) -> Refused:
        """Return the part of the status.

        Args:
            connections: those refused, by reason.
            credit: batches beyond the limit of their manager.
        """
        return Refused(
            **(connections or {"keys": 0, "handshakes": 0, "frames": 0}),
            ids=self.ids,
            credit=credit,
            places=self.places,
            rivals=self.rivals,
            late=self.late,
        )

    def rivals_seen(self, now: float) -> str:
        """Return which two managers used one id within the last minute; "" if none did."""
        at, why = self._last_rivals
        return why if now - at < _RIVALS_SHOWN_S else ""


# Policy lag

_BATCHES = 512  # the lag shown is that of the last so many batches
_VERSIONS = 4096  # publishing times remembered


class LagMeter:
    """Measures lag in versions and in seconds over the last batches."""

    def __init__(self) -> None:
        self._lags: deque[tuple[int, float, int]] = deque(maxlen=_BATCHES)
        self._versions: deque[int] = deque(maxlen=_VERSIONS)
        self._times: deque[float] = deque(maxlen=_VERSIONS)

    def on_published(self, version: int, now: float) -> None:
        """Note that a model was published; later versions, of before a resume, are forgotten."""
        while self._versions and self._versions[-1] >= version:
            self._versions.pop()
            self._times.pop()
        self._versions.append(version)
        self._times.append(now)

    def on_inserted(self, version: int, version_now: int, rows: int, now: float) -> None:
        """Note that a batch made with `version` was inserted at `version_now`."""
        self._lags.append((max(0, version_now - version), now - self._time_of(version, now), rows))

    def _time_of(self, version: int, now: float) -> float:
        if not self._versions:
            return now
        place = bisect_right(self._versions, version) - 1
        return self._times[max(0, place)]

    def summarize(self) -> Lag:
        """Return mean, 95th percentile and maximum in versions, and the mean in seconds."""
        if not self._lags:
            return Lag(mean=0.0, p95=0.0, max=0.0, seconds_mean=0.0)
        lags, seconds, rows = np.array(self._lags, np.float64).T
        order = np.argsort(lags)
        share = np.cumsum(rows[order]) / rows.sum()
        return Lag(
            mean=float(np.average(lags, weights=rows)),
            p95=float(lags[order][min(np.searchsorted(share, 0.95), len(lags) - 1)]),
            max=float(lags.max()),
            seconds_mean=float(np.average(seconds, weights=rows)),
        )

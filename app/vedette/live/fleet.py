"""The managers of a status as rows of a table, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import fmean

from vedette_rl.number_format import format_clock, format_number, format_short
from vedette_services.status.status import ActorStatus, ManagerStatus, Status

SILENT_S = 3.0
"""Seconds without a report after which a manager counts as silent."""

FULL = 0.9
"""Share of a full window from which a manager counts as held back."""


class Health(IntEnum):
    """The state of a manager; a higher value is worse."""

    LEFT = 0  # it ended in good order
    WELL = 1
    RESTARTED = 2  # some of its actors were started again
    HELD_BACK = 3  # leaving, or its window is full: the learner is slower than its actors
    SILENT = 4  # no report for seconds
    TROUBLE = 5  # an actor is down or reports an error
    GONE = 6  # it ended without a message


@dataclass(frozen=True, slots=True)
class FleetRow:
    """The texts of the row of a manager, or of one of its actors.

    Args:
        lag: versions between the learner's model and the oldest that its actors act on.
        window: batches that are not settled, with their share of the window if its limit is known.
        what: the error, the state, or how the actors play.
    """

    health: Health
    name: str
    host: str
    actors: str
    restarts: str
    rate: str
    lag: str
    window: str
    seen: str
    what: str


def fleet_rows(status: Status) -> list[FleetRow]:
    """Make a row for each manager, the worst first, then by name."""
    rows = [manager_row(manager, status) for manager in status.managers]
    return sorted(rows, key=lambda row: (-row.health, row.name))


def manager_row(manager: ManagerStatus, status: Status) -> FleetRow:
    """Make the row of a manager."""
    own = manager.actors
    hidden = manager.actors_hidden
    alive = sum(actor.alive for actor in own)
    restarts = sum(actor.restarts for actor in own)
    share = _share(manager, status)
    down = sum(_is_down(actor, manager, status) for actor in own)
    health, what = _assess(manager, down, restarts, share)
    here = health not in (Health.LEFT, Health.GONE)
    batches = format_number(manager.window.batches)
    return FleetRow(
        health,
        manager.id or "-",
        manager.host or "-",
        f"{alive}{'+' if hidden else ''}/{len(own) + hidden}" if here else "-",
        format_number(restarts) if restarts else "-",
        format_short(manager.samples_per_sec) if here else "-",
        format_short(_lag(own, status)) if here else "-",
        f"{batches} {share:.0%}" if share is not None and share >= 0.01 else batches,
        f"{format_number(manager.last_seen_s, 1)} s" if here else "-",
        what,
    )


def actor_rows(manager: ManagerStatus, status: Status) -> list[FleetRow]:
    """Make a row for each actor of a manager."""
    return [
        FleetRow(
            Health.TROUBLE if _is_down(actor, manager, status) else Health.WELL,
            f"  actor {actor.id}",
            "",
            "down" if _is_down(actor, manager, status) else "",
            format_number(actor.restarts) if actor.restarts else "-",
            "",
            format_short(_lag([actor], status)),
            "",
            "",
            _doing(actor),
        )
        for actor in manager.actors
    ]


def fleet_summary(status: Status) -> str:
    """Describe the whole fleet in a line."""
    managers = [(manager_row(manager, status).health, manager) for manager in status.managers]
    if not managers:
        return "nobody has connected yet"
    here = [manager for health, manager in managers if health not in (Health.LEFT, Health.GONE)]
    own = [actor for manager in here for actor in manager.actors]
    restarts = sum(actor.restarts for _, manager in managers for actor in manager.actors)
    gone = sum(health == Health.GONE for health, _ in managers)
    left = sum(health == Health.LEFT for health, _ in managers)
    parts = [
        f"{format_number(len(here))} manager{'' if len(here) == 1 else 's'} connected",
        f"{format_number(gone)} gone" if gone else "",
        f"{format_number(left)} {'has' if left == 1 else 'have'} left" if left else "",
        f"{format_number(sum(a.alive for a in own))} of {format_number(len(own))} actors",
        f"{format_number(restarts)} restart{'' if restarts == 1 else 's'}" if restarts else "",
    ]
    return ", ".join(filter(None, parts))


def _is_down(actor: ActorStatus, manager: ManagerStatus, status: Status) -> bool:
    """True for an actor that should play and does not."""
    over = status.phase == "done" or not manager.is_present
    return not (over or actor.alive or _starts(actor))


def _assess(
    manager: ManagerStatus, down: int, restarts: int, share: float | None
) -> tuple[Health, str]:
    """Returns a manager's state and its description."""
    silent_s = manager.last_seen_s or 0.0
    own = manager.actors
    if not manager.is_present:
        if manager.left:
            return Health.LEFT, "left"
        return Health.GONE, f"silent for {format_clock(silent_s)}"
    error = next((actor.error for actor in own if actor.error), "")
    starting = sum(map(_starts, own))
    if down or error:
        parts = [f"{down} down" if down else "", error]
        return Health.TROUBLE, ": ".join(filter(None, parts))
    if starting:
        return Health.RESTARTED, f"{starting} starting"
    if silent_s >= SILENT_S:
        return Health.SILENT, "no report"
    if manager.state == "draining":
        return Health.HELD_BACK, "leaving"
    if share is not None and share >= FULL:
        return Health.HELD_BACK, "window full"
    return (Health.RESTARTED if restarts else Health.WELL), _playing(own)


def _starts(actor: ActorStatus) -> bool:
    """True before an actor is up for the first time."""
    return not (actor.alive or actor.restarts or actor.env_steps or actor.error)


def _doing(actor: ActorStatus) -> str:
    """Describes an actor: its error, or its episodes."""
    if actor.error:
        return actor.error
    if _starts(actor):
        return "starting"
    return _playing([actor]) or "no episode yet"


def _playing(own: Sequence[ActorStatus]) -> str:
    """Describes how actors play; "" before their first episode has ended."""
    returns = [actor.return_mean for actor in own if actor.return_mean is not None]
    if not returns:
        return ""
    episodes = format_short(sum(actor.episodes for actor in own))
    return f"return {format_number(fmean(returns), 1)} ({episodes} episodes)"


def _lag(own: Sequence[ActorStatus], status: Status) -> float | None:
    """Versions between the learner's model and the oldest in use; None if there is none."""
    versions = [actor.version for actor in own if actor.version >= 0]
    if not versions or status.version is None:
        return None
    return max(0.0, status.version - min(versions))


def _share(manager: ManagerStatus, status: Status) -> float | None:
    """The used share of a window, by the nearer of its two bounds; None if none is known, and where
    an outbox is the bound, whose size its host alone knows."""
    if manager.outbox:
        return None
    window = manager.window
    limits = status.window_limits
    bounds = ((window.batches, limits.batches), (window.bytes, limits.bytes))
    return max(((held or 0) / limit for held, limit in bounds if limit), default=None)

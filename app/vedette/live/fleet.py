"""The managers of a status as lines of a table, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from vedette_services.run.number_format import format_clock, format_number, format_short
from vedette_services.run.status import Actor, Manager, Status

SILENT_S = 3.0
"""A manager reports every second; one that has not for so long is behind something."""

FULL = 0.9
"""The share of its window from which on a manager counts as held back."""


class Health(IntEnum):
    """How a manager is; more is worse."""

    LEFT = 0  # it said good-bye
    WELL = 1
    RESTARTED = 2  # some of its actors were started again
    HELD_BACK = 3  # leaving, silent for seconds, or its window is full
    TROUBLE = 4  # an actor is down or tells of an error
    GONE = 5  # without a word


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A manager, or one of its actors.

    Args:
        lag: versions between the learner's model and the oldest that its actors act on.
        window: batches that the learner has not settled; with a share where the limit is known.
        what: what is wrong with it, or what it does.
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
    """A line for each manager, the worst first, then by name."""
    found = [manager_row(manager, status) for manager in status.managers]
    return sorted(found, key=lambda row: (-row.health, row.name))


def manager_row(manager: Manager, status: Status) -> FleetRow:
    """One manager."""
    own, hidden = manager.actors, manager.actors_hidden
    alive = sum(actor.alive for actor in own)
    restarts = sum(actor.restarts for actor in own)
    share = _share(manager, status)
    health, what = _assess(manager, alive, restarts, share)
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


def actor_rows(manager: Manager, status: Status) -> list[FleetRow]:
    """A line for each actor of a manager."""
    return [
        FleetRow(
            Health.WELL if actor.alive or _starts(actor) else Health.TROUBLE,
            f"  actor {actor.id}",
            "",
            "" if actor.alive or _starts(actor) else "down",
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
    """The whole fleet in a line."""
    found = [(manager_row(manager, status).health, manager) for manager in status.managers]
    if not found:
        return "nobody has connected yet"
    here = [manager for health, manager in found if health not in (Health.LEFT, Health.GONE)]
    own = [actor for manager in here for actor in manager.actors]
    restarts = sum(actor.restarts for _, manager in found for actor in manager.actors)
    gone = sum(health == Health.GONE for health, _ in found)
    left = sum(health == Health.LEFT for health, _ in found)
    parts = [
        f"{format_number(len(here))} manager{'' if len(here) == 1 else 's'} connected",
        f"{format_number(gone)} gone" if gone else "",
        f"{format_number(left)} left" if left else "",
        f"{format_number(sum(a.alive for a in own))} of {format_number(len(own))} actors",
        f"{format_number(restarts)} restart{'' if restarts == 1 else 's'}" if restarts else "",
    ]
    return ", ".join(filter(None, parts))


def _assess(manager: Manager, alive: int, restarts: int, share: float | None) -> tuple[Health, str]:
    """How a manager is, and the words for it."""
    silent_s, own = manager.last_seen_s or 0.0, manager.actors
    if not manager.is_present:
        if manager.left:
            return Health.LEFT, "left"
        return Health.GONE, f"silent for {format_clock(silent_s)}"
    error = next((actor.error for actor in own if actor.error), "")
    starting = sum(map(_starts, own))
    down = len(own) - alive - starting
    if down or error:
        parts = [f"{down} down" if down else "", error]
        return Health.TROUBLE, ": ".join(filter(None, parts))
    if starting:
        return Health.RESTARTED, f"{starting} starting"
    if manager.state == "draining":
        return Health.HELD_BACK, "leaving"
    if silent_s >= SILENT_S:
        return Health.HELD_BACK, "no report"
    if share is not None and share >= FULL:
        return Health.HELD_BACK, "window full"
    return (Health.RESTARTED if restarts else Health.WELL), ""


def _starts(actor: Actor) -> bool:
    """Whether an actor is not up yet, for the first time."""
    return not (actor.alive or actor.restarts or actor.env_steps or actor.error)


def _doing(actor: Actor) -> str:
    """An actor's error, or how its episodes go."""
    if actor.error:
        return actor.error
    if _starts(actor):
        return "starting"
    if not actor.episodes:
        return "no episode yet"
    return f"return {format_number(actor.return_mean, 1)} ({format_short(actor.episodes)} episodes)"


def _lag(own: Sequence[Actor], status: Status) -> float | None:
    """Versions that the oldest model in use is behind; None where nobody has one."""
    versions = [actor.version for actor in own if actor.version >= 0]
    if not versions or status.version is None:
        return None
    return max(0.0, status.version - min(versions))


def _share(manager: Manager, status: Status) -> float | None:
    """How full a window is, by whichever of its two bounds is nearer; None: nobody said."""
    window, limits = manager.window, status.window_limits
    bounds = ((window.batches, limits.batches), (window.bytes, limits.bytes))
    return max(((held or 0) / limit for held, limit in bounds if limit), default=None)

"""The managers of a status as lines of a table, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from vedette_services.run.status_text import (
    Status,
    actors,
    format_duration,
    format_number,
    format_short,
    managers,
    read_number,
)

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
    found = [manager_row(manager, status) for manager in managers(status)]
    return sorted(found, key=lambda line: (-line.health, line.name))


def manager_row(manager: Status, status: Status) -> FleetRow:
    """One manager."""
    own = actors(manager)
    hidden = int(read_number(manager, "actors_hidden") or 0)
    alive = sum(1 for actor in own if actor.get("alive"))
    restarts = sum(int(read_number(actor, "restarts") or 0) for actor in own)
    share = _share(manager, status)
    health, what = _assess(manager, alive, restarts, share)
    here = health not in (Health.LEFT, Health.GONE)
    batches = format_number(read_number(manager, "window", "batches"))
    return FleetRow(
        health,
        str(manager.get("id", "-")),
        str(manager.get("host") or "-"),
        f"{alive}{'+' if hidden else ''}/{len(own) + hidden}" if here else "-",
        format_number(restarts) if restarts else "-",
        format_short(read_number(manager, "samples_per_sec")) if here else "-",
        format_short(_lag(own, status)) if here else "-",
        f"{batches} {share:.0%}" if share is not None and share >= 0.01 else batches,
        f"{format_number(read_number(manager, 'last_seen_s'), 1)} s" if here else "-",
        what,
    )


def actor_rows(manager: Status, status: Status) -> list[FleetRow]:
    """A line for each actor of a manager."""
    return [
        FleetRow(
            Health.WELL if actor.get("alive") or _starts(actor) else Health.TROUBLE,
            f"  actor {actor.get('id', '-')}",
            "",
            "" if actor.get("alive") or _starts(actor) else "down",
            format_number(read_number(actor, "restarts")) if actor.get("restarts") else "-",
            "",
            format_short(_lag([actor], status)),
            "",
            "",
            _doing(actor),
        )
        for actor in actors(manager)
    ]


def fleet_summary(status: Status) -> str:
    """The whole fleet in a line."""
    found = [(line, m) for m in managers(status) for line in [manager_row(m, status)]]
    if not found:
        return "nobody has connected yet"
    here = [m for line, m in found if line.health not in (Health.LEFT, Health.GONE)]
    own = [actor for manager in here for actor in actors(manager)]
    restarts = sum(int(read_number(a, "restarts") or 0) for _, m in found for a in actors(m))
    gone = sum(line.health == Health.GONE for line, _ in found)
    left = sum(line.health == Health.LEFT for line, _ in found)
    alive = sum(bool(actor.get("alive")) for actor in own)
    parts = [
        f"{format_number(len(here))} manager{'' if len(here) == 1 else 's'} connected",
        f"{format_number(gone)} gone" if gone else "",
        f"{format_number(left)} left" if left else "",
        f"{format_number(alive)} of {format_number(len(own))} actors",
        f"{format_number(restarts)} restart{'' if restarts == 1 else 's'}" if restarts else "",
    ]
    return ", ".join(filter(None, parts))


def _assess(manager: Status, alive: int, restarts: int, share: float | None) -> tuple[Health, str]:
    """How a manager is, and the words for it."""
    silent_s = read_number(manager, "last_seen_s") or 0.0
    own = actors(manager)
    if manager.get("state") == "gone":
        if manager.get("left"):
            return Health.LEFT, "left"
        return Health.GONE, f"silent for {format_duration(silent_s)}"
    error = next((str(actor["error"]) for actor in own if actor.get("error")), "")
    starting = sum(map(_starts, own))
    down = len(own) - alive - starting
    if down or error:
        parts = [f"{down} down" if down else "", error]
        return Health.TROUBLE, ": ".join(filter(None, parts))
    if starting:
        return Health.RESTARTED, f"{starting} starting"
    if manager.get("state") == "draining":
        return Health.HELD_BACK, "leaving"
    if silent_s >= SILENT_S:
        return Health.HELD_BACK, "no report"
    if share is not None and share >= FULL:
        return Health.HELD_BACK, "window full"
    return (Health.RESTARTED if restarts else Health.WELL), ""


def _starts(actor: Status) -> bool:
    """Whether an actor is not up yet, for the first time."""
    before = any(actor.get(name) for name in ("alive", "restarts", "env_steps", "error"))
    return not before


def _doing(actor: Status) -> str:
    """An actor's error, or how its episodes go."""
    if error := actor.get("error"):
        return str(error)
    mean, played = read_number(actor, "return_mean"), read_number(actor, "episodes")
    if _starts(actor):
        return "starting"
    return (
        f"return {format_number(mean, 1)} ({format_short(played)} episodes)"
        if played
        else "no episode yet"
    )


def _lag(own: Sequence[Status], status: Status) -> float | None:
    """Versions that the oldest model in use is behind; None where nobody has one."""
    now = read_number(status, "version")
    found = [read_number(actor, "version") for actor in own]
    versions = [version for version in found if version is not None and version >= 0]
    return max(0.0, now - min(versions)) if versions and now is not None else None


def _share(manager: Status, status: Status) -> float | None:
    """How full a window is, by whichever of its two bounds is nearer; None: nobody said."""
    shares = [
        (read_number(manager, "window", name) or 0.0) / limit
        for name in ("batches", "bytes")
        if (limit := read_number(status, "window_limits", name))
    ]
    return max(shares) if shares else None

"""The fleet in a report: the table of managers, and a lane of time for the learner and each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from vedette.live.fleet import Health, manager_row
from vedette.reports.record import RunRecord
from vedette_services.run.events import FLEET_KINDS, RunEvent
from vedette_services.run.number_format import format_count
from vedette_services.run.status import Manager, Status

BAD_EVENTS = frozenset({"died", "failed", "silent", "actor"})
MANAGERS_MAX = 500
_HEADS = (
    *("manager", "host", "state", "actors", "restarts", "samples/s", "lag", "window", "last seen"),
    *("env steps", "episodes", "doing, or last error"),
)


@dataclass(frozen=True, slots=True)
class Lane:
    """When the learner or a manager was connected, in seconds since 1970, and its events."""

    name: str
    spans: list[tuple[float, float]]
    marks: list[RunEvent]


def fleet_lanes(record: RunRecord) -> list[Lane]:
    """Return the learner's lane, then the managers' in the order of their first events."""
    starts = record.starts
    of: dict[str, list[RunEvent]] = {}
    for event in record.events:
        if event.kind in FLEET_KINDS:
            name = event.who.rpartition("/")[0] if event.kind == "actor" else event.who
            of.setdefault(name, []).append(event)
    own = [event for event in record.events if event.kind in ("epoch", "died", "failed")]
    lanes = [Lane("learner", starts, own)]
    for name, events in of.items():
        moves = [event for event in events if event.kind != "actor"]
        spans = []
        for event, after in zip_longest(moves, moves[1:]):
            if event.kind in ("joined", "returned"):  # a killed learner logs no end
                ends = [end for _, end in starts if end >= event.time_s]
                ends += [after.time_s] if after else []
                spans.append((event.time_s, min(ends, default=event.time_s)))
        lanes.append(Lane(name, spans, [event for event in events if event.kind in BAD_EVENTS]))
    return lanes


def manager_table(status: Status) -> tuple[list[str], list[tuple[bool, list[str]]]]:
    """Return the headings and the managers, the worst first: True if it needs attention, and cells.

    Columns in which no manager has anything are left out.
    """
    known = [(manager_row(manager, status).health, manager) for manager in status.managers]
    known.sort(key=lambda found: (-found[0], found[1].id))
    rows = [(h >= Health.TROUBLE, _cells(m, status)) for h, m in known[:MANAGERS_MAX]]
    kept = [i for i in range(len(_HEADS)) if any(cells[i] not in ("", "-") for _, cells in rows)]
    shown = [(faulty, [cells[i] for i in kept]) for faulty, cells in rows]
    return [_HEADS[i] for i in kept], shown


def _cells(manager: Manager, status: Status) -> list[str]:
    """The cells of a manager; of one that is not there, what is known of its past."""
    row, own = manager_row(manager, status), manager.actors
    error = next((actor.error for actor in reversed(own) if actor.error), "")
    here = manager.is_present
    return [
        *(row.name, row.host, "left" if manager.left else manager.state),
        row.actors if here else str(len(own)),
        *(row.restarts, row.rate, row.lag, row.window if here else "-", row.seen),
        format_count(sum(actor.env_steps for actor in own)),
        format_count(sum(actor.episodes for actor in own)),
        row.what if here else error,
    ]

"""The timeline of the fleet: a lane for the learner and for each manager."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from vedette.reports.record import RunRecord
from vedette_services.run.events import FLEET_KINDS, RunEvent

BAD_EVENTS = frozenset({"died", "failed", "silent", "actor"})


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

"""The timeline of the fleet: a lane for the learner and for each manager, and their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vedette.reports.markup import Markup, element
from vedette.reports.record import RunRecord
from vedette_services.run.events import RunEvent
from vedette_services.run.number_format import format_count, format_duration, format_time

LANES_MAX = 40
EVENTS_MAX = 500
_TICKS = 4
_LEARNER = ""  # no manager has this name
_WORDS = {
    "started": "the learner started",
    "epoch": "the trainer began",
    "died": "died",
    "ended": "the learner ended",
    "failed": "the learner gave up",
    "joined": "joined",
    "left": "left",
    "silent": "was silent",
    "returned": "is back",
    "actor": "an actor was restarted",
    "forgotten": "not kept",
}
_BAD = frozenset({"died", "failed", "silent", "actor"})


@dataclass(slots=True)
class Lane:
    """The lane of the learner or of a manager.

    Args:
        spans: ``(begin, end)`` of the times in which it was connected, in seconds since 1970.
        marks: its events.
    """

    name: str
    spans: list[tuple[float, float]] = field(default_factory=list)
    marks: list[RunEvent] = field(default_factory=list)


def fleet_lanes(record: RunRecord) -> list[Lane]:
    """Return the learner's lane, then the managers' in the order of their first events.

    A killed learner logs no end: its span ends with the last record before the next start.
    """
    found = {_LEARNER: Lane("learner")}
    there: dict[str, float] = {}
    for event in record.events:
        name = event.who.rpartition("/")[0] if event.kind == "actor" else event.who
        match event.kind:
            case "started":
                last_s = record.last_record_s(event.time_s)
                _close_all(found, there, event.time_s if last_s is None else last_s)
                there[_LEARNER] = event.time_s
            case "ended" | "failed":
                _close_all(found, there, event.time_s)
            case "joined" | "returned":
                _close(found, there, name, event.time_s)
                there[name] = event.time_s
            case "left" | "silent":
                _close(found, there, name, event.time_s)
        if event.kind in ("epoch", "died", "failed"):
            found[_LEARNER].marks.append(event)
        elif event.kind in ("actor", "silent"):
            found.setdefault(name, Lane(name)).marks.append(event)
    _close_all(found, there, record.last_record_s() or 0.0)
    return list(found.values())


def _close(found: dict[str, Lane], there: dict[str, float], name: str, at_s: float) -> None:
    begin = there.pop(name, None)
    if begin is not None:
        found.setdefault(name, Lane(name)).spans.append((begin, max(begin, at_s)))


def _close_all(found: dict[str, Lane], there: dict[str, float], at_s: float) -> None:
    for name in list(there):
        _close(found, there, name, at_s)


def draw_timeline(record: RunRecord) -> Markup:
    """Draw the lanes with a scale below them."""
    rows = fleet_lanes(record)
    begin = min((span[0] for lane in rows for span in lane.spans), default=0.0)
    end = max((span[1] for lane in rows for span in lane.spans), default=0.0)
    width = max(end - begin, 1.0)
    hidden = len(rows) - LANES_MAX
    return element(
        "div",
        *(_lane(lane, begin, width) for lane in rows[:LANES_MAX]),
        element("p", f"and {hidden} more managers") if hidden > 0 else None,
        _scale(width),
        class_="lanes",
    )


def _lane(lane: Lane, begin: float, width: float) -> Markup:
    spans = [
        element(
            "i",
            style=f"left:{_percent(first - begin, width)};width:{_percent(last - first, width)}",
            title=f"{lane.name}: {format_time(first)}, for {format_duration(last - first)}",
            class_="span",
        )
        for first, last in lane.spans
    ]
    marks = [
        element(
            "i",
            style=f"left:{_percent(event.time_s - begin, width)}",
            title=f"{format_time(event.time_s)}: {describe_event(event)}",
            class_="mark bad" if event.kind in _BAD else "mark",
        )
        for event in lane.marks[-EVENTS_MAX:]
    ]
    return element(
        "div",
        element("span", lane.name, class_="who", title=lane.name),
        element("span", *spans, *marks, class_="track"),
        class_="lane",
    )


def _scale(width: float) -> Markup:
    ticks = [element("span", format_duration(width * i / _TICKS)) for i in range(_TICKS + 1)]
    return element("div", element("span", class_="who"), element("span", *ticks, class_="scale"),
                   class_="lane")  # fmt: skip


def _percent(part: float, whole: float) -> str:
    return f"{100 * min(max(part / whole, 0.0), 1.0):.3f}%"


def describe_event(event: RunEvent) -> str:
    """Describe an event in a line."""
    words = _WORDS[event.kind]
    if event.kind in ("started", "ended", "failed", "epoch"):
        return f"{words}: {event.text}" if event.text else words
    if event.kind == "forgotten":
        return f"{event.who} events are not kept"
    return f"{event.who} {words}" + (f": {event.text}" if event.text else "")


def event_rows(events: Sequence[RunEvent]) -> Iterator[Markup]:
    """Make the rows of a table of the newest `EVENTS_MAX` events."""
    day = ""
    for event in events[-EVENTS_MAX:]:
        today, _, clock = format_time(event.time_s).partition(" ")
        if today != day:
            day = today
            yield element("tr", element("td", day, class_="time", colspan="3"))
        yield element(
            "tr",
            element("td", clock, class_="time"),
            element("td", describe_event(event), class_="bad" if event.kind in _BAD else None),
            element(
                "td", format_count(event.env_steps) if event.env_steps else "", class_="number"
            ),
        )

"""What happens to a run, noticed by whoever holds it together and kept in ``RUN/events.jsonl``.

The supervisor looks at the gateway's board, which it reads anyway: the gateway itself does nothing
for this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vedette_services.learner.boards import Ingest, Learning
from vedette_services.learner.fleet import GONE_AFTER_S
from vedette_services.run_events import EventLog, RunEvent

_PER_LOOK = 20  # a fleet that falls apart, or a liar, must not fill the file with one look
_REMEMBERED_MAX = 4096  # managers; the gateway shows 1,024 at most

Happened = tuple[str, str, str]
"""An event's kind, who, and text."""


@dataclass(slots=True)
class _Seen:
    """A manager as it was at the last look."""

    incarnation: int
    state: str
    restarts: dict[int, int] = field(default_factory=dict)


class FleetWatch:
    """Tells two looks at the fleet apart: who came, who went, which actor was restarted."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, managers: Sequence[Mapping[str, Any]]) -> Iterator[Happened]:
        """What has happened since the last look.

        A manager that is not shown any more is remembered as it was: a gateway that was restarted
        has not heard of it yet.

        Args:
            managers: as the status has them.
        """
        for manager in managers:
            yield from self._look_at(manager)
        for name in list(self._seen)[: max(0, len(self._seen) - _REMEMBERED_MAX)]:
            del self._seen[name]

    def _look_at(self, manager: Mapping[str, Any]) -> Iterator[Happened]:
        name, state = manager["id"], manager["state"]
        actors = {actor["id"]: actor for actor in manager["actors"]}
        seen = self._seen.get(name)
        if seen is None or seen.incarnation != manager["incarnation"]:
            seen = self._seen[name] = _Seen(manager["incarnation"], "")
            count = len(actors) + manager["actors_hidden"]
            actors_said = "1 actor" if count == 1 else f"{count} actors"
            yield "joined", name, f"on {manager['host']}, {actors_said}"
            seen.restarts = {number: actor["restarts"] for number, actor in actors.items()}
        if state != seen.state:
            yield from _changed(name, seen.state, state, manager)
            seen.state = state
        for number, actor in actors.items():
            if actor["restarts"] > seen.restarts.get(number, 0):
                said = f": {actor['error']}" if actor["error"] else ""
                yield "actor", f"{name}/{number}", f"restart {actor['restarts']}{said}"
            seen.restarts[number] = actor["restarts"]


def _changed(name: str, before: str, state: str, manager: Mapping[str, Any]) -> Iterator[Happened]:
    if state == "gone":
        silent_s = manager["last_seen_s"]
        if silent_s < GONE_AFTER_S:  # it said so itself, a moment ago
            yield "left", name, "in good order"
        else:
            yield "silent", name, f"for {silent_s:.0f} s: it counts as gone"
    elif before == "gone":
        yield "returned", name, "after a silence"


class Chronicle:
    """Writes what happens to a run.

    Args:
        path: ``RUN/events.jsonl``.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._log, self._clock = EventLog(path), clock
        self._fleet = FleetWatch()
        self._learning, self._ingest = Learning(), Ingest()
        self._epoch = 0

    def started(self, text: str) -> None:
        """The learner has started: where, or how."""
        self._add("started", "learner", text)

    def epoch(self, epoch: int, opt_steps: int) -> None:
        """The trainer begins, with what has been learned so far."""
        self._epoch = epoch
        self._learning = replace(self._learning, opt_steps=opt_steps)
        self._add("epoch", "trainer", f"epoch {epoch}")

    def died(self, process: str, how: str) -> None:
        """A process of the learner died, and is started again."""
        self._add("died", process, f"{how}; it is started again")

    def ended(self, reason: str) -> None:
        """The learner ends."""
        self._add("ended", "learner", reason)

    def failed(self, why: str) -> None:
        """The learner gives up."""
        self._add("failed", "learner", why)

    def look(self, learning: Learning, ingest: Ingest) -> None:
        """Look at the boards; does nothing where the gateway has said nothing new."""
        self._learning = learning
        if ingest is self._ingest:
            return
        self._ingest = ingest
        happened = list(self._fleet.look(ingest.managers))
        more = len(happened) - _PER_LOOK
        if more > 0:
            happened[_PER_LOOK:] = [("forgotten", str(more), "more at the same time")]
        self._log.add(*(self._event(*what) for what in happened))

    def _add(self, kind: str, who: str, text: str) -> None:
        self._log.add(self._event(kind, who, text))

    def _event(self, kind: str, who: str, text: str) -> RunEvent:
        produced = self._ingest.samples.get("produced", 0)
        steps = self._learning.opt_steps
        return RunEvent(self._clock(), kind, who, text, self._epoch, steps, produced)

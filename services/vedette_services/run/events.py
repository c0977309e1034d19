"""The event log of a run, over all its starts: one line per event in ``RUN/events.jsonl``."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vedette_rl.storage.atomic_files import replace_file, sync_directory
from vedette_rl.storage.regular_files import find_torn_line, open_regular
from vedette_rl.storage.system import sync_file
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.run.lost_samples import LostSamples
from vedette_services.run.snapshot_outages import SnapshotOutages
from vedette_services.status.records import GONE_AFTER_S, GatewayStatus, TrainerStatus
from vedette_services.status.status import ManagerStatus, SnapshotStatus

log = logging.getLogger("vedette.learner")

BYTES_MAX = 1 << 20
"""A longer file is cut to its later half, but for the events of the learner itself."""
TEXT_MAX = 300
_READ_BYTES_MAX = 4 * BYTES_MAX

LEARNER_KINDS = frozenset(
    {
        *("started", "recovered", "epoch", "died", "ended", "failed", "forgotten", "changed"),
        *("lost", "snapshot"),
    }
)
FLEET_KINDS = frozenset({"joined", "left", "silent", "returned", "actor", "unevaluated"})


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a run.

    Args:
        time_s: since 1970.
        kind: ``started``, ``ended`` and ``failed``: the learner; ``recovered``: its replay, from a
            power failure; ``epoch``: its trainer began; ``changed``: a setting since the last
            start;
            ``died``: one of its processes; ``lost``: samples; ``snapshot``: it cannot be written,
            or can be again; ``joined``, ``left``, ``silent``, ``returned``: a manager; ``actor``:
            an actor was restarted; ``unevaluated``: managers evaluate no model; ``forgotten``:
            events were removed here.
        who: the key, the manager, ``MANAGER/ACTOR``, or the process; of ``forgotten`` the number of
            events.
        text: for people. Text that comes from a manager is not to be trusted.
        epoch: of the learner.
        opt_steps, env_steps: at the time of the event.
    """

    time_s: float
    kind: str
    who: str = ""
    text: str = ""
    epoch: int = 0
    opt_steps: int = 0
    env_steps: int = 0


class EventFile:
    """Appends events. A failure is logged once; events are lost while it lasts.

    Args:
        path: of the file, which need not exist.
        bytes_max: see `BYTES_MAX`.
    """

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._failures = RateLimitedLog()

    def add(self, *events: RunEvent) -> None:
        """Append events. A reader may see the last line unfinished.

        What the learner itself did is on the disk afterwards: a power failure that follows a
        recovery must not take the record of it away.
        """
        if not events:
            return
        text = "".join(_line(event) for event in events)
        durable = any(event.kind in LEARNER_KINDS for event in events)
        try:
            with self._path.open("ab") as file:
                new = file.tell() == 0
                if find_torn_line(self._path) is not None:
                    text = "\n" + text  # a writer was killed in the middle of a line
                file.write(text.encode())
                file.flush()
                size = file.tell()
                if durable:
                    sync_file(file.fileno())
            if durable and new:
                sync_directory(self._path.parent)
            if size > self._bytes_max:
                self._forget()
        except OSError as error:
            if self._failures.first("events"):
                why = describe_write_error(error, self._path)
                log.warning("%s not written: %s", self._path.name, why)
        else:
            self._failures.reset("events")

    def _forget(self) -> None:
        """Remove the older half, but for the learner's own events."""
        events, _ = read_events(self._path)
        kept: list[RunEvent] = []
        room = {"fleet": self._bytes_max // 4, "learner": self._bytes_max // 4}
        for event in reversed(events):
            whose = "fleet" if event.kind in FLEET_KINDS else "learner"
            room[whose] -= len(_line(event))
            if room[whose] >= 0 and event.kind != "forgotten":
                kept.append(event)
        left_out = sum(map(_weight, events)) - len(kept)
        since = kept[-1].time_s if kept else 0.0
        gap = RunEvent(since, "forgotten", str(left_out), "older events are not kept")
        replace_file(self._path, "".join(_line(event) for event in [gap, *reversed(kept)]))


def read_events(path: Path) -> tuple[list[RunEvent], int]:
    """Read the events of a file; returns them and the number of lines that are not events.

    A file that does not exist has none. Texts are cut to `TEXT_MAX`.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        with open_regular(path) as file:
            lines = file.read(_READ_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return [], 0
    events = []
    broken = 0
    for line in lines:
        try:
            events.append(_event(json.loads(line)))
        except (ValueError, RecursionError, TypeError, KeyError):
            broken += bool(line.strip())
    return events, broken


def _event(found: Any) -> RunEvent:  # whatever the line says
    """Make the event of a line.

    Raises:
        ValueError, TypeError, KeyError: the line is not an event.
    """
    kind, who, text = (_cut(found[name]) for name in ("kind", "who", "text"))
    counts = (int(found[name]) for name in ("epoch", "opt_steps", "env_steps"))
    event = RunEvent(float(found["time_s"]), kind, who, text, *counts)
    if event.kind not in LEARNER_KINDS | FLEET_KINDS or not math.isfinite(event.time_s):
        raise ValueError(event.kind)
    return event


def _line(event: RunEvent) -> str:
    values = asdict(event)
    values["time_s"] = round(event.time_s, 3)
    values["text"] = _cut(event.text)
    values["who"] = _cut(event.who)
    return json.dumps(values) + "\n"


def _cut(text: object) -> str:
    return str(text)[:TEXT_MAX]


def _weight(event: RunEvent) -> int:
    """Return the number of events that this one stands for."""
    return int(event.who) if event.kind == "forgotten" and event.who.isdecimal() else 1


# Events of the fleet come from the gateway's status record, which the supervisor reads anyway.

_EVENTS_AT_ONCE = 20  # a false report must not fill the file
_REMEMBERED_MAX = 4096  # managers, as many as a gateway's record has at most

FleetEvent = tuple[str, str, str]
"""An event's kind, who, and text."""


@dataclass(slots=True)
class _Seen:
    """A manager as it was in the last record."""

    incarnation: int
    state: str
    restarts: dict[int, int] = field(default_factory=dict)


class FleetChanges:
    """Compares successive records of the fleet: managers that came and went, actors restarted."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def compare(self, managers: Sequence[ManagerStatus]) -> Iterator[FleetEvent]:
        """Yield the events since the last call.

        A manager that is missing is remembered as it was: a gateway that was restarted does not
        know it yet.
        """
        for manager in managers:
            yield from self._compare_manager(manager)
        for name in list(self._seen)[: max(0, len(self._seen) - _REMEMBERED_MAX)]:
            del self._seen[name]

    def _compare_manager(self, manager: ManagerStatus) -> Iterator[FleetEvent]:
        name = manager.id
        state = manager.state
        actors = {actor.id: actor for actor in manager.actors}
        seen = self._seen.get(name)
        if seen is None or seen.incarnation != manager.incarnation:
            seen = self._seen[name] = _Seen(manager.incarnation, "")
            count = len(actors) + manager.actors_hidden
            actors_said = "1 actor" if count == 1 else f"{count} actors"
            yield "joined", name, f"on {manager.host}, {actors_said}"
            seen.restarts = {number: actor.restarts for number, actor in actors.items()}
        if state != seen.state:
            yield from _changed(name, seen.state, state, manager)
            seen.state = state
        for number, actor in actors.items():
            if actor.restarts > seen.restarts.get(number, 0):
                message = f": {actor.error}" if actor.error else ""
                yield "actor", f"{name}/{number}", f"restart {actor.restarts}{message}"
            seen.restarts[number] = actor.restarts


def _changed(name: str, before: str, state: str, manager: ManagerStatus) -> Iterator[FleetEvent]:
    if state == "gone":
        silent_s = manager.last_seen_s or 0.0
        if silent_s < GONE_AFTER_S:  # it reported its end a moment ago
            yield "left", name, "normally"
        else:
            yield "silent", name, f"for {silent_s:.0f} s: it counts as gone"
    elif before == "gone":
        yield "returned", name, "after a silence"


_SIZE_DIFFERS = 4  # times as many, or as few
_FEWER_AFTER_S = 60.0  # actors join one after another


class FleetSizeCheck:
    """Warns once when many more, or many fewer, actors play than the settings were chosen for.

    Args:
        actors: ``actors.count``, which exploration, hand-over and intervals were chosen for.
        envs_per_actor: of each.
    """

    def __init__(self, actors: int, envs_per_actor: int) -> None:
        self._actors = actors
        self._envs = envs_per_actor
        self._since: float | None = None
        self._warned = False

    def warning(self, managers: Sequence[ManagerStatus], now: float) -> str:
        """Return the warning; "" while the fleet fits, and after the first one."""
        playing = sum(
            sum(actor.alive for actor in manager.actors) + manager.actors_hidden
            for manager in managers
            if manager.state != "gone"
        )
        if not playing:
            return ""
        self._since = now if self._since is None else self._since
        more = playing >= _SIZE_DIFFERS * self._actors
        fewer = self._actors >= _SIZE_DIFFERS * playing and now - self._since >= _FEWER_AFTER_S
        if self._warned or not (more or fewer):
            return ""
        self._warned = True
        return (
            f"{playing:,} actors play {playing * self._envs:,} environments, and exploration, "
            f"hand-over and intervals were chosen for {self._actors:,} with "
            f"{self._actors * self._envs:,}: begin a run with actors.count={playing}, or set them "
            "yourself"
        )


class RunEventLog:
    """Logs the events of a run.

    Args:
        path: ``RUN/events.jsonl``.
        size: checks the size of the fleet; None: it is as configured.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        size: FleetSizeCheck | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = EventFile(path)
        self._size = size
        self._clock = clock
        self._fleet = FleetChanges()
        self._lost = LostSamples()
        self._outages = SnapshotOutages()
        self._learning = TrainerStatus()
        self._ingest = GatewayStatus()
        self._unevaluated = ""  # the last reason
        self._epoch = self._env_steps = 0

    def log(self, kind: str, process: str, text: str) -> None:
        """Log what happened to a process of the learner, as `RunEvent` has it."""
        self._file.add(self._event(kind, process, text))

    def log_start(self, where: str, opt_steps: int, env_steps: int) -> None:
        """Log a start of the learner, and the steps that it goes on from."""
        self._learning = replace(self._learning, opt_steps=opt_steps)
        self._env_steps = env_steps
        self.log("started", "learner", where)

    def log_epoch(self, epoch: int, opt_steps: int) -> None:
        """Log the start of the trainer, and the optimization steps that it goes on from."""
        self._epoch = epoch
        self._learning = replace(self._learning, opt_steps=opt_steps)
        self.log("epoch", "trainer", f"epoch {epoch}")

    def log_changes(self, learning: TrainerStatus, ingest: GatewayStatus) -> None:
        """Log the changes in the fleet, and samples that are lost; does nothing while `ingest` is
        the same object."""
        self._learning = learning
        if ingest is self._ingest:
            return
        self._ingest = ingest
        self._env_steps = max(self._env_steps, ingest.env_steps)
        if self._size and (text := self._size.warning(ingest.managers, self._clock())):
            log.warning("%s", text)
        if learning.phase != "done" and ingest.samples:  # an end has no time for the last batches
            starting = learning.phase == "starting"
            lost = self._lost.line(ingest.samples.lost or 0, self._clock(), starting=starting)
            if lost:
                log.warning("%s", lost)
                self.log("lost", "samples", lost)
        happened = list(self._fleet.compare(ingest.managers))
        if ingest.unevaluated not in ("", self._unevaluated):
            self._unevaluated = ingest.unevaluated
            happened.append(("unevaluated", "evaluations", ingest.unevaluated))
        more = len(happened) - _EVENTS_AT_ONCE
        if more > 0:
            happened[_EVENTS_AT_ONCE:] = [("forgotten", str(more), "more at the same time")]
        self._file.add(*(self._event(*event) for event in happened))

    def log_snapshot(self, snapshot: SnapshotStatus) -> None:
        """Log that the snapshot cannot be written, and that it can be again."""
        if line := self._outages.line(snapshot, self._clock()):
            self.log("snapshot", snapshot.directory, line)

    def _event(self, kind: str, who: str, text: str) -> RunEvent:
        steps = self._learning.opt_steps, self._env_steps
        return RunEvent(self._clock(), kind, who, text, self._epoch, *steps)

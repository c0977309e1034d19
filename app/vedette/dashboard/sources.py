"""Sources of the dashboard's runs: directories, which it reads on, or a remote learner."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from vedette.dashboard.listing import UNREAD, RunDetails, read_details, sparkline
from vedette.reports.record import RunRecord, read_record
from vedette.reports.writing import video_files
from vedette_rl.number_format import format_clock
from vedette_rl.recording.reading import CurveReader, CurveTable, read_curves
from vedette_services.errors import RefusedError, error_message
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import FleetChanges, RunEvent
from vedette_services.run.finding import find_runs, is_run
from vedette_services.run.overview import RunOverview, is_running, read_overview
from vedette_services.status.client import StatusClient
from vedette_services.status.schema import is_against_opt_steps, tagged
from vedette_services.status.status import Eval, Status
from vedette_services.status.stop_conditions import describe_exit

log = logging.getLogger("vedette.dashboard")

RUNS_MAX = 500
"""Runs of a list; the newest are shown."""
ASK_EVERY_S = 2.0
SILENT_S = 10.0
"""A learner that has not answered for so long is shown as one that does not."""

_RECORDS_MAX = 40  # runs whose curves are kept in memory
_POINTS_MAX = 20_000  # of a curve in memory, at even distances
_READ_BYTES = 64 << 20  # of the records of a run, at its first page; what is added later is read
_SPARK_BYTES = 1 << 20  # of the records of a run that is not drawn, for its small curve
_SPARK_S = 60.0  # after which the small curve of a run that goes on is read again
_EVENTS_MAX = 500
_STEP_END = 1 << 63  # of a `Curve`; a status may hold a larger number


class DirectorySource:
    """The runs in a directory and below it, or the run that it is. Used by one thread at a time.

    Args:
        directory: `place` is its name, `only` the key of its one run, "" if it has a list.

    Raises:
        NotARunError: there is no such directory.
    """

    def __init__(self, directory: Path) -> None:
        self.place = str(directory)
        self._directory = directory
        self._overviews: dict[str, tuple[object, RunOverview]] = {}
        self._details: dict[str, RunDetails] = {}
        self._records: dict[str, tuple[object, RunRecord, CurveReader]] = {}
        self._sparklines: dict[str, tuple[object, float, str | None]] = {}
        self._paths = {_key(directory): directory}
        self._left_out = set[str]()
        self.only = ""
        if not is_run(directory) or len(find_runs(directory)) > 1:
            self._list()
        else:
            self.only = next(iter(self._paths))

    def overviews(self) -> dict[str, RunOverview]:
        """List the runs, those that run first, then the newest.

        The state of one that cannot be read is the error.
        """
        self._list()
        overviews = {}
        for key, path in self._paths.items():
            name = str(path.relative_to(self._directory))
            try:
                version = self.version(key)
                if self._overviews.get(key, (None,))[0] != version:
                    overview = replace(read_overview(path), run=name)
                    self._details[key] = read_details(path, running=overview.state == "running")
                    self._overviews[key] = version, overview
                overviews[key] = self._overviews[key][1]
            except Exception as error:
                log.debug("a run could not be read", exc_info=True)
                overviews[key] = RunOverview.unreadable(name, error)
        order = sorted(overviews, key=lambda key: _newest_first(overviews[key]))
        return {key: overviews[key] for key in order[:RUNS_MAX]}

    def details(self, key: str) -> RunDetails:
        """Return what the list says of a run beside its overview, as of the last list."""
        return self._details.get(key, UNREAD)

    def sparklines(self, keys: Sequence[str], seconds: float) -> dict[str, str]:
        """Return the small curves of runs: of those that are in memory, and of the others from a
        part of their records. Those that were never read are left out.

        Args:
            seconds: of reading; what is unread then is read by a later call.
        """
        found = {}
        until = time.monotonic() + seconds
        for key in keys:
            if key in self._records:
                found[key] = sparkline(self._records[key][1].curves)
                continue
            version = self.version(key)
            known, read_at, points = self._sparklines.get(key, (None, -math.inf, None))
            now = time.monotonic()
            if known != version and now < until and now - read_at > _SPARK_S:
                points = _read_sparkline(self._paths[key])
                self._sparklines[key] = version, now, points
            if points is not None:
                found[key] = points
        return found

    def whole_record(self, key: str) -> RunRecord:
        """Read a run with every point of its curves, whatever is in memory.

        Raises:
            KeyError: it is not in the list.
        """
        return read_record(self._paths[key], CurveReader(self._paths[key]))

    def videos(self, key: str) -> dict[str, Path]:
        """Return the videos of a run in the list, by name."""
        path = self._paths.get(key)
        return {} if path is None else video_files(path)

    def version(self, key: str) -> object:
        """Return sizes and times of the files of a run; None: it is not in the list."""
        path = self._paths.get(key)
        return None if path is None else (is_running(RunDirectory(path)), *_marks(path))

    def record(self, key: str) -> RunRecord:
        """Read what is new of a run in the list."""
        version = self.version(key)
        known, record, reader = self._records.pop(key, (None, None, None))
        if record is None or known != version:
            reader = reader or CurveReader(self._paths[key], _POINTS_MAX, _READ_BYTES)
            record = read_record(self._paths[key], reader)
        assert reader is not None  # it comes with the record
        self._records[key] = version, record, reader  # the last one used
        for oldest in [*self._records][:-_RECORDS_MAX]:
            del self._records[oldest]
        return record

    def is_read(self, key: str) -> bool:
        """Return True if the curves of a run are in memory, so that reading it is quick."""
        return key in self._records

    def _list(self) -> None:
        left_out: list[OSError] = []
        self._paths = {_key(path): path for path in find_runs(self._directory, left_out=left_out)}
        for error in left_out:
            if error.filename not in self._left_out:
                self._left_out.add(error.filename)
                log.warning("left out: %s", error_message(error))


def _read_sparkline(run: Path) -> str:
    try:
        return sparkline(read_curves(run, bytes_max=_SPARK_BYTES).curves)
    except Exception:  # its page says what is wrong with it
        log.debug("the evaluations of a run could not be read", exc_info=True)
        return ""


def _key(path: Path) -> str:
    """Return a hash: what a browser sends leads to a run of the list, or nowhere."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _newest_first(run: RunOverview) -> tuple[bool, float]:
    return run.state != "running", -(run.began_s or 0.0)


def _marks(run: Path) -> Iterator[tuple[str, int, int, int]]:
    """Name, inode, size and time of every file that a report reads."""
    for folder in (run, run / "tensorboard", run / "checkpoints", run / "videos"):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(OSError):  # removed meanwhile
                    stat = entry.stat()
                    yield entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns


@dataclass(slots=True)
class _History:
    """The statuses of one run, one after the other."""

    run_id: str = ""
    table: CurveTable = field(default_factory=lambda: CurveTable(_POINTS_MAX))
    fleet: FleetChanges = field(default_factory=FleetChanges)
    events: deque[RunEvent] = field(default_factory=lambda: deque(maxlen=_EVENTS_MAX))
    epoch: int = 0
    evaluated: int | None = None
    told: dict[str, float] = field(default_factory=dict)
    shown: tuple[int | None, str] = (None, "")

    def add(self, status: Status) -> None:
        """Add a status: a point of each curve, and what has changed in the fleet."""
        now = status.time_s or time.time()
        env_steps = status.env_steps
        opts = status.opt_steps
        where = (status.epoch or 0, opts or 0, env_steps or 0)
        if not self.events:
            begun = now - (status.seconds or 0.0)
            self.events.append(RunEvent(begun, "started", "learner", "", *where))
        if status.epoch and status.epoch != self.epoch:
            self.epoch = status.epoch
            self.events.append(RunEvent(now, "epoch", "trainer", f"epoch {status.epoch}", *where))
        for kind, who, text in self.fleet.compare(status.managers):
            self.events.append(RunEvent(now, kind, who, text, *where))
        self._add_points(status, now)

    def _add_points(self, status: Status, now: float) -> None:
        evaluation = tagged(replace(status.eval, shown_return_mean=None))
        shown = tagged(Eval(episodes=None, shown_return_mean=status.eval.shown_return_mean))
        numbers = tagged(status) | {f"train/{name}": x for name, x in status.record.items()}
        names: dict[bool, list[str]] = {
            True: [],
            False: [],
        }  # of curves against optimization steps, and of others
        for name in numbers.keys() - evaluation.keys() - shown.keys():
            names[is_against_opt_steps(name)].append(name)
        self._add_row(names[False], status.env_steps, now, numbers)
        self._add_row(names[True], status.opt_steps, now, numbers)
        if status.eval.version is not None:
            is_new = status.eval.version != self.evaluated
            # What fresh episodes have brought comes later, and may change the best one.
            names_told = [n for n, x in evaluation.items() if is_new or self.told.get(n) != x]
            self.evaluated = status.eval.version
            self.told = evaluation
            known = status.eval.env_steps
            self._add_row(names_told, status.env_steps if known is None else known, now, numbers)
        who = status.eval.shown_version, status.eval.shown_by
        if who != self.shown:  # it stands where it came
            self.shown = who
            self._add_row([*shown], status.env_steps, now, numbers)

    def _add_row(
        self, names: list[str], step: int | None, now: float, numbers: Mapping[str, float]
    ) -> None:
        if step and names and step < _STEP_END:
            self.table.add(sorted(names), step, now, [numbers[name] for name in sorted(names)])


class LearnerSource:
    """The run of a remote learner, which a thread asks for its status all the time.

    Args:
        client: connected to the learner; used by this source alone from now on.

    Raises:
        RefusedError: the learner does not let us in.
    """

    only = "learner"

    def __init__(self, client: StatusClient) -> None:
        self.place = f"learner {client.address}"
        self._client = client
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._status: Status | None = None
        self._heard_s = self._began_s = time.time()
        self._fault = ""
        self._count = 0
        self._history = _History()
        self.ask()
        self._thread = threading.Thread(target=self._go_on, name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the connection."""
        self._ended.set()
        self._thread.join()
        self._client.close()

    def ask(self) -> None:
        """Ask the learner once; an answer that cannot be read is in the notes of the record.

        Raises:
            RefusedError: it does not let us in.
        """
        try:
            self._add(self._client.ask(ASK_EVERY_S))
        except RefusedError:
            raise
        except Exception as error:  # whatever it sent, the next answer may be readable
            log.debug("a status could not be read", exc_info=True)
            self._set_fault(f"A status of the {self.place} is unreadable: {error_message(error)}")

    def _add(self, status: Status | None) -> None:
        with self._lock:
            self._count += 1
            if status is None:
                return
            self._heard_s = time.time()
            self._status = status
            if status.run_id != self._history.run_id:
                self._history = _History(status.run_id)
            self._history.add(status)
            self._fault = ""

    def _set_fault(self, text: str) -> None:
        with self._lock:
            self._count += 1
            if text != self._fault:
                log.warning("%s", text)
            self._fault = text

    def _go_on(self) -> None:
        while not self._ended.wait(ASK_EVERY_S):
            try:
                self.ask()
            except RefusedError as error:  # it has removed our key, perhaps
                self._set_fault(str(error))

    def overviews(self) -> dict[str, RunOverview]:
        """Return nothing: there is one run."""
        return {}

    def details(self, key: str) -> RunDetails:
        """Return nothing: there is no list."""
        return UNREAD

    def sparklines(self, keys: Sequence[str], seconds: float) -> dict[str, str]:
        """Return nothing: there is no list."""
        return {}

    def videos(self, key: str) -> dict[str, Path]:
        """Return nothing: they are on another host."""
        return {}

    def whole_record(self, key: str) -> RunRecord:
        """Make the record of what it has said so far.

        Raises:
            KeyError: it is another run.
        """
        if key != self.only:
            raise KeyError(key)
        return self.record(key)

    def version(self, key: str) -> object:
        """Return the number of times that it was asked."""
        return self._count if key == self.only else None

    def record(self, key: str) -> RunRecord:
        """Make the record of what it has said so far."""
        with self._lock:
            status = self._status or Status()
            history = self._history
            silent_s = time.time() - self._heard_s
            running = self._status is not None and not status.exit_reason and silent_s < SILENT_S
            curves = history.table.curves()
            events = tuple(history.events)
            notes = tuple(self._notes(status, silent_s))
        return RunRecord(Path(self.place), {}, status, curves, events, (), running, notes)

    def _notes(self, status: Status, silent_s: float) -> Sequence[str]:
        if ended := describe_exit(status):
            return [f"It is {ended}."]
        if self._fault:
            return [self._fault]
        if silent_s >= SILENT_S or self._status is None:
            return [f"No answer from the {self.place} for {format_clock(silent_s)}."]
        since = format_clock(time.time() - self._began_s)
        return [
            f"It is {status.phase or 'running'}. Curves began {since} ago, with this dashboard."
        ]

    def is_read(self, key: str) -> bool:
        """Return True: all that is known is in memory."""
        return True


Source = DirectorySource | LearnerSource

"""Runs seen from their directories: their state, their result, and the status of their learner."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from vedette_protocol.foreign_text import printable
from vedette_rl.number_format import format_duration
from vedette_rl.storage.regular_files import read_bytes
from vedette_services.config.loading import read_toml
from vedette_services.errors import AddressError, RunInUseError, SettingError, error_message
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.active_time import run_seconds, start_spans
from vedette_services.run.claim import SeenOwner
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.finding import check_readable, find_runs, not_a_run
from vedette_services.run.learner_location import LearnerLocation
from vedette_services.run.notes import read_notes
from vedette_services.run.outcome import describe_resume_point, read_summary
from vedette_services.run.provenance import last_failure, read_provenance
from vedette_services.run.queued_runs import is_queued
from vedette_services.status.client import StatusClient
from vedette_services.status.heartbeats import SAID_S
from vedette_services.status.schema import decode, printable_json
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import (
    FAILED_REASON,
    describe_exit,
    describe_outcome,
    return_in_comparisons,
)

QUEUED = "queued"
"""The state of a run that waits in a sweep."""

_POLL_S = 0.1
_FRESH_S = 30.0  # a running learner writes its summary every few seconds


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a line.

    Args:
        state: ``running``, ``solved``, ``done``, ``stopped``, ``failed``; ``killed``: it has no
            end; ``new``: it never trained; ``queued``: a sweep that runs will go on with it;
            ``unreadable: `` and why.
        last_return, best_return: of evaluations; the last of a solved run is that of the fresh
            episodes by which it is solved.
        seconds: of all starts together; None if unknown.
        began_s: the first start, in seconds since 1970.
        commit: of the user's project at the last start, with a ``+`` if files differed.
        tags, note: what somebody has noted (`vedette_services.run.notes`).
        is_last_by_luck: the last evaluation is at the target, and fresh episodes of its model were
            not: the best is ranked by these.
        host: where it runs, if that is known from the record of a learner of another host alone.
    """

    run: str
    state: str
    agent: str
    env: str
    last_return: float | None
    best_return: float | None
    env_steps: int | None
    seconds: float | None
    began_s: float | None
    commit: str
    tags: tuple[str, ...] = ()
    note: str = ""
    host: str = ""
    is_last_by_luck: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def unreadable(cls, run: str, error: Exception) -> Self:
        """Return that of a run of which nothing can be read; its state is why."""
        return cls(run, unreadable(error), "", "", None, None, None, None, None, "")


def unreadable(error: Exception) -> str:
    """Return the state of a run that cannot be read or shown."""
    return f"unreadable: {error_message(error)}"


def read_overview(directory: Path) -> RunOverview:
    """Read what there is; a missing or damaged file leaves its values out.

    Raises:
        OSError: there is a file that cannot be read.
    """
    check_readable(directory)
    run, summary = RunDirectory(directory), read_summary(directory)
    try:
        config = read_toml(run.config_file)
    except SettingError:
        config = {}
    starts = read_provenance(run)
    running = is_running(run)
    state = "running" if running else _ended_state(run, summary)
    is_solved = state == "solved"
    if not running and is_queued(directory):
        state = QUEUED
    seen = seen_elsewhere(run)
    notes = read_notes(directory)
    events = list[RunEvent]()
    with suppress(OSError):
        events, _ = read_events(run.events_file)
    spans = start_spans(events, summary.time_s or 0.0)
    spans = spans or [(start.began_s, start.ended_s) for start in starts if start.ended_s]
    return RunOverview(
        str(directory),
        state,
        summary.agent or _text(config, "agent", "name"),
        summary.env or _text(config, "env", "id"),
        return_in_comparisons(summary) if is_solved else summary.eval.return_mean,
        summary.eval.best_return_mean,
        summary.env_steps,
        run_seconds(spans, summary),
        starts[0].began_s if starts else (events[0].time_s if events else None),
        starts[-1].code if starts else "",
        notes.tags,
        notes.note or notes.damage,
        seen.owner.host if seen is not None and seen.lives else "",
        not is_solved and _is_last_by_luck(summary),
    )


def _is_last_by_luck(summary: Status) -> bool:
    """Return True if fresh episodes of the last evaluation's model were below the target."""
    fresh, target = summary.eval.fresh_return_mean, summary.stop.target_return
    return fresh is not None and target is not None and fresh < target


def _text(config: Mapping[str, Any], part: str, key: str) -> str:
    table = config.get(part)
    return printable(str(table.get(key, ""))) if isinstance(table, dict) else ""


def find_running(directory: Path, folders_max: int = 2_000) -> list[Path]:
    """Find the runs below a directory whose learner runs.

    Args:
        folders_max: the number of folders to look into.

    Raises:
        NotARunError: there is no such directory.
    """
    return [path for path in find_runs(directory, folders_max) if is_running(RunDirectory(path))]


def is_running(run: RunDirectory) -> bool:
    """Return True if a learner runs in a directory, or where its lock cannot be asked.

    Where locks say nothing of another host, its record does. A learner that only answers late
    managers, after the end of the run, does not count.
    """
    try:
        is_locked = run.check_free(wait_s=0.0)
        seen = run.find_seen_owner(time.time(), locks=is_locked)
        is_free = seen is None or not seen.lives
    except (RunInUseError, OSError):
        is_free = False
    if not is_free:
        summary = read_summary(run.root)
        is_new = _is_of_earlier_start(run, summary)
        return is_new or not summary.exit_reason or bool(summary.waits)
    return False


def _is_of_earlier_start(run: RunDirectory, status: Status) -> bool:
    """Return True if a status is not of the learner that runs now. Where that listens it has said
    which one it found; until then times tell, perhaps of two clocks."""
    if (location := LearnerLocation.read(run)) is not None:
        return not location.has_ended(status)
    starts = read_provenance(run)
    return not starts or (status.time_s or 0.0) < starts[-1].began_s


def seen_elsewhere(run: RunDirectory) -> SeenOwner | None:
    """Return the learner that has not released a run, where only its record tells of it: it runs on
    another host, or was killed there. None where the lock tells."""
    try:
        return run.find_seen_owner(time.time(), locks=run.check_free(wait_s=0.0))
    except (RunInUseError, OSError):
        return None


def _ended_state(run: RunDirectory, summary: Status) -> str:
    if last_failure(run) is not None:
        return FAILED_REASON
    if outcome := describe_outcome(summary):
        return outcome
    return "killed" if summary != Status() else "new"


def describe_end(directory: Path, what: str = "run") -> str:
    """Describe the end of a run whose learner does not run, and what goes on with it.

    Args:
        what: has ended; after a stop the learner alone: what started it may still wait for actors.
    """
    run, summary = RunDirectory(directory), read_summary(directory)
    state = _ended_state(run, summary)
    if is_queued(directory):
        return f"no learner runs yet: a sweep has it queued; {describe_resume_point(directory)}"
    if state in ("killed", FAILED_REASON):
        resumes = describe_resume_point(directory)
        if state == "killed" and (seen := seen_elsewhere(run)) is not None:
            still = (
                f"that on {seen.owner.host} has moved no record for {format_duration(seen.age_s)}"
            )
            return f"no learner runs: {still}; {resumes}"
        if state == "killed":
            return f"no learner runs: it was killed; {resumes}"
        why = last_failure(run)
        return f"no learner runs: it failed{f': {why}' if why else ''}; {resumes}"
    if state == "new":
        return "no learner runs, and none has trained"
    return f"the {what} has ended: {describe_exit(summary)}"


class RunStatus:
    """Asks the learner of a run directory for its status; after its end, reads the last one.

    It finds the learner anew when that has moved.

    Args:
        keys: ours and the learner's; None: neither encrypt nor authenticate.

    Raises:
        NotARunError: the directory holds no run.
        OSError: a file that describes it cannot be read.
    """

    def __init__(self, directory: Path, keys: ClientKeys | None = None) -> None:
        if not RunDirectory(directory).exists:
            raise not_a_run(directory, "run.json")
        check_readable(directory)
        self._directory = directory
        self._run = RunDirectory(directory)
        self._keys = keys
        self._client: StatusClient | None = None
        self.address: Address | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connect(None)

    @property
    def end(self) -> str:
        """A sentence on the run's end; "" while a learner runs."""
        return "" if is_running(self._run) else describe_end(self._directory)

    @property
    def place(self) -> str:
        """A sentence on the other host that the learner runs on, where only its record tells that
        it does; else ""."""
        seen = seen_elsewhere(self._run)
        if seen is None or not seen.lives or not is_running(self._run):
            return ""
        return f"{seen}{'' if self.address else '; this is what it wrote last'}"

    @property
    def silence_reason(self) -> str:
        """Why the learner does not answer, as its supervisor has just written; "" if that is not
        known."""
        summary = read_summary(self._directory)
        is_fresh = abs(time.time() - (summary.time_s or 0.0)) < _FRESH_S
        stands = (summary.heartbeat.gateway_s or 0.0) >= SAID_S
        return summary.waits if is_fresh and stands else ""

    def ask(self, timeout_s: float = 5.0) -> Status | None:
        """Return the status now; None if the learner does not answer within `timeout_s`."""
        text = self.ask_json(timeout_s)
        return None if text is None else decode(Status, text)

    def ask_json(self, timeout_s: float = 5.0) -> bytes | None:
        """Like `ask`, but return the JSON, each of its texts as one printable line.

        Raises:
            RefusedError: the learner does not let us in.
            AddressError: it listens on another host alone, and its lock is that host's too.
        """
        deadline = time.monotonic() + timeout_s
        while is_running(self._run) and not self._run.identity().in_process:
            location = LearnerLocation.read(self._run)
            if location is not None:
                try:
                    address = location.address_from_here()
                except AddressError:
                    if seen_elsewhere(self._run) is None:
                        raise
                    break  # what it has written is here
                self._connect(address)
                assert self._client is not None  # it has just been made
                return self._client.ask_json(max(_POLL_S, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)  # it starts
        self._connect(None)
        try:
            text = printable_json(read_bytes(self._run.summary_file))
        except OSError:
            return None
        return self._as_of_this_start(text) if text and is_running(self._run) else text

    def _as_of_this_start(self, text: bytes) -> bytes:
        """Leave out the end of an earlier start, where one begins that has written no status."""
        status = decode(Status, text)
        if status is None or not _is_of_earlier_start(self._run, status):
            return text
        begins = replace(status, exit_reason="", phase="starting", waits="", unevaluated="")
        return json.dumps(begins.as_dict()).encode()

    def _connect(self, address: Address | None) -> None:
        if address == self.address:
            return
        if self._client is not None:
            with closing(self._client):
                self._client = None
        self.address = address
        if address is not None:
            self._client = StatusClient(address, self._keys)

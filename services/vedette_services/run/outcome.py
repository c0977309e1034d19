"""The outcome of a run, read from its directory: last status, unsaved work, what is left to do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vedette_protocol.account import SampleAccounting
from vedette_rl.errors import LatestValueFormatError
from vedette_rl.number_format import format_number
from vedette_rl.storage.atomic_files import write_json
from vedette_rl.storage.regular_files import read_bytes, read_json
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.errors import (
    FAILED,
    RunLostError,
    RunMovedError,
    RunTakenOverError,
    UsageError,
)
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.status_files import StatusReader
from vedette_services.status.schema import decode, printable_json
from vedette_services.status.status import Eval, Status
from vedette_services.status.stop_conditions import (
    EXIT_REASONS,
    describe_exit,
    reached_condition,
    with_reached_return,
)

if TYPE_CHECKING:  # `vedette status` needs no configuration
    from vedette_services.config.changes import ChangedSetting
    from vedette_services.config.parts import StopConfig


def read_summary(out: Path) -> Status:
    """Read ``RUN/summary.json``, each of its texts as one printable line; an empty status if there
    is none that can be read."""
    try:
        text = printable_json(read_bytes(out / "summary.json"))
        return (decode(Status, text) if text else None) or Status()
    except OSError:
        return Status()


def summary_counts(out: Path) -> SampleAccounting:
    """Return the sample accounting of ``RUN/summary.json``; zeros for what it does not know."""
    summary = read_summary(out)
    names = [field.name for field in fields(SampleAccounting)]
    counted = {name: getattr(summary.samples, name, None) or 0 for name in names}
    return SampleAccounting(**counted | {"env_steps": summary.env_steps or 0})


def write_summary(file: Path, status: Status, *, ended: bool) -> str:
    """Write ``RUN/summary.json``; return why it cannot be written, such as on a full disk, or "".

    Args:
        ended: a power failure does not take it. Each few seconds of a run that would cost too much.
    """
    try:
        write_json(file, status.as_dict(), durable=ended)
    except OSError as error:
        return describe_write_error(error, file)
    return ""


def last_status(out: Path, received: Status | None, *, since: float, stopped: bool) -> Status:
    """Return the last status of a start whose learner has just ended; empty if it had not begun.

    The directory may hold the status of another start: an older one if the disk was full, a newer
    one if that followed at once. Then the status received last is returned.

    Args:
        out: the run's directory.
        received: the learner's last answer; None if it never answered.
        since: time of the start, in seconds since 1970.
        stopped: the learner was asked to stop.
    """
    if received is None and stopped:
        return Status()
    for left in (read_summary(out), _read_status_records(out)):
        if left.exit_reason and _is_same_start(left, received, since):
            return left
    last = received or Status()
    return replace(last, exit_reason="interrupted") if stopped else last


def status_at_end(out: Path, received: Status) -> Status | None:
    """Return the status of a start whose training is over and whose learner answers no more; None
    while it may still train.

    Args:
        out: the run's directory, on this machine.
        received: the learner's last answer.
    """
    left = _read_status_records(out)
    if left.phase != "done" or not _is_same_start(left, received, 0.0):
        return None
    why = describe_exit(left).partition(";")[0]
    return left if left.waits else replace(left, waits=f"the learner ends ({why})")


def describe_wait(out: Path) -> str:
    """Return what the start in a run's directory, on this machine, waits for now."""
    return _read_status_records(out).waits


def _is_same_start(left: Status, received: Status | None, since: float) -> bool:
    """Return True if both are of the same start, and the one that it left is no older: on a full
    disk a summary of its begin may stay there."""
    if received is None:
        return (left.time_s or 0.0) >= since
    is_older = (left.opt_steps or 0) < (received.opt_steps or 0)
    return (left.run_id, left.epoch) == (received.run_id, received.epoch) and not is_older


def _read_status_records(out: Path) -> Status:
    """Read the last status records, whose maps have their space even on a full disk."""
    from vedette_services.config.import_permission import check_run_imports  # brings gymnasium

    try:
        spec = read_json(RunDirectory(out).spec_file)
        check_run_imports(out, {"agent": spec["config"]["agent"]})  # it may be of another start
        return StatusReader(LearnerSpec.read(out)).read()
    except (OSError, ValueError, KeyError, TypeError, LatestValueFormatError, UsageError):
        return Status()


def describe_unsaved(out: Path, status: Status) -> str:
    """Describe what of a start's end is not on the disk, and where a resume begins; "" if all is.

    Args:
        out: the run's directory.
        status: the last of that start.
    """
    message = []
    done = status.opt_steps or 0
    kept = RunDirectory(out).newest_checkpoint()
    why = status.unsaved
    if why or done > (kept or 0):
        cause = f" ({why})" if why else ""
        resume = f"{describe_resume_point(out)}, not {done:,}"
        message.append(f"the final checkpoint is not written{cause}; {resume}")
    summary = read_summary(out)
    if not summary.exit_reason or not _is_same_start(summary, status, 0.0):
        message.append("summary.json is outdated or missing")
    return "; ".join(message)


def describe_loss(loss: RunLostError | None) -> str:
    """Describe what a run's end lacks whose directory is not where it was; "" if it is there.

    Raises:
        RunTakenOverError: another learner has the run.
    """
    if isinstance(loss, RunTakenOverError):
        raise loss
    now = loss.now if isinstance(loss, RunMovedError) else None
    return "" if loss is None else f"{loss}" + (f"; {describe_resume_point(now)}" if now else "")


def describe_resume_point(out: Path) -> str:
    """Describe where the same command resumes."""
    kept = RunDirectory(out).newest_checkpoint()
    if kept is None:
        return "there is no checkpoint, a resume begins at optimization step 0"
    return f"a resume begins at optimization step {kept:,}"


def exit_at_once(out: Path) -> NoReturn:
    """End this process at a second signal, with a line that says where a resume begins."""
    resumes = describe_resume_point(out)
    message = f"vedette: cut short by a second signal, before the last checkpoint: {resumes}"
    begin = "\n" if os.isatty(2) else ""  # below what is drawn there
    os.write(2, f"{begin}{message}\n".encode())  # no stream: a signal may come while one is in use
    os._exit(FAILED)


def describe_already_done(out: Path, stop: StopConfig, *, new_best: bool = False) -> str:
    """Describe why a start on this directory would end at once, with the fix; "" if it would not.

    A run that was killed has no exit reason, and may have lost the steps that its status counts.

    Args:
        new_best: its best evaluation does not count under this start's settings.
    """
    summary = read_summary(out)
    if new_best:
        summary = replace(summary, eval=Eval())
    name = reached_condition(summary, stop) if summary.exit_reason else ""
    if not name or RunDirectory(out).newest_checkpoint() != summary.opt_steps:
        return ""
    reason = EXIT_REASONS[name]
    limit = getattr(stop, name)
    message = f"{format_number(reason.now(with_reached_return(summary)))} of {format_number(limit)}"
    so_far = (
        f"it has {message} {reason.unit}" if reason.unit else f"its evaluations reached {message}"
    )
    return f"already done: {so_far}; raise stop.{name} to go on"


def describe_not_applied(changes: Iterable[ChangedSetting]) -> str:
    """Describe the changed settings of a start on a run that is over, which it does not take; ""
    without any. Stop conditions it does take: by them it is over.
    """
    others = [str(change) for change in changes if not change.key.startswith("stop.")]
    return f"not applied, because the run is over: {', '.join(others)}" if others else ""


def startup_stage(run: RunDirectory, since: float) -> str:
    """Describe how far a learner on this machine is with its start.

    Args:
        since: time of its start, in seconds since 1970: older files are of an earlier one.
    """
    if not _made(run.learning_map, since):
        if owner := run.owner_elsewhere():
            return f"the learner starts: it waits for {owner}, which may still run here"
        return "the learner starts: its process loads"
    if not _made(run.ingest_map, since):
        return "the learner starts: the gateway loads and opens the replay"
    return "the learner starts: the gateway opens its ports"


def _made(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except FileNotFoundError:
        return False

"""How runs end, as their directories tell: what a start came to, what of it is on the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from vedette_rl.errors import LatestValueFormatError
from vedette_services.config.parts import StopConfig
from vedette_services.errors import FAILED
from vedette_services.run import status_text
from vedette_services.run.directory import RunDirectory
from vedette_services.run.spec import LearnerSpec
from vedette_services.run.status import StatusReader

_OVER = {
    "target_return": "its evaluations reached {now} of {limit}",
    "max_opts": "it has {now} of {limit} optimization steps",
    "max_env_steps": "it has {now} of {limit} environment steps",
}
_COUNTERS = {"max_opts": "opt_steps", "max_env_steps": "env_steps", "max_seconds": "seconds"}


def read_summary(out: Path) -> dict[str, Any]:
    """What ``RUN/summary.json`` says; empty where there is none that can be read."""
    try:
        summary = json.loads((out / "summary.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


# What a start came to


def last_status(
    out: Path, heard: Mapping[str, Any] | None, *, since: float, stopped: bool
) -> dict[str, Any]:
    """The last status of a start whose learner has just ended; empty where it had not begun.

    The directory may hold the figures of another start: an older one where the disk was full, a
    newer one where that followed at once. Then what was heard last has to do.

    Args:
        out: the run's directory.
        heard: what the learner answered last; None where it never has.
        since: when it was started, in seconds since 1970.
        stopped: it was asked to.
    """
    if heard is None and stopped:
        return {}
    for left in (read_summary(out), _read_status_records(out)):
        if left.get("exit_reason") and _is_same_start(left, heard, since):
            return left
    last = dict(heard or {})
    return {**last, "exit_reason": "interrupted"} if stopped else last


def _is_same_start(left: Mapping[str, Any], heard: Mapping[str, Any] | None, since: float) -> bool:
    """Whether a status that was found is of the start that was heard."""
    if heard is None:
        return (status_text.read_number(left, "time_s") or 0.0) >= since
    return all(left.get(name) == heard.get(name) for name in ("run_id", "epoch"))


def _read_status_records(out: Path) -> dict[str, Any]:
    """What the learner's processes told each other last: their maps have room on a full disk."""
    try:
        return StatusReader(LearnerSpec.read(out)).read()
    except (OSError, ValueError, KeyError, TypeError, LatestValueFormatError):
        return {}


# What of it is on the disk


def describe_unsaved(out: Path, status: Mapping[str, Any]) -> str:
    """What of a start's end is not on the disk, and where a resume begins; "" where all is.

    Args:
        out: the run's directory.
        status: the last of that start.
    """
    message = []
    done, kept = (
        int(status_text.read_number(status, "opt_steps") or 0),
        RunDirectory(out).newest_checkpoint(),
    )
    why = str(status.get("unsaved") or "")
    if why or done > (kept or 0):
        cause = f" ({why})" if why else ""
        message.append(
            f"its checkpoint is not written{cause}; {describe_resume_point(out)}, not {done:,}"
        )
    summary = read_summary(out)
    if not summary.get("exit_reason") or not _is_same_start(summary, status, 0.0):
        message.append("summary.json is older than the end, or missing")
    return "; ".join(message)


def describe_resume_point(out: Path) -> str:
    """Where the same command goes on, in words."""
    kept = RunDirectory(out).newest_checkpoint()
    if kept is None:
        return "there is no checkpoint, a resume begins at optimization step 0"
    return f"a resume begins at optimization step {kept:,}"


def exit_at_once(out: Path) -> NoReturn:
    """End this process at a second signal, with a line about what was not done."""
    resumes = describe_resume_point(out)
    message = f"vedette: cut short by a second signal, before the last checkpoint: {resumes}"
    begin = "\n" if os.isatty(2) else ""  # below what is drawn there
    os.write(2, f"{begin}{message}\n".encode())  # no stream: a signal may come while one is in use
    os._exit(FAILED)


# Whether there is more to do


def is_over(summary: Mapping[str, Any], stop: StopConfig) -> bool:
    """Whether a run has nothing more to do under these stop conditions."""
    reason = summary.get("exit_reason")
    if reason == "target_return":
        best = status_text.read_number(summary, "eval", "best_return_mean")
        return stop.target_return is not None and best is not None and best >= stop.target_return
    if reason not in _COUNTERS:
        return False
    limit: float = getattr(stop, reason)
    return 0 < limit <= (status_text.read_number(summary, _COUNTERS[reason]) or 0)


def describe_already_done(out: Path, stop: StopConfig) -> str:
    """Why a start on this directory would end at once, and the fix; "" where it would not.

    `stop.max_seconds` are those of a start: with them alone there is always more to do.
    """
    summary = read_summary(out)
    reason = str(summary.get("exit_reason"))
    if reason not in _OVER or not is_over(summary, stop):
        return ""
    if RunDirectory(out).newest_checkpoint() != summary.get("opt_steps"):
        return ""
    path = (_COUNTERS[reason],) if reason in _COUNTERS else ("eval", "best_return_mean")
    now, limit = status_text.read_number(summary, *path), getattr(stop, reason)
    message = _OVER[reason].format(
        now=status_text.format_number(now), limit=status_text.format_number(limit)
    )
    return f"already done: {message}; raise stop.{reason} to go on"


def startup_stage(run: RunDirectory, since: float) -> str:
    """How far a learner on this machine has come with its start.

    Args:
        since: seconds since 1970, of its start: files that are older are of an earlier one.
    """
    if not _made(run.learning_map, since):
        return "the learner starts: its process loads"
    if not _made(run.ingest_map, since):
        return "the learner starts: the gateway loads and opens the replay"
    return "the learner starts: the gateway opens its ports"


def _made(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except FileNotFoundError:
        return False

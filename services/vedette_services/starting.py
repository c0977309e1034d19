"""What a learner that does not answer yet is busy with, from the files that it makes on its way."""

from __future__ import annotations

from pathlib import Path

from vedette_services.run_directory import RunDirectory


def stage_of_start(run: RunDirectory, since: float) -> str:
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

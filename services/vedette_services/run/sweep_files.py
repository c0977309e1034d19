"""The files of a sweep beside its runs and a report: by them its folder is known as a sweep's."""

from __future__ import annotations

from pathlib import Path

JOBS = "sweep"
"""Folder in the sweep's directory with the configuration and the log of each trial."""

JOURNAL = "study.journal"
STUDY_LOCK = "study.lock"
BEST = "best.toml"
WORKERS = "workers"
CONFIGURED = "what the sweep gave to"
"""Begins the comment of each configuration in `JOBS`."""
_OWN = (JOBS, JOURNAL, STUDY_LOCK, BEST, WORKERS)
"""What a sweep has in its directory, beside its runs and a report."""


def has_sweep_files(out: Path) -> bool:
    """Return True for a folder with files that only sweeps write."""
    if (out / JOURNAL).exists() or (out / STUDY_LOCK).exists():
        return True
    return any(map(is_trial_config, (out / JOBS).glob("*.toml")))


def find_writing_sweep(place: Path) -> Path | None:
    """Return the sweep that writes a file, beside its runs; None if none does.

    Args:
        place: it need not exist. Links are followed.
    """
    path = place.resolve()
    for folder in path.parents[:2]:
        if path.relative_to(folder).parts[0] in _OWN and has_sweep_files(folder):
            return folder
    return None


def is_trial_config(file: Path) -> bool:
    """Return True for a configuration that a sweep has written."""
    try:
        with file.open("rb") as text:
            return text.readline(200).startswith(f"# {CONFIGURED} ".encode())
    except OSError:
        return False

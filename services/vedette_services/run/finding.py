"""Finds runs by their directories: in a folder, in the folders of a sweep, and below a run."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from vedette_rl.storage.regular_files import open_regular
from vedette_services.errors import NotARunError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.run_files import FOLDERS

DEPTH_MAX = 3
"""Folders between a directory and its runs: a sweep, its settings, its seeds."""

_LOOKED_AT_MAX = 2_000
"""Folders that are looked into for the runs below one that is none."""

SEED_FOLDER = re.compile(r"seed-\d+")
"""The name of a run's folder in the folder of several seeds."""

_DESCRIPTION = ("run.json", "config.toml", "summary.json", "provenance.json")
_FURTHER_FILES = ("summary.json", "events.jsonl")


def is_run(directory: Path) -> bool:
    """Return True if a run was started in a directory."""
    further = any((directory / name).exists() for name in _FURTHER_FILES)
    return further or RunDirectory(directory).exists


def check_readable(directory: Path) -> None:
    """Check that this user can read what describes a run, as far as it is there.

    Raises:
        OSError: a file cannot be read; it is named.
    """
    for name in _DESCRIPTION:
        try:
            with open_regular(directory / name) as file:
                file.read(1)
        except FileNotFoundError:
            continue


def find_runs(
    directory: Path, folders_max: int | None = None, left_out: list[OSError] | None = None
) -> list[Path]:
    """Find the runs in a directory and below it, below other runs too; seed-2 before seed-10.

    Args:
        folders_max: the number of folders to look into; None: all.
        left_out: gets an error for each folder that cannot be looked into: it may hold runs.

    Raises:
        NotARunError: there is no such directory.
    """
    if not directory.is_dir():
        raise NotARunError(directory, "run")
    unread: list[OSError] = [] if left_out is None else left_out
    found: list[Path] = []
    walk = os.walk(directory, onerror=unread.append)
    for place, folders, _ in itertools.islice(walk, folders_max):
        path = Path(place)
        try:
            is_found = is_run(path)
        except OSError as error:
            unread.append(error)
            folders.clear()
            continue
        if is_found:
            found.append(path)
            folders[:] = [name for name in folders if name not in (*FOLDERS, "log")]
        if len(path.relative_to(directory).parts) >= DEPTH_MAX:
            folders.clear()
        folders.sort(key=_natural_order)
    return found


def not_a_run(directory: Path, lacks: str) -> NotARunError:
    """Make the error of a folder that is no run's; the fix names one of the runs below it.

    Args:
        lacks: what a run has and it has not.
    """
    runs = find_runs(directory, _LOOKED_AT_MAX) if directory.is_dir() else []
    below = [run for run in runs if run != directory]
    fix = f"name one of its {len(below)} runs, such as {below[0]}" if below else ""
    return NotARunError(directory, lacks, fix)


def _natural_order(name: str) -> list[tuple[str, int]]:
    """Split a name into texts, each with the number behind it."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]

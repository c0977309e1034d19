"""What a process is making beside a file or folder, under a name that no reader looks for.

::

    .NAME.PID.BEGAN.MACHINE.new         # half written, of NAME
    .NAME.PID.BEGAN.MACHINE.old         # half removed

A process that is killed leaves it. Whoever makes NAME next knows by the name whether the process
still runs, and removes it where it does not (`remove_ended`). Of a process of another host, another
container or an earlier start of this machine that cannot be told: what it left stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from vedette_rl.storage.process_identity import has_ended, machine_number, process_began

UNFINISHED_NAME = r"\.[^/]+\.\d+\.(new|old)"
"""The names of all of it, also of earlier releases, which wrote the process's number alone."""

_UNFINISHED = re.compile(UNFINISHED_NAME)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a process began beside a file or folder.

    Args:
        pid: the process, on its machine.
        runs: it still runs; None: that cannot be told.
    """

    path: Path
    pid: int
    runs: bool | None


def unfinished_path(path: Path, suffix: str = "new") -> Path:
    """Return the name under which this process makes, or removes, a file or folder."""
    pid = os.getpid()
    return path.with_name(f".{path.name}.{pid}.{process_began(pid)}.{machine_number()}.{suffix}")


def unfinished_of(path: Path) -> list[Unfinished]:
    """Return what processes have begun of a file or folder and not finished, this one's too.

    Raises:
        OSError: the folder around it cannot be read.
    """
    begin = f".{path.name}."
    with os.scandir(path.parent) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(begin))
    return [found for name in names if (found := _parse(path, name)) is not None]


def remove_ended(path: Path) -> list[Path]:
    """Remove what processes of this machine have begun of a file or folder that do not run any
    more. Return what was there; what the system does not let this user remove stays."""
    try:
        ended = [one.path for one in unfinished_of(path) if one.runs is False]
    except OSError:  # there is no such folder, or whoever writes into it will hear why not
        return []
    for place in ended:
        remove(place)
    return ended


def remove_unfinished(directory: Path) -> None:
    """Remove what killed processes left half written or half removed; only where one process writes
    at a time."""
    for path in directory.iterdir():
        if is_unfinished(path.name):
            remove(path)


def is_unfinished(name: str) -> bool:
    """Return True for the name of what some process has begun of some file or folder."""
    return _UNFINISHED.fullmatch(name) is not None


def remove(path: Path) -> None:
    """Remove a file or folder, as far as the system lets this user."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):  # on a disk that cannot be written, nothing is to go
            path.unlink(missing_ok=True)


def _parse(path: Path, name: str) -> Unfinished | None:
    """Return what an entry beside `path` is of it; None: nothing."""
    inner = name[len(path.name) + 2 :]
    parts = inner.split(".")
    if parts[-1] not in ("new", "old") or len(parts) not in (2, 4):
        return None
    numbers = parts[:-1]
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in numbers):
        return None
    pid = int(numbers[0])
    runs: bool | None = None
    if len(numbers) == 3 and int(numbers[2]) == machine_number():
        began = int(numbers[1])
        is_ours = pid == os.getpid()  # no signal asks for it, which Windows would send
        runs = began == process_began(pid) if is_ours else not has_ended(pid, began)
    return Unfinished(path.with_name(name), pid, runs)

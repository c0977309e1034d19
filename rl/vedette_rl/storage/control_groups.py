"""The control groups of this process, by which Linux limits memory, processors and processes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def control_groups(controller: str, root: Path | None = None) -> Iterator[Path]:
    """Yield the folders of the control groups that may limit this process, its own first, then
    those above; none on a system without them.

    A container often sees its own group as the outermost, whatever its path is.

    Args:
        controller: ``memory``, ``cpu`` or ``pids``.
        root: the root of the file system.
    """
    root = root or ROOT
    for line in read_lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        groups = root / "sys/fs/cgroup"
        for base in (groups, groups / controller):  # of versions 2 and 1
            group = Path(base, path.lstrip("/"))
            yield from (each for each in (group, *group.parents) if each.is_relative_to(base))


def memory_left(root: Path | None = None) -> list[int]:
    """Return the bytes left under the limit of each control group that has one."""
    left = []
    for group in control_groups("memory", root):
        for names in _MEMORY:
            limit, usage = (_number(group / name) for name in names)
            if limit is not None and usage is not None:
                # Cached files count as used, and make room when it is needed.
                counts = dict(line.split(" ", 1) for line in read_lines(group / "memory.stat"))
                files = sum(int(counts.get(name, 0)) for name in ("inactive_file", "active_file"))
                left.append(max(0, limit - max(0, usage - files)))
    return left


_MEMORY = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Files of a limit and of what is used, of versions 2 and 1."""


def cores_allowed(root: Path | None = None) -> float:
    """Return the cores' worth of processor time that this process may use; infinite: no limit."""
    cores = math.inf
    for group in control_groups("cpu", root):
        quota, period = (_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        for line in read_lines(group / "cpu.max"):  # "max 100000": none
            words = [*line.split(), "", ""][:2]
            quota, period = (int(word) if word.isdecimal() else None for word in words)
        if quota and period:
            cores = min(cores, quota / period)
    return cores


def _number(path: Path) -> int | None:
    lines = read_lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the system, whatever bytes are in it; none where it is not."""
    try:
        return os.fsdecode(path.read_bytes()).splitlines()
    except OSError:
        return []

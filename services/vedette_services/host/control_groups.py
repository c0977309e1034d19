"""The control groups of this process, by which Linux limits processes and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the control groups that may limit this process, its own first, then those above.

    Args:
        controller: ``memory`` or ``pids``.
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:  # there are none on this system
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for root in (_ROOT, _ROOT / controller):  # of versions 2 and 1
            group = Path(root, path.lstrip("/"))
            yield from (each for each in (group, *group.parents) if each.is_relative_to(root))

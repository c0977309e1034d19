"""Whether the system has killed a process for want of memory, and which limit was met.

Such a process ends by SIGKILL and says nothing. The kernel counts these kills for each control
group (a container, a service, a job of Slurm), and for the whole machine.

::

    kills = MemoryKills()
    kills.explain(-9)       # a child has ended with this `Popen.returncode`
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

from vedette_rl.number_format import format_bytes
from vedette_rl.storage.control_groups import control_groups
from vedette_rl.storage.system import installed_memory
from vedette_services.host.system import PROCESSES, read_text

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_SIGKILL = getattr(signal, "SIGKILL", 9)  # Windows has none, and no such status
_FIX = (
    "raise it (a container's --memory, a pod's limits, systemd's MemoryMax, Slurm's --mem), or run "
    "less here"
)


class MemoryKills:
    """Counts the processes that the system has killed for want of memory since it was made.

    Args:
        groups: the control groups of this process; None: those that the system names.
        machine: the file of the whole machine's counts.
    """

    def __init__(
        self, groups: list[Path] | None = None, machine: Path = PROCESSES / "vmstat"
    ) -> None:
        self._groups = list(control_groups("memory")) if groups is None else groups
        self._machine = machine
        self._explained = self._count()

    def explain(self, status: int | None) -> str:
        """Explain the end of a process that was killed: a limit of memory, and the fix.

        Args:
            status: from `Popen.returncode`.

        Returns:
            "" where it ended otherwise, or nothing was killed for want of memory since the last
            explanation.
        """
        if status != -_SIGKILL:
            return ""
        in_group, on_machine = self._count()
        new_in_group = in_group > self._explained[0]
        new_on_machine = on_machine > self._explained[1]
        self._explained = (in_group, on_machine)
        if new_in_group and (limit := self._limit()):
            return f"killed by the system for want of memory: {limit}; {_FIX}"
        if new_in_group or new_on_machine:
            memory = format_bytes(installed_memory())
            return f"the system kills for want of memory ({memory} are installed); run less here"
        return ""

    def _count(self) -> tuple[int, int]:
        """Return the kills in this process's control group, and on the whole machine."""
        names = ("memory.events", "memory.oom_control")  # of versions 2 and 1
        files = (group / name for group in self._groups for name in names)
        # The first is its own group's; those above count what is not ours, too.
        own = next((file for file in files if file.exists()), None)
        return (_number_in(own) if own else 0), _number_in(self._machine)

    def _limit(self) -> str:
        """Describe the smallest limit of memory of the control groups; "" if there is none."""
        limits = list(self._limits())
        if not limits:
            return ""
        least, file = min(limits)
        return f"its control group may have {format_bytes(least)} ({file})"

    def _limits(self) -> Iterator[tuple[int, Path]]:
        for group in self._groups:
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = read_text(group / name).strip()
                if text.isdigit() and int(text) < installed_memory():  # version 1 has no "max"
                    yield int(text), group / name


def _number_in(file: Path) -> int:
    found = _COUNT.search(read_text(file))
    return int(found[1]) if found else 0

"""The load of the learner's host: its processors, its memory, and the GPU that learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from vedette_services.status.status import HostLoad

_EVERY_S = 2.0
_PROC = Path("/proc")
_IDLE = (3, 4)  # columns of /proc/stat: idle, and waiting for a disk

GpuMemory = Callable[[], tuple[int, int]]
"""Returns free and total bytes of a GPU's memory."""

GpuShare = Callable[[], float]
"""Returns the share of the last moment in which a GPU computed."""


class LoadMeter:
    """Measures the load of this host every few seconds; what the host does not tell is unknown.

    Args:
        gpu_memory: None: no GPU learns.
        gpu_share: is asked no more once it has raised: the driver's library, or the package that
            asks it, is not there.
        proc: Linux's files on processors and memory.
    """

    def __init__(
        self,
        gpu_memory: GpuMemory | None = None,
        gpu_share: GpuShare | None = None,
        proc: Path = _PROC,
    ) -> None:
        self._gpu_memory = gpu_memory
        self._gpu_share = gpu_share
        self._proc = proc
        self._due = -math.inf
        self._before: tuple[int, int] | None = None  # ticks of all processors, and idle ones
        self._load = HostLoad()

    def measure(self, now: float) -> HostLoad:
        """Return the load since the measurement before, taken at most `_EVERY_S` ago."""
        if now >= self._due:
            self._due = now + _EVERY_S
            used, total = self._memory()
            gpu_used, gpu_total = self._gpu()
            self._load = HostLoad(
                self._cpu_share(), used, total, gpu_used, gpu_total, self._gpu_busy()
            )
        return self._load

    def _cpu_share(self) -> float | None:
        try:
            words = (self._proc / "stat").read_text().partition("\n")[0].split()[1:9]
            ticks = [int(word) for word in words]
            found = sum(ticks), sum(ticks[column] for column in _IDLE)
        except (OSError, ValueError, IndexError):
            return None
        before = self._before
        self._before = found
        if before is None or found[0] <= before[0]:
            return None
        idle = (found[1] - before[1]) / (found[0] - before[0])
        return round(min(1.0, max(0.0, 1.0 - idle)), 4)

    def _memory(self) -> tuple[int, int] | tuple[None, None]:
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            sizes = {name: int(rest.split()[0]) << 10 for name, rest in _pairs(lines)}
            return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
        except (OSError, ValueError, IndexError, KeyError):
            return None, None

    def _gpu(self) -> tuple[int, int] | tuple[None, None]:
        if self._gpu_memory is None:
            return None, None
        free, total = self._gpu_memory()
        return total - free, total

    def _gpu_busy(self) -> float | None:
        if self._gpu_share is None:
            return None
        try:
            return round(self._gpu_share(), 4)
        except Exception:  # noqa: BLE001 - each version of that package has errors of its own
            self._gpu_share = None
            return None


def _pairs(lines: list[str]) -> list[tuple[str, str]]:
    return [(name, rest) for name, colon, rest in (line.partition(":") for line in lines) if colon]

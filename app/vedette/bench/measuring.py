"""What the processes that a measurement started take: processor time, which hardly depends on the
load, and memory."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROCESSES = Path("/proc")


def processor_s(module: str) -> float:
    """Processor seconds of all threads of our descendants that run `python -m MODULE`.

    NaN where the system has no ``/proc``.
    """
    if not _PROCESSES.joinpath("self", "stat").exists():
        return float("nan")
    return sum(seconds for seconds, _ in _found(module).values())


def resident_bytes(module: str) -> list[int]:
    """Resident memory of each of our descendants that run `python -m MODULE`.

    Nothing where the system has no ``/proc``.
    """
    return [pages * _PAGE_BYTES for _, pages in _found(module).values()]


def threads_of(module: str) -> list[int]:
    """Numbers of all threads of our descendants that run `python -m MODULE`.

    Nothing where the system has no ``/proc``.
    """
    return [
        int(thread.name)
        for process in _found(module)
        for thread in (_PROCESSES / str(process) / "task").iterdir()
    ]


def _found(module: str) -> dict[int, tuple[float, int]]:
    """Processor seconds and resident pages of each, by its number."""
    if not _PROCESSES.joinpath("self", "stat").exists():
        return {}
    parents: dict[int, int] = {}
    found: dict[int, tuple[float, int]] = {}
    for process in _PROCESSES.iterdir():
        if process.name.isdigit():
            try:
                # The name, in brackets, may hold anything
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            parents[int(process.name)] = int(fields[1])
            if module.encode() in words:
                seconds = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
                found[int(process.name)] = seconds, int(fields[21])
    return {pid: taken for pid, taken in found.items() if _is_ours(pid, parents)}


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    ours = os.getpid()
    while pid in parents:
        pid = parents[pid]
        if pid == ours:
            return True
    return False


class ReservedCore:
    """The core, and who may use it.

    Args:
        core: its number; None: there is none to keep, and nothing is moved.
    """

    def __init__(self, core: int | None) -> None:
        self.core = core

    def assign_to(self, module: str) -> None:
        """Have our descendants that run `python -m MODULE` run on it, and nowhere else."""
        if self.core is None:
            return
        for thread in threads_of(module):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(thread, {self.core})


def usable_cores() -> set[int]:
    """Those that this process may run on; empty where the system does not say (macOS)."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@contextlib.contextmanager
def reserve_core() -> Iterator[ReservedCore]:
    """Keep this process, and all that it starts meanwhile, off one core; of one there is none."""
    cores = usable_cores()
    if len(cores) < 2:
        yield ReservedCore(None)
        return
    core = max(cores)
    os.sched_setaffinity(0, cores - {core})
    try:
        yield ReservedCore(core)
    finally:
        os.sched_setaffinity(0, cores)


def summarize_rounds(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most of the rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio_of_rounds(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The ratio of medians, between the least and the most of the ratios within a round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    medians = statistics.median(ours) / statistics.median(theirs)
    return {"median": medians, "min": min(rounds), "max": max(rounds)}

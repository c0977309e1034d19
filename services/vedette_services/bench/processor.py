"""What the processes that a measurement started take: processor time, which hardly depends on the
load, and memory."""

from __future__ import annotations

import os
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

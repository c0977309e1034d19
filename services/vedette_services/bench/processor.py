"""Processor time of the processes that a measurement started: what it counts, no load changes."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROCESSES = Path("/proc")


def processor_s(module: str) -> float:
    """Processor seconds of all threads of our descendants that run `python -m MODULE`.

    NaN where the system has no ``/proc``.
    """
    if not (_PROCESSES / "self" / "stat").exists():
        return float("nan")
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for process in _PROCESSES.iterdir():
        if process.name.isdigit():
            try:
                pid, parent, seconds, runs = _read(process, module)
            except OSError:
                continue  # it has ended meanwhile
            parents[pid] = parent
            if runs:
                spent[pid] = seconds
    return sum(seconds for pid, seconds in spent.items() if _is_ours(pid, parents))


def _read(process: Path, module: str) -> tuple[int, int, float, bool]:
    # The name, in brackets, may hold anything
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
    words = (process / "cmdline").read_bytes().split(b"\0")
    return int(process.name), int(fields[1]), seconds, module.encode() in words


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    ours = os.getpid()
    while pid in parents:
        pid = parents[pid]
        if pid == ours:
            return True
    return False

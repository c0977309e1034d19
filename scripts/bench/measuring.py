"""Processor time and memory of the processes of a measurement, a core for one of them, and the
summary of rounds. Processor time hardly depends on the machine's load."""

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
    """Sum processor seconds over all threads of our descendants that run `python -m MODULE`.

    NaN where the system has no ``/proc``.
    """
    if not _PROCESSES.joinpath("self", "stat").exists():
        return float("nan")
    return sum(seconds for seconds, _ in _usage_of(module).values())


def resident_bytes(module: str) -> list[int]:
    """Return the resident memory of each of our descendants that run `python -m MODULE`.

    Empty where the system has no ``/proc``.
    """
    return [pages * _PAGE_BYTES for _, pages in _usage_of(module).values()]


def largest_resident_bytes(pid: int) -> int:
    """Return the most memory that a process has had resident; 0 where the system has no ``/proc``.

    Its children do not count.
    """
    return 1024 * _number_in(_PROCESSES / str(pid) / "status", "VmHWM:")


def written_bytes(module: str) -> int:
    """Sum the bytes that our descendants that run `python -m MODULE` have handed to write calls.

    0 where the system has no ``/proc``.
    """
    return sum(_number_in(_PROCESSES / str(pid) / "io", "wchar:") for pid in process_ids(module))


def _number_in(file: Path, name: str) -> int:
    """Read a number that stands behind its name in a file of ``/proc``."""
    if not file.exists():
        return 0
    return next(
        int(words[1])
        for line in file.read_text().splitlines()
        if (words := line.split())[0] == name
    )


def process_ids(module: str) -> list[int]:
    """Return the numbers of our descendants that run `python -m MODULE`."""
    return list(_usage_of(module))


def _usage_of(module: str) -> dict[int, tuple[float, int]]:
    """Read the processor seconds and resident pages of each, by process number."""
    if not _PROCESSES.joinpath("self", "stat").exists():
        return {}
    parents: dict[int, int] = {}
    usage: dict[int, tuple[float, int]] = {}
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
                usage[int(process.name)] = seconds, int(fields[21])
    return {pid: taken for pid, taken in usage.items() if _is_ours(pid, parents)}


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    ours = os.getpid()
    while pid in parents:
        pid = parents[pid]
        if pid == ours:
            return True
    return False


def assign_core(core: int | None, module: str) -> None:
    """Move our descendants that run `python -m MODULE` to a core; None: leave them."""
    if core is None:
        return
    for process in process_ids(module):
        for thread in (_PROCESSES / str(process) / "task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread.name), {core})


def usable_cores() -> set[int]:
    """Return the cores that this process may run on; empty where the system has no such call."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@contextlib.contextmanager
def reserve_core() -> Iterator[int | None]:
    """Keep this process, and all that it starts meanwhile, off one core.

    Yields:
        The core's number; None where there are not two.
    """
    cores = usable_cores()
    if len(cores) < 2:
        yield None
        return
    core = max(cores)
    os.sched_setaffinity(0, cores - {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, cores)


def summarize_rounds(values: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum of the rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio_of_rounds(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Return the ratio of medians, with the minimum and maximum of the ratios within a round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    medians = statistics.median(ours) / statistics.median(theirs)
    return {"median": medians, "min": min(rounds), "max": max(rounds)}

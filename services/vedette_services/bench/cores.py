"""A core kept free for the process that is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from vedette_services.bench.processor import threads_of


class KeptCore:
    """The core, and who may use it.

    Args:
        core: its number; None: there is none to keep, and nothing is moved.
    """

    def __init__(self, core: int | None) -> None:
        self.core = core

    def give_to(self, module: str) -> None:
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
def core_kept() -> Iterator[KeptCore]:
    """Keep this process, and all that it starts meanwhile, off one core; of one there is none."""
    cores = usable_cores()
    if len(cores) < 2:
        yield KeptCore(None)
        return
    core = max(cores)
    os.sched_setaffinity(0, cores - {core})
    try:
        yield KeptCore(core)
    finally:
        os.sched_setaffinity(0, cores)

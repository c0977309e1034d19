"""The room that is left on a run's disk, and who gives way when it is short."""

from __future__ import annotations

import logging
import math
import shutil
from pathlib import Path

from vedette_rl.number_format import format_bytes
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.run.directory import RunDirectory
from vedette_services.status.status import Disk

log = logging.getLogger("vedette.learner")

_EVERY_S = 10.0
_RESERVE_BYTES = 16 << 20  # of the reserve, for the best model, the summary and the events
_ENOUGH = 1.25  # times the reserve, before records are written again


class DiskRoom:
    """Measures the room of a run's disk every few seconds.

    Replay and ledger have reserved theirs at the start. Of what grows, records and curves give way
    first: they are not written while less is free than the next checkpoints need.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._root = run.root
        self._checkpoints = Checkpoints(run.checkpoints, keep=1)
        self._due = -math.inf
        self._disk = Disk()

    @property
    def is_short(self) -> bool:
        """True while records are to give way."""
        return bool(self._disk.short)

    def measure(self, now: float) -> Disk:
        """Return what is left, measured at most `_EVERY_S` ago."""
        if now >= self._due:
            self._due = now + _EVERY_S
            self._disk = self._classify(*self._usage())
        return self._disk

    def _usage(self) -> tuple[int, int] | tuple[None, None]:
        try:
            usage = shutil.disk_usage(self._root)
        except OSError:  # the directory is gone, or its disk
            return None, None
        return usage.free, usage.total

    def _classify(self, free: int | None, total: int | None) -> Disk:
        if free is None:
            return Disk()
        reserve = _RESERVE_BYTES + 2 * _size(self._checkpoints.latest())
        limit = reserve * (_ENOUGH if self.is_short else 1.0)
        short = ""
        if free < limit:
            short = (
                f"{format_bytes(free)} are left on the disk of {self._root}: records are not "
                f"written, so that checkpoints and what they need ({format_bytes(reserve)}) fit"
            )
        if short and not self.is_short:
            log.warning("%s", short)
        elif self.is_short and not short:
            log.info("%s are left on the disk: records are written again", format_bytes(free))
        return Disk(free_bytes=free, total_bytes=total, reserve_bytes=reserve, short=short)


def _size(checkpoint: Path | None) -> int:
    if checkpoint is None:
        return 0
    try:
        return sum(file.stat().st_size for file in checkpoint.iterdir())
    except OSError:  # removed meanwhile, for a newer one
        return 0

"""The snapshot's part of the status, from the record of the process that writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_services.status.records import GatewayStatus, SnapshotProgress
from vedette_services.status.status import SnapshotStatus

if TYPE_CHECKING:
    from vedette_services.config.parts import LearnerConfig

_LATE_INTERVALS = 4.0  # a newest generation that is older than these is shown as a failure,
_LATE_S = 60.0  # and no sooner


def snapshot_status(
    config: LearnerConfig, progress: SnapshotProgress, ingest: GatewayStatus, now: float
) -> SnapshotStatus:
    """Make the snapshot's part of the status; all unknown without `learner.snapshot`.

    A process that is held by a disk that does not answer writes no record: the age shows it.

    Args:
        now: of the monotonic clock.
    """
    if config.snapshot is None:
        return SnapshotStatus()
    age_s = now - progress.completed_s if progress.number else None
    return SnapshotStatus(
        directory=config.snapshot,
        state=progress.state,
        generation=progress.number or None,
        age_s=age_s,
        rows=progress.rows if progress.number else None,
        rows_behind=max(0, ingest.rows - progress.rows),
        opt_steps=progress.opt_steps,
        unsafe_batches=ingest.unsafe_batches,
        failures=progress.failures,
        failing=progress.why or _describe_delay(config, progress, now),
    )


def _describe_delay(config: LearnerConfig, progress: SnapshotProgress, now: float) -> str:
    """Say that no generation was completed for too long; "" where one was, or none was begun."""
    since = progress.completed_s or progress.began_s
    if not since or now - since < max(_LATE_S, _LATE_INTERVALS * config.snapshot_interval_s):
        return ""
    writing = "none is being written"
    if progress.began_s:
        writing = f"one has been written for {now - progress.began_s:,.0f} s"
    newest = "no generation of this start is complete"
    if progress.number:
        newest = f"the newest generation is {now - since:,.0f} s old"
    return f"{newest}, and {writing}"

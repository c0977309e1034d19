"""Recovers a replay before the processes of a start map it."""

from __future__ import annotations

import time
from pathlib import Path

from vedette_rl.errors import OneWriterError
from vedette_rl.replay.ring import recover_replay
from vedette_rl.replay.syncing import MergeStamps, Recovery

_RELEASE_S = 15.0  # an earlier learner's gateway brings its replay to the disk as it ends
_POLL_S = 0.1


def recover_once_released(
    directory: Path, merge_stamps: MergeStamps | None = None
) -> Recovery | None:
    """Recover a replay where its last rows are lost, once a process that ends has released it.

    Args:
        directory: the replay's, which may not be there yet.
        merge_stamps: as `vedette_rl.replay.syncing.recover` has it.

    Returns:
        What was done; None where there was nothing to do.

    Raises:
        OneWriterError: another process keeps it.
        ReplayFormatError: it is torn in another way.
    """
    deadline = time.monotonic() + _RELEASE_S
    while True:
        try:
            return recover_replay(directory, merge_stamps)
        except OneWriterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)

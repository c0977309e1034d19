"""The place in a queue that a start goes on from, which its writer must know before it writes."""

from __future__ import annotations

from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.queue import shared_rows
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.run_config import RunConfig
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import replay_directory


def kept_at_start(config: RunConfig, run: RunDirectory) -> int | None:
    """Return the first row that may not be overwritten, of the checkpoint that a start loads.

    Returns:
        0 without a checkpoint; None where the one that can be read is of no queue.

    Raises:
        CheckpointError: as `Checkpoints.newest_readable`.
        ReplayFormatError: the replay is torn.
    """
    newest = Checkpoints(run.checkpoints, keep=1).newest_readable()
    if newest is None:
        return 0
    saved = newest[1].get("queue")
    if saved is None:
        return None
    directory = replay_directory(config, run.root)
    if not (directory / MANIFEST).exists():  # erased: the next is another
        return 0
    rows = open_reader(directory)
    return min(int(saved["place"]), shared_rows(saved["branch"], rows))

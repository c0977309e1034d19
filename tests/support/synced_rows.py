"""Inserts counting rows and syncs them often, until it is killed; prints what was synced.

``python synced_rows.py DIRECTORY CAPACITY GUARD``
"""

import random
import sys
import time
from pathlib import Path

from counting_rows import DTYPE, rows, stamp

from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.syncing import RingSyncer

_SYNC_S = 0.05
_PAUSE_S = 0.001


_sync = RingSyncer.sync


def sync_and_tell(syncer: RingSyncer) -> None:
    """Sync, and print the rows of it once the disk has them."""
    _sync(syncer)
    print(syncer._synced.inserted, flush=True)


def insert_for_ever(directory: Path, capacity: int, guard: int) -> None:
    """Append batches of random sizes, slower than the disk."""
    ring = RingWriter.open(
        directory, DTYPE, capacity, run_id="counting", guard=guard, sync_interval_s=_SYNC_S
    )
    chance = random.Random(ring.inserted)
    while True:
        count = chance.randint(1, 20)
        if count <= ring.room:
            ring.append(rows(ring.inserted, count), count)
            ring.commit(stamp(ring.inserted + count))
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    RingSyncer.sync = sync_and_tell  # type: ignore[method-assign]
    insert_for_ever(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

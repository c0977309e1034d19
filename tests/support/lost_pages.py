"""What the loss of a page cache leaves of a replay that nobody writes, at worst."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.core.columns import Columns
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.ring_files import map_columns
from vedette_rl.replay.syncing import read_synced


def lose_pages(replay: Path) -> None:
    """Put anything into the slots that the writer may have written since the last sync.

    Where nothing says what was synced, these are all slots; of a replay that was closed, none.
    """
    synced = read_synced(replay)
    manifest = read_manifest(replay)
    mapped = map_columns(replay, manifest, writable=True)
    begin, end = (synced.commit.inserted, synced.bound) if synced else (0, manifest.physical_rows)
    _scribble(mapped.columns, begin, end)
    if shared := manifest.shared:
        bounds = (synced.commit.shared, synced.shared_bound) if synced else (0, shared.all_entries)
        _scribble(mapped.shared, *bounds)


def _scribble(columns: Columns, begin: int, end: int) -> None:
    for column in columns.values():
        for place in range(begin, min(end, begin + len(column))):
            slot = column[place % len(column) : place % len(column) + 1]
            slot.view("u1")[...] ^= 0x55

"""The room that the rows of a snapshot may take on its disk."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import free_disk_bytes, used_disk_bytes
from vedette_rl.replay.ring_parts import PART_MAX_BYTES
from vedette_services.config.run_config import RunConfig
from vedette_services.run.replay_layout import ReplayLayout
from vedette_services.run.replay_room import layout_space
from vedette_services.run.snapshot_directory import snapshot_root
from vedette_services.run.start import Start


def snapshot_rows_bytes(config: RunConfig, layout: ReplayLayout) -> int:
    """Return what the rows of one generation may take: the replay, and of its rows and of its
    frames a part that is almost all of older ones."""
    rings = 1 if layout.shared is None else 2
    return layout_space(config, layout).rows_bytes + rings * PART_MAX_BYTES


def describe_little_room(config: RunConfig, layout: ReplayLayout, start: Start) -> str:
    """Describe the disk of a snapshot that has less room than its rows may take; "" where it has
    enough, or cannot be reached, which is told later."""
    root = snapshot_root(config)
    if root is None or start.in_process or start.custom_loop:
        return ""
    try:
        has = free_disk_bytes(root) + _used_bytes(root)
    except OSError:
        return ""
    need = snapshot_rows_bytes(config, layout)
    if has >= need:
        return ""
    return (
        f"learner.snapshot: {root} has room for {format_bytes(has)}, and the rows may take "
        f"{format_bytes(need)}, beside checkpoints: once it is full, nothing more is safe, and "
        "outboxes fill"
    )


def _used_bytes(root: Path) -> int:
    return used_disk_bytes(root.iterdir()) if root.is_dir() else 0

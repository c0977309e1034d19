"""Refuses an empty replay beside a snapshot of another one, before anything is erased."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.errors import ReplayTornError
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError, SnapshotFormatError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.replay_starts import ReplayStarts
from vedette_services.run.snapshot_directory import (
    Generation,
    SnapshotDirectory,
    check_in_place,
    snapshot_root,
)
from vedette_services.run.start import Start


def check_snapshot_of_new_replay(config: RunConfig, out: Path, start: Start) -> None:
    """Refuse an empty replay whose snapshot has generations of another one, as of the replay that
    it takes the place of; and one whose snapshot cannot be reached. Both would be refused later,
    with the run erased, or another one begun by then.

    Raises:
        SettingError: names the option and the directory.
    """
    root = snapshot_root(config)
    is_first = not RunDirectory(out).exists
    if root is None or not (is_first or start.empty_replay):
        return
    if start.in_process or start.custom_loop:
        return
    name = "--fresh" if start.fresh else "--new-replay" if start.new_replay else ""
    key, subject = (name, f"learner.snapshot={root}") if name else ("learner.snapshot", str(root))
    try:
        newest = _newest_generation(root, _old_starts(config, out))
    except OSError as error:
        why = f"{subject} cannot be reached ({error.strerror or error})"
        fix = "mount it, make the folder around it, or name another one; nothing has changed"
        raise SettingError(key, why, fix) from error
    except SnapshotFormatError as error:
        fix = f"empty {root}, or name another folder; nothing has changed"
        why = f"{subject} is written by a later release ({error.path.name})"
        raise SettingError(key, why, fix) from error
    if newest is not None:
        why = f"{subject} has rows of another replay ({newest})"
        go_on = (
            f"to go on with it: vedette learner --from-snapshot {root} --out NEW; else " * is_first
        )
        fix = f"{go_on}empty that folder, or name another one; nothing has changed"
        raise SettingError(key, why, fix)


def _newest_generation(root: Path, starts: ReplayStarts) -> Generation | None:
    """Return the newest generation of a snapshot, which may not be there yet.

    Raises:
        OSError: its directory cannot be reached, or made.
        SnapshotFormatError: a later release writes there.
    """
    check_in_place(root, starts)
    if not root.exists():
        root.parent.stat()
        return None
    return SnapshotDirectory(root).look().newest


def _old_starts(config: RunConfig, out: Path) -> ReplayStarts:
    """Return those of the replay that is to be erased; none where they cannot be read."""
    try:
        return ReplayStarts.read(replay_directory(config, out))
    except ReplayTornError:
        return ReplayStarts()

"""Makes a run directory from a snapshot, for a learner on another host.

The snapshot is taken over first, by a generation of this start, and copied then: whoever wrote it
until now finds that it is no descendant, and ends, however long the copying takes. A kill leaves
nothing under the directory's name, and the next try takes the snapshot over once more.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vedette_rl.errors import ReplayTornError, RlError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import free_disk_bytes
from vedette_rl.replay.manifest import Manifest
from vedette_rl.replay.ring_files import array_bytes, array_files
from vedette_rl.replay.ring_parts import BLOCK_BYTES, restore_ring
from vedette_rl.storage.atomic_files import json_text, replace_file, replacing, sync_directory
from vedette_rl.storage.regular_files import open_regular
from vedette_rl.storage.system import sync_file
from vedette_services.errors import NoSnapshotError, SnapshotFormatError
from vedette_services.run.directory import RUN_RECORD, RunDirectory
from vedette_services.run.replay_starts import ReplayStarts
from vedette_services.run.run_files import entries_of_others
from vedette_services.run.snapshot_directory import (
    EPOCHS_RESERVED,
    Generation,
    SnapshotDirectory,
    SnapshotView,
    StoredFile,
    file_digest,
    new_name,
)

_TRIES = 20
_STORED = re.compile(r"config\.toml|summary\.json|(best|checkpoints/\d+)/[\w-][\w.-]*")


def restore_run(
    root: Path, out: Path, check: Callable[[Path], object] = lambda config: None
) -> list[str]:
    """Make a run directory from the newest generation of a snapshot, and take the snapshot over.

    Args:
        root: the snapshot's directory.
        out: the run's, which is not there yet, or empty.
        check: called with a copy of the run's settings before the snapshot is taken over: raises
            where the start will be refused, so that a learner that still writes there goes on.

    Returns:
        Lines for the user.

    Raises:
        NoSnapshotError: nothing can be started from there, or not into `out`; names the fix.
    """
    root = root.absolute()
    if out.exists() and (RunDirectory(out).is_ours or not out.is_dir() or entries_of_others(out)):
        why = (
            f"{out} is there already: name another --out; to go on with it, set "
            f"learner.snapshot={root} in place of this option"
        )
        raise NoSnapshotError(root, why)
    try:
        return _restore(root, out, check)
    except ReplayTornError as error:
        raise NoSnapshotError(root, f"{error.path.name} {error.why}") from error
    except OSError as error:
        why = error.strerror or str(error)
        named = error.filename not in (None, str(root))
        raise NoSnapshotError(root, f"{why} ({error.filename})" if named else why) from error
    except (RlError, SnapshotFormatError) as error:
        raise NoSnapshotError(root, str(error)) from error


def _restore(root: Path, out: Path, check: Callable[[Path], object]) -> list[str]:
    whole = _find_whole(root, SnapshotDirectory(root).look())
    with tempfile.TemporaryDirectory() as place:
        for file in whole.files:
            if file.path == RunDirectory(out).config_file.name:
                _restore_file(file, root, Path(place))
                check(Path(place) / file.path)
    need = _replay_bytes(whole.ring.manifest) + sum(file.size for file in whole.files)
    if need > (free := free_disk_bytes(out)):
        why = f"{out} needs {format_bytes(need)} of disk, but {format_bytes(free)} is free: make "
        raise NoSnapshotError(root, f"{why}room there, or name another --out")
    taken, epoch, lines = _take_over(root)
    starts = ReplayStarts(taken.starts, taken.reserved, str(root), root.is_mount())
    # Epochs up to the one that is written here have begun: the next is above all reserved.
    identity = {**taken.identity, "epoch": epoch}
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as aside:
        aside.mkdir()
        for file in taken.files:
            _restore_file(file, root, aside)
        replay = aside / RunDirectory(aside).replay.name
        first = restore_ring(replay, taken.ring, root)
        starts.write(replay)
        replace_file(aside / RUN_RECORD, json_text(identity), durable=True)
        sync_directory(aside)
    sync_directory(out.parent)
    rows = taken.ring.inserted - first
    return [*lines, f"{out} is made from {root}: {rows:,} rows, epoch {epoch + 1} comes next"]


def _take_over(root: Path) -> tuple[Generation, int, list[str]]:
    """Create a generation of this start that has what the newest whole one has.

    Returns:
        It, the highest epoch that anybody had reserved before, and lines for the user.
    """
    directory = SnapshotDirectory(root)
    for _ in range(_TRIES):
        view = directory.look()
        whole = _find_whole(root, view)
        starts = ReplayStarts(whole.starts).with_start(whole.ring.inserted)
        mine = replace(
            whole,
            number=view.next_number,
            name=new_name(),
            parent=view.newest_name,
            start=starts.newest,
            starts=starts.starts,
            reserved=view.reserved + 1 + EPOCHS_RESERVED,
            host=socket.gethostname(),
            time_s=time.time(),
        )
        if directory.create(mine):
            age_s = max(0.0, time.time() - whole.time_s)
            lines = [f"from {whole}, written {age_s:,.0f} s ago"]
            if whole is not view.newest:
                lines.append(f"{view.newest} is damaged: what only that has is lost")
            lines += [
                f"{name} cannot be read: if it was whole, what only it has is lost"
                for name in view.unreadable
            ]
            return mine, view.reserved, lines
    raise NoSnapshotError(root, "other learners write it all the time: end them")


def _find_whole(root: Path, view: SnapshotView) -> Generation:
    """Return the newest whole generation.

    Raises:
        NoSnapshotError: there is none.
    """
    if view.whole is None:
        why = "no generation there is whole" if view.next_number > 1 else "it has no generation"
        raise NoSnapshotError(root, why)
    return view.whole


def _replay_bytes(manifest: Manifest) -> int:
    """Return the bytes of a replay's files."""
    files = array_files(Path(), manifest)
    return sum(array_bytes(dtype, shape) for _, _, dtype, shape in files)


def _restore_file(file: StoredFile, root: Path, out: Path) -> None:
    """Copy a file of the run back, and verify it.

    Raises:
        NoSnapshotError: it is damaged.
    """
    if not _STORED.fullmatch(file.path):
        raise NoSnapshotError(root, f"{file.path!r} is no file of a run")
    target = out / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(root / file.name) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, BLOCK_BYTES)
        copy.flush()
        sync_file(copy.fileno())
    if target.stat().st_size != file.size or file_digest(target) != file.digest:
        raise NoSnapshotError(root, f"{file.name} ({file.path}) is damaged")

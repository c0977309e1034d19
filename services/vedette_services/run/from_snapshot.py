"""Makes a run directory from a snapshot, for a learner on another host.

All of it is copied, verified and checked first, under another name; then the snapshot is taken
over, by a generation of this start, and the directory gets its name. So what is refused, and what
is damaged, takes nothing over, and a learner that still writes there goes on.

A learner that was taken for dead may write generations meanwhile: then what is new in them is
copied, too, until nothing is. From the generation of this start on it finds that it is no
descendant, and ends. A kill leaves nothing under the directory's name; the next try begins anew,
and removes what the one before has copied (`remove_leftovers`).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from vedette_rl.errors import ReplayTornError, RlError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import free_disk_bytes
from vedette_rl.replay.manifest import Manifest
from vedette_rl.replay.ring_files import array_bytes, array_files
from vedette_rl.replay.ring_parts import BLOCK_BYTES, RingRestore, verify_parts
from vedette_rl.storage.atomic_files import json_text, replace_file, replacing, sync_directory
from vedette_rl.storage.regular_files import open_regular
from vedette_rl.storage.system import sync_file
from vedette_rl.storage.unfinished import Unfinished, remove_ended, unfinished_of
from vedette_services.errors import (
    ManySettingsError,
    NoSnapshotError,
    ServicesError,
    SettingError,
    SnapshotFormatError,
    UsageError,
)
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
    named_generation,
    new_name,
)

_TRIES = 20
_STORED = re.compile(r"config\.toml|summary\.json|(best|checkpoints/\d+)/[\w-][\w.-]*")
_ERASING = ("--fresh", "--new-replay")

Check = Callable[[Path], object]
"""Raises where the start of the run in a directory will be refused. Its replay has no rows yet."""


def restore_run(root: Path, out: Path, check: Check = lambda run: None) -> list[str]:
    """Make a run directory from a generation of a snapshot, and take the snapshot over.

    Args:
        root: the snapshot's directory, of which the newest generation is taken; or the file of one.
        out: the run's, which is not there yet, or empty.
        check: called before the snapshot is taken over, so that a learner that still writes there
            goes on where the start will be refused. It is given a directory that is not `out` yet,
            and may add to it what the start needs.

    Returns:
        Lines for the user.

    Raises:
        NoSnapshotError: nothing can be started from there, or not into `out`; names the fix.
        ServicesError: `check` has raised it.
    """
    root, wanted = named_generation(root.absolute())
    _check_new(out, root)
    try:
        with replacing(out) as aside:
            lines = _Restore(root, wanted, aside, out).take(check)
        sync_directory(out.parent)
        return lines
    except OSError as error:
        why = error.strerror or str(error)
        named = error.filename not in (None, str(root))
        raise NoSnapshotError(root, f"{why} ({error.filename})" if named else why) from error
    except (RlError, SnapshotFormatError) as error:
        raise NoSnapshotError(root, str(error)) from error


def remove_leftovers(out: Path) -> list[str]:
    """Remove what starts from a snapshot into a directory have copied that were killed.

    Returns:
        Lines for the user: what was removed, and what stays because nobody here can tell whether
        its process still runs.
    """
    lines = [f"removed {path}: a start that was killed has left it" for path in remove_ended(out)]
    for left in _leftovers(out):
        if left.runs is None:
            lines.append(
                f"{left.path} stays: it is of another host, of an earlier start of this one or of "
                "an earlier release; delete it where no start writes it any more"
            )
        elif not left.runs:
            lines.append(f"{left.path} cannot be removed: a start that was killed has left it")
    return lines


def _leftovers(out: Path) -> list[Unfinished]:
    return unfinished_of(out) if out.parent.is_dir() else []


def _check_new(out: Path, root: Path) -> None:
    """Check that a run can be made under a name, and that nobody else makes one there.

    Raises:
        NoSnapshotError: it cannot.
    """
    if out.exists() and (RunDirectory(out).is_ours or not out.is_dir() or entries_of_others(out)):
        why = (
            f"{out} is there already: name another --out; to go on with it, set "
            f"learner.snapshot={root} in place of this option"
        )
        raise NoSnapshotError(root, why)
    for left in _leftovers(out):
        if left.runs and left.pid != os.getpid():
            why = f"process {left.pid} makes {out} now, as {left.path}: name another --out, or end "
            raise NoSnapshotError(root, f"{why}that process")


class _Restore:
    """Copies a generation into a directory, and what later ones have more.

    Args:
        root: of the snapshot.
        wanted: the name of a generation's file; "": the newest one is taken.
        aside: the run's directory until it gets its name.
        out: that name.
    """

    def __init__(self, root: Path, wanted: str, aside: Path, out: Path) -> None:
        self._root = root
        self._wanted = wanted
        self._aside = aside
        self._out = out
        self._directory = SnapshotDirectory(root)
        self._ring = RingRestore(RunDirectory(aside).replay, root)
        self._files: dict[str, StoredFile] = {}  # those that are there, by their paths
        self._checked: tuple[StoredFile | None, int] | None = None

    def take(self, check: Check) -> list[str]:
        """Copy until nothing is newer, and take the snapshot over."""
        for _ in range(_TRIES):
            view = self._directory.look()
            whole = self._find_whole(view)
            if self._checked is None:
                self._check_room(whole)
                self._aside.mkdir(parents=True)
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
            # Epochs up to the one that is written here have begun: the next is above all reserved.
            identity = {**whole.identity, "epoch": view.reserved}
            try:
                self._copy_files(whole)
                self._ring.make(whole.ring)
                replace_file(self._aside / RUN_RECORD, json_text(identity), durable=True)
                self._check(check, whole)
                self._ring.copy_rows()
            except ReplayTornError as error:
                if self._directory.look().newest_name != view.newest_name:
                    continue  # a learner that writes there has removed what it needs no more
                damage = f"{error.path} {error.why}, and {whole}, needs it"
                others = [one for one in view.wholes if one is not whole]
                raise self._refusal(damage, others) from error
            first = self._ring.finish()
            replay = RunDirectory(self._aside).replay
            is_mount = self._root.is_mount()
            ReplayStarts(mine.starts, mine.reserved, str(self._root), is_mount).write(replay)
            sync_directory(self._aside)
            _check_new(self._out, self._root)  # what can get no name takes nothing over
            if self._directory.create(mine):
                rows = mine.ring.inserted - first
                made = f"{self._out} is made from {self._root}: {rows:,} rows, epoch "
                return [*self._describe(view, whole), f"{made}{view.reserved + 1} comes next"]
        raise NoSnapshotError(self._root, "other learners write it all the time: end them")

    def _find_whole(self, view: SnapshotView) -> Generation:
        """Return the generation to start from: the one that is named, else the newest.

        Raises:
            NoSnapshotError: there is none, or it is not whole.
        """
        for whole in view.wholes:
            if whole.file_name == self._wanted:
                return whole
        if self._wanted:
            raise NoSnapshotError(self._root, f"{self._wanted} is not there, or not whole")
        if view.unreadable:  # on a file system without links also of a writer that was killed
            damage = f"{self._root / view.unreadable[0]} cannot be read: if it was whole, it is the"
            raise self._refusal(f"{damage} newest generation", view.wholes)
        if view.newest is None:
            raise NoSnapshotError(self._root, "it has no generation")
        if view.whole is not view.newest:
            damage = self._directory.describe_missing(view.newest)
            raise self._refusal(f"{damage}, and {view.newest}, needs it", view.wholes)
        return view.newest

    def _check_room(self, whole: Generation) -> None:
        """Check that the disk has room.

        Raises:
            NoSnapshotError: it has none.
        """
        need = _replay_bytes(whole.ring.manifest) + sum(file.size for file in whole.files)
        if need > (free := free_disk_bytes(self._out)):
            why = f"{self._out} needs {format_bytes(need)} of disk, but {format_bytes(free)} is "
            raise NoSnapshotError(self._root, f"{why}free: make room there, or name another --out")

    def _check(self, check: Check, whole: Generation) -> None:
        """Check the start once, and again where another start of the learner has other settings."""
        settings = self._files.get(RunDirectory(self._out).config_file.name)
        checked = (settings, self._ring.begun)
        if self._checked == checked:
            return
        try:
            check(self._aside)
        except ServicesError as error:
            raise self._with_real_names(error) from error
        self._checked = checked

    def _with_real_names(self, error: ServicesError) -> ServicesError:
        """Return a refusal without the name that the directory has until then, and without advice
        to erase what is not there yet."""
        if isinstance(error, ManySettingsError):
            return ManySettingsError([self._with_real_name(each) for each in error.errors])
        if isinstance(error, SettingError):
            return self._with_real_name(error)
        text = str(error).replace(self._aside.name, self._out.name)
        return error if text == str(error) else UsageError(text)

    def _with_real_name(self, error: SettingError) -> SettingError:
        why, fix = error.why, error.fix
        if any(option in fix for option in _ERASING):
            why = why.replace(str(self._aside), str(self._root))
            fix = "the run goes on as it was, and nothing of the snapshot is taken over"
        texts = (text.replace(self._aside.name, self._out.name) for text in (error.key, why, fix))
        return SettingError(*texts, source=error.source)

    def _copy_files(self, whole: Generation) -> None:
        """Copy the files of the run that are not there yet, and remove those that are not needed.

        Raises:
            ReplayTornError: one is missing or damaged.
        """
        wanted = {file.path: file for file in whole.files}
        for path, file in list(self._files.items()):
            if wanted.get(path) != file:
                (self._aside / path).unlink(missing_ok=True)
                del self._files[path]
        for file in whole.files:
            if file.path not in self._files:
                _restore_file(file, self._root, self._aside)
                self._files[file.path] = file
        for folder in RunDirectory(self._aside).checkpoints.glob("*"):
            if not any(folder.iterdir()):
                folder.rmdir()

    def _refusal(self, damage: str, others: Sequence[Generation]) -> NoSnapshotError:
        """Return the refusal of a generation that is damaged, with what can be done.

        Args:
            others: whole ones that might be taken, newest first.
        """
        fix = "Put it back as it was, if there is a copy"
        other = next((one for one in others if _is_undamaged(self._root, one)), None)
        if other is None:
            fix += ". No other generation is whole"
        else:
            fix += (
                f"; or go on from {other}, {_describe_age(other)}, without what only a newer one "
                f"has: --from-snapshot {self._root / other.file_name}"
            )
        return NoSnapshotError(self._root, f"{damage}. Nothing was taken over. {fix}")

    def _describe(self, view: SnapshotView, whole: Generation) -> list[str]:
        """Describe what the run goes on from, and what is lost."""
        lines = [f"from {whole}, {_describe_age(whole)}"]
        passed = [] if whole is view.newest else [str(view.newest)]
        lines += [
            f"{what} is passed over: what only that has is lost"
            for what in (*passed, *view.unreadable)
        ]
        return lines


def _describe_age(generation: Generation) -> str:
    """Describe when a generation was written, by the clock of the host that wrote it."""
    age_s = time.time() - generation.time_s
    if age_s < -1.0:
        ahead = f"{-age_s:,.0f} s ahead of this host's"
        return f"written at a time by {generation.host}'s clock that is {ahead}: no age is known"
    return f"written {max(0.0, age_s):,.0f} s ago"


def _is_undamaged(root: Path, generation: Generation) -> bool:
    """Return True if all of a generation can be read as it was written."""
    try:
        verify_parts(root, generation.ring.parts)
        return all(file_digest(root / file.name) == file.digest for file in generation.files)
    except (OSError, ReplayTornError):
        return False


def _replay_bytes(manifest: Manifest) -> int:
    """Return the bytes of a replay's files."""
    files = array_files(Path(), manifest)
    return sum(array_bytes(dtype, shape) for _, _, dtype, shape in files)


def _restore_file(file: StoredFile, root: Path, out: Path) -> None:
    """Copy a file of the run back, and verify it.

    Raises:
        NoSnapshotError: it is no file of a run.
        ReplayTornError: it is missing or damaged.
    """
    if not _STORED.fullmatch(file.path):
        raise NoSnapshotError(root, f"{file.path!r} is no file of a run")
    target = out / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source = open_regular(root / file.name)
    except FileNotFoundError as error:
        raise ReplayTornError(root / file.name, f"({file.path}) is missing") from error
    with source, target.open("wb") as copy:
        while piece := _read_piece(source, root / file.name, file.path):
            copy.write(piece)
        copy.flush()
        sync_file(copy.fileno())
    if target.stat().st_size != file.size or file_digest(target) != file.digest:
        raise ReplayTornError(root / file.name, f"({file.path}) is damaged")


def _read_piece(source: BinaryIO, path: Path, of: str) -> bytes:
    try:
        return source.read(BLOCK_BYTES)
    except OSError as error:
        raise ReplayTornError(path, f"({of}) cannot be read: {error.strerror}") from error

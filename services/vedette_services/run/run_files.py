"""The record of what a run writes: by it a folder is known as a run's, and a run's files are known
from those of others, which are never overwritten or erased.

::

    RunDirectory(out).is_ours          # it has the run.json that the first start wrote first
    foreign_files(run.checkpoints)     # what lies there and no run wrote
    erase_written(run.checkpoints)     # files of the run alone; the folder only where it is empty
    find_writing_run(file)             # the run that writes this file; None if none does
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vedette_rl.replay.ring_files import is_replay_file
from vedette_rl.storage.regular_files import read_json
from vedette_rl.storage.unfinished import UNFINISHED_NAME
from vedette_services.errors import ServicesError, SettingError

FILES = (
    "config.schema.json",
    "summary.json",
    "events.jsonl",
    "provenance.json",
    "report.html",
    "records.csv",
    "records.jsonl",
    "mlflow.json",
    "wandb.json",
    "notes.json",
    "certificate.json",
)
"""The files of a run that `--fresh --force` erases, beside its folders and its configuration.
Another run takes `lock`, `claim`, `learner.json` and `log/` over, and replaces `run.json`."""

_STATE = r"(state\.safetensors|meta\.json)"
_WRITTEN = {
    "checkpoints": rf"\d+(\.unreadable)?/{_STATE}",
    "best": _STATE,
    "best-before": _STATE,
    "replay": "",  # `is_replay_file` knows
    "journal": r"\d+-\d+|[0-9a-f]{32}\.toml",
    "tensorboard": r"events\.out\.tfevents\.[^/]+",
    "live": r"[^/]+\.(map|heartbeat)|learner\.json|ranks\.[^/]+",
    "source": "",
    "wandb": r"((offline-)?run-[^/]+|latest-run)(/.*)?|debug[^/]*\.log|settings",
}
FOLDERS = tuple(name for name in _WRITTEN if name != "source")
"""The folders of a run that `--fresh --force` erases."""

_OWN = frozenset(
    {
        *FILES,
        *FOLDERS,
        "config.toml",
        "config.new-best.toml",
        "config.new-replay.toml",
        "run.json",
        "lock",
        "claim",
        "learner.json",
        "log",
    }
)
"""All that a run has in its directory. Videos are not the run's: `vedette eval` puts them there."""
_MARKS = {
    "run.json": frozenset({"run_id", "epoch"}),
    "summary.json": frozenset({"run_id", "exit_reason"}),
}
"""Keys that either file of a run has."""

_PATTERNS = {name: re.compile(pattern) for name, pattern in _WRITTEN.items()}
_UNFINISHED = re.compile(rf"(?:.*/)?{UNFINISHED_NAME}(/.*)?")
_SOURCE = re.compile(r"sources/[^/]+/(?P<inner>.+)")
_NO_MATTER = re.compile(r"lost\+found|\.gitkeep|\.gitignore|\.DS_Store|\.nfs[0-9a-f]+")
_REPORT_MARK = b"Written by vedette "


def is_written(folder: str, inner: str) -> bool:
    """Return True for a file that a run writes into one of its folders.

    Args:
        folder: one of `FOLDERS`, or "source": one in ``replay/sources``.
        inner: the file's path in it.
    """
    if _UNFINISHED.fullmatch(inner):  # half written or half removed when a process was killed
        return True
    if folder == "replay":
        source = _SOURCE.fullmatch(inner)
        return is_written("source", source["inner"]) if source else is_replay_file(inner)
    if folder == "source":
        return inner == "source.json" or is_replay_file(inner)
    return _PATTERNS[folder].fullmatch(inner) is not None


def files_below(place: Path) -> Iterator[Path]:
    """Yield all files below a folder, and links, which are not followed; none where it is a link
    or no folder.

    Raises:
        OSError: a folder cannot be read.
    """
    if place.is_symlink() or not place.is_dir():
        return

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(place, onerror=refuse):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*names, *links]):
            yield Path(parent) / name


def foreign_files(place: Path, kind: str = "") -> list[Path]:
    """Return the files in a folder of a run that no run wrote: they stay where it is erased.

    Args:
        place: the folder.
        kind: as `is_written` has it; "": the folder's name.
    """
    kind = kind or place.name
    files = files_below(place)
    return [file for file in files if not is_written(kind, file.relative_to(place).as_posix())]


def has_written(place: Path) -> bool:
    """Return True for a folder of a run in which is something that a run wrote.

    False for an empty folder, and for one with files of others alone. True for one that cannot be
    read, since it may have some.
    """
    kind, place = place.name, place.resolve()  # the folder may be a link to a larger disk
    try:
        return any(
            is_written(kind, file.relative_to(place).as_posix()) for file in files_below(place)
        )
    except OSError:
        return True


def erase_written(place: Path, kind: str = "", last: str = "") -> None:
    """Erase what a run has written into one of its folders, and then the folder where nothing else
    is in it; of a link the link, of a mount its content.

    Args:
        place: the folder.
        kind: as `is_written` has it; "": the folder's name.
        last: name of the file that is there until all others are gone.

    Raises:
        ServicesError: something of it is still there; names it.
    """
    kind = kind or place.name
    if place.is_symlink() or not place.is_dir():
        erase_file(place)
        return
    with _erasing(place):
        files = sorted(files_below(place), key=lambda file: file.name == last)
        for file in files:
            if is_written(kind, file.relative_to(place).as_posix()):
                file.unlink(missing_ok=True)
        _remove_empty(place)


def erase_file(file: Path) -> None:
    """Erase a file or link; nothing where there is none.

    Raises:
        ServicesError: it is still there.
    """
    with _erasing(file):
        file.unlink(missing_ok=True)


@contextmanager
def _erasing(place: Path) -> Iterator[None]:
    """Raise what the disk refuses as an error that names what cannot be erased, and the fix."""
    try:
        yield
    except FileNotFoundError:
        pass  # it has just gone
    except OSError as error:
        why = error.strerror or str(error)
        fix = "let this user delete it, or choose another --out"
        raise ServicesError(f"{error.filename or place} cannot be erased: {why}; {fix}") from error


def _remove_empty(place: Path) -> None:
    """Remove the folders below one that are empty, and it itself."""
    for parent, _, _ in os.walk(place, topdown=False):
        folder = Path(parent)
        if not any(folder.iterdir()) and not folder.is_mount():
            folder.rmdir()


# Folders that no run has


def entries_of_others(out: Path) -> list[str]:
    """Return the names in a folder in which a run cannot begin, as they are somebody's.

    What every disk or repository has in an empty folder does not count, nor does a file that this
    process prints into.
    """
    printed = [os.fstat(stream) for stream in (1, 2) if _is_regular_file(stream)]
    return sorted(
        entry.name
        for entry in os.scandir(out)
        if not _NO_MATTER.fullmatch(entry.name)
        and not _UNFINISHED.fullmatch(entry.name)
        and not any(os.path.samestat(entry.stat(follow_symlinks=False), one) for one in printed)
    )


def _is_regular_file(stream: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream).st_mode)
    except OSError:  # it is closed
        return False


def is_report(page: Path) -> bool:
    """Return True for a page that `vedette report` wrote."""
    try:
        return _REPORT_MARK in page.read_bytes()
    except OSError:
        return False


def check_report_file(page: Path) -> None:
    """Refuse to write a report over a file of its usual name that is none.

    Raises:
        SettingError: names the file and the fix.
    """
    if page.exists() and not is_report(page):
        fix = "name another file with `vedette report --out`, or rename this one"
        raise SettingError(str(page), "`vedette report` did not write this file", fix)


# Outputs of commands


def find_writing_run(place: Path) -> Path | None:
    """Return the run that writes a file or folder, or the folder that it is in; None if none does.

    Args:
        place: it need not exist. Links are followed, too.
    """
    given = Path(os.path.abspath(place))  # noqa: PTH100 - normalizes ".." and follows no link
    for path in (given, place.resolve()):
        for folder in path.parents:
            if path.relative_to(folder).parts[0] in _OWN and _is_marked(folder):
                return folder
    return None


def _is_marked(folder: Path) -> bool:
    """Return True for a run's folder, also one from which some files were lost. Other programs have
    files of these names, too: what is in them tells."""
    if any(names <= _keys_in(folder / file) for file, names in _MARKS.items()):
        return True
    return any(path.parent.name.isdigit() for path in folder.glob("checkpoints/*/meta.json"))


def _keys_in(file: Path) -> frozenset[str]:
    try:
        found = read_json(file)
    except (OSError, ValueError):
        return frozenset()
    return frozenset(found) if isinstance(found, dict) else frozenset()

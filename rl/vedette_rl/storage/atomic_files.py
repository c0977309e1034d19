"""Files that are written aside and renamed: a reader sees what was there before or all of the new.

The temporary name (`vedette_rl.storage.unfinished`, in the same directory) is one that no reader
looks for. What is removed is renamed first: a kill leaves no half of it under its own name. What a
killed process of this machine has left of the same file or directory is removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from vedette_rl.storage.system import reserve_space, sync_file
from vedette_rl.storage.unfinished import remove, remove_ended, unfinished_path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a write for which the disk, or this user's share of it, has no room."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to make a file or directory under; without an exception it then replaces `path`.

    A directory replaces nothing but an empty one.

    Raises:
        OSError: naming `path`, where the failure is not that of another file; or `path` is a device
            or a pipe, such as /dev/null, in whose place there would be a file.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, and would be replaced", str(path))
    remove_ended(path)
    aside = unfinished_path(path)
    remove(aside)  # what this process could not remove before
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        # A write to a full disk names no file.
        if error.errno is not None and error.filename in (None, str(aside)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        remove(aside)


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file's content.

    Args:
        content: text is written as UTF-8.
        durable: it outlives a power failure: the content is on the disk before the file has its
            name, and the name when this returns.

    Raises:
        OSError: naming `path`.
    """
    with replacing(path) as aside, aside.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            file.flush()
            sync_file(file.fileno())
    if durable:
        sync_directory(path.parent)


def create_file(path: Path, content: str) -> None:
    """Make a file, durably, unless there is one: one that another process makes meanwhile stays.

    Raises:
        OSError: naming `path`.
    """
    remove_ended(path)
    aside = unfinished_path(path)
    try:
        with aside.open("wb") as file:
            file.write(content.encode())
            file.flush()
            sync_file(file.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            aside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        remove(aside)


def replace_or_overwrite(path: Path, content: str | bytes) -> None:
    """Replace a file's content; on a full disk, overwrite it in the room that it has.

    For small files without which a process could not continue: on the disk before this returns.
    Only a power failure while it is overwritten may leave less than the whole of one content.

    Raises:
        OSError: naming `path`.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        replace_file(path, data, durable=True)
    except OSError as error:
        if error.errno not in NO_ROOM or _allocated_bytes(path) < len(data):
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate()
            sync_file(file.fileno())


def _allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.exists() else 0


def write_json(path: Path, content: object, *, durable: bool = False) -> None:
    """Replace a JSON file; `durable` as in `replace_file`."""
    replace_file(path, json_text(content), durable=durable)


def json_text(content: object) -> str:
    """Return JSON as it is written to files, for people too."""
    return json.dumps(content, indent=2) + "\n"


def sync_directory(directory: Path) -> None:
    """Wait until the disk has a directory's entries: files made, renamed and removed."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def allocate_file(path: Path, size: int, head: bytes, *, durable: bool) -> None:
    """Make a file of `size` bytes, zeros behind `head`, for a memory map.

    The disk's room is reserved now: a disk that fills up later would end the process at some store
    to the map.

    Raises:
        OSError: naming `path`.
        OverflowError: no file can be so large.
    """
    with replacing(path) as aside:
        file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            reserve_space(file, size)
            os.pwrite(file, head, 0)
            if durable:
                sync_file(file)
        finally:
            os.close(file)


def remove_directory(path: Path) -> None:
    """Remove a directory at once, to a reader; what cannot be removed now is left over, hidden.

    Raises:
        OSError: it cannot be renamed; it is as it was.
    """
    remove_ended(path)
    aside = unfinished_path(path, "old")
    remove(aside)
    path.rename(aside)
    remove(aside)

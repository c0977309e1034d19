"""Files of whatever origin, opened and read without surprises.

A name in somebody's folder may be a pipe, at which an ordinary open waits for ever, or a device
that never ends; and what it says may be nested so deep that walking through it ends a program.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

DEPTH_MAX = 100
_TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep"
_BLOCK_BYTES = 64 << 10
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, which must be a regular one.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT)
    try:
        _check_regular(path, descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: Path) -> bool:
    """True if there is a regular file of this name, or a link to one."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        OSError: it is no regular file, or cannot be read.
    """
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """The content of a file as text.

    Raises:
        OSError: as of `read_bytes`.
        ValueError: it is not UTF-8.
    """
    return read_bytes(path).decode("utf-8")


def read_json(path: Path) -> Any:  # any JSON
    """The content of a file of JSON.

    Raises:
        OSError: as of `read_bytes`.
        ValueError: it is not JSON, or nested too deep.
    """
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> Any:  # any JSON
    """Parse a text of JSON.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    check_depth(found)
    return found


def check_depth(tree: object) -> None:
    """Check that tables and lists are nested `DEPTH_MAX` deep at most.

    Raises:
        ValueError: they are not.
    """
    level = [tree]
    for _ in range(DEPTH_MAX):
        nested = [node for node in level if isinstance(node, (dict, list))]
        level = [
            inner
            for node in nested
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    if any(isinstance(node, (dict, list)) for node in level):
        raise ValueError(_TOO_DEEP)


def _check_regular(path: Path, descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def find_torn_line(path: Path) -> int | None:
    """Return where the last line of a file begins, in bytes, if it has no end: its writer was
    killed, or the disk was full. None where all lines are whole, or there is no regular file.

    Raises:
        OSError: the file cannot be read.
    """
    if not is_regular(path):
        return None
    with open_regular(path) as file:
        end = file.seek(0, os.SEEK_END)
        block = b"\n"
        begin = end
        while begin and (begin == end or b"\n" not in block):
            begin = max(0, begin - _BLOCK_BYTES)
            file.seek(begin)
            block = file.read(min(_BLOCK_BYTES, end - begin))
            if block.endswith(b"\n") and begin + len(block) == end:
                return None
        return begin + block.rfind(b"\n") + 1 if end else None


def open_new_to_append(path: Path) -> BinaryIO:
    """Make a file, each write of which goes to its end, wherever that is.

    Of one that somebody cuts short meanwhile, a write at a position would leave a hole, and its
    size would be right.

    Raises:
        OSError: it is there already, or cannot be made.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "ab")

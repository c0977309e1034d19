"""The words for a write that the system refuses, where its own words leave the cause open."""

from __future__ import annotations

import errno
from pathlib import Path

from vedette_rl.number_format import format_bytes
from vedette_rl.storage.system import file_size_limit, lacks_inodes

NO_INODE = "no inode for another file (df -i)"
"""What a disk lacks whose bytes are free."""


def describe_write_error(error: OSError, place: Path) -> str:
    """Describe an error of a write; of "no space" and "too large", what is used up.

    Args:
        place: the file, or a folder of its disk.
    """
    words = error.strerror or str(error)
    if error.errno == errno.ENOSPC and lacks_inodes(place):
        return f"{words}: it has bytes, and {NO_INODE}"
    if error.errno == errno.EFBIG and (limit := file_size_limit()) is not None:
        return f"{words}: a file may have {format_bytes(limit)} here (ulimit -f)"
    return words

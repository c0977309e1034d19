"""An ext4 on a device that is a file, and its copy as a loss of power would leave it.

It takes root, and loop devices.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoLoopDeviceError(Exception):
    """No file system can be made or mounted here."""


def make_ext4(image: Path, size: int, probe: Path) -> None:
    """Make a device of so many bytes with a new ext4.

    Args:
        probe: a folder at which it is mounted once.

    Raises:
        NoLoopDeviceError: not here; no image is left.
    """
    with image.open("wb") as file:
        file.truncate(size)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        with mounted(image, probe):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        image.unlink()
        raise NoLoopDeviceError(f"no file system can be mounted here: {error}") from None


def mount(image: Path, at: Path) -> None:
    """Mount the file system in `image` at a folder, which is made."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True, capture_output=True)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    """The file system in `image`, at a folder."""
    mount(image, at)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)  # a failed test may hold a file


def stop(pid: int) -> None:
    """Stop all threads of a process; those in a sync end it first."""
    os.kill(pid, signal.SIGSTOP)
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    until = time.monotonic() + 30
    while any((task / "stat").read_text().rpartition(") ")[2][0] not in "TZ" for task in tasks):
        assert time.monotonic() < until


def copy_at_once(image: Path, copy: Path) -> None:
    """Copy a device on which nothing is written meanwhile."""
    again = copy.with_suffix(".again")
    while True:
        shutil.copyfile(image, copy)
        shutil.copyfile(image, again)
        if copy.read_bytes() == again.read_bytes():
            again.unlink()
            return

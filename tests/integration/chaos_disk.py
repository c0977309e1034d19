"""What chaos does to the learner's disk: its power fails, its syncs fail, it runs full.

The run lies on an ext4 of its own, on a device that is a file in memory. It takes root and loop
devices; failing syncs also take a C compiler. What is not there is said, and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from daemons import wait_for
from ext4_image import copy_at_once, make_ext4, mount, stop

from vedette_rl.errors import ReplayTornError
from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.syncing import read_synced

SIZE_BYTES = 256 << 20
BUSY_S = 30.0
"""How long a killed process may keep the file system busy."""

_FAILING_SYNCS = """
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(void) { return access(getenv("FAILING_SYNCS"), F_OK) == 0; }

int fsync(int file) {
    if (fails()) { errno = EIO; return -1; }
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    if (fails()) { errno = EIO; return -1; }
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(file);
}

int msync(void *at, size_t bytes, int flags) {
    if (fails()) { errno = EIO; return -1; }
    return ((int (*)(void *, size_t, int)) dlsym(RTLD_NEXT, "msync"))(at, bytes, flags);
}
"""


class LearnersDisk:
    """The disk with the learner's run. As a context, nothing stays mounted.

    Args:
        place: an empty folder for the place where it is mounted, and the library of failing syncs.

    Attributes:
        run: the folder of the run, on this disk.
        lost: rows that its failures may have cost at most, by what was synced when they came.

    Raises:
        NoLoopDeviceError: it cannot be made here.
    """

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._image = Path("/dev/shm") / f"vedette-chaos-{os.getpid()}.img"
        self._mounted = place / "disk"
        self._failing = place / "syncs-fail"
        make_ext4(self._image, SIZE_BYTES, self._mounted)
        self.run = self._mounted / "run"
        self._library = _compile_failing_syncs(place)
        self.lost = 0
        self._unseen = 0

    def __enter__(self) -> Self:
        mount(self._image, self._mounted)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", self._mounted], check=True)
        self._image.unlink()

    @property
    def can_fail_syncs(self) -> bool:
        return self._library is not None

    def run_in(self) -> list[str]:
        """The command line under which the learner's syncs can fail."""
        if self._library is None:
            return []
        return ["env", f"LD_PRELOAD={self._library}", f"FAILING_SYNCS={self._failing}"]

    def newly_lost(self) -> int:
        """By how many rows the accounting may have gone back since this was asked last."""
        rows = self._unseen
        self._unseen = 0
        return rows

    def lose_power(self, pids: Sequence[int], kill: Callable[[int], object]) -> None:
        """Kill those who write, and put the disk back as its device was at that moment."""
        for pid in pids:
            stop(pid)
        synced, last = self._rows()
        copy = self._image.with_suffix(".copy")
        copy_at_once(self._image, copy)
        for pid in pids:
            kill(pid)
        wait_for(self._unmounted, "disk that nobody uses", BUSY_S)
        copy.replace(self._image)
        mount(self._image, self._mounted)
        self._note(last - synced)

    def fail_syncs(self, seconds: float) -> None:
        """Let no sync of the learner succeed for so long."""
        synced, newest = self._rows()
        self._failing.touch()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            newest = max(newest, self._rows()[1])
            time.sleep(0.1)
        self._failing.unlink()
        self._note(newest - synced)

    def fill(self, seconds: float) -> None:
        """Leave no byte free for so long."""
        full = self._mounted / "full"
        with full.open("wb", buffering=0) as stream:
            try:
                while stream.write(bytes(4096)):
                    pass
            except OSError:
                time.sleep(seconds)
        full.unlink()

    def _rows(self) -> tuple[int, int]:
        """Rows of the last sync, and of the last commit; 0 where there is no replay yet."""
        replay = self.run / "replay"
        synced = read_synced(replay)
        try:
            last = last_commit(replay).inserted
        except (FileNotFoundError, ReplayTornError):
            return 0, 0
        return (synced.commit.inserted if synced else 0), last

    def _note(self, rows: int) -> None:
        self.lost += max(rows, 0)
        self._unseen += max(rows, 0)

    def _unmounted(self) -> bool:
        return subprocess.run(["umount", self._mounted], capture_output=True).returncode == 0


def _compile_failing_syncs(place: Path) -> Path | None:
    """A library to preload; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source = place / "failing_syncs.c"
    library = place / "failing_syncs.so"
    source.write_text(_FAILING_SYNCS)
    options = ("-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, source, "-ldl")
    subprocess.run([compiler, *options], check=True)
    return library

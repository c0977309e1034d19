"""A write that the system refuses is described with what is used up."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vedette_rl.errors import CheckpointError, ReplayBudgetError
from vedette_rl.replay.ring_files import make_array
from vedette_rl.storage.state_file import write_state
from vedette_rl.storage.write_errors import describe_write_error

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("inodes", "free_inodes", "free_blocks", "named"),
    [
        (1000, 0, 50, True),
        (1000, 0, 0, False),  # no bytes either
        (1000, 3, 0, False),
        (0, 0, 50, False),  # a file system that makes inodes as it needs them
    ],
)
def test_a_disk_that_has_bytes_and_no_inode_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inodes: int,
    free_inodes: int,
    free_blocks: int,
    named: bool,
) -> None:
    disk = SimpleNamespace(f_files=inodes, f_favail=free_inodes, f_bavail=free_blocks)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    said = describe_write_error(FULL, tmp_path / "not" / "there")
    assert said.startswith("No space left on device")
    assert ("no inode for another file (df -i)" in said) == named


def test_a_disk_without_inodes_is_named_by_whoever_writes(tmp_path: Path) -> None:
    """A real one; what was made before stays writable."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=4", "vedette", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        with suppress(OSError):
            for number in range(10):
                (disk / str(number)).touch()
        if os.statvfs(disk).f_files == 0:
            pytest.skip("this system's tmpfs counts no inodes")
        with pytest.raises(CheckpointError, match=r"no inode for another file \(df -i\)"):
            write_state(disk / "state", {}, {})
        with pytest.raises(ReplayBudgetError, match=r"df -i\) is free: remove files there"):
            make_array(disk / "array", "00" * 16, np.dtype("f4"), (10,))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


WRITES = """
import resource, sys
from pathlib import Path
import numpy as np
from vedette_rl.errors import RlError
from vedette_rl.recording.file_recorder import JsonlRecorder
from vedette_rl.replay.ring_files import make_array
from vedette_services.errors import error_message
place = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    make_array(place / "array", "00" * 16, np.dtype("f4"), (100_000,))
except RlError as error:
    print(error)
recorder = JsonlRecorder(place / "records.jsonl")
try:
    while True:
        recorder.write({"x": 1.0}, 1)
except RlError as error:
    print(error)
try:
    (place / "file").write_bytes(bytes(30_000))
except OSError as error:
    error.filename = str(place / "file")
    print(error_message(error))
"""


def test_a_limit_of_a_files_size_is_named_with_its_value(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    assert hard == resource.RLIM_INFINITY or hard > 20_000
    done = subprocess.run(
        [sys.executable, "-c", WRITES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    replay, record, file = done.stdout.splitlines()
    assert "20 kB a file (ulimit -f) is free: raise that limit, or lower replay.capacity" in replay
    assert record.endswith("File too large: a file may have 20 kB here (ulimit -f)")
    assert "a file may have 20 kB here (ulimit -f); raise the limit of a file's size" in file

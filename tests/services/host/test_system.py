"""Calls that differ between operating systems: limits, memory, and what is refused."""

import os
import platform
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_services.errors import UsageError
from vedette_services.host import system
from vedette_services.host.processes import spawn
from vedette_services.host.system import (
    has_open,
    is_established,
    raise_file_limit,
    require_daemons,
)

UNLIMITED = resource.RLIM_INFINITY
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it cannot be told")


@pytest.mark.parametrize(
    ("soft", "hard", "most", "expected"),
    [
        (256, UNLIMITED, 1 << 20, 65_536),
        (256, UNLIMITED, 24_576, 10_240),  # macOS: the hard limit is not what the kernel takes
        (256, 4096, 1 << 20, 4096),
        (100_000, UNLIMITED, 1 << 20, 100_000),
    ],
)
def test_the_file_limit_is_raised_as_far_as_the_system_takes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, expected: int
) -> None:
    limit = [soft]

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limit[0] = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit[0], hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    raise_file_limit()
    assert limit == [expected]


FREED = """
import resource, sys
import numpy as np
from vedette_services.host.system import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(40):
    if _ == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(500_000, np.float32) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_memory_that_is_freed_comes_again_without_page_faults() -> None:
    kept, returned = (
        int(subprocess.check_output([sys.executable, "-c", FREED, how]))
        for how in ("kept", "returned")
    )
    assert kept < 200 < returned


def test_what_needs_daemons_is_refused_where_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    require_daemons("training")
    monkeypatch.setattr(system, "resource", None)
    with pytest.raises(UsageError, match="training needs Linux or macOS: on Windows use WSL"):
        require_daemons("training")


@LINUX
def test_a_connection_is_established_until_its_peer_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert is_established(accepted)
            client.close()
            assert accepted.recv(1) == b""
            assert not is_established(accepted)


@LINUX
def test_an_open_file_is_found_in_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w"):
        assert has_open(os.getpid(), path.stat())
    assert not has_open(os.getpid(), path.stat())


def test_a_log_goes_on_behind_a_line_that_a_kill_has_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("whole\nha")
    for _ in range(2):
        assert spawn([sys.executable, "-c", "print('new')"], log=log).wait(60) == 0
    assert log.read_text() == "whole\nha\nnew\nnew\n"

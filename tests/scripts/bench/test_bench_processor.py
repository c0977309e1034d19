"""Processor time and memory of the processes that a measurement started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measuring import _is_ours, processor_s, resident_bytes

MODULE = "bench.measuring"  # any that is not running here otherwise

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


def test_our_own_children_are_found_by_their_module() -> None:
    assert processor_s(MODULE) == 0.0
    assert resident_bytes(MODULE) == []
    busy = "import time\nwhile time.process_time() < 0.1: pass\nprint()\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", busy, MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        child.stdout.readline()
        assert processor_s(MODULE) >= 0.08
        (resident,) = resident_bytes(MODULE)
        assert resident > 1_000_000
    finally:
        child.communicate(b"\n", timeout=10)


def test_only_descendants_are_ours() -> None:
    parents = {30: 20, 20: os.getpid(), os.getpid(): os.getppid(), 40: 1}
    assert _is_ours(30, parents)
    assert not _is_ours(40, parents)
    assert not _is_ours(os.getppid(), parents)

"""A core kept for what is measured."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.measuring import assign_core, reserve_core, usable_cores

MODULE = "bench.measuring"  # any that is not running here otherwise
TWO_THREADS = (
    "import threading\nthreading.Thread(target=lambda: (print(flush=True), input())).start()"
)

pytestmark = pytest.mark.skipif(
    len(usable_cores()) < 2 or not Path("/proc/self/task").exists(), reason="needs two cores"
)

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[subprocess.Popen[bytes]] = []

    def child_named(module: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", TWO_THREADS, module]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield child_named
    for child in children:
        child.communicate(b"\n", timeout=10)


def cores_of(process: subprocess.Popen[bytes]) -> list[set[int]]:
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return [os.sched_getaffinity(int(thread.name)) for thread in threads]


def test_only_who_is_measured_runs_on_the_kept_core(start: Start) -> None:
    before = usable_cores()
    with reserve_core() as core:
        measured = start(MODULE)
        beside = start("another.module")
        assign_core(core, MODULE)
        assert core is not None
        assert cores_of(measured) == [{core}] * 2
        assert cores_of(beside) == [before - {core}] * 2
    assert usable_cores() == before


def test_of_one_core_none_is_kept(start: Start) -> None:
    before = usable_cores()
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        with reserve_core() as core:
            child = start(MODULE)
            assign_core(core, MODULE)
            assert core is None
            assert cores_of(child) == [one] * 2
    finally:
        os.sched_setaffinity(0, before)

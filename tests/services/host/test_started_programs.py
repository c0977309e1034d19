"""What a process has started is ended once it is gone, wherever that has gone to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette_services.host.processes import spawn
from vedette_services.host.started_programs import end_programs_of

STARTS = """
import subprocess, sys, time
from vedette_services.host.processes import die_with_parent
die_with_parent()
sleep = [sys.argv[1], "60"]
programs = [subprocess.Popen(sleep, start_new_session=apart) for apart in (False, True)]
print(*(program.pid for program in programs), flush=True)
time.sleep(60)
"""


class Owner:
    """A child that has started two programs."""

    def __init__(self, log: Path) -> None:
        # A name that the system cuts inside of a letter, since it keeps 15 bytes.
        program = log.parent / "симулятор-игры"
        if not program.exists():
            shutil.copy(shutil.which("sleep") or "", program)
        self.process = spawn([sys.executable, "-c", STARTS, str(program)], log=log)
        while not (text := log.read_text()).endswith("\n"):
            assert self.process.poll() is None, text
            time.sleep(0.02)
        self.programs = [int(number) for number in text.split()]

    def running(self) -> list[bool]:
        return [_runs(number) for number in self.programs]


def _runs(number: int) -> bool:
    try:
        stat = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[list[Owner]]:
    made = [Owner(tmp_path / f"{i}.log") for i in range(2)]
    yield made
    for owner in made:
        owner.process.kill()
        owner.process.wait()
        for number in filter(_runs, owner.programs):
            os.kill(number, signal.SIGKILL)


def test_the_programs_of_a_killed_child_are_ended_and_those_of_others_are_not(
    owners: list[Owner],
) -> None:
    one, other = owners
    one.process.kill()
    one.process.wait()
    assert one.running() == [True, True]
    end_programs_of([one.process, other.process])
    deadline = time.monotonic() + 60.0
    while any(one.running()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert other.running() == [True, True]


def test_a_program_of_nobody_has_no_mark(owners: list[Owner]) -> None:
    program = subprocess.Popen(["sleep", "60"])
    owners[0].process.kill()
    owners[0].process.wait()
    end_programs_of([owners[0].process])
    assert program.poll() is None
    program.kill()
    program.wait()

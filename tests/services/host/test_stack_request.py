"""A process says where it stands, also where C code holds Python's lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support

from vedette_services.host.stack_request import request_stack

PROGRAM = """
import ctypes, sys, threading, time
from pathlib import Path
from vedette_services.host.stack_request import answer_stack_requests

def reset():
    print("there", flush=True)
    while True:  # a signal ends a call of C
        {call}(60)

def elsewhere():
    time.sleep(60)

threading.Thread(target=elsewhere, daemon=True).start()
answer_stack_requests(Path(sys.argv[1]))
reset()
"""


@pytest.mark.parametrize("call", ["time.sleep", "ctypes.PyDLL(None).sleep"])
def test_the_stack_of_a_process_that_waits(tmp_path: Path, call: str) -> None:
    file = tmp_path / "stack"
    program = PROGRAM.format(call=call)
    command = [sys.executable, "-c", program, str(file)]
    with child_process(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stacks = [request_stack(process.pid, file) for _ in range(2)]
    for frames in stacks:
        functions = [frame.function for frame in frames]
        assert functions[-2:] == ["reset", "<module>"]
        assert "elsewhere" not in functions  # of another thread


def test_a_process_that_does_not_answer_has_no_stack(tmp_path: Path) -> None:
    assert request_stack(1, tmp_path / "none") == []
    empty = tmp_path / "empty"
    empty.touch()
    with child_process([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert request_stack(process.pid, empty) == []

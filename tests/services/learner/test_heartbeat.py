"""The heartbeat of a process says where its main thread is, when its loop does not come round."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support

from vedette_services.host.system import process_state
from vedette_services.learner import heartbeat
from vedette_services.learner.heartbeat import HeartbeatThread, TurnRecord, announce_start
from vedette_services.status.heartbeats import find_standstill
from vedette_services.status.records import Heartbeat, StatusRecordReader


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_AWAY_S", 0.05)


def seen(path: Path, wanted: Callable[[Heartbeat], bool]) -> Heartbeat:
    """Wait for a heartbeat; the watched thread stands in this function meanwhile."""
    reader = StatusRecordReader(path, Heartbeat)
    deadline = time.monotonic() + 10.0
    while not wanted(beat := reader.read()):
        assert time.monotonic() < deadline, beat
        time.sleep(0.01)
    return beat


def test_a_loop_that_comes_round_is_noted_and_one_that_does_not_is_looked_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "map"
    beats = HeartbeatThread(path, every_s=0.02)
    beats.mark_turn()
    beat = seen(path, lambda beat: beat.turn_s > 0.0)
    assert beat.pid == os.getpid()
    assert beat.began_s <= beat.turn_s <= beat.beat_s
    beat = seen(path, lambda beat: beat.place != "")
    assert "learner/test_heartbeat.py:" in beat.place
    assert not beat.compiles

    def goes_on(beat: Heartbeat) -> bool:
        beats.mark_turn()
        return beat.place == ""

    seen(path, goes_on)
    beats.close()


def test_a_call_that_hangs_is_one_place_and_work_that_goes_on_is_many(tmp_path: Path) -> None:
    path = tmp_path / "map"
    beats = HeartbeatThread(path, every_s=0.02)
    reader = StatusRecordReader(path, Heartbeat)
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.3, lock.release).start()
    lock.acquire()  # one call
    in_a_call = reader.read()
    assert in_a_call.beat_s - in_a_call.moved_s > 0.1
    until = time.monotonic() + 0.3
    moved = set()
    while time.monotonic() < until:  # many places
        moved.add(reader.read().moved_s)
    beats.close()
    assert len(moved) > 2


@pytest.mark.parametrize(
    ("file", "compiles"),
    [
        ("/lib/site-packages/torch/_dynamo/convert_frame.py", True),
        ("/lib/site-packages/torch/_inductor/compile_fx.py", True),
        ("/lib/site-packages/torch/_dynamo/eval_frame.py", False),  # what was compiled runs below
    ],
)
def test_a_compiler_on_the_stack_is_said(tmp_path: Path, file: str, compiles: bool) -> None:
    path = tmp_path / "map"
    beats = HeartbeatThread(path, every_s=0.02)
    names = {"seen": seen, "path": path}
    source = "def compile_network():\n    return seen(path, lambda beat: beat.place != '')\n"
    exec(compile(source, file, "exec"), names)
    assert names["compile_network"]().compiles is compiles  # type: ignore[operator]  # exec made it
    beats.close()


def test_a_debugger_is_said(tmp_path: Path) -> None:
    path = tmp_path / "map"
    beats = HeartbeatThread(path, every_s=0.02)
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: None)
    sys._getframe().f_trace = lambda frame, event, arg: None
    try:
        assert seen(path, lambda beat: beat.place != "" and beat.debugged)
    finally:
        sys.settrace(before)
        sys._getframe().f_trace = None
    beats.close()


def test_the_first_heartbeat_of_a_process_hides_that_of_its_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "map"
    turns = TurnRecord(path)
    turns.mark_turn()
    turns.close()
    assert StatusRecordReader(path, Heartbeat).read().turn_s > 0.0
    announce_start(path)
    beat = StatusRecordReader(path, Heartbeat).read()
    assert (beat.pid, beat.turn_s) == (0, 0.0)
    assert beat.began_s > 0.0


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with child_process(["sleep", "100"]) as process:
        yield process


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 10.0
    while process_state(pid) != state:
        assert time.monotonic() < deadline, process_state(pid)
        time.sleep(0.01)


linux = pytest.mark.skipif(sys.platform != "linux", reason="states are read from /proc")


@linux
def test_a_stopped_process_is_seen_and_so_is_one_that_goes_on() -> None:
    with sleeping() as process:
        assert process_state(process.pid) == ""
        process.send_signal(signal.SIGSTOP)
        wait_for_state(process.pid, "stopped")
        process.send_signal(signal.SIGCONT)
        wait_for_state(process.pid, "")
    assert process_state(process.pid) == ""  # it is gone


PTRACE_ATTACH, PTRACE_DETACH = 16, 17


@linux
def test_a_process_that_a_debugger_holds_is_no_stopped_one() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with sleeping() as process:
        if libc.ptrace(PTRACE_ATTACH, process.pid, None, None):
            pytest.skip(f"processes may not be traced here: {os.strerror(ctypes.get_errno())}")
        wait_for_state(process.pid, "traced")
        beat = Heartbeat(pid=process.pid, began_s=1.0, beat_s=1.0, turn_s=1.0, moved_s=1.0)
        found = find_standstill("trainer", beat, 1e6, process_state(process.pid))
        assert found is not None
        assert found.overdue == 0.0
        os.waitpid(process.pid, 0)
        libc.ptrace(PTRACE_DETACH, process.pid, None, None)

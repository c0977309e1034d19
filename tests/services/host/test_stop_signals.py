"""The order to stop: one request however many signals carry it, and a later second one."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette_services.host import processes
from vedette_services.host.processes import (
    Interrupts,
    StopSignals,
    ignore_stop_signals,
    was_stopped,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(processes, "time", made)
    return made


@pytest.fixture
def left() -> list[str]:
    return []


def test_the_same_request_told_twice_is_one(clock: Clock, left: list[str]) -> None:
    stop = StopSignals(signals=(), leave=lambda: left.append("left"))
    assert not stop
    for later_s in (0.0, 0.1, 0.8):
        clock.now += later_s
        stop.request()
    assert stop
    assert left == []


def test_a_second_request_a_second_later_leaves(clock: Clock, left: list[str]) -> None:
    stop = StopSignals(signals=(), leave=lambda: left.append("left"))
    stop.request()
    clock.now += 1.0
    stop.request()
    assert left == ["left"]


def test_only_the_parent_ends_a_child_at_once(
    clock: Clock, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopSignals, "has_parent", True)
    stop = StopSignals(signals=(), leave=lambda: left.append("left"))
    stop.request()
    clock.now += 60.0
    stop.request()
    assert stop
    assert left == []


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_process_that_obeys_its_parent_survives_stop_signals(handlers: None) -> None:
    ignore_stop_signals()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), number)


def test_programs_that_it_starts_can_be_terminated(handlers: None) -> None:
    import subprocess

    ignore_stop_signals()
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    assert program.wait(10.0) == -signal.SIGTERM


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
)
def test_a_signal_asks_to_stop(handlers: None, number: signal.Signals) -> None:
    stop = StopSignals(leave=lambda: None)
    os.kill(os.getpid(), number)
    assert stop


def test_a_batch_systems_warning_is_no_first_signal(
    handlers: None, clock: Clock, left: list[str]
) -> None:
    stop = StopSignals(leave=lambda: left.append("left"))
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        clock.now += 60.0
        os.kill(os.getpid(), number)
    assert stop
    assert left == []  # the checkpoint of the warning may still be written
    clock.now += 1.0
    os.kill(os.getpid(), signal.SIGTERM)
    assert left == ["left"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
)
def test_what_only_ends_between_two_parts_is_interrupted_by_every_stop_signal(
    handlers: None, number: signal.Signals
) -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.held():
        os.kill(os.getpid(), number)


def test_the_end_of_a_session_stops_nobody_under_nohup(handlers: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopSignals(leave=lambda: None)
    ignore_stop_signals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert not stop
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


_PRINTS_AFTERWARDS = """
import sys, time
from vedette_services.host.processes import StopSignals, pause
stop = StopSignals()
print("ready", flush=True)
pause(stop, 20.0)
print("stopping", flush=True)  # an error, had the terminal not been left
open(sys.argv[1], "w").write("saved")
"""


def test_what_is_printed_after_the_end_of_a_terminal_is_discarded(
    handlers: None, tmp_path: Path
) -> None:
    pid, terminal = pty.fork()
    if not pid:
        saved = str(tmp_path / "saved")
        os.execv(sys.executable, [sys.executable, "-c", _PRINTS_AFTERWARDS, saved])
    assert b"ready" in os.read(terminal, 100)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "saved").read_text() == "saved"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_process_that_a_stop_signal_has_ended_was_stopped(name: str) -> None:
    assert was_stopped(-signal.Signals[name])


@pytest.mark.parametrize("status", [None, 0, 1, 15, -signal.SIGKILL])
def test_one_that_ended_otherwise_was_not(status: int | None) -> None:
    assert not was_stopped(status)

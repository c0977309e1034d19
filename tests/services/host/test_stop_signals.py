"""The order to stop: one request however many signals carry it, and a later second one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from vedette_services.host import processes
from vedette_services.host.processes import StopSignals, ignore_stop_signals


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
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_process_that_obeys_its_parent_survives_stop_signals(handlers: None) -> None:
    ignore_stop_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


def test_programs_that_it_starts_can_be_terminated(handlers: None) -> None:
    import subprocess

    ignore_stop_signals()
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    assert program.wait(10.0) == -signal.SIGTERM

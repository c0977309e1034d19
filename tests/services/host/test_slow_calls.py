"""An environment that takes long to be made or reset is said."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest

from vedette_rl.envs.slow_calls import SlowCall, running_call
from vedette_services.host import slow_calls


def test_a_wait_is_said_after_some_seconds_and_then_less_often() -> None:
    lines = slow_calls.WaitLines("Sim-v0", began=100.0)
    times = [100.0, 102.9, 103.0, 103.5, 112.9, 113.0, 122.9, 123.5]
    said = [lines.due_line("made" if now < 110.0 else "reset", now) for now in times]
    assert list(filter(None, said)) == [
        "waiting for Sim-v0 to be made (3 s)",
        "waiting for Sim-v0 to be reset (13 s)",
        "waiting for Sim-v0 to be reset (24 s)",
    ]


def test_what_is_waited_for_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SAY_AFTER_S", 0.05), ("SAY_EVERY_S", 0.1), ("_POLL_S", 0.01)):
        monkeypatch.setattr(slow_calls, name, value)
    said: list[str] = []
    thrice, stop = threading.Event(), threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            thrice.set()

    watch = threading.Thread(target=slow_calls._watch, args=(say, stop), daemon=True)
    watch.start()
    with SlowCall("made"), SlowCall("reset"):
        assert thrice.wait(10)
    stop.set()
    watch.join(10)
    assert said[0] == "waiting for the environment to be reset (0 s)"
    assert running_call() is None


def test_a_module_that_is_being_imported_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in `sys.modules` before its functions are there."""
    monkeypatch.setitem(sys.modules, "vedette_rl.envs.slow_calls", ModuleType("half"))
    stop = threading.Event()
    looks = iter([False, True])
    monkeypatch.setattr(stop, "wait", lambda seconds: next(looks))
    slow_calls._watch(pytest.fail, stop)


def test_a_quick_call_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    looks = iter([False, False, True])
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda seconds: next(looks))
    with SlowCall("made"):
        slow_calls._watch(said.append, stop)
    assert said == []

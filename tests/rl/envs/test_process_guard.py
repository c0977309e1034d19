"""What an environment does to its process stays in it, and it finds it again."""

from __future__ import annotations

import gc
import logging
import logging.config
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vedette_rl.envs import process_guard
from vedette_rl.envs.process_guard import ProcessGuard, _Settings


class Manners:
    """An environment with manners of its own, all of them set by its constructor."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        self.printed = (folder / "printed").open("w")
        sys.stdout = self.printed
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})
        logging.disable(logging.CRITICAL)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        np.seterr(all="raise")

    def step(self) -> dict[str, Any]:
        """What is set now."""
        return {
            "folder": Path.cwd().name,
            "prints": sys.stdout is self.printed,
            "logs": logging.root.manager.disable < logging.CRITICAL,
            "dtype": torch.get_default_dtype(),
            "grad": torch.is_grad_enabled(),
            "numpy": np.geterr()["over"],
        }


def our_state() -> dict[str, Any]:
    return {
        "folder": Path.cwd(),
        "stdout": sys.stdout,
        "int": signal.getsignal(signal.SIGINT),
        "term": signal.getsignal(signal.SIGTERM),
        "root": (logging.root.level, list(logging.root.handlers)),
        "disabled": logging.getLogger("vedette.test").disabled,
        "off": logging.root.manager.disable,
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "numpy": np.geterr(),
    }


@pytest.fixture(autouse=True)
def all_is_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Else a test that fails would take others with it."""
    monkeypatch.chdir(tmp_path)
    logging.getLogger("vedette.test")
    before = our_state()
    yield
    sys.stdout = before["stdout"]
    signal.signal(signal.SIGINT, before["int"])
    signal.signal(signal.SIGTERM, before["term"])
    logging.root.setLevel(before["root"][0])
    logging.root.handlers[:] = before["root"][1]
    logging.disable(before["off"])
    torch.set_default_dtype(before["dtype"])
    torch.set_grad_enabled(before["grad"])
    np.seterr(**before["numpy"])


def test_what_a_constructor_sets_is_seen_by_the_environment_alone(tmp_path: Path) -> None:
    before = our_state()
    guard = ProcessGuard()
    env = guard.make(Manners, tmp_path / "sim")
    assert our_state() == before
    expected = {
        "folder": "sim",
        "prints": True,
        "logs": False,
        "dtype": torch.float64,
        "grad": False,
        "numpy": "raise",
    }
    for _ in range(2):
        assert guard.call(env.step) == expected
        assert our_state() == before
    env.printed.close()


def raise_at_once() -> None:
    os.chdir("/")
    torch.set_grad_enabled(False)
    raise ZeroDivisionError("the solver")


def test_a_call_that_fails_leaves_nothing_behind() -> None:
    before = our_state()
    guard = ProcessGuard()
    for call in (guard.make, guard.call):
        with pytest.raises(ZeroDivisionError, match="the solver"):
            call(raise_at_once)
        assert our_state() == before


def test_each_environment_is_made_in_our_folder(tmp_path: Path) -> None:
    """It may go into one that it names from there."""
    (tmp_path / "sim").mkdir()
    guard = ProcessGuard()
    for _ in range(2):
        guard.make(os.chdir, "sim")
        assert guard.call(os.getcwd) == str(tmp_path / "sim")


def test_signals_that_a_step_takes_are_ours_again_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(process_guard.time, "monotonic", lambda: now[0])
    guard = ProcessGuard()
    guard.make(int)
    handler = signal.getsignal(signal.SIGTERM)
    now[0] += process_guard.LOOK_EVERY_S
    guard.call(signal.signal, signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is handler


class Restarting:
    restarts_calls = True

    def __call__(self, number: int, frame: object) -> None:
        """Ignores it."""


def test_a_handler_that_restarts_calls_does_so_when_it_is_set_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_again: list[tuple[int, bool]] = []
    signal.signal(signal.SIGTERM, Restarting())
    monkeypatch.setattr(signal, "siginterrupt", lambda *how: set_again.append(how))
    ProcessGuard().make(int)
    assert set_again == [(signal.SIGTERM, False)]


def test_loggers_that_a_step_disables_are_seen_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(process_guard.time, "monotonic", lambda: now[0])
    ours = logging.getLogger("vedette.test")
    guard = ProcessGuard()
    guard.make(int)
    now[0] += process_guard.LOOK_EVERY_S
    guard.call(logging.config.dictConfig, {"version": 1})
    assert not ours.disabled


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    guard = ProcessGuard()
    assert guard.make(abs, -1) == 1
    guard.call(os.chdir, tmp_path)
    assert guard.call(os.getcwd) == str(tmp_path)


def test_warnings_as_errors_of_numpy_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a step sets them for good."""
    guard = ProcessGuard()
    guard.make(np.seterr, all="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.float32(1e38) * np.float32(1e38) == np.inf
    with pytest.raises(FloatingPointError):
        guard.call(np.multiply, np.float32(1e38), np.float32(1e38))


def test_a_guarded_step_costs_a_few_microseconds(benchmark_s: Callable[[], float]) -> None:
    assert benchmark_s() < 20e-6  # 2 or 3 where nothing else runs


@pytest.fixture
def benchmark_s() -> Callable[[], float]:
    def measure() -> float:
        guard = ProcessGuard()
        guard.make(int)
        calls = 200
        times = []
        for _ in range(20):
            began = process_guard.time.perf_counter()
            for _ in range(calls):
                guard.call(int)
            times.append((process_guard.time.perf_counter() - began) / calls)
        return min(times)

    return measure


def limits() -> tuple[int, int, bool, float | None]:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask, sys.getrecursionlimit(), gc.isenabled(), socket.getdefaulttimeout()


def test_files_limits_and_sockets_of_the_process_are_not_an_environments(tmp_path: Path) -> None:
    """As simulators set them that are to be alone: new files that nobody may read, no garbage
    collector, sockets that do not wait. A run in one process wrote its results so."""
    ours = limits()

    def make() -> object:
        os.umask(0o777)
        sys.setrecursionlimit(900)
        gc.disable()
        socket.setdefaulttimeout(0.001)
        return object()

    theirs = (0o777, 900, False, 0.001)
    guard = ProcessGuard()
    try:
        guard.make(make)
        assert limits() == ours
        (tmp_path / "result").touch()
        assert (tmp_path / "result").stat().st_mode & 0o600 == 0o600
        assert guard.call(limits) == theirs
        assert limits() == ours
        guard.call(os.umask, 0o027)  # no look at it is due
        assert limits() == ours
        assert guard.call(limits) == (0o027, *theirs[1:])
    finally:
        _Settings.read()._replace(
            umask=ours[0], recursion_limit=ours[1], collects=ours[2], socket_timeout_s=ours[3]
        ).set()


def test_a_recursion_limit_below_what_runs_is_no_error() -> None:
    def deep(levels: int) -> object:
        if levels:
            return deep(levels - 1)
        return guard.call(len, "four")

    guard = ProcessGuard()
    ours = sys.getrecursionlimit()
    guard.make(sys.setrecursionlimit, 300)
    assert deep(400) == 4
    assert sys.getrecursionlimit() == ours

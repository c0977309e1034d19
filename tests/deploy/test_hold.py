"""`hold` for engines that start again whatever ends, and `healthy` for their probes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HOLD, HEALTHY = str(DEPLOY / "hold"), str(DEPLOY / "healthy")
WAIT_S = 30


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where both scripts leave and look for files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("VEDETTE_HEALTH_FILE", str(tmp_path / "acknowledged"))
    return tmp_path


def healthy() -> bool:
    return subprocess.run([HEALTHY], timeout=WAIT_S).returncode == 0


def test_a_manager_is_healthy_while_the_learner_acknowledges_it_or_once_the_run_is_over(
    scratch: Path,
) -> None:
    assert not healthy()
    acknowledged = scratch / "acknowledged"
    acknowledged.touch()
    assert healthy()
    os.utime(acknowledged, (time.time() - 180,) * 2)
    assert not healthy()
    with child_process([HOLD, "true"], stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        held.stdout.readline()
        assert healthy()
        held.send_signal(signal.SIGTERM)
        held.wait(WAIT_S)


def test_what_ends_badly_ends_it_with_the_same_status() -> None:
    assert subprocess.run([HOLD, "sh", "-c", "exit 3"], timeout=WAIT_S).returncode == 3


def test_a_signal_is_passed_on_and_the_end_waited_for() -> None:
    code = (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "print('here', flush=True)\n"
        "signal.sigwait({signal.SIGTERM})\n"  # `pause` misses one that comes just before it
        "print('checkpoint')\n"
    )
    with child_process([HOLD, sys.executable, "-c", code], stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"here\n"
        held.send_signal(signal.SIGTERM)
        assert held.communicate(timeout=WAIT_S)[0] == b"checkpoint\n"
        assert held.returncode == 0


def test_what_ends_well_is_held_until_told_to_stop() -> None:
    with child_process([HOLD, "true"], stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        assert "the run is over" in held.stdout.readline()
        assert held.poll() is None
        held.send_signal(signal.SIGTERM)
        assert held.wait(WAIT_S) == 0

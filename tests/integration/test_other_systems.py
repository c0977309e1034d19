"""Systems other than Linux, simulated: our modules lack what the library lacks there."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support
from other_systems import environment_of

from vedette.local.daemons import free_port

SMALL = ("--env", "CartPole-v1", "actors.count=1", "evaluation.episodes=2", "learner.device=cpu")
TALK = """
from vedette_services.host.processes import WakeupEvent
from vedette_services.host.system import anonymous_file, count_cores, cpu_model, private_bytes
import os, sys
assert not hasattr(os, "eventfd") and not hasattr(os, "memfd_create") and sys.platform == "darwin"
event = WakeupEvent()
assert len(event.descriptors) == 2 and not event.is_set
for _ in range(20_000):
    event.set()  # more than a pipe takes: never waits
assert event.is_set
event.clear()
assert not event.is_set
event.close()
assert count_cores() == os.cpu_count() and cpu_model() and private_bytes(os.getpid()) == 0
os.close(anonymous_file("memory"))
"""
LOADS = """
import vedette
assert all(callable(getattr(vedette, name)) for name in vedette.__all__)
"""


def run_python(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Runs code as a module of ours, which sees the other system."""
    head = "__spec__ = __import__('importlib.util').util.spec_from_loader('vedette_x', None)\n"
    command = [sys.executable, "-c", f"{head}exec({code!r})"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def run_vedette(
    environment: dict[str, str], *arguments: object, timeout: float = 100.0
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vedette.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended, made on this system."""
    out = tmp_path_factory.mktemp("finished") / "run"
    ended = run_vedette(dict(os.environ), "run", *SMALL, "stop.max_opts=300", "--out", out)
    assert ended.returncode == 0, ended.stderr
    return out


def test_macos_has_wakeups_memory_and_processes_by_other_calls(tmp_path: Path) -> None:
    done = run_python(TALK, environment_of("darwin", tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_macos_trains_stops_resumes_and_plays(tmp_path: Path) -> None:
    mac = environment_of("darwin", tmp_path)
    out = tmp_path / "run"
    command = ["run", *SMALL, "--out", out, "learner.warmup_period=100", "stop.target_return=none"]
    with child_process(
        [sys.executable, "-m", "vedette.cli", *map(str, command), "stop.max_seconds=600"],
        env=mac,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as first:
        deadline = time.monotonic() + 100.0
        while not list(out.glob("checkpoints/*")) and time.monotonic() < deadline:
            assert first.poll() is None, first.stdout and first.stdout.read()
            time.sleep(0.2)
        stopped = run_vedette(mac, "stop", out)
        assert stopped.returncode == 0, stopped.stderr
        assert first.wait(60.0) == 0, first.stdout and first.stdout.read()
    reached = json.loads((out / "summary.json").read_text())["opt_steps"]
    assert reached > 0
    again = run_vedette(mac, *command, f"stop.max_opts={reached + 200}")
    assert again.returncode == 0, again.stdout + again.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["exit_reason"] == "max_opts"
    assert summary["opt_steps"] == reached + 200
    samples = summary["samples"]
    counted = ("inserted", "dropped", "rejected", "in_flight", "lost")
    assert samples["produced"] == sum(samples[name] for name in counted)
    played = run_vedette(mac, "eval", out, "--episodes", 2, "--checkpoint", "latest", "--json")
    assert json.loads(played.stdout)["episodes"] == 2


@pytest.mark.slow
def test_windows_plays_reports_lists_and_exports_a_run(finished: Path, tmp_path: Path) -> None:
    windows = environment_of("win32", tmp_path)
    # Its files and pipes are not in UTF-8 unless somebody says so.
    windows |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    checkpoint = ("--checkpoint", "latest")
    policy, page, rows = (tmp_path / name for name in ("policy.npz", "page.html", "replay.npz"))
    for command in (
        ("eval", finished, "--episodes", 2, *checkpoint),
        ("export", finished, "--format", "numpy", "--out", policy, *checkpoint),
        ("export", finished, "--what", "replay", "--format", "npz", "--out", rows),
        ("report", finished, "--out", page),
        ("runs", finished.parent),
        ("status", finished),
        ("stop", finished),
        ("config", "--env", "CartPole-v1"),
    ):
        done = run_vedette(windows, *command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout, command
    assert policy.stat().st_size
    assert page.stat().st_size > 1_000_000


@pytest.mark.parametrize("command", ["run", "learner", "actors", "dashboard", "keys"])
def test_windows_refuses_the_daemons_in_a_line(command: str, tmp_path: Path) -> None:
    windows = environment_of("win32", tmp_path)
    asked = run_vedette(windows, command, "--help")
    assert asked.returncode == 0, asked.stderr
    refused = run_vedette(windows, command)
    assert refused.returncode == 2
    expected = f"vedette: vedette {command} needs Linux or macOS: on Windows use WSL or a container"
    assert refused.stderr.splitlines() == [expected]


def test_windows_has_no_modes_that_would_protect_a_secret(tmp_path: Path) -> None:
    windows = environment_of("win32", tmp_path)
    refused = run_vedette(windows, "status", "--keys", tmp_path)
    assert refused.returncode == 2
    expected = "vedette: --keys needs Linux or macOS: on Windows use WSL or a container"
    assert refused.stderr.splitlines() == [expected]


def test_windows_imports_vedette(tmp_path: Path) -> None:
    done = run_python(LOADS, environment_of("win32", tmp_path))
    assert done.returncode == 0, done.stderr


OWN_LOOP = """
import sys
import numpy as np
import vedette
with vedette.Actor(sys.argv[-1], envs=2) as actor:
    obs = np.zeros((2, 4), np.float32)
    actor.begin(obs)
    for step in range(1, 601):
        assert actor.act().shape == (2,)
        over = np.full(2, step % 50 == 0)
        actor.observe(np.ones(2), obs + step, truncated=over)
    assert actor.close(), actor.stats()
    print(actor.stats()["settled"])
"""


def test_windows_plays_in_a_loop_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    script = tmp_path / "vedette_x.py"
    script.write_text(OWN_LOOP)
    learner = [
        sys.executable,
        "-m",
        "vedette.cli",
        "learner",
        *SMALL,
        "--out",
        str(tmp_path / "run"),
    ]
    with child_process([*learner, "--bind", f"127.0.0.1:{port}"]) as process:
        try:
            windows = environment_of("win32", tmp_path)
            played = subprocess.run(
                [sys.executable, script, f"127.0.0.1:{port}"],
                env=windows,
                capture_output=True,
                text=True,
                timeout=100,
            )
        finally:
            process.terminate()
            process.wait(60.0)
    assert played.returncode == 0, played.stderr
    assert played.stdout == "1200\n"

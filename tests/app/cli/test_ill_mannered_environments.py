"""Commands whose environment does to its process what simulators do: they return, stay in their
folder, and speak for themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each loads torch, and waits for what was left

ENDS_WITHIN_S = 240.0
"""A machine that many share takes long to load torch."""

RUN = (
    *("run", "--in-process", "--env", "ill_mannered_env:IllMannered", "--agent", "dqn"),
    *("--out", "runs/here", "preset=none", "actors.count=1", "actors.envs_per_actor=2"),
    *("learner.warmup_period=50", "learner.eval_interval=0", "agent.hidden_sizes=[16]"),
)


def command(place: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "vedette.cli", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_they_return_and_stay_in_their_folder_and_their_json_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "sim").mkdir()
    folder = f"env.kwargs.folder={tmp_path / 'sim'}"
    run = command(tmp_path, *RUN, folder, "stop.max_opts=20")
    out, err = run.communicate(timeout=ENDS_WITHIN_S)
    assert run.returncode == 0, err
    assert "next  " in out
    assert "thread 'driver'" in err
    assert "(sleep), of the environment or a library, was left: ended" in err
    assert [*(tmp_path / "sim").iterdir()] == []
    latest = ("--checkpoint", "latest", "--episodes", "2")
    played = command(tmp_path, "eval", "runs/here", *latest, "--json")
    out, err = played.communicate(timeout=ENDS_WITHIN_S)
    assert played.returncode == 0, err
    assert json.loads(out)["episodes"] == 2
    assert "solver: build of January" in err


@pytest.mark.timeout(900)
def test_what_a_command_says_is_all_of_its_output(tmp_path: Path) -> None:
    """Whatever the modules that it imports print, and the environments that it makes."""
    printing = ("--env", "ill_mannered_env:Printing")
    run = command(
        tmp_path, *RUN, *printing, "stop.max_opts=20", "agent.network=ill_mannered_env:net"
    )
    out, err = run.communicate(timeout=ENDS_WITHIN_S)
    assert run.returncode == 0, err
    latest = ("--checkpoint", "latest")
    said = {
        ("eval", "runs/here", *latest, "--episodes", "2"): "return 10.00 ± ",
        (
            "export",
            "runs/here",
            "--format",
            "numpy",
            *latest,
            "--out",
            "p.npz",
        ): "the policy of",
        ("push", "runs/here", "me/it", *latest, "--episodes", "2", "--out", "card"): "card/",
        ("collect", "--policy", "runs/here", *latest, "--episodes", "2", "--out", "demos"): "2 ",
        ("doctor", *printing): "ok    environment",
        ("list", "networks", "--json"): '{"kind": "networks"',
    }
    for arguments, begins in said.items():
        ran = command(tmp_path, *arguments)
        out, err = ran.communicate(timeout=ENDS_WITHIN_S)
        assert ran.returncode == 0, (arguments, err)
        lines = out.splitlines()
        assert lines, arguments
        assert lines[0].startswith(begins), (arguments, out)
        assert "ill_mannered_env was imported" not in out
        assert "touches" not in out
        assert "solver" not in out


def test_a_reader_that_goes_ends_no_command_with_an_error(tmp_path: Path) -> None:
    ran = command(tmp_path, "config", "--env", "CartPole-v1", "--all")
    assert ran.stdout is not None
    ran.stdout.close()
    ran.stdout = None
    _, err = ran.communicate(timeout=ENDS_WITHIN_S)
    assert (ran.returncode, err) == (0, "")


def test_a_signal_ends_a_run_in_process_with_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "sim").mkdir()
    run = command(tmp_path, *RUN, f"env.kwargs.folder={tmp_path / 'sim'}")
    assert run.stdout is not None
    for line in run.stdout:
        if " opts " in line and "opts 0 " not in line:
            break
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=ENDS_WITHIN_S)
    assert run.returncode == 0, err
    assert [*(tmp_path / "runs/here/checkpoints").iterdir()]

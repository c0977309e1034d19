"""Learning on a GPU in pieces that resume; parts of `scripts/bench_gpu`.

A piece is `vedette run` on a directory of its own, which is stopped when the time of a call is
nearly over; the next call goes on from its checkpoint.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

_STOP_S = 45.0  # for the last checkpoint and evaluation
_LEAST_S = 30.0
_COMMAND = ("typer", "zmq", "rich", "tensorboard", "jinja2")  # modules of the command line


@dataclass(frozen=True, slots=True)
class Study:
    """A run that shows learning.

    Args:
        env, agent: of the run.
        needs: modules that the environment imports.
        settings: of the run.
    """

    env: str
    agent: str
    needs: tuple[str, ...]
    settings: tuple[str, ...]


STUDIES = {
    "hopper": Study("Hopper-v5", "sac", ("mujoco",), ("stop.max_env_steps=1000000",)),
    "pong": Study("ALE/Pong-v5", "dqn", ("ale_py",), ("stop.max_env_steps=10000000",)),
}

_QUICK = Study(
    "CartPole-v1",
    "dqn",
    (),
    ("preset=none", "stop.max_opts=200", "learner.warmup_period=100", "evaluation.episodes=2"),
)


def learn(
    study: Study, directory: Path, device: torch.device, *, quick: bool, seconds: float
) -> dict[str, Any]:
    """Go on with a study for so long; "done" once it has ended by itself."""
    if quick:
        study = _QUICK
    needed = (*_COMMAND, *study.needs)
    if missing := [name for name in needed if not find_spec(name)]:
        raise ModuleNotFoundError(f"{sys.executable} lacks {', '.join(missing)}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "vedette.cli", "run", "--env", study.env]
    command += ["--agent", study.agent, "--out", str(directory)]
    command += [*study.settings, f"learner.device={device.type}"]
    end = time.monotonic() + max(_LEAST_S, seconds - _STOP_S)
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        status = process.wait(_STOP_S)
    if status:
        raise RuntimeError(f"vedette run ended with exit status {status}")
    summary = json.loads((directory / "summary.json").read_text())
    return {
        "done": summary["exit_reason"] not in ("", "interrupted"),
        "env": study.env,
        "agent": study.agent,
        **{
            name: summary[name]
            for name in ("exit_reason", "env_steps", "opt_steps", "rates", "eval")
        },
    }

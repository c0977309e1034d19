"""Starts the comparisons of replays in the environments that hold the other libraries."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from bench.environments import ROOT, NotInstallableError, install
from vedette_services.errors import ServicesError

_PEERS = (
    "torch==2.14.1",  # which TorchRL's prioritized buffer needs
    "cpprb==11.0.0",
    "stable-baselines3==2.9.2",
    "torchrl==0.14.1",
    "tensordict==0.14.3",
    "tianshou==2.0.1",
)
_REVERB = ("dm-reverb==0.14.0", "tensorflow-cpu==2.15.1", "numpy<2")


class ComparisonFailedError(ServicesError):
    """The process that compares replays ended with an error."""


def measure_in_one_process(rounds: int, names: Sequence[str]) -> dict[str, Any]:
    """Measure our replay beside those of other libraries (`bench.replay_peers`).

    Args:
        names: of the peers; none: all.
    """
    python = _peers_python()
    command = [python, "-m", "bench.replay_peers", str(rounds), *names]
    return _json_of(command, OMP_NUM_THREADS="1")


def measure_remote(rounds: int, seconds: float) -> dict[str, Any]:
    """Measure replays that other processes feed (`bench.remote_replays`).

    A system that cannot be installed is left out, and said so.
    """
    python = _peers_python()
    systems = dict.fromkeys(("vedette", "queue", "cpprb", "torchrl"), python)
    left_out: dict[str, str] = {}
    try:
        systems["reverb"] = str(install(ROOT / ".venv-reverb", _REVERB, "python3.11"))
    except NotInstallableError as error:
        left_out["reverb"] = str(error)
    named = [f"{name}={interpreter}" for name, interpreter in systems.items()]
    command = [python, "-m", "bench.remote_replays", str(rounds), str(seconds), *named]
    return {"systems": _json_of(command, TF_CPP_MIN_LOG_LEVEL="3"), "left_out": left_out}


def _peers_python() -> str:
    return str(install(ROOT / ".venv-peers", ("--editable", str(ROOT), *_PEERS)))


def _json_of(command: Sequence[str], **variables: str) -> dict[str, Any]:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ComparisonFailedError(f"{command[2]} ended with status {done.returncode}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures

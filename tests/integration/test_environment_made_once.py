"""An environment is made once to learn about it, and once for each that plays it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest


class Counted(gym.Env[Any, Any]):
    """Notes the process that makes it."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, log: str) -> None:
        self.steps = 0
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), float(action), False, self.steps == 30, {}


SMALL = (
    "preset=none",
    "actors.count=1",
    "actors.envs_per_actor=2",
    "learner.warmup_period=100",
    "agent.hidden_sizes=[8]",
    "replay.capacity=2000",
    "stop.max_opts=100",
)
EVALUATED = ("learner.eval_interval=40", "evaluation.episodes=2")


def makes(tmp_path: Path, *arguments: str) -> list[int]:
    """How often each process of a run has made its environment, most often first."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "vedette.cli", "run", "--out", str(tmp_path / "run")]
    command += ["--env", f"{Path(__file__).stem}:Counted", "--agent", "dqn"]
    subprocess.run(
        [*command, f"env.kwargs.log={log}", *SMALL, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=110,
    )
    return sorted(Counter(log.read_text().split()).values(), reverse=True)


def test_without_evaluations_only_actors_make_it_after_the_start(tmp_path: Path) -> None:
    assert makes(tmp_path, "learner.eval_interval=0") == [2, 1]


@pytest.mark.slow
def test_an_evaluator_makes_as_many_as_it_plays_and_keeps_them(tmp_path: Path) -> None:
    assert makes(tmp_path, *EVALUATED) == [2, 2, 1]


@pytest.mark.slow
def test_an_evaluator_makes_no_more_than_it_is_told(tmp_path: Path) -> None:
    assert makes(tmp_path, *EVALUATED, "evaluation.envs=1") == [2, 1, 1]


@pytest.mark.slow
def test_one_process_makes_it_for_actors_and_evaluations_alone(tmp_path: Path) -> None:
    assert makes(tmp_path, "--in-process", *EVALUATED) == [4, 1]

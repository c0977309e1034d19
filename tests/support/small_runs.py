"""Runs in one process that take about a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configurations import configured
from run_directories import new_run

from vedette.live import View
from vedette.local.in_process import InProcessRun
from vedette_rl.envs.make import environment_spaces
from vedette_services.config import RunConfig

SMALL: dict[str, Any] = {
    "preset": "none",
    "env": {"id": "CartPole-v1"},
    "agent": {"name": "dqn", "hidden_sizes": [16], "batch_size": 8, "n_step": 3},
    "actors": {"count": 2, "envs_per_actor": 4, "n_buffer": 16},
    "learner": {
        "warmup_period": 64,
        "sync_interval": 5,
        "eval_interval": 40,
        "save_interval": 50,
        "record_agent_info_interval": 10,
    },
    "evaluation": {"episodes": 2},
    "stop": {"max_opts": 100},
}


def config_of(**parts: Any) -> RunConfig:
    table = {**SMALL, **{name: {**SMALL.get(name, {}), **part} for name, part in parts.items()}}
    return configured(table=table)


def trained(config: RunConfig, out: Path, **how: Any) -> tuple[InProcessRun, dict[str, Any]]:
    """A run that is over, and its summary."""
    learner = InProcessRun(config, environment_spaces(config.env), new_run(out), **how)
    return learner, learner.train()


class Shown(View):
    """A view that remembers at which optimization steps it was shown what to wait for."""

    def __init__(self) -> None:
        self.waits: list[tuple[int, str]] = []

    def show(self, status: Any) -> None:
        self.waits.append((status["opt_steps"], status["waits"]))

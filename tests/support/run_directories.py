"""Run directories as a learner leaves them, without a learner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vedette_rl.agents import agent_kind
from vedette_rl.envs.make import probe_environment
from vedette_rl.storage.state_file import write_state
from vedette_services.config import RunConfig, write_config
from vedette_services.run.directory import RunDirectory


def new_run(root: Path, config: RunConfig | None = None) -> RunDirectory:
    """A run that has its id, and its configuration where there is one; nothing has run yet."""
    run = RunDirectory(root)
    run.make()
    run.ensure_id()
    if config is not None:
        write_config(config, run.config_file)
    return run


def untrained_agent(config: RunConfig, seed: int = 0) -> Any:
    """The agent of a run before its first step, on the CPU."""
    spaces = probe_environment(config.env)
    kind = agent_kind(config.agent.name)
    return kind.build_agent(config.agent, spaces, device="cpu", seed=seed)


def write_best_model(root: Path, config: RunConfig) -> Any:
    """Write the best model that an evaluator would have written; returns it."""
    model = untrained_agent(config, seed=1).model_info()
    write_state(root / "best", {"model": dict(model.arrays)}, {"version": 70, "return_mean": 9.0})
    return model

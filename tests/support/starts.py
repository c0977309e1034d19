"""Starts of runs as the commands plan and prepare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vedette_rl.envs.make import environment_spaces
from vedette_services.config.run_config import RunConfig
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.prepare import PreparedStart, prepare_start, settings_to_resume
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.start_planning import plan_start
from vedette_services.status.status import Status


def plan(config: RunConfig, out: Path, **asked: bool) -> StartPlan:
    """The plan of a start; `asked` are the arguments of `Start.of`."""
    start = Start.of(**asked)
    settings_to_resume(out, start)
    return plan_start(config, out, start)


def lines_of_start(config: RunConfig, out: Path, **asked: bool) -> tuple[str, ...]:
    """The lines that a start says, if its checks pass."""
    return plan(config, out, **asked).lines


def prepared(config: RunConfig, run: RunDirectory, **asked: bool) -> PreparedStart:
    """A directory that is ready for a start."""
    if asked.get("fresh"):
        asked["force"] = True
    return prepare_start(plan(config, run.root, **asked), run)


def train_in_process(config: RunConfig, out: Path, **asked: Any) -> Status:
    """Plan a run in this process, and train until it is over."""
    from vedette.local.in_process import run_in_process  # brings torch

    if asked.get("fresh"):
        asked["force"] = True
    return run_in_process(plan(config, out, in_process=True, **asked))


def spec_of(
    run: RunDirectory, run_id: str, config: RunConfig, address: Address, keys: Path | None = None
) -> LearnerSpec:
    """What a learner's processes are given, with the spaces of the environment."""
    return LearnerSpec(run, run_id, config, environment_spaces(config.env), address, keys)

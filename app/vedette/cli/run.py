"""``vedette run``: everything on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli import sweep as several
from vedette.cli.options import (
    Agent,
    Arguments,
    Env,
    Force,
    Fresh,
    Out,
    Settings,
    load_from_arguments,
)
from vedette_services.errors import UnsavedEndError, UsageError

if TYPE_CHECKING:
    from vedette_services.config.loading import LoadedConfig
    from vedette_services.run.status import Status


def run(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    out: Out = None,
    settings: Settings = None,
    fresh: Fresh = False,
    force: Force = False,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process",
            help="All in this process, in lock step: for a debugger, and the same at every run.",
        ),
    ] = False,
    seeds: several.Seeds = None,
    sweep: several.Values = None,
    jobs: several.Jobs = None,
) -> None:
    """Train on this machine. A learner and its actors are started and ended together.

    \b
    vedette run                                            DQN solves CartPole-v1
    vedette run --env Pendulum-v1                          its tuned preset is SAC's
    vedette run --env my_pkg:Mine-v0 --set seed=3 --out runs/mine
    vedette run mine.toml agent.learning_rate=3e-4 stop.max_env_steps=1e6
    vedette run --seeds 5 --out runs/five                  one after another, and a report on all
    vedette run --seeds 3 --sweep agent.learning_rate=1e-3,3e-4 --out runs/rates
    """
    if seeds is not None or sweep:
        typed = several.TypedConfig(arguments, env, agent, settings)
        several.run_sweep(typed, out, seeds or 1, sweep or [], jobs, in_process, fresh, force)
        return
    if jobs is not None:
        raise UsageError("--jobs: it goes with --seeds or --sweep")
    from vedette_services.run.checks import check_config
    from vedette_services.run.directory import default_out
    from vedette_services.run.outcome import describe_already_done, read_summary

    found = load_from_arguments(arguments, env, agent, settings)
    config = found.config
    directory = out or default_out(config)
    lines = check_config(config, directory, fresh=fresh, force=force, in_process=in_process)
    for line in found.decided:
        typer.echo(line)
    if found.note:
        typer.echo(found.note)
    if not fresh and (done := describe_already_done(directory, config.stop)):
        typer.echo(done)
        _report(read_summary(directory), directory)
        return
    for line in lines:
        typer.echo(line)
    try:
        _report(_train(found, directory, in_process=in_process, fresh=fresh), directory)
    except UnsavedEndError as error:
        _report(error.status, directory)
        raise


def _train(found: LoadedConfig, out: Path, *, in_process: bool, fresh: bool) -> Status:
    """Train until the run is over; its last status."""
    from vedette.live import view_for

    config = found.config
    view = view_for(f"{config.agent.name} on {config.env.id}")
    if in_process:
        from vedette.local.in_process import run_in_process as train
    else:
        from vedette.local.daemons import run_locally as train
    return train(config, out, fresh=fresh, note=found.note, view=view, signals=True)


def _report(status: Status, out: Path) -> None:
    """What the run came to, and what to do next."""
    from vedette_services.run import status_text

    for line in status_text.summary_lines(status, str(out)):
        typer.echo(line)
    if hint := path_hint():
        typer.echo(f"           {hint}")


def path_hint() -> str:
    """How `vedette` comes onto the path of who ran it by another name; "" where it is there."""
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("vedette") or not activate.is_file():
        return ""
    return f"(`. {activate}` puts vedette and tensorboard on your path)"

"""``vedette run``: a run, or several, with everything on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from vedette.sweep import Changes
    from vedette_services.config import RunConfig
    from vedette_services.config.loading import LoadedConfig
    from vedette_services.run.status import Status

Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        max=1000,
        metavar="N",
        help="Run N seeds, each in OUT/seed-K, and report on them together.",
        show_default=False,
    ),
]
SweepValues = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=V,V",
        help="Run once for each value, as often as needed: every combination is run.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        max=256,
        metavar="N",
        help="With those: so many at a time. [as the cores allow]",
        show_default=False,
    ),
]


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
    seeds: Seeds = None,
    sweep: SweepValues = None,
    jobs: Jobs = None,
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
        configure = partial(_configure_trial, arguments, env, agent, settings)
        _run_sweep(configure, out, seeds or 1, sweep or [], jobs, in_process, fresh, force)
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
    """Train until the run is over; return its last status."""
    from vedette.live import view_for

    config = found.config
    view = view_for(f"{config.agent.name} on {config.env.id}")
    if in_process:
        from vedette.local.in_process import run_in_process as train
    else:
        from vedette.local.daemons import run_locally as train
    return train(config, out, fresh=fresh, note=found.note, view=view, signals=True)


def _report(status: Status, out: Path) -> None:
    """Print the result of a run, and what to do next."""
    from vedette_services.run import status_text

    for line in status_text.summary_lines(status, str(out)):
        typer.echo(line)
    if hint := path_hint():
        typer.echo(f"           {hint}")


def path_hint() -> str:
    """Return how to put `vedette` on the path; "" where it is there."""
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("vedette") or not activate.is_file():
        return ""
    return f"(`. {activate}` puts vedette and tensorboard on your path)"


def _configure_trial(
    arguments: list[str] | None,
    env: str | None,
    agent: str | None,
    settings: list[str] | None,
    changes: Changes,
) -> RunConfig:
    """Load what the command line asks for, with `changes` over everything else."""
    more = [f"{key}={value}" for key, value in changes.items()]
    return load_from_arguments([*(arguments or []), *more], env, agent, settings).config


def _run_sweep(
    configure: Callable[[Changes], RunConfig],
    out: Path | None,
    seeds: int,
    sweep: list[str],
    jobs: int | None,
    in_process: bool,
    fresh: bool,
    force: bool,
) -> None:
    """Run every trial and report on all; leave with the status of the first that failed."""
    from vedette.sweep import (
        Sweep,
        exit_status,
        jobs_within,
        parse_sweep,
        plan_trials,
        report_on,
    )
    from vedette_services.errors import FAILED
    from vedette_services.host.processes import StopSignals
    from vedette_services.run.checks import check_config
    from vedette_services.run.directory import default_out
    from vedette_services.run.status_text import exit_sentence

    values = parse_sweep(sweep)
    directory = out or default_out(configure({}))
    trials = plan_trials(configure, directory, seeds=seeds, sweep=values)
    for trial in trials:
        check_config(trial.config, trial.out, fresh=fresh, force=force, in_process=in_process)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    typer.echo(f"{len(trials)} runs, {side_by_side} at a time, in {directory}")
    whole = Sweep(
        trials, directory, jobs=side_by_side, fresh=fresh, in_process=in_process, say=typer.echo
    )

    def leave() -> None:
        whole.kill()
        os._exit(FAILED)

    stop = StopSignals(leave=leave)
    outcomes = whole.run(stop)
    for outcome in outcomes:
        typer.echo(f"  {outcome.trial.name:<12} {outcome.message}")
    if stop:
        typer.echo(exit_sentence("interrupted"))
    page = report_on(trials, directory)
    if page is not None:
        typer.echo(f"  report       {page}")
    raise typer.Exit(exit_status(outcomes))

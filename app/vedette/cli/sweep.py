"""The options of ``vedette run`` for several runs, and what they come to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vedette.cli.options import load_from_arguments

if TYPE_CHECKING:
    from vedette.sweep.trials import Changes
    from vedette_services.config import RunConfig

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
Values = Annotated[
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


class TypedConfig(NamedTuple):
    """What was typed of the configuration."""

    arguments: list[str] | None
    env: str | None
    agent: str | None
    settings: list[str] | None

    def configure(self, changes: Changes) -> RunConfig:
        """The configuration with changes over everything else."""
        more = [f"{key}={value}" for key, value in changes.items()]
        return load_from_arguments(
            [*(self.arguments or []), *more], self.env, self.agent, self.settings
        ).config


def run_sweep(
    typed: TypedConfig,
    out: Path | None,
    seeds: int,
    sweep: list[str],
    jobs: int | None,
    in_process: bool,
    fresh: bool,
    force: bool,
) -> None:
    """Run every trial and report on all; leave with the status of the first that failed."""
    from vedette.sweep import Sweep, plan_trials
    from vedette.sweep.runner import exit_status, jobs_within, report_on
    from vedette.sweep.trials import parse_sweep
    from vedette_services.errors import FAILED
    from vedette_services.host.processes import StopSignals
    from vedette_services.run.checks import check_config
    from vedette_services.run.directory import default_out
    from vedette_services.run.status_text import exit_sentence

    values = parse_sweep(sweep)
    directory = out or default_out(typed.configure({}))
    trials = plan_trials(typed.configure, directory, seeds=seeds, sweep=values)
    for trial in trials:
        check_config(trial.config, trial.out, fresh=fresh, force=force, in_process=in_process)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    typer.echo(f"{len(trials)} runs, {side_by_side} at a time, in {directory}")
    whole = Sweep(trials, directory, jobs=side_by_side, fresh=fresh, in_process=in_process,
                  say=typer.echo)  # fmt: skip

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

"""``vedette run``: a run, or several, with everything on this machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.grouped_help import SEVERAL
from vedette.cli.options import (
    Agent,
    AllowImport,
    Arguments,
    Complete,
    Env,
    Force,
    Fresh,
    InitFrom,
    Jobs,
    Known,
    NewReplay,
    Out,
    Settings,
    load_for_start,
    load_from_arguments,
    with_initial_weights,
)
from vedette.cli.output import say
from vedette_services.errors import UnsavedEndError, UsageError

if TYPE_CHECKING:
    from vedette.sweep import Changes, Configure
    from vedette_services.config.loading import ActorPlace, LoadedConfig
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.run.start import Start
    from vedette_services.run.start_plan import StartPlan
    from vedette_services.status.status import Status

Seeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        metavar="N",
        help="Run N seeds, each in OUT/seed-K, and report on them together.",
        rich_help_panel=SEVERAL,
    ),
]
SweepValues = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V,V",
        help="Run once for each value; several --sweep: once for each combination.",
        rich_help_panel=SEVERAL,
    ),
]


def run(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    out: Out = None,
    settings: Settings = None,
    init_from: InitFrom = None,
    fresh: Fresh = False,
    force: Force = False,
    new_replay: NewReplay = False,
    complete: Complete = False,
    known: Known = None,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process",
            help="Learner and actors in one process: deterministic, for a debugger.",
        ),
    ] = False,
    seeds: Seeds = None,
    sweep: SweepValues = None,
    jobs: Jobs = None,
    allow_import: AllowImport = None,
) -> None:
    """Train on this machine. It starts a learner and its actors, and ends them together.

    \b
    vedette run                              DQN solves CartPole-v1
    vedette run --env Pendulum-v1            with the tuned preset of SAC
    vedette run --env my_pkg:Mine-v0 --set seed=3 --out runs/mine
    vedette run mine.toml agent.learning_rate=3e-4 stop.max_env_steps=1e6
    vedette run --init-from runs/mine        starts with the weights of that run
    vedette run --seeds 5 --out runs/five    as the cores allow, with a report
    vedette run --seeds 3 --sweep agent.learning_rate=1e-3,3e-4 --out runs/rates
    """
    from vedette_services.host.probe_process import ProbeProcess
    from vedette_services.run.start import Start

    start = Start.of(
        fresh=fresh,
        force=force,
        new_replay=new_replay,
        in_process=in_process,
        allow_import=allow_import or (),
    )
    fit: ActorPlace = "in process" if in_process else "here"
    if seeds is not None or sweep:
        more = with_initial_weights(settings, init_from)
        configure = partial(_configure_trial, arguments, env, agent, more, fit, start)
        _run_sweep(configure, out, seeds or 1, sweep or [], jobs, start)
        return
    if jobs is not None:
        raise UsageError("--jobs: it needs --seeds or --sweep")
    resumed = None if complete else out
    # First: it loads beside this process.
    process = ProbeProcess(say) if known is None else None
    from vedette_services.config.probing import EnvironmentProbe

    facts = json.loads(known.read_text("utf-8")) if known else None
    with EnvironmentProbe(say, process=process, known=facts) as probe:
        loaded = load_for_start(
            arguments, env, agent, settings, init_from, resumed, start, fit=fit, probe=probe
        )
        plan = _plan(loaded, out, start, probe)
    _run_one(loaded, plan)


def _plan(
    loaded: LoadedConfig, out: Path | None, start: Start, probe: EnvironmentProbe
) -> StartPlan:
    """Plan a run, whose directory is a new one where none is named."""
    from vedette_services.run.directory import out_or_new
    from vedette_services.run.start_planning import plan_start

    with out_or_new(out, loaded.config) as directory:
        return plan_start(loaded.config, directory, start, note=loaded.comment, probe=probe)


def _run_one(loaded: LoadedConfig, plan: StartPlan) -> None:
    """Train until a run is over, and print its result."""
    from vedette_services.run.outcome import (
        describe_already_done,
        describe_not_applied,
        read_summary,
    )

    directory = plan.out
    for line in loaded.decided:
        say(line)
    if loaded.note:
        say(loaded.note)
    done = describe_already_done(directory, plan.config.stop, new_best=plan.new_best)
    if done and not plan.start.fresh:
        say(done)
        if ignored := describe_not_applied(plan.changes):
            say(ignored)
        _report(read_summary(directory), directory)
        return
    for line in plan.lines:
        say(line)
    try:
        _report(_train(plan), directory)
    except UnsavedEndError as error:
        _report(error.status, directory)
        raise


def _train(plan: StartPlan) -> Status:
    """Train until the run is over; return its last status."""
    from vedette.live import view_for

    title = f"{plan.config.agent.name} on {plan.config.env.id}"
    view = view_for(title, run=None if plan.start.fresh else plan.out)
    if plan.start.in_process:
        from vedette.local.in_process import run_in_process as train
    else:
        from vedette.local.daemons import run_locally as train
    return train(plan, view=view, signals=True)


def _report(status: Status, out: Path) -> None:
    """Print the result of a run, and what to do next."""
    from vedette_services.status import text as status_text

    for line in status_text.summary_lines(status, str(out)):
        say(line)
    if hint := path_hint():
        say(f"           {hint}")


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
    fit: ActorPlace,
    start: Start,
    probe: EnvironmentProbe,
    changes: Changes,
    saved: Path | None,
) -> LoadedConfig:
    """Load what the command line asks for, with `changes` over everything else."""
    more = [f"{key}={value}" for key, value in changes.items()]
    given = [*(arguments or []), *more]
    allowed = start.allow_import
    return load_from_arguments(given, env, agent, settings, saved, fit, probe, allowed)


def _run_sweep(
    configure: Callable[..., LoadedConfig],
    out: Path | None,
    seeds: int,
    sweep: list[str],
    jobs: int | None,
    start: Start,
) -> None:
    """Run every trial and report on all; leave with the status of the first that failed."""
    from vedette.cli.comparison import print_comparison
    from vedette.sweep import (
        Sweep,
        describe_starts,
        exit_status,
        jobs_within,
        parse_sweep,
        plan_starts,
        plan_trials,
        report_on,
    )
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.errors import FAILED
    from vedette_services.host.processes import StopSignals
    from vedette_services.run.directory import out_or_new, without_links
    from vedette_services.status.stop_conditions import exit_sentence

    values = parse_sweep(sweep)
    with EnvironmentProbe(say) as probe:
        configure_trial: Configure = partial(configure, probe)
        with out_or_new(out, configure_trial({}, None).config) as place:
            directory = without_links(place)
            trials = plan_trials(configure_trial, directory, start, seeds=seeds, sweep=values)
            trials = plan_starts(trials, start, probe)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=start.in_process)
    for line in describe_starts(trials, directory, start):
        say(line)
    say(f"{len(trials)} runs, {side_by_side} at a time, in {directory}")
    whole = Sweep(trials, directory, start, jobs=side_by_side, say=say, known=probe.known())

    def leave() -> None:
        whole.kill()
        os._exit(FAILED)

    stop = StopSignals(leave=leave)
    outcomes = whole.run(stop)
    for outcome in outcomes:
        say(f"  {outcome.trial.name:<12} {outcome.message}")
    if stop:
        say(exit_sentence("interrupted"))
    page, configurations = report_on(trials, directory)
    if configurations is not None:
        print_comparison(configurations)
        say(f"  report       {page}")
    raise typer.Exit(exit_status(outcomes))

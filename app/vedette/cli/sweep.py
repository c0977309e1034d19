"""``vedette sweep``: searches settings by a study."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import AllowImport, Jobs, Settings, complete_arguments, split_arguments
from vedette.cli.output import say
from vedette_services.errors import FAILED, UsageError

if TYPE_CHECKING:
    from vedette.sweep.study import Study
    from vedette_services.run.start import Start

StudyArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY [KEY=VALUE]...",
        help="The study's TOML file, and settings over those in it, as with --set.",
        autocompletion=complete_arguments,
    ),
]
StudyOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory of the study; one with trials resumes. [runs/NAME of the file]",
    ),
]


def sweep(
    arguments: StudyArguments,
    settings: Settings = None,
    out: StudyOut = None,
    jobs: Jobs = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Each run in one process: deterministic.")
    ] = False,
    allow_import: AllowImport = None,
) -> None:
    """Search settings with Optuna. Trials that fall behind are stopped early.

    \b
    vedette sweep study.toml                         the same command resumes it
    vedette sweep study.toml --out runs/rates --jobs 4
    vedette run runs/rates/best.toml                 the best settings so far

    Several processes may work on one study, also on several hosts that share its directory.
    """
    from vedette.sweep.directory import check_sweep_directory
    from vedette.sweep.study import Study
    from vedette_services.run.directory import without_links
    from vedette_services.run.start import Start

    path, more = split_arguments(arguments)
    if path is None:
        raise UsageError("vedette sweep: name the TOML file of a study")
    allowed = tuple(allow_import or ())
    study = Study(path, [*(settings or []), *more], allow_import=allowed)
    directory = without_links(out or Path("runs") / path.stem)
    check_sweep_directory(directory)
    _search(study, directory, jobs, Start(in_process=in_process, allow_import=allowed))


def _search(study: Study, directory: Path, jobs: int | None, start: Start) -> None:
    """Check the settings of a study, run it, print its result and exit with its status."""
    from vedette.live import print_table
    from vedette.sweep import jobs_within
    from vedette.sweep.study import check_budget
    from vedette.sweep.study_runner import StudyRunner
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.host.processes import StopSignals
    from vedette_services.run.checks import check_settings
    from vedette_services.run.start_planning import plan_start
    from vedette_services.status.stop_conditions import exit_sentence

    configs = [study.configure(params) for params in study.ends()]
    for config in configs:
        check_budget(config, study.config.objective)
        check_settings(config)
    study.check_ranges()
    with EnvironmentProbe(say) as probe:
        lines = plan_start(configs[0], directory / "trial-new", start, probe=probe).lines
    side_by_side = jobs or jobs_within(configs[0], in_process=start.in_process)
    known = probe.known()
    runner = StudyRunner(study, directory, jobs=side_by_side, start=start, say=say, known=known)
    for line in lines:
        say(line)
    say(f"{study.config.trials} trials, {side_by_side} at a time, in {directory}")

    def leave() -> None:
        runner.kill()
        os._exit(FAILED)

    stop = StopSignals(leave=leave)
    status = runner.run(stop)
    print_table(*runner.table())
    for line in runner.lines():
        say(f"  {line}")
    if stop:
        say(exit_sentence("interrupted"))
    raise typer.Exit(status)

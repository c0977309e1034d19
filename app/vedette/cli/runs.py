"""``vedette runs``: the runs in a directory, a line each; ``vedette stop`` ends one, and ``vedette
report`` writes a page about some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import RunArgument
from vedette_services.errors import UsageError

if TYPE_CHECKING:
    from vedette_services.run.overview import RunOverview

_HEADS = ("state", "agent", "environment", "last", "best", "env steps", "time", "began", "commit")


def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder of runs, up to three levels deep.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
) -> None:
    """List runs, the newest last: state, result, environment steps, duration.

    \b
    vedette runs
    vedette runs runs/rates
    vedette runs --json | jq 'select(.state == "running")'
    """
    from vedette.live import print_table
    from vedette_services.run.overview import find_runs, read_overview

    found = [read_overview(path) for path in find_runs(directory)]
    found.sort(key=lambda run: run.began_s or 0.0)
    if as_json:
        for run in found:
            typer.echo(json.dumps(run.as_dict()))
        return
    if not found:
        typer.echo(f"no run in {directory}")
        return
    print_table((*_HEADS, "run"), [_cells(run) for run in found])


def _cells(run: RunOverview) -> tuple[str, ...]:
    """Format a run's columns."""
    from vedette_rl.number_format import format_clock, format_number, format_time

    return (
        *(run.state, run.agent or "-", run.env or "-"),
        format_number(run.last_return, 1),
        format_number(run.best_return, 1),
        format_number(run.env_steps),
        "-" if run.seconds is None else format_clock(run.seconds),
        format_time(run.began_s)[:16],
        run.commit or "-",
        run.run,
    )


def stop(
    run: RunArgument,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds to wait for its end.")
    ] = 90.0,
) -> None:
    """Stop a run on this host, as Ctrl-C does: with a checkpoint. It resumes by the same command.

    \b
    vedette stop runs/cart
    """
    from vedette_services.run.directory import stop_run
    from vedette_services.run.overview import describe_end

    if stop_run(run, timeout):
        typer.echo(f"{run}: {describe_end(run, 'learner')}")
    else:
        typer.echo(f"{run}: nothing to stop: {describe_end(run)}")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run directories, folders of them, or a baseline's CSV.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to write. [report.html in the run's directory; here for several]",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the statistics of the seeds; write no page.")
    ] = False,
) -> None:
    """Write one HTML page about a run. About several: how they compare, seeds taken together.

    \b
    vedette report runs/cart                        curves, fleet, accounting, configuration, videos
    vedette report runs/cart runs/other --out both.html
    vedette report runs/sweep                       every run in a folder
    vedette report runs/sweep --json                an object for each configuration
    """
    from vedette.live import print_table
    from vedette.reports import (
        OUTCOME_HEADS,
        OUTCOME_NOTE,
        outcome_rows,
        report_statistics,
        write_comparison,
    )
    from vedette_rl.storage.system import bytes_text

    if as_json and out is not None:
        raise UsageError("--json writes no page: leave out --out")
    if as_json:
        typer.echo(json.dumps(report_statistics(runs), indent=2))
        return
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    path, found = write_comparison(runs, out)
    if sum(len(each.runs) for each in found) > 1:
        print_table(OUTCOME_HEADS, outcome_rows(found))
        typer.echo(OUTCOME_NOTE)
    typer.echo(f"{path} ({bytes_text(path.stat().st_size)}); open it in a browser")

"""``vedette runs``: the runs in a directory, a line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.output import say

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
    from vedette_services.run.finding import find_runs
    from vedette_services.run.overview import read_overview

    overviews = [read_overview(path) for path in find_runs(directory)]
    overviews.sort(key=lambda run: run.began_s or 0.0)
    if as_json:
        for run in overviews:
            typer.echo(json.dumps(run.as_dict()))
        return
    if not overviews:
        say(f"no run in {directory}")
        return
    print_table((*_HEADS, "run"), [_cells(run) for run in overviews])


def _cells(run: RunOverview) -> tuple[str, ...]:
    """Format a run's columns."""
    from vedette_rl.number_format import format_clock, format_number, format_time

    return (
        f"{run.state} on {run.host}" if run.host and run.state == "running" else run.state,
        *(run.agent or "-", run.env or "-"),
        format_number(run.last_return, 1),
        format_number(run.best_return, 1),
        format_number(run.env_steps),
        "-" if run.seconds is None else format_clock(run.seconds),
        format_time(run.began_s)[:16],
        run.commit or "-",
        run.run,
    )

"""``vedette runs``: the runs in a directory, a line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.output import say

if TYPE_CHECKING:
    from vedette_services.run.overview import RunOverview

_HEADS = (
    "state",
    "agent",
    "environment",
    "last",
    "best",
    "env steps",
    "trained",
    "began",
    "commit",
)


def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder of runs, up to three levels deep.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object per line.")] = False,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Add a tag to each of these runs.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Remove a tag from each of them.")
    ] = None,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Save this note with each of them.")
    ] = None,
) -> None:
    """List runs, the newest last. State, result, environment steps, duration.

    Tags and notes are saved with a run, in its notes.json; the dashboard shows and finds them.

    \b
    vedette runs
    vedette runs runs/rates
    vedette runs --json | jq 'select(.state == "running")'
    vedette runs runs/one --tag baseline --note "before the new reward"
    """
    from vedette.live import print_table
    from vedette_services.errors import error_message
    from vedette_services.run.finding import find_runs

    left_out: list[OSError] = []
    places = find_runs(directory, left_out=left_out)
    for error in left_out:
        say(f"vedette: left out: {error_message(error)}", err=True)
    if tag or untag or note is not None:
        from vedette_services.run.notes import write_notes

        for path in places:
            write_notes(path, add=tag or (), remove=untag or (), note=note)
    overviews = [_read(path) for path in places]
    overviews.sort(key=lambda run: run.began_s or 0.0)
    if as_json:
        for run in overviews:
            typer.echo(json.dumps(run.as_dict()))
        return
    if not overviews:
        say(f"no run in {directory}")
        return
    noted = any(run.tags or run.note for run in overviews)
    heads = (*_HEADS, "run", *(["notes"] if noted else []))
    print_table(heads, [(*_cells(run), *([_notes(run)] if noted else [])) for run in overviews])
    if any(run.is_last_by_luck for run in overviews):
        say(
            "* at the target, but fresh episodes of the same model were below it; best counts these"
        )


def _read(run: Path) -> RunOverview:
    from vedette_services.run.overview import RunOverview, read_overview

    try:
        return read_overview(run)
    except OSError as error:
        return RunOverview.unreadable(str(run), error)


def _notes(run: RunOverview) -> str:
    """Format what was noted about a run."""
    return " ".join(filter(None, [*(f"#{tag}" for tag in run.tags), run.note]))


def _cells(run: RunOverview) -> tuple[str, ...]:
    """Format a run's columns."""
    from vedette_rl.number_format import format_clock, format_number, format_time

    return (
        f"{run.state} on {run.host}" if run.host and run.state == "running" else run.state,
        *(run.agent or "-", run.env or "-"),
        format_number(run.last_return, 1) + ("*" if run.is_last_by_luck else ""),
        format_number(run.best_return, 1),
        format_number(run.env_steps),
        "-" if run.seconds is None else format_clock(run.seconds),
        format_time(run.began_s)[:16],
        run.commit or "-",
        run.run,
    )

"""``vedette rerun``: executes a run's learning again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import AllowImport, RunArgument
from vedette.cli.output import say

if TYPE_CHECKING:
    from vedette_services.learner.rerun import Result
    from vedette_services.run.spans import Span

First = Annotated[
    int | None,
    typer.Option(
        "--from", min=0, metavar="STEP", help="Begin at the newest state there. [the first]"
    ),
]
Until = Annotated[
    int | None,
    typer.Option("--until", min=1, metavar="STEP", help="The last step. [the last of the run]"),
]
Epoch = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Steps of this start, also those that a later one has done again. [the last]",
    ),
]


def rerun(
    run: RunArgument,
    first: First = None,
    until: Until = None,
    epoch: Epoch = None,
    span: Annotated[
        bool, typer.Option("--span", help="Only say which steps can be executed again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    allow_import: AllowImport = None,
) -> None:
    """Execute a run's learning again, bit by bit. Offline, from its replay, states and journal.

    \b
    vedette rerun runs/cart                      all that can be executed; equal, or where not
    vedette rerun runs/cart --span               which steps that are
    vedette rerun runs/cart --from 20000 --until 30000
    """
    from vedette_services.errors import FAILED, UsageError
    from vedette_services.learner.rerun import Rerun

    with Rerun.open(run, epoch=epoch, allow_import=allow_import or ()) as again:
        if span:
            _say_span(again.span, as_json=as_json)
            return
        try:
            segments = again.span.cut(first, until)
        except ValueError as error:
            raise UsageError(f"{run}: {error}") from error
        began = time.monotonic()
        result = again.execute(segments)
        _say_result(result, time.monotonic() - began, as_json=as_json)
    if not result.equal:
        raise typer.Exit(FAILED)


def _say_span(span: Span, *, as_json: bool) -> None:
    if as_json:
        found = {"first": span.begin, "last": span.end, "states": span.starts}
        typer.echo(json.dumps({**found, "why_not_earlier": span.why_not_earlier}))
        return
    say(f"steps {span.begin:,} to {span.end:,} can be executed again")
    say(f"from the states of the steps {', '.join(f'{step:,}' for step in span.starts)}")
    if span.why_not_earlier:
        say(f"none before: {span.why_not_earlier}")


def _say_result(result: Result, seconds: float, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result.to_json()))
        return
    say(f"steps {result.begin:,} to {result.end:,} in {seconds:.1f} s")
    for line in result.lines():
        say(line)

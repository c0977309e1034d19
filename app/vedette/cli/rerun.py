"""``vedette rerun``: executes a run's learning again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.answering import answering, check_writable
from vedette.cli.options import AllowImport, RunArgument
from vedette.cli.output import say, speaking_alone, write

if TYPE_CHECKING:
    from vedette_services.learner.rerun import Rerun
    from vedette_services.run.spans import Segment

_RECORDS = 200
"""Points of a curve, at least, as far as there are steps."""

FAULTS = "Find a fault, or try a change"

First = Annotated[
    int | None,
    typer.Option(
        "--from", min=0, metavar="STEP", help="Begin at the newest state up to it. [the first]"
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
JsonOutput = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@answering()
@speaking_alone()
def rerun(
    run: RunArgument,
    first: First = None,
    until: Until = None,
    epoch: Epoch = None,
    span: Annotated[
        bool, typer.Option("--span", help="Only say which steps can be executed again.")
    ] = False,
    as_json: JsonOutput = False,
    bisect: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Find the first step with nan, or with a scalar beyond a limit: 'loss > 1e3'.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="With --bisect: write the batch of that step.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="KEY=VALUE",
            help="The same data under another setting from --from on, beside what it was.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    curves: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="With --with: write both curves.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Execute a run's learning again, bit by bit. Offline, from its replay, states and journal.

    \b
    vedette rerun runs/cart           all steps that can be executed
    vedette rerun runs/cart --span    which steps these are
    vedette rerun runs/cart --from 20000 --until 30000
    vedette rerun runs/cart --bisect nan --batch batch.npz
    vedette rerun runs/cart --from 20000 --with agent.learning_rate=1e-4
    """
    from vedette.rerunning import Progress, as_text, describe_span, span_json
    from vedette_services.errors import FAILED, UsageError
    from vedette_services.learner.rerun import Rerun

    step = until if until is not None or first is None else first + 1
    for option, needs, given in (
        ("--batch", "--bisect", batch is not None and bisect is None),
        ("--curves", "--with", curves is not None and not changes),
        ("--bisect", "no --with", bool(bisect and changes)),
    ):
        if given:
            raise UsageError(f"{option} goes with {needs}")
    for option, file in (("--batch", batch), ("--curves", curves)):
        if file is not None:
            check_writable(option, file)
    with Rerun.open(
        run, epoch=epoch, step=step, until=until, allow_import=allow_import or ()
    ) as again:
        if span:
            _say(describe_span(again.span), as_text(span_json(again.span)), as_json=as_json)
            return
        try:
            segments = again.span.cut(first, until)
        except ValueError as error:
            raise UsageError(f"{run}: {error}") from error
        if bisect is not None:
            _bisect(again, segments, bisect, batch, as_json=as_json)
            return
        if changes:
            _execute_changed(again, segments, changes, curves, as_json=as_json)
            return
        began = time.monotonic()
        progress = Progress(segments[-1].end, partial(say, err=True))
        result = again.execute(segments, progress)
    seconds = time.monotonic() - began
    done = f"steps {result.begin:,} to {result.end:,} in {seconds:.1f} s"
    lines = [done, *result.lines()]
    if first is None and until is None:
        lines += again.span.not_covered
    _say(lines, as_text(result.to_json()), as_json=as_json)
    if not result.equal:
        raise typer.Exit(FAILED)


def _say(lines: Iterable[str], text: str, *, as_json: bool) -> None:
    """Print lines, or one JSON object."""
    if as_json:
        write(text)
        return
    for line in lines:
        say(line)


def _bisect(
    again: Rerun,
    segments: tuple[Segment, ...],
    what: str,
    batch: Path | None,
    *,
    as_json: bool,
) -> None:
    from vedette.rerunning import as_text, describe_found, found_json
    from vedette_services.errors import FAILED
    from vedette_services.learner.bisect import Condition, StepSearch

    search = StepSearch(Condition.parse(what), again.run_id)
    result = again.execute(segments, search)
    found = search.found
    lines = []
    difference = result.difference
    last = segments[-1].end
    if difference is not None:
        last = difference.step - bool(difference.failed)
    if found is None and last > segments[0].begin:
        lines = [f"no step from {segments[0].begin + 1:,} to {last:,} has {what}"]
    if found is not None:
        lines = [*describe_found(found)]
    different = []
    if difference is not None or result.different_files:
        different = [*result.lines()]
    found_and_different = {**found_json(found), "different": different}
    _say([*lines, *different], as_text(found_and_different), as_json=as_json)
    if found is not None and batch is not None:
        found.write(batch)
        if not as_json:
            say(f"the batch in {batch}")
    if found is None:
        raise typer.Exit(FAILED)


def _execute_changed(
    again: Rerun,
    segments: tuple[Segment, ...],
    changes: list[str],
    curves: Path | None,
    *,
    as_json: bool,
) -> None:
    from vedette.rerunning import as_text, describe_curves, write_curves
    from vedette_services.errors import FAILED
    from vedette_services.learner.counterfactual import Change, Curves

    interval = max(1, (segments[-1].end - segments[0].begin) // _RECORDS)
    then, now = Curves(), Curves()
    result = again.execute(segments, now, Change(changes, interval))
    if result.difference is not None:
        _say(result.lines(), as_text(result.to_json()), as_json=as_json)
        raise typer.Exit(FAILED)
    again.execute(segments, then, Change((), interval), compares_files=False)
    lines = [
        f"steps {segments[0].begin:,} to {segments[-1].end:,} with {', '.join(changes)}",
        *describe_curves(then.scalars, now.scalars),
    ]
    is_equal = as_text({"": then.scalars}) == as_text({"": now.scalars})
    if is_equal:
        lines.append("no recorded scalar differs: the change may have no effect on the learner")
    different = result.different_files
    lines += different
    if different:
        lines.append(result.advice)
    found = {
        "changes": changes,
        "then": then.scalars,
        "changed": now.scalars,
        "scalars_differ": not is_equal,
        "different": list(different),
    }
    _say(lines, as_text(found), as_json=as_json)
    if curves is not None:
        write_curves(curves, then.scalars, now.scalars)
        if not as_json:
            say(f"both curves in {curves}")

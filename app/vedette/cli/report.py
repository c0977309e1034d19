"""``vedette report``: one page, or numbers, on one or several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.comparison import print_comparison
from vedette.cli.output import say
from vedette_services.errors import UsageError


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
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every recorded number as CSV; write no page."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the statistics of the seeds; write no page.")
    ] = False,
) -> None:
    """Write one HTML page about a run. Of several: a comparison, with the seeds taken together.

    \b
    vedette report runs/cart                   one run
    vedette report runs/cart runs/other --out both.html
    vedette report runs/sweep                  every run in a folder
    vedette report runs/sweep --json           an object for each configuration
    vedette report runs/cart --csv cart.csv    every recorded number
    """
    from vedette.reports import export_numbers, report_statistics, write_comparison
    from vedette_rl.number_format import format_bytes

    if as_json and out is not None:
        raise UsageError("--json writes no page: leave out --out")
    if csv is not None and (out is not None or as_json):
        raise UsageError("--csv writes no page and no statistics: leave out --out and --json")
    if csv is not None:
        say(f"{csv}: {export_numbers(runs, csv):,} numbers")
        return
    if as_json:
        typer.echo(json.dumps(report_statistics(runs), indent=2))
        return
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    path, configurations = write_comparison(runs, out)
    if sum(len(each.runs) for each in configurations) > 1:
        print_comparison(configurations)
    say(f"{path} ({format_bytes(path.stat().st_size)}); open it in a browser")

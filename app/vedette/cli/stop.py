"""``vedette stop``: ends a run."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.options import RunArgument
from vedette.cli.output import say


def stop(
    run: RunArgument,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds to wait for its end.")
    ] = 90.0,
) -> None:
    """Stop a run on this host. As Ctrl-C does: with a checkpoint; the same command resumes it.

    \b
    vedette stop runs/cart
    """
    from vedette_services.errors import FAILED
    from vedette_services.run.overview import describe_end, read_overview
    from vedette_services.run.stop import stop_run

    if stop_run(run, timeout):
        say(f"{run}: {describe_end(run, 'learner')}")
        if read_overview(run).state in ("killed", "failed"):  # its end is not saved
            raise typer.Exit(FAILED)
    else:
        say(f"{run}: nothing to stop: {describe_end(run)}")

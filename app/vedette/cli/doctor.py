"""``vedette doctor``: can this host take part in a run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import (
    AllowImport,
    Insecure,
    Keys,
    Learner,
    client_keys,
)

if TYPE_CHECKING:
    pass


def doctor(
    learner: Learner,
    keys: Keys = None,
    insecure: Insecure = False,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Build this environment here. [the run's]",
        ),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Find out whether this host can play for a learner. A line a check, with the fix.

    \b
    vedette doctor --learner gpu.example.org --keys keys
    vedette doctor --learner gpu.example.org:5555 --insecure --allow-import my_pkg
    """
    from vedette.doctor import Examination
    from vedette_services.run.learner_location import find_learner

    examination = Examination(
        find_learner(learner),
        client_keys(keys, insecure),
        env=env,
        allow_import=tuple(allow_import or ()),
    )
    status = 0
    for finding in examination.findings():
        typer.echo(str(finding))
        status = status or finding.status
    raise typer.Exit(status)

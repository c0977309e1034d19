"""``vedette actors``: the actor manager daemon."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from vedette_services.cli.options import Insecure


def actors(
    learner: Annotated[
        str,
        typer.Option(
            envvar="VEDETTE_LEARNER",
            metavar="HOST[:PORT]",
            help="Where the learner takes samples.",
        ),
    ],
    count: Annotated[
        int | None,
        typer.Option(
            envvar="VEDETTE_COUNT",
            min=1,
            max=4096,
            help="Actor processes on this host. [what the run's actors.count says]",
            show_default=False,
        ),
    ] = None,
    manager_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            envvar="VEDETTE_MANAGER_ID",
            help="Name of this manager among all. [the host's name and a number]",
            show_default=False,
        ),
    ] = None,
    allow_import: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PKG",
            help="A package that the learner's environment or agent may import here.",
            show_default=False,
        ),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Play for a learner, here or elsewhere. What to play comes from the learner.

    \b
    vedette actors --learner 127.0.0.1
    vedette actors --learner gpu.example.org:5555 --count 8 --allow-import my_pkg
    """
    from vedette_services.addresses import Address

    address = Address.parse(learner)
    from vedette_services.actors.manager import run_manager

    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    raise typer.Exit(
        run_manager(
            address, count=count, manager_id=manager_id, allow_import=tuple(allow_import or ())
        )
    )

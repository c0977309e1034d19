"""``vedette actors``: the actor manager daemon."""

from __future__ import annotations

import logging
import re
from typing import Annotated

import typer

from vedette_services.cli.options import Insecure, Keys, client_keys
from vedette_services.errors import SettingError


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
            help="Actor processes on this host. [one a core]",
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
    keys: Keys = None,
    insecure: Insecure = False,
) -> None:
    """Play for a learner, here or elsewhere. What to play comes from the learner.

    \b
    vedette actors --learner 127.0.0.1
    vedette actors --learner gpu.example.org:5555 --count 8 --keys keys --allow-import my_pkg
    """
    from vedette_services.addresses import Address

    address = Address.parse(learner)
    if manager_id is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", manager_id):
        raise SettingError("--id", f"{manager_id!r} has other than 1 to 64 of A-Z a-z 0-9 . _ -")
    shown = client_keys(keys, insecure)
    from vedette_services.actors.manager import run_manager
    from vedette_services.processes import cores

    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    raise typer.Exit(
        run_manager(
            address,
            count=count or cores(),
            manager_id=manager_id,
            allow_import=tuple(allow_import or ()),
            keys=shown,
        )
    )

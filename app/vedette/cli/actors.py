"""``vedette actors``: the actor manager daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.options import AllowImport, Format, Insecure, Keys, Learner, chosen_id, client_keys

Count = Annotated[
    int | None,
    typer.Option(
        envvar="VEDETTE_COUNT",
        min=1,
        max=4096,
        help="Actor processes on this host. [one a core]",
        show_default=False,
    ),
]
ManagerId = Annotated[
    str | None,
    typer.Option(
        "--id",
        envvar="VEDETTE_MANAGER_ID",
        help="Name of this manager among all; {host} stands for the host's name. "
        "[the host's name and a number]",
        show_default=False,
    ),
]


def actors(
    learner: Learner,
    count: Count = None,
    manager_id: ManagerId = None,
    allow_import: AllowImport = None,
    keys: Keys = None,
    insecure: Insecure = False,
    log_format: Format = "text",
) -> None:
    """Play for a learner, here or elsewhere. What to play comes from the learner.

    \b
    vedette actors --learner 127.0.0.1
    vedette actors --learner gpu.example.org:5555 --count 8 --keys keys --allow-import my_pkg
    """
    from vedette_services.host.logs import set_up_logging
    from vedette_services.net.addresses import Address

    set_up_logging(log_format)
    if not learner.startswith("@"):
        Address.parse(learner)
    manager_id = chosen_id(manager_id)
    shown = client_keys(keys, insecure)
    from vedette_services.actors.manager import run_manager
    from vedette_services.host.processes import count_cores

    raise typer.Exit(
        run_manager(
            learner,
            count=count or count_cores(),
            manager_id=manager_id,
            allow_import=tuple(allow_import or ()),
            keys=shown,
        )
    )

"""``vedette actors``: the actor manager daemon."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.options import AllowImport, Format, Insecure, Keys, Learner, chosen_id, client_keys

log = logging.getLogger("vedette.actors")

Count = Annotated[
    int | None,
    typer.Option(
        envvar="VEDETTE_COUNT",
        min=1,
        max=4096,
        metavar="N",
        help="Actor processes on this host. [one a core; one less beside a learner on this host]",
    ),
]
ManagerId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="NAME",
        envvar="VEDETTE_MANAGER_ID",
        help="Unique name of this manager; {host} stands for the host's name. "
        "[the host's name and a number]",
        rich_help_panel="As a service",
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        envvar="VEDETTE_WAIT",
        min=0.0,
        metavar="SECONDS",
        help="Exit with status 1 if no learner answers within this time. 0: wait for ever.",
        rich_help_panel="As a service",
    ),
]
HealthFile = Annotated[
    Path | None,
    typer.Option(
        envvar="VEDETTE_HEALTH_FILE",
        metavar="FILE",
        help="Touch this file every 10 s while the learner acknowledges this host. [none]",
        rich_help_panel="As a service",
    ),
]
Evaluate = Annotated[
    bool,
    typer.Option(
        "--evaluate/--no-evaluate",
        envvar="VEDETTE_EVALUATE",
        help="Play evaluations, for runs with evaluation.where=actors.",
        rich_help_panel="As a service",
    ),
]
OutboxFolder = Annotated[
    Path | None,
    typer.Option(
        "--outbox",
        envvar="VEDETTE_OUTBOX",
        file_okay=False,
        metavar="DIR",
        help="Keep samples in this folder until they are safe on the learner's disk: what a killed "
        "manager has left is sent by the next one. [none: in memory]",
        rich_help_panel="Outbox",
    ),
]
OutboxMib = Annotated[
    int,
    typer.Option(
        "--outbox-mib",
        envvar="VEDETTE_OUTBOX_MIB",
        min=1,
        metavar="MIB",
        help="Size of its files at most; then actors wait, or with actors.on_full=drop_oldest the "
        "oldest file is dropped.",
        rich_help_panel="Outbox",
    ),
]
OutboxSyncMs = Annotated[
    int,
    typer.Option(
        "--outbox-sync-ms",
        envvar="VEDETTE_OUTBOX_SYNC_MS",
        min=1,
        metavar="MS",
        help="Time from one sync of its files to the next: a power failure of this host takes the "
        "samples of so long.",
        rich_help_panel="Outbox",
    ),
]


def actors(
    learner: Learner,
    count: Count = None,
    manager_id: ManagerId = None,
    allow_import: AllowImport = None,
    keys: Keys = None,
    insecure: Insecure = False,
    wait: Wait = 0.0,
    health_file: HealthFile = None,
    evaluate: Evaluate = True,
    outbox: OutboxFolder = None,
    outbox_mib: OutboxMib = 4096,
    outbox_sync_ms: OutboxSyncMs = 100,
    log_format: Format = "text",
    give_up: Annotated[bool, typer.Option(hidden=True)] = False,  # of `vedette run`
) -> str:
    """Start actors for a learner, here or elsewhere. The learner tells them what to play.

    \b
    vedette actors --learner 127.0.0.1
    vedette actors --learner gpu.example.org:5555 --count 8 --keys keys
    vedette actors --learner gpu.example.org --allow-import my_pkg
    """
    from vedette_services.host.logs import set_up_logging
    from vedette_services.net.addresses import Address

    set_up_logging(log_format)
    if not learner.startswith("@"):
        Address.parse(learner)
    manager_id = chosen_id(manager_id)
    shown = client_keys(keys, insecure)
    from vedette_services.actors.manager import run_manager
    from vedette_services.actors.outbox.settings import OutboxSettings

    kept = None
    if outbox is not None:
        kept = OutboxSettings(outbox, outbox_mib << 20, outbox_sync_ms / 1000)
    return run_manager(
        learner,
        count=count or _logged_count(learner),
        manager_id=manager_id,
        allow_import=tuple(allow_import or ()),
        keys=shown,
        gives_up=give_up,
        wait_s=wait,
        health_file=health_file,
        evaluates=evaluate,
        outbox=kept,
    )


def default_count(learner: str) -> int:
    """Return how many actors play where none is set: one a core, but for the learner's."""
    from vedette_services.host.system import count_cores

    return max(1, count_cores() - _is_here(learner))


def _logged_count(learner: str) -> int:
    count = default_count(learner)
    log.info("--count %d: one a core%s", count, " but for the learner's" * _is_here(learner))
    return count


def _is_here(learner: str) -> bool:
    """Return whether the learner is on this host, as far as its address says."""
    from vedette_services.net.addresses import Address

    if learner.startswith("@"):
        return False
    address = Address.parse(learner)
    return address.host == "localhost" or address.loopback

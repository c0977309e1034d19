"""``vedette status``: the status of a learner's run."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import Insecure, Keys, Learner, chosen_id, client_keys
from vedette_services.errors import AbsentManagerError, NoAnswerError

if TYPE_CHECKING:
    from vedette_services.net.addresses import Address
    from vedette_services.run.status import Manager, Status
    from vedette_services.run.status_client import StatusClient

WATCH_EVERY_S = 1.0


def status(
    learner: Learner = "127.0.0.1:5555",
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
    manager: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Ask for this manager alone ({host} stands for the host's name): status 1 unless "
            "the learner hears of it.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="S", help="Wait no longer.")] = 5.0,
    keys: Keys = None,
    insecure: Insecure = False,
) -> None:
    """Say how a run is doing. Steps, returns, samples, lag, managers, who waits for what.

    \b
    vedette status
    vedette status --learner gpu.example.org:5555 --watch
    vedette status --json | jq .samples
    watch vedette status                                   cut to the screen, the worst first
    """
    from vedette.live import print_once
    from vedette_services.net.addresses import Address
    from vedette_services.run.status import Status
    from vedette_services.run.status_client import StatusClient
    from vedette_services.run.status_fields import decode

    address, manager = Address.find(learner), chosen_id(manager)
    with StatusClient(address, client_keys(keys, insecure)) as asker:
        if watch and not as_json:
            _watch(asker, address, timeout)
            return
        while True:
            found = asker.ask_json(timeout)
            if found is None:
                fix = f"`vedette doctor --learner {address}` says why"
                raise NoAnswerError(address, timeout, fix)
            status = decode(Status, found) or Status()
            only = None if manager is None else _find_manager(status, manager)
            if not as_json:
                if only is None:
                    print_once(status)
                else:
                    typer.echo(f"{only.id} is {only.state}, heard of {only.last_seen_s} s ago")
                return
            typer.echo(json.dumps(json.loads(found) if only is None else only.as_dict()))
            if not watch:
                return
            time.sleep(WATCH_EVERY_S)


def _find_manager(status: Status, manager: str) -> Manager:
    """Find a manager in the status.

    Raises:
        AbsentManagerError: the learner does not know it, or counts it as gone.
    """
    for found in status.managers:
        if found.id == manager and found.is_present:
            return found
    raise AbsentManagerError(manager)


def _watch(asker: StatusClient, address: Address, timeout_s: float) -> None:
    """Show the status until Ctrl-C. A learner that does not answer may be starting."""
    from vedette.live import view_for

    typer.echo(f"asking the learner at {address}", err=True)
    with view_for(whole=True) as view:
        try:
            while True:
                view.show(asker.ask(timeout_s))
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return

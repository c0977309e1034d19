"""``vedette status``: how a learner's run is doing."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette_services.cli.options import Insecure, Keys, client_keys
from vedette_services.errors import AbsentManagerError, NoAnswerError

if TYPE_CHECKING:
    from vedette_services.status import StatusAsker

WATCH_EVERY_S = 1.0


def status(
    learner: Annotated[
        str,
        typer.Option(
            envvar="VEDETTE_LEARNER",
            metavar="HOST[:PORT]",
            help="Where the learner takes samples; @FILE: as that file says.",
        ),
    ] = "127.0.0.1:5555",
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
    """
    from vedette_services.addresses import Address
    from vedette_services.cli.options import chosen_id
    from vedette_services.live import facts
    from vedette_services.status import StatusAsker

    address, manager = Address.find(learner), chosen_id(manager)
    with StatusAsker(address, client_keys(keys, insecure)) as asker:
        if watch and not as_json:
            _watch(asker, address, timeout)
            return
        while True:
            found = asker.ask(timeout)
            if found is None:
                raise NoAnswerError(address, timeout)
            if manager is not None:
                found = _present(found, manager)
            if as_json:
                typer.echo(json.dumps(found))
            elif manager is not None:
                typer.echo(f"{manager} is {found['state']}, heard of {found['last_seen_s']} s ago")
            else:
                typer.echo(facts.headline(found))
                for label, said in facts.rows(found):
                    typer.echo(f"  {label:<8} {said}")
            if not watch:
                return
            time.sleep(WATCH_EVERY_S)


def _present(status: dict[str, Any], manager: str) -> dict[str, Any]:
    """What the learner knows of one manager.

    Raises:
        AbsentManagerError: it does not, or counts it as gone.
    """
    for found in status["managers"]:
        if found["id"] == manager and found["state"] != "gone":
            return dict(found)
    raise AbsentManagerError(manager)


def _watch(asker: StatusAsker, address: object, timeout_s: float) -> None:
    from vedette_services.live import view_for

    typer.echo(f"asking the learner at {address}", err=True)
    first = asker.ask(timeout_s) or {}
    stop = first.get("stop")
    title = f"{first.get('agent', 'a run')} on {first.get('env', 'an environment')}"
    with view_for(title, stop if isinstance(stop, dict) else {}) as view:
        try:
            while True:
                view.show(asker.ask())
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return

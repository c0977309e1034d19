"""``vedette status``: the status of a learner's run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import Insecure, Keys, Learner, chosen_id, client_keys
from vedette.cli.output import say
from vedette_services.errors import HungError, NoAnswerError, ServicesError

if TYPE_CHECKING:
    from vedette_services.net.keys import ClientKeys
    from vedette_services.run.overview import RunStatus
    from vedette_services.status.client import StatusClient
    from vedette_services.status.status import ManagerStatus, Status

WATCH_EVERY_S = 1.0


def status(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run's directory: its learner is found there, or its last status.",
        ),
    ] = None,
    learner: Learner = "127.0.0.1:5555",
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
    manager: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Ask for this manager alone ({host} stands for the host's name): status 1 unless "
            "the learner hears of it.",
        ),
    ] = None,
    alive: Annotated[
        bool,
        typer.Option(
            "--alive",
            help="Status 1 only if nothing but a new start helps: no answer, or the supervisor, "
            "which starts the other processes again, is hung.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds to wait at most.")
    ] = 5.0,
    keys: Keys = None,
    insecure: Insecure = False,
) -> None:
    """Show how a run is doing. Steps, returns, samples, lag, managers, who waits for what.

    Status 1 if no learner answers, or if one of its processes is hung.

    \b
    vedette status
    vedette status runs/cart
    vedette status --learner gpu.example.org:5555 --watch
    vedette status --json | jq .samples
    watch vedette status                                   cut to the screen, the worst first
    """
    manager = chosen_id(manager)
    shown = client_keys(keys, insecure)
    with _asker(run, learner, shown) as asker:
        if watch and not as_json:
            _watch(asker, timeout, run)
            return
        while True:
            answer = asker.ask_json(timeout)
            if answer is None:
                _refuse_silence(asker, timeout)
                return
            answered = _print_status(answer, manager, run, as_json=as_json)
            if said := "" if as_json else asker.end or asker.place:
                say(said)
            if not watch:
                hung = answered.heartbeat.processes
                if alive and "supervisor" not in hung:
                    return
                if answered.heartbeat.hung and manager is None and not asker.end:
                    raise HungError(answered.heartbeat.reason)
                return
            time.sleep(WATCH_EVERY_S)


def _print_status(answer: bytes, manager: str | None, run: Path | None, *, as_json: bool) -> Status:
    """Print a status, or what it says about one manager; returns it.

    Raises:
        ServicesError: the learner does not know it, or counts it as gone.
    """
    from vedette.live import print_once
    from vedette_services.status.schema import decode
    from vedette_services.status.status import Status

    status = decode(Status, answer) or Status()
    only = None if manager is None else _find_manager(status, manager)
    if as_json:
        typer.echo(json.dumps(json.loads(answer) if only is None else only.as_dict()))
    elif only is None:
        print_once(status, run=run)
    else:
        say(f"{only.id} is {only.state}, heard of {only.last_seen_s} s ago")
    return status


def _asker(run: Path | None, learner: str, keys: ClientKeys | None) -> StatusClient | RunStatus:
    """Make what asks for the status: the run's own learner, or the one at an address."""
    if run is not None:
        from vedette_services.run.overview import RunStatus

        return RunStatus(run, keys)
    from vedette_services.run.learner_location import find_learner
    from vedette_services.status.client import StatusClient

    return StatusClient(find_learner(learner), keys)


def _refuse_silence(asker: StatusClient | RunStatus, timeout_s: float) -> None:
    """Say that a run has ended without a status.

    Raises:
        NoAnswerError: its learner, or the one at an address, does not answer.
    """
    if not asker.end:
        fix = f"`vedette doctor --learner {asker.address}` says why" if asker.address else ""
        raise NoAnswerError(asker.address or "its address", timeout_s, asker.silence_reason or fix)
    say(asker.end)


def _find_manager(status: Status, manager: str) -> ManagerStatus:
    """Find a manager in the status.

    Raises:
        ServicesError: the learner does not know it, or counts it as gone.
    """
    for candidate in status.managers:
        if candidate.id == manager and candidate.is_present:
            return candidate
    raise ServicesError(f"the learner has no reports of manager {manager!r}")


def _watch(asker: StatusClient | RunStatus, timeout_s: float, run: Path | None = None) -> None:
    """Show the status until Ctrl-C. A learner that does not answer may be starting, and a run that
    has ended may be resumed."""
    from vedette.live import view_for

    if asker.address:
        say(f"asking the learner at {asker.address}", err=True)
    ended = ""
    with view_for(whole=True, run=run) as view:
        try:
            while True:
                answer = asker.ask(timeout_s)
                if answer is not None or not asker.end:
                    view.show(answer)
                if asker.end != ended:
                    ended = asker.end
                    view.print_line(ended or "a learner runs again")
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return

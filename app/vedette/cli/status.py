"""``vedette status``: the status of a learner's run."""

from __future__ import annotations

import json
import shlex
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
            help="A run's directory: shows its learner, or its last status.",
        ),
    ] = None,
    learner: Learner = "127.0.0.1:5555",
    watch: Annotated[bool, typer.Option("--watch", help="Update it until Ctrl-C.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="JSON, one object per line.",
            rich_help_panel="For scripts",
        ),
    ] = False,
    manager: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Show this manager alone ({host} stands for the host's name); status 1 if the "
            "learner does not hear of it.",
            rich_help_panel="For scripts",
        ),
    ] = None,
    alive: Annotated[
        bool,
        typer.Option(
            "--alive",
            help="Status 1 only if the learner must be started again: it does not answer, or its "
            "supervisor, which restarts the other processes, is hung.",
            rich_help_panel="For scripts",
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="S",
            help="Seconds to wait at most.",
            rich_help_panel="For scripts",
        ),
    ] = 5.0,
    keys: Keys = None,
    insecure: Insecure = False,
) -> None:
    """Show how a run is doing. Steps, returns, samples, lag, managers, what it waits for.

    Status 1 if no learner answers, or if one of its processes is hung.

    \b
    vedette status
    vedette status runs/cart
    vedette status --learner gpu.example.org:5555 --watch
    vedette status --json | jq .samples
    watch vedette status               cut to the screen, the worst first
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
        say(f"{only.id} is {only.state}; its last report came {only.last_seen_s} s ago")
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

    Where nobody answers at an address, the runs of this folder are named: `vedette run` listens at
    ports that are free.

    Raises:
        NoAnswerError: its learner, or the one at an address, does not answer.
    """
    from vedette_services.status.client import StatusClient

    if not asker.end:
        fix = f"`vedette doctor --learner {asker.address}` says why" if asker.address else ""
        if isinstance(asker, StatusClient) and (running := _running_here()):
            fix = f"running below this folder: {running}"
        raise NoAnswerError(asker.address or "its address", timeout_s, asker.silence_reason or fix)
    say(asker.end)


_RUNS_SHOWN = 5


def _running_here() -> str:
    """Return the commands that show the runs of this folder whose learners run; "" for none."""
    from vedette_services.run.overview import find_running

    running = find_running(Path())
    shown = [f"`vedette status {shlex.quote(str(path))}`" for path in running[:_RUNS_SHOWN]]
    more = f" and {len(running) - _RUNS_SHOWN} more" if len(running) > _RUNS_SHOWN else ""
    return f"{', '.join(shown)}{more}"


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

"""``vedette dashboard``: growing runs, or a remote learner, in a browser."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import Insecure, Keys, client_keys
from vedette.cli.output import say
from vedette_services.errors import SettingError, UsageError

if TYPE_CHECKING:
    from vedette.dashboard import Dashboard
    from vedette.dashboard.sources import Source
    from vedette_services.net.addresses import Address
    from vedette_services.net.http_server import BoundedHttpServer

_REQUEST_S = 60.0
"""For a page over a slow line."""
_LEARNER = "VEDETTE_LEARNER"


def dashboard(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR|RUN]",
            help="A folder of runs, up to three levels deep, or a run. [runs]",
        ),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            envvar=_LEARNER,
            metavar="HOST[:PORT]",
            help="Show the run of this learner.",
        ),
    ] = None,
    bind: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen at; beyond this machine the URL needs its token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port to listen at; 0: any that is free."
        ),
    ] = 8600,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, if there is a desktop.")
    ] = True,
    keys: Keys = None,
    insecure: Insecure = False,
) -> None:
    """Show runs in a browser, live. Curves, fleet, what waits, checkpoints.

    \b
    vedette dashboard                  the runs below runs/
    vedette dashboard runs/cart --port 8700
    vedette dashboard --learner gpu.example.org --keys keys
    ssh -L 8600:localhost:8600 HOST    shows it at http://localhost:8600 here
    """
    from vedette.dashboard import Dashboard

    address = _address(bind)
    if directory is not None and learner not in (None, os.environ.get(_LEARNER)):
        raise UsageError("a directory and --learner are two dashboards: give one of them")
    source = _source(directory, learner, keys, insecure)
    with_keys = directory is None and learner is not None and keys is not None
    token = "" if address.loopback and not with_keys else secrets.token_urlsafe(24)
    server = _listen(address, port, Dashboard(source, token))
    host = socket.gethostname() if address.host in ("0.0.0.0", "::") else address.host
    url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
    say(f"{source.place}: {url}{f'?token={token}' if token else ''} (Ctrl-C ends it)")
    if browser and not token and _has_desktop():  # others see the command lines of a machine
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    server.serve_forever()


def _address(bind: str) -> Address:
    """Resolve the address to listen at.

    Raises:
        SettingError: it has a port, or is none.
    """
    from vedette_services.net.addresses import Address

    if bind.count(":") == 1:
        raise SettingError(f"--bind {bind}", "this is an address alone", "give --port N beside it")
    return Address(bind.strip("[]")).to_bind(insecure=True)


def _listen(address: Address, port: int, app: Dashboard) -> BoundedHttpServer:
    """Begin to listen.

    Raises:
        SettingError: the port is taken, or the address is not this machine's.
    """
    from vedette_services.net.http_server import BoundedHttpServer

    try:
        return BoundedHttpServer(address.host, port, app, request_s=_REQUEST_S)
    except OSError as error:
        why, fix = error.strerror or str(error), "choose another --port; 0 is any that is free"
        raise SettingError(f"--bind {address.host} --port {port}", why, fix) from error


def _has_desktop() -> bool:
    """Return True if somebody sits before this machine's screen."""
    screen = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    return bool(screen) and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ


def _source(
    directory: Path | None, learner: str | None, keys: Path | None, insecure: bool
) -> Source:
    """Make what the dashboard shows.

    Raises:
        NotARunError: there is no such directory.
        AddressError: the learner's name does not resolve.
        RefusedError: the learner does not let us in.
    """
    from vedette.dashboard import DirectorySource, LearnerSource

    if directory is not None or learner is None:
        return DirectorySource(directory or Path("runs"))
    from vedette_services.run.learner_location import find_learner
    from vedette_services.status.client import StatusClient

    return LearnerSource(StatusClient(find_learner(learner), client_keys(keys, insecure)))

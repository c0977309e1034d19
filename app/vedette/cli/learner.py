"""``vedette learner``: the learner daemon."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import (
    Agent,
    Arguments,
    Complete,
    Env,
    Force,
    Format,
    Fresh,
    InitFrom,
    Insecure,
    Keys,
    MetricsPort,
    NewReplay,
    Out,
    Settings,
    chosen_keys,
    load_for_start,
)

if TYPE_CHECKING:
    from pathlib import Path

    from vedette_services.net.addresses import Address
    from vedette_services.prometheus import MetricsAddress

_log = logging.getLogger("vedette.learner")

Bind = Annotated[
    str,
    typer.Option(
        envvar="VEDETTE_BIND",
        metavar="HOST:PORT",
        help="Where samples arrive; control and models are the two ports above.",
    ),
]
Linger = Annotated[
    float,
    typer.Option(
        envvar="VEDETTE_LINGER",
        min=0.0,
        metavar="SECONDS",
        help="After the end of the run, tell managers that come late for so long; inf: until "
        "stopped.",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_ADVERTISE",
        metavar="HOST",
        help="Name by which other hosts reach this one, for `--learner @RUN`. [its full name]",
    ),
]


def learner(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    out: Out = None,
    settings: Settings = None,
    init_from: InitFrom = None,
    bind: Bind = "127.0.0.1:5555",
    keys: Keys = None,
    insecure: Insecure = False,
    fresh: Fresh = False,
    force: Force = False,
    new_replay: NewReplay = False,
    complete: Complete = False,
    log_format: Format = "text",
    metrics_port: MetricsPort = None,
    linger: Linger = 30.0,
    advertise: Advertise = None,
    note: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Learn from whatever actors come. It holds replay, agent, evaluations and checkpoints.

    \b
    vedette learner --env CartPole-v1 --out runs/cart
    vedette learner --env LunarLander-v3 --bind 0.0.0.0:5555 --keys keys
    """
    from vedette.live import LineView
    from vedette_services.host.logs import set_up_logging
    from vedette_services.learner.supervisor import run_learner
    from vedette_services.run.checks import check_config, check_trust
    from vedette_services.run.directory import default_out

    set_up_logging(log_format)
    folder = chosen_keys(keys, insecure)
    address = _address(bind, folder, insecure=insecure)
    resumed = None if complete else out
    found = load_for_start(
        arguments, env, agent, settings, init_from, resumed, fresh=fresh, fit="elsewhere"
    )
    config = found.config
    directory = out or default_out(found.config)
    lines = check_config(config, directory, fresh=fresh, force=force, new_replay=new_replay)
    lines += check_trust(config, address, folder)
    what = f"{config.agent.name} on {config.env.id}, {directory}"
    typer.echo("\n".join([*found.decided, f"{what}; it will listen at {address}", *lines]))
    ended = run_learner(
        config,
        directory,
        address,
        keys=folder,
        fresh=fresh,
        new_replay=new_replay,
        note=note or found.comment,
        on_status=LineView(log=partial(_log.info, "%s")).show,
        metrics=_metrics_address(metrics_port),
        linger_s=linger,
        advertise=advertise or None,
    )
    raise typer.Exit(ended)


def _address(bind: str, keys: Path | None, *, insecure: bool) -> Address:
    """Return where to listen; reads the keys, so that wrong ones are told before the start."""
    from vedette_services.net.addresses import Address, port_warning
    from vedette_services.net.keys import LearnerKeys

    if keys is not None:
        LearnerKeys.read(keys)
    address = Address.parse(bind).to_bind(keys=keys is not None, insecure=insecure)
    if warning := port_warning(address):
        _log.warning("%s", warning)
    return address


def _metrics_address(text: str | None) -> MetricsAddress | None:
    if text is None:
        return None
    from vedette_services.prometheus import MetricsAddress  # raises without prometheus_client

    return MetricsAddress.parse(text)

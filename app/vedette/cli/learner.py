"""``vedette learner``: the learner daemon."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import (
    Agent,
    Arguments,
    Env,
    Force,
    Format,
    Fresh,
    Insecure,
    Keys,
    MetricsPort,
    Out,
    Settings,
    chosen_keys,
    load_from_arguments,
)

if TYPE_CHECKING:
    from vedette_services.prometheus import MetricsAddress

Bind = Annotated[
    str,
    typer.Option(
        envvar="VEDETTE_BIND",
        metavar="HOST:PORT",
        help="Where samples arrive; control and models are the two ports above.",
    ),
]


def learner(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    out: Out = None,
    settings: Settings = None,
    bind: Bind = "127.0.0.1:5555",
    keys: Keys = None,
    insecure: Insecure = False,
    fresh: Fresh = False,
    force: Force = False,
    log_format: Format = "text",
    metrics_port: MetricsPort = None,
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
    from vedette_services.net.addresses import Address, port_warning
    from vedette_services.net.keys import LearnerKeys
    from vedette_services.run.checks import check_config
    from vedette_services.run.directory import default_out

    set_up_logging(log_format)
    folder = chosen_keys(keys, insecure)
    if folder is not None:
        LearnerKeys.read(folder)
    address = Address.parse(bind).to_bind(keys=folder is not None, insecure=insecure)
    metrics = _metrics_address(metrics_port) if metrics_port is not None else None
    found = load_from_arguments(arguments, env, agent, settings)
    directory = out or default_out(found.config)
    lines = check_config(found.config, directory, fresh=fresh, force=force)
    if warning := port_warning(address):
        logging.getLogger("vedette.learner").warning("%s", warning)
    for line in found.decided:
        typer.echo(line)
    what = f"{found.config.agent.name} on {found.config.env.id}"
    for line in [f"{what}, {directory}; it will listen at {address}", *lines]:
        typer.echo(line)
    ended = run_learner(
        found.config,
        directory,
        address,
        keys=folder,
        fresh=fresh,
        note=note or found.note,
        on_status=LineView().show,
        metrics=metrics,
    )
    raise typer.Exit(ended)


def _metrics_address(text: str) -> MetricsAddress:
    from vedette_services.prometheus import MetricsAddress  # raises without prometheus_client

    return MetricsAddress.parse(text)

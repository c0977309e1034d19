"""Checks what a learner's start refuses behind its plan, for one that may not fail halfway: it
takes a snapshot over from another learner."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_rl.import_by_name import is_import_name
from vedette_services.net.addresses import Address, check_ports
from vedette_services.run.directory import RunDirectory
from vedette_services.run.resume import check_weights
from vedette_services.run.sources import place_sources, stage_sources
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.trust import check_trust

if TYPE_CHECKING:  # an extra
    from vedette_services.prometheus import MetricsAddress


def check_start(
    plan: StartPlan, address: Address, keys: Path | None, metrics: MetricsAddress | None
) -> None:
    """Check that ports can be bound, keys suffice and weights fit; and read the data sets of the
    run, which are then in its directory.

    Args: as `run_learner` takes them.

    Raises:
        PortInUseError: a port is taken, or is none of this host.
        ServicesError: the port for metrics is.
        SettingError: evaluations that nobody could play, or a data set that is torn or does not
            fit.
        ConfigError: the weights of the checkpoint do not fit code of the user's own.
    """
    config = plan.config
    check_trust(config, address, keys)
    with ExitStack() as bound:
        if metrics is not None:
            from vedette_services.prometheus import bind_metrics

            bound.callback(bind_metrics(metrics).server_close)
        check_ports(address)  # while that has its own: none may be the same
    run = RunDirectory(plan.out)
    names = (config.agent.name, getattr(config.agent, "network", ""))
    if plan.resume.opt_steps is not None and any(map(_is_of_user, names)):
        check_weights(config, run, plan.spaces)
    staged = stage_sources(config, run, plan.spaces, plan.sources)
    place_sources(config, run, staged)


def _is_of_user(name: object) -> bool:
    """Return True if a name is that of code which may be another one on another host."""
    return isinstance(name, str) and is_import_name(name)

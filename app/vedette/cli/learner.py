"""``vedette learner``: the learner daemon."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.grouped_help import NETWORK, RESUME
from vedette.cli.options import (
    Agent,
    AllowImport,
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
from vedette.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette_services.config.loading import LoadedConfig
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.net.addresses import Address
    from vedette_services.prometheus import MetricsAddress
    from vedette_services.run.start import Start
    from vedette_services.run.start_plan import StartPlan

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
        help="How long to keep telling late actor hosts that the run is over; inf: until stopped.",
        rich_help_panel=NETWORK,
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_ADVERTISE",
        metavar="HOST",
        help="Name by which other hosts reach this one, for `--learner @RUN`. [its full name]",
        rich_help_panel=NETWORK,
    ),
]
FromSnapshot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Go on, in a new --out, with the run whose learner.snapshot this is.",
        rich_help_panel=RESUME,
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
    allow_import: AllowImport = None,
    from_snapshot: FromSnapshot = None,
    planned: Annotated[
        Path | None, typer.Option("--plan", hidden=True, help="The start that `run` has planned.")
    ] = None,
) -> None:
    """Start a learner; actors may connect at any time. It holds replay, agent and checkpoints.

    \b
    vedette learner --env CartPole-v1 --out runs/cart
    vedette learner --env LunarLander-v3 --bind 0.0.0.0:5555 --keys keys
    """
    from vedette_services.host.logs import set_up_logging
    from vedette_services.host.probe_process import ProbeProcess
    from vedette_services.run.start import Start

    set_up_logging(log_format)
    folder = chosen_keys(keys, insecure)
    address = _address(bind, folder, insecure=insecure, of_first=from_snapshot is not None)
    metrics = _metrics_address(metrics_port)
    if from_snapshot is not None:
        place = _place_on_this_host(
            from_snapshot, [*(settings or []), *(arguments or [])], new=fresh or new_replay
        )
        settings = [*(settings or []), *place]
    if planned is None:
        allowed = allow_import or ()
        start = Start.of(fresh=fresh, force=force, new_replay=new_replay, allow_import=allowed)
        process = ProbeProcess(partial(_log.info, "%s"))  # first: it loads beside this process
        from vedette_services.config.probing import EnvironmentProbe

        with EnvironmentProbe(process=process) as probe:
            given = arguments, env, agent, settings, init_from
            load = partial(load_for_start, *given, start=start, fit="elsewhere", probe=probe)

            def plan_in(directory: Path | None) -> tuple[StartPlan, list[str]]:
                loaded = load(None if complete else directory)
                return _plan(loaded, directory, start, probe), loaded.decided

            if from_snapshot is not None:
                _restore(from_snapshot, out, lambda run: plan_in(run)[0], address, folder, metrics)
            plan, decided = plan_in(out)
    else:
        from vedette_services.run.start_plan import StartPlan

        decided = []
        plan = StartPlan.from_json(planned.read_text("utf-8"))
    from vedette.live import LineView
    from vedette_services.learner.supervisor import run_learner
    from vedette_services.run.outcome import describe_already_done
    from vedette_services.run.trust import check_trust

    lines = [*plan.lines, *check_trust(plan.config, address, folder)]
    done = describe_already_done(plan.out, plan.config.stop, new_best=plan.new_best)
    if done and not plan.start.fresh:
        # It starts all the same: managers that wait for it are told that the run is over.
        lines.append(done)
    what = f"{plan.config.agent.name} on {plan.config.env.id}, {plan.out}"
    for line in (*decided, f"{what}; it will listen at {address}", *lines):
        say(line)
    ended = run_learner(
        plan,
        address,
        keys=folder,
        on_status=LineView(log=partial(_log.info, "%s")).show,
        metrics=metrics,
        linger_s=linger,
        advertise=advertise or None,
    )
    raise typer.Exit(ended)


def _place_on_this_host(snapshot: Path, given: list[str], *, new: bool) -> list[str]:
    """Return the settings of a run that goes on from a snapshot: its folders may have other names
    on this host.

    Args:
        given: settings of the command line, which may not say otherwise.
    """
    from vedette_services.errors import UsageError
    from vedette_services.run.snapshot_directory import named_generation

    if new:
        raise UsageError("--from-snapshot: a run goes on: leave --fresh and --new-replay out")
    folder = str(named_generation(snapshot.absolute())[0])
    named = str(named_generation(snapshot)[0])
    place = {"learner.snapshot": (folder, named), "replay.directory": ("none",)}
    for text in given:
        key, _, value = text.partition("=")
        if key in place and value.strip("\"'") not in place[key]:
            raise UsageError(
                f"--from-snapshot: leave {key} out: the run goes on with this snapshot, and its "
                "replay is in --out; a later start may change that"
            )
    return [f"learner.snapshot={json.dumps(folder)}", "replay.directory=none"]


def _restore(
    snapshot: Path,
    out: Path | None,
    plan: Callable[[Path], StartPlan],
    address: Address,
    keys: Path | None,
    metrics: MetricsAddress | None,
) -> None:
    """Make the run directory from a snapshot, once its start would not be refused.

    Args:
        plan: plans the start of the run in a directory.
    """
    from vedette_services.errors import UsageError
    from vedette_services.learner.start_checks import check_start
    from vedette_services.run.from_snapshot import remove_leftovers, restore_run

    if out is None:
        raise UsageError("--from-snapshot: add --out DIR, where the run is to go on")

    def check(run: Path) -> None:
        check_start(plan(run), address, keys, metrics)

    for line in remove_leftovers(out):
        say(line)
    for line in restore_run(snapshot, out, check):
        say(line)


def _plan(
    loaded: LoadedConfig, out: Path | None, start: Start, probe: EnvironmentProbe
) -> StartPlan:
    """Plan the start of a run, whose directory is a new one where none is named."""
    from vedette_services.run.directory import out_or_new
    from vedette_services.run.start_planning import plan_start  # not where it was planned

    with out_or_new(out, loaded.config) as directory:
        return plan_start(loaded.config, directory, start, note=loaded.comment, probe=probe)


def _address(bind: str, keys: Path | None, *, insecure: bool, of_first: bool) -> Address:
    """Return where to listen; reads the keys, so that wrong ones are told before the start.

    Args:
        of_first: they are to be the first learner's, from whose snapshot this one goes on.
    """
    from vedette_services.net.addresses import Address, port_warning
    from vedette_services.net.keys import LearnerKeys

    if keys is not None:
        LearnerKeys.read(keys, of_first=of_first)
    has_keys = keys is not None
    address = Address.parse(bind).to_bind(keys=has_keys, insecure=insecure, of_first=of_first)
    if warning := port_warning(address):
        _log.warning("%s", warning)
    return address


def _metrics_address(text: str | None) -> MetricsAddress | None:
    if text is None:
        return None
    from vedette_services.prometheus import MetricsAddress  # raises without prometheus_client

    return MetricsAddress.parse(text)

"""``vedette doctor`` and ``conform``: can this host take part, and does a client keep the rules?"""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer

from vedette.cli.options import (
    Agent,
    AllowImport,
    Env,
    Insecure,
    Keys,
    Learner,
    Settings,
    client_keys,
    load_from_arguments,
)

_SMALL = ["actors.n_buffer=8", "actors.envs_per_actor=1"]


def doctor(
    learner: Learner,
    keys: Keys = None,
    insecure: Insecure = False,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Build this environment here. [the run's]",
            show_default=False,
        ),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Find out whether this host can play for a learner. A line a check, with the fix.

    \b
    vedette doctor --learner gpu.example.org --keys keys
    vedette doctor --learner gpu.example.org:5555 --insecure --allow-import my_pkg
    """
    from vedette.doctor import Examination
    from vedette_services.run.learner_location import find_learner

    examination = Examination(
        find_learner(learner),
        client_keys(keys, insecure),
        env=env,
        allow_import=tuple(allow_import or ()),
    )
    status = 0
    for finding in examination.findings():
        typer.echo(str(finding))
        status = status or finding.status
    raise typer.Exit(status)


def conform(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="Starts the client. {learner}, {host} and {port} stand for the learner's address.",
            show_default=False,
        ),
    ],
    env: Env = None,
    agent: Agent = None,
    settings: Settings = None,
    scene: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this one: deliveries, kills, over or refusal. [all]",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        float,
        typer.Option(min=1.0, metavar="SECONDS", help="The client may take so long to join."),
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play a scripted learner against a client, and say which of the wire's rules it keeps.

    The client also finds the address in VEDETTE_LEARNER, VEDETTE_HOST and VEDETTE_PORT. It is
    started once for each scene, and killed at its end. A line a rule: kept, broken or not seen,
    what was expected, and what came. Exit status 0: none is broken; 1: one is.

    \b
    vedette conform vedette actors --learner {learner} --count 1
    vedette conform --env Pendulum-v1 python robot.py {learner}
    vedette conform clients/c/cartpole {host} {port} c-1
    """
    from vedette.conformance import SCENES, Script
    from vedette_services.errors import UsageError

    for name in scene or ():
        if name not in SCENES:
            raise UsageError(f"--scene {name}: there are {', '.join(SCENES)}")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: there is no such program; name the client's by its path")
    given = [*_SMALL, *(settings or [])]
    config = load_from_arguments(None, env or "CartPole-v1", agent, given).config
    findings = Script(config, command, start).play(scene or ())
    if as_json:
        found = {rule: {"verdict": v, "came": c} for rule, (v, c) in findings.verdicts.items()}
        typer.echo(json.dumps(found, indent=2))
    else:
        for line in findings.lines():
            typer.echo(line)
    raise typer.Exit(1 if findings.broken else 0)

"""``vedette doctor``: can this host take part in a run, and how fast is its environment here?"""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.actors import default_count
from vedette.cli.options import AllowImport, Insecure, Keys, client_keys
from vedette_services.errors import UsageError


def doctor(
    learner: Annotated[
        str | None,
        typer.Option(
            envvar="VEDETTE_LEARNER",
            metavar="HOST[:PORT]",
            help="Where the learner takes samples; @FILE: as that file says; @RUN: that run's. "
            "[none: --env is built and measured]",
        ),
    ] = None,
    keys: Keys = None,
    insecure: Insecure = False,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Build this environment here. [the run's]",
        ),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Find out whether this host can play for a learner. A line a check, with the fix.

    The last one is the speed: steps per second of the environment on this host.

    \b
    vedette doctor --learner gpu.example.org --keys keys
    vedette doctor --learner gpu.example.org:5555 --insecure --allow-import my_pkg
    vedette doctor --env CartPole-v1                     without a learner
    """
    from vedette.doctor import Examination, examine_environment
    from vedette_services.host.system import count_cores
    from vedette_services.run.learner_location import find_learner

    allowed = tuple(allow_import or ())
    if learner is not None:
        examination = Examination(
            find_learner(learner),
            client_keys(keys, insecure),
            env=env,
            allow_import=allowed,
            count=default_count(learner),
        )
        findings = examination.findings()
    elif env is not None:
        findings = examine_environment(None, env, allowed, count_cores())
    else:
        raise UsageError("--learner HOST[:PORT] says which learner, --env ID an environment alone")
    status = 0
    for finding in findings:
        typer.echo(str(finding))
        status = status or finding.status
    raise typer.Exit(status)

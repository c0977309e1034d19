"""``vedette doctor``: can this host take part in a run, and how fast is its environment here?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.actors import default_count
from vedette.cli.options import AllowImport, Insecure, Keys, client_keys
from vedette.cli.output import speaking_alone, write
from vedette_services.errors import UsageError

if TYPE_CHECKING:
    from vedette.doctor import Finding


@speaking_alone()
def doctor(
    learner: Annotated[
        str | None,
        typer.Option(
            envvar="VEDETTE_LEARNER",
            metavar="HOST[:PORT]",
            help="The learner's address; @FILE: read it from a file; @RUN: that run's learner. "
            "[none: --env is made and measured]",
        ),
    ] = None,
    keys: Keys = None,
    insecure: Insecure = False,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Make this environment here. [the run's]",
        ),
    ] = None,
    allow_import: AllowImport = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Test this folder for runs: that it can be written, and that its locks are "
            "shared. On a second host, name a run that is running on the first.",
        ),
    ] = None,
) -> None:
    """Check whether this host can run actors for a learner. One line per check, with the fix.

    The last one is the speed: steps per second of the environment on this host.

    \b
    vedette doctor --learner gpu.example.org --keys keys
    vedette doctor --learner gpu.example.org:5555 --insecure --allow-import my_pkg
    vedette doctor --env CartPole-v1                     without a learner
    vedette doctor --out /shared/runs/one                the disk of a learner
    """
    from vedette.doctor import Examination, examine_directory, examine_environment
    from vedette_services.host.system import count_cores
    from vedette_services.run.learner_location import find_learner

    allowed = tuple(allow_import or ())
    findings: Iterator[Finding] = iter(())
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
    elif out is None:
        raise UsageError(
            "--learner HOST[:PORT] says which learner, --env ID an environment alone, --out DIR a "
            "folder for runs"
        )
    status = 0
    of_directory = examine_directory(out) if out is not None else ()
    for finding in itertools.chain(of_directory, findings):
        write(str(finding))
        status = status or finding.status
    raise typer.Exit(status)

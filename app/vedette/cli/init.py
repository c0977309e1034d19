"""``vedette init``: a project with a custom environment, network, configuration and test."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.output import say
from vedette_services.errors import UsageError

FILES = {
    "my_env.py": "an environment of your own",
    "my_network.py": "a network of your own",
    "mine.toml": "the configuration of a run",
    "test_mine.py": "tests of the rules that learning depends on",
    "README.md": "the commands",
}
"""The files in `vedette/starter`, described."""


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the project; it need not exist.")
    ] = Path(),
) -> None:
    """Write a small project of your own. An environment, a network, a configuration, a test.

    \b
    vedette init corridor
    cd corridor
    vedette run mine.toml
    pytest
    """
    if there := [name for name in FILES if (directory / name).exists()]:
        raise UsageError(f"{directory}: it has {', '.join(there)} already; name another folder")
    starter = resources.files("vedette") / "starter"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write((starter / name).read_text("utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{directory}: cannot be written: {why}; name another folder") from error
    for name, what in FILES.items():
        say(f"{directory / name!s:<30} {what}")
    go_there = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
    say(f"next: {go_there}vedette run mine.toml")

"""``vedette keys``: the keys of the learner and of the hosts that it lets in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make and list CURVE keys. A learner that has them lets in only whom it knows.",
)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The learner's folder of keys.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of an actor host.", show_default=False)]


@app.command()
def new(
    directory: Directory,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Hosts that are to run actors: a pair for each.",
            show_default=False,
        ),
    ] = None,
    actors: Annotated[
        list[str] | None,
        typer.Option("--actors", metavar="NAME", help="The same, one at a time."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keys that are there stay; make only what is missing.")
    ] = False,
) -> None:
    """Make the learner's pair, and one for each host that is to run actors.

    \b
    vedette keys new keys gpu-2 lab-7
    vedette learner --bind 0.0.0.0:5555 --keys keys
    scp -rp keys/hosts/gpu-2 gpu-2:keys                   # that host's part, and nothing more
    vedette actors --learner HOST --keys keys             # there
    """
    from vedette_services.net.keys import HOSTS, ensure_keys, make_keys

    names = list(dict.fromkeys([*(hosts or []), *(actors or [])]))
    if keep:
        made = ensure_keys(directory, names)
        typer.echo(f"the learner's keys are in {directory}; made now: {', '.join(made) or 'none'}")
        return
    make_keys(directory, names)
    typer.echo(f"the learner's keys are in {directory}: vedette learner --keys {directory}")
    for name in names:
        _print_copy_hint(name, directory / HOSTS / name)
    if not names:
        typer.echo(f"nobody else is let in yet: vedette keys add {directory} NAME")


@app.command()
def add(directory: Directory, name: Name) -> None:
    """Make a pair for one more host. A running learner lets it in within two seconds.

    \b
    vedette keys add keys gpu-3
    """
    from vedette_services.net.keys import add_key

    _print_copy_hint(name, add_key(directory, name))


@app.command()
def remove(directory: Directory, name: Name) -> None:
    """Let a host in no more. A running learner ends its connections within two seconds.

    \b
    vedette keys remove keys gpu-3
    """
    from vedette_services.net.keys import remove_key

    remove_key(directory, name)
    typer.echo(f"{name} is let in no more")


@app.command("list")
def list_(directory: Directory) -> None:
    """Say whom the learner lets in. One line each: the name and the public key.

    \b
    vedette keys list keys
    """
    from vedette_services.net.keys import LEARNER, list_keys

    learner, admitted = list_keys(directory)
    typer.echo(f"{LEARNER:<20} {learner.public.decode()}  the learner's own")
    for key in admitted:
        typer.echo(f"{key.name:<20} {key.public.decode()}")


def _print_copy_hint(name: str, host: Path) -> None:
    typer.echo(f"copy {host} to {name} as a whole: vedette actors --keys takes it there")

"""``vedette keys``: the keys of the learner and of the hosts that it admits."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.grouped_help import GroupedCommand

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create and list keys. A learner with keys admits only hosts whose key is listed.",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The learner's folder of keys.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an actor host.")]


@app.command(cls=GroupedCommand)
def new(
    directory: Directory,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names of actor hosts: a key pair for each.",
        ),
    ] = None,
    actors: Annotated[
        list[str] | None,
        typer.Option("--actors", metavar="NAME", help="The same, one at a time."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep existing keys; create only what is missing.")
    ] = False,
) -> None:
    """Create the learner's key pair, and one for each host that is to run actors.

    \b
    vedette keys new keys gpu-2 lab-7
    vedette learner --bind 0.0.0.0:5555 --keys keys
    scp -rp keys/hosts/gpu-2 gpu-2:keys                   # that host's part, and nothing more
    vedette actors --learner HOST --keys keys             # there
    """
    from vedette_services.net.keys import HOSTS, ensure_keys, make_keys
    from vedette_services.run.output_files import check_output

    check_output("DIR", directory)
    names = list(dict.fromkeys([*(hosts or []), *(actors or [])]))
    if keep:
        made = ensure_keys(directory, names)
        typer.echo(f"the learner's keys are in {directory}; made now: {', '.join(made) or 'none'}")
        return
    make_keys(directory, names)
    place = shlex.quote(str(directory))
    typer.echo(f"the learner's keys are in {directory}: vedette learner --keys {place}")
    for name in names:
        _print_copy_hint(name, directory / HOSTS / name)
    if not names:
        typer.echo(f"no other host is admitted yet: vedette keys add {place} NAME")


@app.command(cls=GroupedCommand)
def add(directory: Directory, name: Name) -> None:
    """Create a key pair for one more host. A running learner admits it within two seconds.

    \b
    vedette keys add keys gpu-3
    """
    from vedette_services.net.keys import add_key

    _print_copy_hint(name, add_key(directory, name))


@app.command(cls=GroupedCommand)
def remove(directory: Directory, name: Name) -> None:
    """Remove a host's key. A running learner ends its connections within three seconds.

    \b
    vedette keys remove keys gpu-3
    """
    from vedette_services.net.keys import remove_key

    remove_key(directory, name)
    typer.echo(f"{name} is no longer admitted")


@app.command("list", cls=GroupedCommand)
def list_(directory: Directory) -> None:
    """List the admitted keys. One line each: the name and the public key.

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

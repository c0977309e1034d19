"""Prints the lines of a command."""

from __future__ import annotations

import typer

from vedette_protocol.foreign_text import one_line


def say(text: object, *, err: bool = False) -> None:
    """Print one line, clean: it may name files, or quote what the files of a run say."""
    typer.echo(one_line(str(text)), err=err)

"""Prints what a command says: its lines, and what programs read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

import typer

from vedette_protocol.foreign_text import one_line

_answer: ContextVar[TextIO | None] = ContextVar("answer", default=None)


@contextmanager
def speaking_alone() -> Iterator[None]:
    """Have the standard output for what the command itself says, as a decorator of each command
    that runs code of others in its process: environments, networks, plugins.

    What that code prints goes to the standard error, so that it spoils neither ``--json`` nor a
    pipe.
    """
    from vedette_services.host.output import answer_alone

    with answer_alone() as answer:
        token = _answer.set(answer)
        try:
            yield
        finally:
            _answer.reset(token)


def say(text: object, *, err: bool = False) -> None:
    """Print one line, clean: it may name files, or quote what the files of a run say."""
    write(one_line(str(text)), err=err)


def write(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text as it is: JSON, a table, a configuration.

    Args:
        nl: end it with a line feed.
    """
    typer.echo(text, file=None if err else _answer.get(), err=err, nl=nl)


def writes_to_terminal() -> bool:
    """Return True if what the command says goes to a terminal."""
    return (_answer.get() or sys.stdout).isatty()

"""``--help`` in groups: what a first run needs stands first, each other option below its title.

An option names its group by typer's ``rich_help_panel``, as a command does in the list of commands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

Row = tuple[str, str]
"""A name, and what it is."""

RESUME = "Start again or resume"
SEVERAL = "Several runs"
NETWORK = "Network and trust"
LOGS = "Log and metrics"


class GroupedCommand(TyperCommand):
    """A command whose options are printed in groups, and whose numbers are finite."""

    def invoke(self, ctx: Any) -> Any:  # click's: typer keeps it private
        """Refuse a number that is not finite, and call the command. Infinity is a value of those
        options alone whose help says what ``inf:`` is.

        Raises:
            typer.BadParameter: names the option.
        """
        parameter: Any  # click's, as above
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name)
            endless = value == math.inf and "inf:" in (getattr(parameter, "help", "") or "")
            if isinstance(value, float) and not math.isfinite(value) and not endless:
                raise typer.BadParameter("must be finite", ctx=ctx, param=parameter)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # click's: typer keeps it private
        """Return options and arguments as they are declared: without more brackets around them."""
        arguments = (p for p in self.get_params(ctx) if p.param_type_name == "argument")
        named = [str(p.metavar or p.name.upper()) for p in arguments]
        return ["[OPTIONS]", *named]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # click's: typer keeps it private
        """Print arguments, then options without a group, then the groups in their first order."""
        arguments: list[Row] = []
        options: list[tuple[str, Row]] = []
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append((parameter.metavar or row[0], row[1]))
            else:
                options.append((getattr(parameter, "rich_help_panel", None) or "", row))
        if arguments:
            _print_group(formatter, "Arguments", arguments)
        for title, rows in _grouped(options):
            _print_group(formatter, title or "Options", rows)


class GroupedCommands(TyperGroup):
    """A group whose commands are printed in groups, each with its first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # click's, as above
        """Print the commands, then the options."""
        self.format_commands(ctx, formatter)
        rows = [parameter.get_help_record(ctx) for parameter in self.get_params(ctx)]
        _print_group(formatter, "Options", [row for row in rows if row is not None])

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # click's, as above
        """Print the commands in groups."""
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        rows = [
            (getattr(command, "rich_help_panel", None) or "", (command.name or "", _first(command)))
            for command in commands
            if not command.hidden
        ]
        for title, group in _grouped(rows):
            _print_group(formatter, title or "Commands", group)


def first_sentence(documented: object) -> str:
    """Return the first sentence of a docstring."""
    return " ".join((documented.__doc__ or "").partition(". ")[0].partition(".\n")[0].split())


def _first(command: Any) -> str:  # click's, as above
    return f"{command.get_short_help_str(limit=200).rstrip('.')}."


def _grouped(rows: Iterable[tuple[str, Row]]) -> Iterable[tuple[str, list[Row]]]:
    """Collect rows by their group; those without one come first."""
    groups: dict[str, list[Row]] = {"": []}
    for title, row in rows:
        groups.setdefault(title, []).append(row)
    return [(title, group) for title, group in groups.items() if group]


def _print_group(formatter: Any, title: str, rows: list[Row]) -> None:  # click's, as above
    with formatter.section(title):
        formatter.write_dl(rows)

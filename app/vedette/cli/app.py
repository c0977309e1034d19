"""The command `vedette`: its subcommands, and the exit statuses of their errors."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer

from vedette.cli.actors import actors
from vedette.cli.collect import collect
from vedette.cli.config import config
from vedette.cli.conform import conform
from vedette.cli.dashboard import dashboard
from vedette.cli.doctor import doctor
from vedette.cli.evaluate import evaluate
from vedette.cli.export import export
from vedette.cli.grouped_help import GroupedCommand, GroupedCommands, first_sentence
from vedette.cli.init import init
from vedette.cli.keys import app as keys
from vedette.cli.learner import learner
from vedette.cli.list import list_names
from vedette.cli.push import push
from vedette.cli.report import report
from vedette.cli.rerun import rerun
from vedette.cli.run import run
from vedette.cli.runs import runs
from vedette.cli.status import status
from vedette.cli.stop import stop
from vedette.cli.sweep import sweep
from vedette.cli.verify import verify
from vedette.words_of_others import instead_of_command, instead_of_option
from vedette_rl.errors import InputError
from vedette_rl.module_search import add_search_folder
from vedette_services.errors import (
    DONE,
    FAILED,
    TRACEBACK,
    USAGE,
    ManySettingsError,
    ServicesError,
    error_message,
    is_self_explanatory,
)
from vedette_services.host.exit_report import send_exit_report, take_report_descriptor
from vedette_services.host.output import open_closed_streams, tolerate_lost_output
from vedette_services.host.processes import PARENT_VARIABLE, die_with_parent, stop_signals
from vedette_services.host.system import require_daemons, runs_daemons

_DAEMONS = ("run", "learner", "actors", "dashboard")
_ONLY_PRINT = ("status", "list", "runs", "config", "doctor")
"""Commands that are over once nobody reads what they print."""

_NOT_ON_WINDOWS = (*_DAEMONS, "keys")

_MISUSE: type[Exception] = typer.BadParameter.__bases__[0]
"""Base class of typer's errors for a wrong command line, whose module is private to it."""

_COMPLETES = "_VEDETTE_COMPLETE"
"""Set by a shell that completes a word."""

_COMMANDS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "Train": {
        "run": run,
        "learner": learner,
        "actors": actors,
        "sweep": sweep,
        "stop": stop,
    },
    "Look at runs": {
        "runs": runs,
        "status": status,
        "report": report,
        "dashboard": dashboard,
        "rerun": rerun,
        "verify": verify,
    },
    "Use a policy": {"eval": evaluate, "export": export, "collect": collect, "push": push},
    "Set up": {
        "init": init,
        "config": config,
        "list": list_names,
        "doctor": doctor,
        "conform": conform,
    },
}
"""The commands by their names, in the groups of ``--help``."""

_SETTINGS_OF = {"conform": {"allow_interspersed_args": False}}

app = typer.Typer(
    name="vedette",
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _group, _functions in _COMMANDS.items():
    for _name, _function in _functions.items():
        app.command(
            _name,
            cls=GroupedCommand,
            short_help=first_sentence(_function),
            rich_help_panel=_group,
            context_settings=_SETTINGS_OF.get(_name),
        )(_function)
app.add_typer(keys, name="keys", rich_help_panel="Set up")


def _version(asked: bool) -> None:
    if asked:
        from vedette_services.host.system import vedette_version

        typer.echo(f"vedette {vedette_version() or 'of a checkout, not installed'}")
        raise typer.Exit


@app.callback()
def _vedette(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Asynchronous reinforcement learning: actors on many hosts, one learner, every sample counted.

    \b
    vedette run                           train DQN on CartPole-v1 on this machine
    vedette learner --env CartPole-v1     the same in two parts: the learner,
    vedette actors --learner 127.0.0.1    and actors, here or on other machines
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status. Every error is a line on stderr."""
    open_closed_streams()
    _join_parent()
    _print_what_is_possible()
    parent = take_report_descriptor()
    asked = _with_home(sys.argv[1:] if arguments is None else arguments)
    is_daemon = bool(asked) and asked[0] in _DAEMONS and runs_daemons()
    if is_daemon:
        _exit_on_signal()
    only_prints = bool(asked) and asked[0] in _ONLY_PRINT
    tolerate_lost_output(
        full_disk=is_daemon, on_reader_gone=_exit_quietly if only_prints else _go_on
    )
    _refuse_empty(asked)
    execute(app, "vedette", asked, parent)


def execute(
    group: typer.Typer, name: str, arguments: Sequence[str], parent: int | None = None
) -> NoReturn:
    """Run a command of a group and exit with its status. Every error is a line on stderr.

    Args:
        name: the word that the user types for the group.
        parent: the descriptor to which an error is also reported, and the text that a command
            returns of its end; see `take_report_descriptor`.
    """
    try:
        if group is app:
            _refuse_system(arguments)
        status = group(args=list(arguments), prog_name=name, standalone_mode=False)
        if isinstance(status, str):
            send_exit_report(parent, status)
    except typer.Abort:
        sys.exit(FAILED)
    except _MISUSE as e:
        _print_usage_error(e)
        sys.exit(USAGE)
    except (Exception, SystemExit) as e:  # the border: a line and a status for each
        if _COMPLETES in os.environ:
            raise  # typer has printed what completes a word
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        lines = error_lines(e)
        send_exit_report(parent, "; ".join(lines))
        with contextlib.suppress(OSError):  # a log on a full disk
            for line in lines:
                print(f"vedette: {line}", file=sys.stderr)
        sys.exit(exit_status(e))
    sys.exit(status if isinstance(status, int) else DONE)


def _print_what_is_possible() -> None:
    """Print a ``?`` for what the output's encoding lacks, as Windows's often lacks ``±``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _refuse_system(arguments: Sequence[str]) -> None:
    """Refuse a command that cannot work on this operating system; its help is shown all the same.

    Raises:
        UsageError: names the command.
    """
    asked_help = {"-h", "--help"}.intersection(arguments)
    if arguments and arguments[0] in _NOT_ON_WINDOWS and not asked_help:
        require_daemons(f"vedette {arguments[0]}")


def _names_a_program(arguments: Sequence[str]) -> bool:
    """True where the arguments behind the command are another program's."""
    return [*arguments[:1]] == ["conform"]


def _with_home(arguments: Sequence[str]) -> Sequence[str]:
    """Put the user's home in place of ``~`` where a path begins, which a shell does not do in
    ``--out=~/run``."""
    if _names_a_program(arguments):
        return arguments
    return [
        re.sub(r"^((?:--[a-z-]+=)?@?)(~(?:/.*)?)$", _home_of, argument, flags=re.DOTALL)
        for argument in arguments
    ]


def _home_of(found: re.Match[str]) -> str:
    return found[1] + os.path.expanduser(found[2])  # noqa: PTH111 - it stays a text


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an option with an empty value: most likely a shell's variable that is not set."""
    own = arguments[:0] if _names_a_program(arguments) else arguments
    for before, argument in pairwise(own):
        named = re.fullmatch("(--[a-z-]+)=", argument)
        if named or not argument:
            option = named[1] if named else before
            print(
                f"vedette: {option}: its value is empty; give one or leave it out", file=sys.stderr
            )
            sys.exit(USAGE)


_PLAIN = (
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to ", "must be at least "),
    (r"Input should be less than or equal to ", "must be at most "),
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a valid number.*", "must be a number"),
)
"""Words of the validator of the command line, and ours."""


def _print_usage_error(error: Any) -> None:  # click's, whose own module typer keeps to itself
    """Print a wrong command line's error as one line; the whole help where no command was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return
    command = error.ctx.command_path if error.ctx is not None else "vedette"
    print(f"vedette: {_explain_misuse(error)}; see {command} --help", file=sys.stderr)


def _explain_misuse(error: Any) -> str:  # click's, as above
    """Word a wrong command line's error, with what was probably meant."""
    message = " ".join(error.format_message().split()).rstrip(".")
    for theirs, ours in _PLAIN:
        message = re.sub(theirs, ours, message)
    message = f"{message[:1].lower()}{message[1:]}"
    if error.ctx is None:
        return message
    asked = error.ctx.command
    if hasattr(asked, "commands") and "no such command" in message:
        given = re.findall("'([^']*)'", message)[0]
        words = asked.name == "vedette"  # not those of benchmarks, which is a program of its own
        instead = instead_of_command(given, [*asked.commands], words=words)
        there_are = f"there are {', '.join(asked.commands)}"
        return f"no such command '{given}'; {instead or there_are}"
    if type(error).__name__ == "NoSuchOption":
        hint = _hint_of_option(error.option_name, asked)
        return f"no such option: {error.option_name}{f'; {hint}' if hint else ''}"
    return message


def _hint_of_option(option: str, asked: Any) -> str:  # click's, as above
    """Return what to write instead of an option that a command does not have; "" if unknown."""
    shown = [parameter for parameter in asked.params if not getattr(parameter, "hidden", False)]
    options = [name for parameter in shown for name in parameter.opts if name.startswith("-")]
    if instead := instead_of_option(option, options):
        return f"did you mean {instead}?" if instead.startswith("--") else instead
    near = difflib.get_close_matches(option, options, n=1, cutoff=0.8)
    key = ""
    if "settings" in (parameter.name for parameter in asked.params):
        from vedette.cli.options import suggest_setting

        key = suggest_setting(option, spelling=not near)
    if key:
        return f"a setting is given as {key}=VALUE"
    return f"did you mean {near[0]}?" if near else ""


def exit_status(error: Exception | SystemExit) -> int:
    """Return 2 for usage and configuration, 3 for a refusal, 1 for any other failure."""
    if isinstance(error, ServicesError):
        return error.exit_status
    return USAGE if isinstance(error, InputError) else FAILED


def error_lines(error: Exception | SystemExit) -> list[str]:
    """Format an error as one line; several errors of the configuration as one line each."""
    if isinstance(error, ManySettingsError):
        return [error_message(one) for one in error.errors]
    nameless = isinstance(error, OSError) and not error.filename
    explained = is_self_explanatory(error) and not nameless
    hint = "" if explained or os.environ.get(TRACEBACK) else f" ({TRACEBACK}=1 shows where)"
    return [f"{error_message(error)}{hint}"]


def _exit_quietly() -> None:
    """Exit once nobody reads what a command prints that does nothing else."""
    os._exit(DONE)


def _go_on() -> None:
    """Do what the command is for all the same."""


def _exit_on_signal() -> None:
    """Exit with 0 on a signal, until the daemon installs its own handlers: nothing is open yet."""
    for number in stop_signals():
        signal.signal(number, lambda *_: os._exit(DONE))


def _join_parent() -> None:
    if PARENT_VARIABLE in os.environ:
        # A terminal's Ctrl-C goes to a whole process group. The parent gets it and signals us once;
        # a second signal would end us without a checkpoint. `spawn(own_group=True)` is sooner.
        os.setpgid(0, 0)
    die_with_parent()
    try:
        folder = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    except FileNotFoundError:
        print("vedette: the current folder was removed: change to another one", file=sys.stderr)
        sys.exit(USAGE)
    add_search_folder(folder)

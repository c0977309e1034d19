"""The process of a command: it says what it waits for, and ends soon after the command."""

from __future__ import annotations

import contextlib
import sys
from typing import NoReturn

from vedette.cli.app import main as run_command
from vedette_protocol.foreign_text import one_line
from vedette_services.host.process_end import run_to_end
from vedette_services.host.slow_calls import say_slow_calls


def main() -> NoReturn:
    """Run the command of this process, and end it, whatever an environment has left running."""
    say_slow_calls(_say)
    run_to_end(run_command, _say)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no reader, disk or stream
        print(f"vedette: {one_line(text)}", file=sys.stderr, flush=True)

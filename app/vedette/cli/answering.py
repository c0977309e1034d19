"""Exit statuses of a command that answers a question: 1 is one of its answers.

::

    @answering()
    def verify(...):
        check_writable("--out", place)      # before hours of work
        ...
        say(result)                         # before the file, which a full disk may refuse
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def answering() -> Iterator[None]:
    """Have any failure exit with status 2, or with 3 for a refusal: with 1 only what the command
    says itself, "different" for example."""
    from vedette.cli.app import error_lines, exit_status
    from vedette_services.errors import FAILED, UsageError

    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # of any kind: a script tells a difference from a full disk by it
        if exit_status(error) != FAILED:
            raise
        raise UsageError("; ".join(error_lines(error))) from error


def check_writable(option: str, file: Path, own: Path | None = None) -> None:
    """Check that a file can be made where an option says, and is no run's; leave none.

    Args:
        own: the one file of a run that this command writes; None: there is none.

    Raises:
        UsageError: it cannot.
    """
    from vedette_rl.storage.write_errors import describe_write_error
    from vedette_services.errors import UsageError
    from vedette_services.run.output_files import check_output

    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise UsageError(f"{option} {file}: it is a folder, and a file is written")
    check_output(option, file, own)
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        why = describe_write_error(error, file.parent)
        raise UsageError(f"{option} {file}: it cannot be written: {why}") from error

"""Carries the error that ends a process to the process that started it.

It goes through a pipe and not through a file: the error may be a full disk.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from vedette_services.errors import FAILED, TRACEBACK, error_message, is_self_explanatory
from vedette_services.host.system import nonblocking_pipe

VARIABLE = "VEDETTE_LAST_WORDS_FD"
"""For the child: the descriptor to tell it through."""

_BYTES_MAX = 4096  # what a pipe takes at once


class ExitReportReader:
    """The parent's end, one for each process that it starts.

    ::

        report = ExitReportReader()
        spawn(..., environment=report.environment, pass_fds=[report.fileno()])
        report.close_child_end()         # the child alone holds the other end now
        ...                              # it has ended
        report.read(); report.close()
    """

    def __init__(self) -> None:
        self._read, self._write = nonblocking_pipe()
        self._received = b""

    def fileno(self) -> int:
        """The end that a child gets."""
        return self._write

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a child gets."""
        return {VARIABLE: str(self._write)}

    def close_child_end(self) -> None:
        """The child has its end."""
        os.close(self._write)

    def read(self) -> str:
        """The error that ended the child; "" where it was killed or crashed."""
        with contextlib.suppress(BlockingIOError):  # a process of its own outlives it, and holds it
            self._received += os.read(self._read, _BYTES_MAX)
        return self._received.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)


def report_descriptor() -> list[int]:
    """The descriptor that `take_report_descriptor` takes, if any."""
    return [int(value)] if (value := os.environ.get(VARIABLE)) else []


def take_report_descriptor() -> int | None:
    """Take the descriptor for `send_exit_report`; None where no parent reads it.

    Asked once, before this process starts any of its own.
    """
    descriptor = os.environ.pop(VARIABLE, "")
    return int(descriptor) if descriptor else None


def send_exit_report(descriptor: int | None, message: str) -> bool:
    """Send the error to the parent; False where there is none, or it cannot be sent."""
    if descriptor is None:
        return False
    try:
        os.write(descriptor, message.encode()[:_BYTES_MAX])
    except OSError:
        return False
    return True


@contextlib.contextmanager
def report_exit() -> Iterator[None]:
    """End this process by an error as a line: the supervisor gets it, and says it.

    What is no error of ours is raised again besides: its traceback belongs into the log.
    """
    descriptor = take_report_descriptor()
    try:
        yield
    except (Exception, SystemExit) as error:
        message = error_message(error)
        sent = send_exit_report(descriptor, message)
        if not is_self_explanatory(error):
            raise
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        if not sent:  # started by hand
            print(f"vedette: {message}", file=sys.stderr)
        sys.exit(FAILED)

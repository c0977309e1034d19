"""A child process that does not outlive its test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def child_process(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a command, and kill it at the end with all that it has started.

    `subprocess.Popen` waits at the end of its block for a process that nobody ends: a test that
    fails, or takes too long, would never end.

    Args:
        command: the program and its arguments.
        options: as `subprocess.Popen` takes them.
    """
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

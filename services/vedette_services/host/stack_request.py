"""Where another process of this host stands: it writes its main thread's stack at a signal.

That works while C code holds Python's lock, too. The process may be about to be killed: one that
does not answer signals so is ended by this one.

::

    answer_stack_requests(file)                       # in the process, before it runs other code
    frames = request_stack(pid, file)         # in another
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

_SIGNAL = getattr(signal, "SIGUSR2", None)
_ANSWER_S = 0.3
_POLL_S = 0.01
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class StackFrame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str


def answer_stack_requests(file: Path) -> None:
    """Write this thread's stack into a file whenever it is asked for. Called by the main thread."""
    if _SIGNAL is None:
        return
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    faulthandler.register(_SIGNAL, opened, all_threads=False, chain=False)


def request_stack(pid: int, file: Path) -> list[StackFrame]:
    """Return the stack of a process, its innermost call first; empty where it does not answer."""
    if _SIGNAL is None or not file.exists():
        return []
    began = file.stat().st_size
    try:
        os.kill(pid, _SIGNAL)
    except ProcessLookupError:
        return []
    deadline = time.monotonic() + _ANSWER_S
    size = began
    while time.monotonic() < deadline:
        before = size
        time.sleep(_POLL_S)
        size = file.stat().st_size
        if began < before == size:  # it is written in pieces
            break
    answer = file.read_bytes()[began:].decode(errors="replace")
    found = map(_FRAME.fullmatch, answer.splitlines())
    return [StackFrame(m["file"], int(m["line"]), m["function"]) for m in found if m]

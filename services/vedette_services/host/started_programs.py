"""Ends the programs that an environment has started, and that its process has left.

A process that is killed, as by the system where memory is short, closes no environment: a simulator
would stay, with its port and its licence. Each child of ours has a mark in its environment
variables, which all that it starts inherits, also what has left its session or process group.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

log = logging.getLogger("vedette.actors")

VARIABLE = "VEDETTE_STARTED_BY"
"""Names the nearest process of ours; a program that is started without it is left."""

_LOOKS = 3  # one that is being looked at may start another

_marks: WeakKeyDictionary[subprocess.Popen[bytes], str] = WeakKeyDictionary()


def new_mark() -> str:
    """A mark that no other process has."""
    return secrets.token_hex(8)


def remember_mark(process: subprocess.Popen[bytes], mark: str) -> None:
    """A child was started with this mark."""
    _marks[process] = mark


def end_programs_of(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill what these children have started, once they are gone themselves. Systems that do not
    show processes as Linux does leave it."""
    ended = {process for process in processes if process.poll() is not None}
    _end_marked({_marks.pop(process) for process in ended if process in _marks})


def end_own_programs() -> None:
    """Kill what this process has started: its owner, which would do it, is gone."""
    if mark := os.environ.get(VARIABLE):
        _end_marked({mark})


def _end_marked(marks: set[str]) -> None:
    for _ in range(_LOOKS if marks else 0):
        found = dict(_find_programs(marks))
        if not found:
            return
        for number, name in found.items():
            log.info("process %d (%s), which an environment has left, is ended", number, name)
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(number, signal.SIGKILL)


def _find_programs(marks: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and name of each other process that has one of these marks."""
    wanted = {f"{VARIABLE}={mark}".encode() for mark in marks}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            marked = not wanted.isdisjoint((place / "environ").read_bytes().split(b"\0"))
            if not marked or int(place.name) == os.getpid():
                continue
            yield int(place.name), (place / "comm").read_text(errors="replace").strip()

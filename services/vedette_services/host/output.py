"""The standard streams of a process: what is written there may get lost, and ends nothing.

A disk may be full, a reader may have gone (``| head -1``), and there may be no stream at all
(``>&-``). Code of environments may print, too, past Python's streams.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from vedette_rl.storage.atomic_files import NO_ROOM

Say = Callable[[str], None]
"""Takes a line for the user."""

_STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


def open_closed_streams() -> None:
    """Open a standard stream that the caller has closed: else the next file would get its number,
    and whatever prints would write into that."""
    for name, number, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - a stream


def tolerate_lost_output(
    *, full_disk: bool = True, on_reader_gone: Callable[[], None] = lambda: None
) -> None:
    """Let what is printed get lost where its disk is full, or its reader has gone.

    Args:
        full_disk: otherwise that is an error.
        on_reader_gone: called each time that nobody reads what is written.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):
            continue  # somebody's own
        mode = os.fstat(stream.fileno()).st_mode
        is_file = stat.S_ISREG(mode)
        if not ((is_file and full_disk) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            continue
        stream.flush()
        file = _LossyFile(stream.fileno(), NO_ROOM if is_file else (), on_reader_gone)
        if not is_file:
            _pipes[stream.fileno()] = file
        text = io.TextIOWrapper(
            io.BufferedWriter(file),
            "utf-8" if is_file else stream.encoding,
            errors=stream.errors,
            line_buffering=True,
        )
        setattr(sys, name, text)


class _LossyFile(io.RawIOBase):
    """A file whose writes get lost where nobody takes them.

    Args:
        number: its descriptor, which may be changed.
    """

    def __init__(
        self, number: int, tolerated: Collection[int], on_reader_gone: Callable[[], None]
    ) -> None:
        self.number = number
        self._tolerated = tolerated
        self._on_reader_gone = on_reader_gone

    def fileno(self) -> int:
        return self.number

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # bytes, as a buffer of any kind
        try:
            return os.write(self.number, data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                self._on_reader_gone()
            elif error.errno not in self._tolerated:
                raise
            return len(data)


_pipes: dict[int, _LossyFile] = {}  # standard streams of this process that are pipes or sockets


@contextmanager
def divert_output_past_python(file: Path) -> Iterator[None]:
    """Let what C code and `os.write` print go into a file, where a standard stream is a pipe.

    Its reader may go at any time. What Python prints gets lost then, as `tolerate_lost_output` has
    it, but an environment that writes past Python would get an error, and end its run.
    """
    opened = -1
    try:
        for number, ours in _pipes.items():
            if opened < 0:
                opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            ours.number = os.dup(number)
            os.dup2(opened, number)
        yield
    finally:
        for number, ours in _pipes.items():
            if ours.number != number:
                os.dup2(ours.number, number)
                os.close(ours.number)
                ours.number = number
        if opened >= 0:
            os.close(opened)


@contextmanager
def answer_alone() -> Iterator[TextIO]:
    """Give the standard output for an answer that a program reads; all else that is printed
    meanwhile, by C code too, goes to the standard error.

    What is printed past Python later goes there as well: threads and exit handlers are left.
    """
    own = sys.stdout
    own.flush()
    try:
        is_first = own.fileno() == 1
    except (AttributeError, OSError, ValueError):  # it is no file
        is_first = False
    sys.stdout = sys.stderr
    try:
        with _only_for(own) if is_first else nullcontext(own) as answer:
            yield answer
            answer.flush()
    finally:
        sys.stdout = own


@contextmanager
def _only_for(own: TextIO) -> Iterator[TextIO]:
    """Give a stream to where descriptor 1 leads, which leads to the standard error from now on."""
    number = os.dup(1)
    pipe = _pipes.get(1)
    if pipe is None:
        with open(number, "w", encoding=own.encoding, errors=own.errors) as answer:  # noqa: PTH123
            os.dup2(2, 1)
            yield answer
        return
    pipe.number = number  # its reader may go, as ever
    os.dup2(2, 1)
    try:
        yield own
    finally:
        pipe.number = 1
        os.close(number)

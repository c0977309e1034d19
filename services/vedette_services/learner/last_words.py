"""What one of the learner's processes met with, told to the supervisor before it ends.

It goes through a pipe and not through a file: a full disk is what it may have to tell of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from vedette_services.errors import FAILED, TRACEBACK, is_known, sentence

VARIABLE = "VEDETTE_LAST_WORDS_FD"
"""For the child: the descriptor to tell it through."""

_BYTES_MAX = 4096  # what a pipe takes at once


class LastWords:
    """The supervisor's end, one for each process that it starts.

    ::

        words = LastWords()
        spawn(..., environment=words.environment, pass_fds=[words.fileno()])
        words.sent_off()                 # the child alone holds the other end now
        ...                              # it has ended
        words.hear()
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def fileno(self) -> int:
        """The end that a child gets."""
        return self._write

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a child gets."""
        return {VARIABLE: str(self._write)}

    def sent_off(self) -> None:
        """The child has its end."""
        os.close(self._write)

    def hear(self) -> str:
        """What a child that has ended said; "" where it was killed or crashed. Asked once."""
        try:
            return os.read(self._read, _BYTES_MAX).decode("utf-8", "replace")
        except BlockingIOError:  # a process of its own outlives it and holds the pipe
            return ""
        finally:
            os.close(self._read)


@contextlib.contextmanager
def told_to_the_supervisor() -> Iterator[None]:
    """End this process by an error as a line: the supervisor gets it, and says it.

    What is no error of ours is raised again besides: its traceback belongs into the log.
    """
    descriptor = os.environ.pop(VARIABLE, "")
    try:
        yield
    except Exception as error:
        said = sentence(error)
        told = _tell(descriptor, said)
        if not is_known(error):
            raise
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        if not told:
            print(f"vedette: {said}", file=sys.stderr)
        sys.exit(FAILED)


def _tell(descriptor: str, said: str) -> bool:
    if not descriptor:  # started by hand
        return False
    try:
        os.write(int(descriptor), said.encode()[:_BYTES_MAX])
    except OSError:
        return False
    return True

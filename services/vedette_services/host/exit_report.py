"""What a process met with, told to the one that started it before it ends.

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
    """The end of who starts a process, one for each.

    ::

        words = LastWords()
        spawn(..., environment=words.environment, pass_fds=[words.fileno()])
        words.sent_off()                 # the child alone holds the other end now
        ...                              # it has ended
        words.hear(); words.close()
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._heard = b""

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
        """What a child that has ended said; "" where it was killed or crashed."""
        with contextlib.suppress(BlockingIOError):  # a process of its own outlives it, and holds it
            self._heard += os.read(self._read, _BYTES_MAX)
        return self._heard.decode("utf-8", "replace")

    def close(self) -> None:
        """Nobody is to be heard any more."""
        os.close(self._read)


def listener() -> int | None:
    """The descriptor through which to `tell` who started this process; None: nobody listens.

    Asked once, before this process starts any of its own.
    """
    descriptor = os.environ.pop(VARIABLE, "")
    return int(descriptor) if descriptor else None


def tell(descriptor: int | None, said: str) -> bool:
    """Say it to who listens; whether that went well."""
    if descriptor is None:
        return False
    try:
        os.write(descriptor, said.encode()[:_BYTES_MAX])
    except OSError:
        return False
    return True


@contextlib.contextmanager
def told_to_the_supervisor() -> Iterator[None]:
    """End this process by an error as a line: the supervisor gets it, and says it.

    What is no error of ours is raised again besides: its traceback belongs into the log.
    """
    descriptor = listener()
    try:
        yield
    except Exception as error:
        said = sentence(error)
        told = tell(descriptor, said)
        if not is_known(error):
            raise
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        if not told:  # started by hand
            print(f"vedette: {said}", file=sys.stderr)
        sys.exit(FAILED)

"""The logs of a run's daemons: they stay bounded, whatever environments print, and one that was
removed is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from vedette_rl.number_format import format_bytes, format_time

LOG_MAX_BYTES = 64 << 20
LOG_KEPT_BYTES = 8 << 20
"""The newest bytes of a log that has grown beyond `LOG_MAX_BYTES`; what was before them is left
out, which the log says in its first line."""


class LogFiles:
    """Watches logs to which other processes append.

    Args:
        say: told of a log that is gone.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._gone: set[Path] = set()

    def check(self, logs: Iterable[Path]) -> None:
        """Shorten those that have grown too large; say once which are gone."""
        for log in logs:
            try:
                size = log.stat().st_size
            except FileNotFoundError:
                if log not in self._gone:
                    self._gone.add(log)
                    self._say(f"{log} is gone: what is written to it is lost")
                continue
            except OSError:  # its disk fails, which others say
                continue
            self._gone.discard(log)
            if size > LOG_MAX_BYTES:
                with suppress(OSError):  # of a full disk: the next turn tries again
                    _shorten(log)


def _shorten(log: Path) -> None:
    """Leave out the oldest lines of a log. Who appends to it meanwhile may lose a few lines."""
    with log.open("r+b") as file:
        before = file.seek(0, 2)
        file.seek(before - LOG_KEPT_BYTES)
        file.readline()
        newest = file.read()
        file.truncate(0)
    left_out = format_bytes(before - len(newest))
    head = f"{format_time(time.time())} {left_out} of earlier lines were left out of this log\n"
    with log.open("ab") as file:
        file.write(head.encode() + newest)

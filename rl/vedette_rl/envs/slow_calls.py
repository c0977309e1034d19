"""What environments are doing now that may take long: they are made, or begin an episode.

A thread beside it (`vedette_services.host.slow_calls`) says what is waited for.
"""

from __future__ import annotations

import time
from types import TracebackType

_running: list[SlowCall] = []  # the last is inside of those before


class SlowCall:
    """A call of an environment that may take long.

    ::

        with SlowCall("reset"):
            envs.reset()

    Args:
        done: what is done to it, as "made" or "reset".
    """

    __slots__ = ("began", "done")

    def __init__(self, done: str) -> None:
        self.done = done
        self.began = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()
        _running.append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _running.remove(self)


def running_call() -> SlowCall | None:
    """Return the call that this process is in; None where it is in none."""
    try:
        return _running[-1]
    except IndexError:  # it may end at any time
        return None

"""Says what this process waits for, where an environment takes long to be made or reset."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from vedette_services.host.output import Say

SAY_AFTER_S = 3.0
SAY_EVERY_S = 10.0
_POLL_S = 0.5


class WaitLines:
    """The lines about one wait: the first after some seconds, the others less often.

    Args:
        what: is waited for.
        began: when, by the clock of `due_line`.
    """

    def __init__(self, what: str, began: float) -> None:
        self._what = what
        self._began = began
        self._due = began + SAY_AFTER_S

    def due_line(self, done: str, now: float) -> str:
        """The line to say now; "" where none is due.

        Args:
            done: what is done to it, as "made" or "reset".
        """
        if now < self._due:
            return ""
        self._due = now + SAY_EVERY_S
        return f"waiting for {self._what} to be {done} ({now - self._began:.0f} s)"


def say_slow_calls(say: Say) -> None:
    """Have a thread say from now on what is waited for, after a few seconds and again later."""
    threading.Thread(target=_watch, args=(say, threading.Event()), name="slow", daemon=True).start()


def _watch(say: Say, stop: threading.Event) -> None:
    last: object = None  # the call that `lines` are about
    lines = WaitLines("", 0.0)
    while not stop.wait(_POLL_S):
        calls = sys.modules.get("vedette_rl.envs.slow_calls")  # nobody has made one before
        # Any: the module is not imported for this, and another thread may be about to.
        running_call: Any = getattr(calls, "running_call", None)
        call: Any = running_call() if running_call is not None else None
        if call is None:
            continue
        if call is not last:
            last = call
            lines = WaitLines("the environment", call.began)
        if line := lines.due_line(call.done, time.monotonic()):
            say(line)

"""Says what this process waits for, where an environment takes long to be made or reset."""

from __future__ import annotations

import sys
import threading
import time

from vedette_services.host.output import Say
from vedette_services.host.probe_process import SAY_AFTER_S, SAY_EVERY_S

_POLL_S = 0.5


def say_slow_calls(say: Say) -> None:
    """Have a thread say from now on what is waited for, after a few seconds and again later."""
    threading.Thread(target=_watch, args=(say, threading.Event()), name="slow", daemon=True).start()


def _watch(say: Say, stop: threading.Event) -> None:
    said: tuple[object, float] = (None, 0.0)  # a call, and when it is said next
    while not stop.wait(_POLL_S):
        calls = sys.modules.get("vedette_rl.envs.slow_calls")  # nobody has made one before
        call = calls.running_call() if calls is not None else None
        if call is None:
            continue
        now = time.monotonic()
        waited_s = now - call.began
        due = said[1] if said[0] is call else call.began + SAY_AFTER_S
        if now >= due:
            said = (call, now + SAY_EVERY_S)
            say(f"waiting for the environment to be {call.done} ({waited_s:.0f} s)")

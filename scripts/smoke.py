"""What the smoke scripts share: bounded waits, and accounting that must balance at every look.

Nothing is waited for that training could pass by between two looks: only for what stays so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

Status = dict[str, Any]
"""What `vedette status --json` says, and summary.json."""


class SmokeError(Exception):
    """What was to be shown is not so."""


def say(text: str) -> None:
    """A line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def fail(error: Exception) -> int:
    """Say what was not so; the exit status."""
    print(f"FAILED: {error}", file=sys.stderr, flush=True)
    return 1


def balanced(status: Status) -> Status:
    """The same status, if every sample produced is somewhere."""
    accounting = status["samples"]
    names = ("inserted", "dropped", "rejected", "in_flight", "lost")
    if accounting["produced"] != sum(accounting[name] for name in names):
        raise SmokeError(f"the sample accounting does not balance: {accounting}")
    return status


def wait(
    what: str,
    ask: Callable[[], Status | None],
    met: Callable[[Status], object],
    *,
    wait_s: float = 240.0,
    look_every_s: float = 1.0,
) -> Status:
    """Ask until the status meets a condition; its accounting must balance every time.

    Raises:
        SmokeError: it did not within `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    status = None
    while time.monotonic() < deadline:
        status = ask()
        if status is not None and met(balanced(status)):
            say(f"{what}: {line(status)}")
            return status
        time.sleep(look_every_s)
    raise SmokeError(f"{what}: not within {wait_s:g} s; last: {line(status)}")


def line(status: Status | None) -> str:
    """A status in a line."""
    if status is None:
        return "no answer"
    there = {m["id"]: m["state"] for m in status["managers"]}
    return (
        f"epoch {status['epoch']}, {status['opt_steps']:,} steps, {there}, "
        f"best {status['eval'].get('best_return_mean')}, {status['samples']}"
    )


def running(status: Status) -> set[str]:
    """Ids of the managers that are here and whose actors all play."""
    here = [m for m in status["managers"] if m["state"] == "running"]
    return {m["id"] for m in here if all(actor["alive"] for actor in m["actors"])}


def restarted(before: Status, status: Status) -> set[str]:
    """Ids of the managers that play, and were started anew since then."""
    earlier = {m["id"]: m["incarnation"] for m in before["managers"]}
    now = {m["id"]: m["incarnation"] for m in status["managers"]}
    return {who for who in running(status) & earlier.keys() if now[who] != earlier[who]}


def learns(status: Status, managers: int) -> bool:
    """It learns, from so many managers that play."""
    return bool(status["phase"] == "training" and len(running(status)) == managers)


def goes_on(before: Status, status: Status) -> None:
    """It is the same run, with every sample that was acknowledged, not begun anew.

    Raises:
        SmokeError: it is not.
    """
    if status["run_id"] != before["run_id"]:
        raise SmokeError(f"run {before['run_id']} has become run {status['run_id']}")
    if status["samples"]["inserted"] < before["samples"]["inserted"]:
        raise SmokeError("acknowledged samples are gone")
    if status["epoch"] <= before["epoch"] or status["opt_steps"] <= 0:
        raise SmokeError(f"it began anew: {line(status)}")

"""What a status says, in words: the same rows for the live view, `status` and the summary.

A status is the mapping of the contract (``run_id``, ``samples``, ``rates``, ``eval``, ...). Any
part of it may still be missing when a run begins: nothing here asks for more than there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Status = Mapping[str, Any]
"""What the learner answers: JSON, thus anything."""

_STOP_NAMES = {
    "max_opts": ("optimization steps", "opt_steps"),
    "max_env_steps": ("environment steps", "env_steps"),
    "max_seconds": ("seconds", "seconds"),
}
_EXIT_WORDS = {
    "target_return": "solved{after}: the target return is reached",
    "max_opts": "done{after}: stop.max_opts is reached",
    "max_env_steps": "done{after}: stop.max_env_steps is reached",
    "max_seconds": "done{after}: stop.max_seconds are over",
    "interrupted": "stopped on request{after}; the same command with this --out goes on",
}


def value(status: Status, *path: str) -> float | None:
    """The number at `path`; None where there is none."""
    here: object = status
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, int | float) and not isinstance(here, bool) else None


def text(number: float | None, digits: int = 0) -> str:
    """A number as people read it; a dash where there is none."""
    if number is None:
        return "-"
    return f"{number:,.{digits}f}"


def rate(per_s: float | None) -> str:
    """A rate, with a digit behind the point where it is small."""
    return f"{text(per_s, 0 if per_s is None or abs(per_s) >= 10 else 1)}/s"


def rollout_return(status: Status) -> float | None:
    """The mean return of the actors' recent episodes; None before one has ended."""
    said = value(status, "rollout", "return_mean")
    if said is not None:
        return said
    means = [value(actor, "return_mean") for m in present(status) for actor in actors(m)]
    known = [mean for mean in means if mean is not None]
    return sum(known) / len(known) if known else None


def managers(status: Status) -> Sequence[Status]:
    """The managers of a status."""
    found = status.get("managers")
    return [m for m in found if isinstance(m, Mapping)] if isinstance(found, list) else []


def present(status: Status) -> Sequence[Status]:
    """The managers that have not gone."""
    return [m for m in managers(status) if m.get("state") != "gone"]


def actors(manager: Status) -> Sequence[Status]:
    """The actors of a manager of a status."""
    found = manager.get("actors")
    return [a for a in found if isinstance(a, Mapping)] if isinstance(found, list) else []


def waiting(status: Status) -> str:
    """Who waits for what; "" where nobody does."""
    said = status.get("waits")
    if isinstance(said, str):
        return said
    if isinstance(said, list):
        return "; ".join(str(one) for one in said)
    limiter = status.get("limiter")
    reason = limiter.get("reason") if isinstance(limiter, Mapping) else None
    return reason if isinstance(reason, str) else ""


def troubles(status: Status) -> list[str]:
    """What actors died of last, as their environments said it."""
    return [
        f"actor {actor.get('id', '-')} of {manager.get('id', '-')}: {actor['error']}"
        for manager in managers(status)
        for actor in actors(manager)
        if actor.get("error")
    ]


def progress(status: Status, stop: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """What stops the run and how far it is: ``(words, now, goal)`` of each count that is on."""
    rows = []
    for key, (words, counter) in _STOP_NAMES.items():
        goal = stop.get(key) or 0
        now = seconds(status) if counter == "seconds" else value(status, counter)
        if goal and now is not None:
            rows.append((words, float(now), float(goal)))
    return rows


def line(status: Status, stop: Mapping[str, Any]) -> str:
    """A whole status in one line; of a run that has not begun, what it waits for."""
    if not status.get("run_id") and waiting(status):
        return waiting(status)
    target = stop.get("target_return")
    best = text(value(status, "eval", "best_return_mean"), 1)
    goals = {counter: goal for _, counter, goal in _goals(stop)}
    parts = [
        f"opts {_of(status, 'opt_steps', goals)}",
        f"env steps {_of(status, 'env_steps', goals)}",
        f"return {text(rollout_return(status), 1)}",
        f"best eval {best}" + (f" of {target:g}" if target is not None else ""),
        rate(value(status, "rates", "samples_per_sec")).replace("/s", " samples/s"),
        rate(value(status, "rates", "opt_steps_per_sec")).replace("/s", " opts/s"),
        f"lag {text(value(status, 'lag', 'mean'))}",
        f"managers {len(present(status))}",
    ]
    waits, trouble = waiting(status), troubles(status)
    parts += [f"waits: {waits}"] if waits else []
    return " | ".join(parts + trouble[:1])


def rows(status: Status) -> list[tuple[str, str]]:
    """A status as labelled lines."""
    lines = [
        ("steps", _steps(status)),
        ("returns", _returns(status)),
        ("samples", _samples(status)),
        ("replay", _replay(status)),
        ("lag", _lag(status)),
    ]
    lines += [("manager", _manager(m)) for m in managers(status)[:16]]
    hidden = len(managers(status)) - 16
    if hidden > 0:
        lines.append(("", f"and {hidden} more managers"))
    lines += [("trouble", said) for said in troubles(status)[:4]]
    waits = waiting(status)
    if waits:
        lines.append(("waits", waits))
    return lines


def headline(status: Status) -> str:
    """Which run it is."""
    run_id, epoch = status.get("run_id") or "-", status.get("epoch") or "-"
    since = seconds(status)
    lasted = f", {clock(since)}" if since is not None else ""
    return f"run {run_id}, epoch {epoch}{lasted}"


def summary_lines(summary: Status, run: str) -> list[str]:
    """The end of a run: why it ended, what it came to, and what to do next."""
    reason = str(summary.get("exit_reason"))
    since = seconds(summary)
    after = f" after {clock(since)}" if since is not None else ""
    labelled = [row for row in rows(summary) if row[0] not in ("manager", "waits")]
    curves = f"tensorboard --logdir {run}/tensorboard"
    best = value(summary, "eval", "best_version") is not None
    return [
        _EXIT_WORDS.get(reason, "ended{after}").format(after=after),
        *(f"  {label:<8} {said}" for label, said in labelled),
        f"  run      {run}",
        f"  next     {f'vedette eval {run}   or   ' if best else ''}{curves}",
    ]


def seconds(status: Status) -> float | None:
    """Seconds since the learner's start, or else of its training; None where neither is said."""
    since = value(status, "seconds")
    return value(status, "time", "training_s") if since is None else since


def clock(duration_s: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(duration_s)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _goals(stop: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    return [(words, counter, stop.get(key) or 0) for key, (words, counter) in _STOP_NAMES.items()]


def _of(status: Status, counter: str, goals: Mapping[str, float]) -> str:
    goal = goals.get(counter)
    return text(value(status, counter)) + (f" of {text(goal)}" if goal else "")


def _steps(status: Status) -> str:
    rates = "rates"
    per_opt = value(status, rates, "samples_per_opt_step")
    return (
        f"{text(value(status, 'opt_steps'))} optimization "
        f"({rate(value(status, rates, 'opt_steps_per_sec'))}), "
        f"{text(value(status, 'env_steps'))} environment "
        f"({rate(value(status, rates, 'samples_per_sec'))}), "
        f"{text(per_opt, 1)} samples per optimization"
    )


def _returns(status: Status) -> str:
    mean, std = (value(status, "eval", name) for name in ("return_mean", "return_std"))
    best, version = (value(status, "eval", n) for n in ("best_return_mean", "best_version"))
    evaluated = "no evaluation yet"
    if mean is not None:
        evaluated = (
            f"evaluation {text(mean, 1)} ± {text(std, 1)}, "
            f"best {text(best, 1)} at version {text(version)}"
        )
    said = rollout_return(status)
    return evaluated if said is None else f"actors {text(said, 1)}, {evaluated}"


def _samples(status: Status) -> str:
    names = ("produced", "inserted", "dropped", "rejected", "in_flight", "lost", "duplicates")
    counts = ((name, value(status, "samples", name)) for name in names)
    always = ("produced", "inserted")
    return ", ".join(
        f"{name.replace('_', ' ')} {text(count)}"
        for name, count in counts
        if count or name in always
    )


def _replay(status: Status) -> str:
    held = value(status, "replay", "bytes")
    mib = f", {text(held / 2**20, 1)} MiB" if held is not None else ""
    size, capacity = (value(status, "replay", name) for name in ("size", "capacity"))
    return f"{text(size)} of {text(capacity)}{mib}"


def _lag(status: Status) -> str:
    mean, p95, top = (value(status, "lag", name) for name in ("mean", "p95", "max"))
    seconds = value(status, "lag", "seconds_mean")
    return f"{text(mean)} versions (p95 {text(p95)}, max {text(top)}), {text(seconds, 2)} s"


def _manager(manager: Status) -> str:
    own = actors(manager)
    alive = sum(1 for actor in own if actor.get("alive"))
    restarts = sum(int(value(actor, "restarts") or 0) for actor in own)
    again = f", {restarts} restarts" if restarts else ""
    window, seen = value(manager, "window", "batches"), value(manager, "last_seen_s")
    state = manager.get("state", "running")
    what = "" if state == "running" else f" ({state})"
    return (
        f"{manager.get('id', '-')} on {manager.get('host') or '-'}{what}: "
        f"{alive} of {len(own)} actors{again}, window {text(window)} batches, "
        f"seen {text(seen, 1)} s ago"
    )

"""What a status says, in words: the same rows for the live view, `status` and the summary.

A status is the mapping of the contract (``run_id``, ``samples``, ``rates``, ``eval``, ...). Any
part of it may still be missing when a run begins: nothing here asks for more than there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vedette_rl.bytes_text import bytes_text

Status = Mapping[str, Any]
"""What the learner answers: JSON, thus anything."""

Number = Callable[..., str]
"""How numbers are written: `text`, or `format_short` where there is little room."""

_UNITS = (("k", 1e3), ("M", 1e6), ("G", 1e9))
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


def read_number(status: Status, *path: str) -> float | None:
    """The number at `path`; None where there is none."""
    here: object = status
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, int | float) and not isinstance(here, bool) else None


def format_number(number: float | None, digits: int = 0) -> str:
    """A number as people read it; a dash where there is none."""
    if number is None:
        return "-"
    return f"{number:,.{digits}f}"


def format_short(number: float | None, digits: int = 0) -> str:
    """A number in seven characters at most: ``12.3k``, ``1.25M``; small ones as `text` has them."""
    if number is None or abs(number) < 100_000:
        return format_number(number, digits)
    unit, size = next((u, x) for u, x in _UNITS if abs(number) < 999.5 * x or u == "G")
    return (
        f"{number / size:.0f}{unit}" if abs(number) >= 100 * size else f"{number / size:.3g}{unit}"
    )


def format_rate(per_s: float | None, number: Number = format_number) -> str:
    """A rate, with a digit behind the point where it is small."""
    return f"{number(per_s, 0 if per_s is None or abs(per_s) >= 10 else 1)}/s"


def rollout_return(status: Status) -> float | None:
    """The mean return of the actors' recent episodes; None before one has ended."""
    message = read_number(status, "rollout", "return_mean")
    if message is not None:
        return message
    means = [
        read_number(actor, "return_mean") for m in present_managers(status) for actor in actors(m)
    ]
    known = [mean for mean in means if mean is not None]
    return sum(known) / len(known) if known else None


def managers(status: Status) -> Sequence[Status]:
    """The managers of a status."""
    found = status.get("managers")
    return [m for m in found if isinstance(m, Mapping)] if isinstance(found, list) else []


def present_managers(status: Status) -> Sequence[Status]:
    """The managers that have not gone."""
    return [m for m in managers(status) if m.get("state") != "gone"]


def actors(manager: Status) -> Sequence[Status]:
    """The actors of a manager of a status."""
    found = manager.get("actors")
    return [a for a in found if isinstance(a, Mapping)] if isinstance(found, list) else []


def wait_reason(status: Status) -> str:
    """Who waits for what; "" where nobody does."""
    message = status.get("waits")
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return "; ".join(str(one) for one in message)
    limiter = status.get("limiter")
    reason = limiter.get("reason") if isinstance(limiter, Mapping) else None
    return reason if isinstance(reason, str) else ""


def actor_errors(status: Status, *, left: bool = True) -> list[str]:
    """What actors died of last, the most frequent first; the same words of many are one line.

    Args:
        left: also those of managers that have left.
    """
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for manager in managers(status):
        for actor in actors(manager) if left or not manager.get("left") else ():
            if error := str(actor.get("error") or ""):
                first.setdefault(error, f"{manager.get('id', '-')}/{actor.get('id', '-')}")
                counts[error] += 1
    return [
        f"{first[error]}{f' and {count - 1} more' if count > 1 else ''}: {error}"
        for error, count in counts.most_common()
    ]


def stop_progress(status: Status, stop: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """What stops the run and how far it is: ``(words, now, goal)`` of each count that is on."""
    rows = []
    for key, (words, counter) in _STOP_NAMES.items():
        goal = stop.get(key) or 0
        now = elapsed_seconds(status) if counter == "seconds" else read_number(status, counter)
        if goal and now is not None:
            rows.append((words, float(now), float(goal)))
    return rows


def status_line(status: Status, stop: Mapping[str, Any]) -> str:
    """A whole status in one line; of a run that has not begun, what it waits for."""
    if not status.get("run_id") and wait_reason(status):
        return wait_reason(status)
    target = stop.get("target_return")
    best = format_number(read_number(status, "eval", "best_return_mean"), 1)
    goals = {counter: goal for _, counter, goal in _goals(stop)}
    parts = [
        f"opts {_of(status, 'opt_steps', goals)}",
        f"env steps {_of(status, 'env_steps', goals)}",
        f"return {format_number(rollout_return(status), 1)}",
        f"best eval {best}" + (f" of {target:g}" if target is not None else ""),
        format_rate(read_number(status, "rates", "samples_per_sec")).replace("/s", " samples/s"),
        format_rate(read_number(status, "rates", "opt_steps_per_sec")).replace("/s", " opts/s"),
        f"lag {format_number(read_number(status, 'lag', 'mean'))}",
        f"managers {len(present_managers(status))}",
    ]
    waits, told = wait_reason(status), actor_errors(status, left=False)
    parts += [f"waits: {waits}"] if waits else []
    parts += [f"error: {told[0]}"] if told else []
    return " | ".join(parts)


def status_rows(status: Status, number: Number = format_number) -> list[tuple[str, str]]:
    """What the learner came to, as labelled lines."""
    return [
        ("steps", _steps(status, number)),
        ("returns", _returns(status)),
        ("samples", _samples(status, number)),
        ("replay", _replay(status, number)),
        ("lag", _lag(status, number)),
        *((("refused", refused),) if (refused := _refused(status)) else ()),
    ]


def run_headline(status: Status, digits: int = 16) -> str:
    """Which run it is, by so many digits of its id."""
    run_id, epoch = str(status.get("run_id") or "-")[:digits], status.get("epoch") or "-"
    since = elapsed_seconds(status)
    lasted = f", {format_duration(since)}" if since is not None else ""
    return f"run {run_id}, epoch {epoch}{lasted}"


def summary_lines(summary: Status, run: str) -> list[str]:
    """The end of a run: why it ended, what it came to, and what to do next."""
    if not summary:
        return ["stopped before it had begun: nothing was trained", f"  run      {run}"]
    reason = str(summary.get("exit_reason"))
    since = elapsed_seconds(summary)
    after = f" after {format_duration(since)} of training" if since is not None else ""
    curves = f"tensorboard --logdir {run}/tensorboard"
    best = read_number(summary, "eval", "best_version") is not None
    return [
        _EXIT_WORDS.get(reason, "ended{after}").format(after=after),
        *(f"  {label:<8} {message}" for label, message in status_rows(summary)),
        *(f"  {'error':<8} {message}" for message in actor_errors(summary)[:4]),
        f"  run      {run}",
        f"  next     {f'vedette eval {run}   or   ' if best else ''}{curves}",
    ]


def elapsed_seconds(status: Status) -> float | None:
    """Seconds since the learner's start, or else of its training; None where neither is said."""
    since = read_number(status, "seconds")
    return read_number(status, "time", "training_s") if since is None else since


def format_duration(duration_s: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(duration_s)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _goals(stop: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    return [(words, counter, stop.get(key) or 0) for key, (words, counter) in _STOP_NAMES.items()]


def _of(status: Status, counter: str, goals: Mapping[str, float]) -> str:
    goal = goals.get(counter)
    return format_number(read_number(status, counter)) + (
        f" of {format_number(goal)}" if goal else ""
    )


def _steps(status: Status, number: Number) -> str:
    optimized, played = read_number(status, "opt_steps"), read_number(status, "env_steps")
    per_s = [
        read_number(status, "rates", name) for name in ("opt_steps_per_sec", "samples_per_sec")
    ]
    per_opt = format_number(read_number(status, "rates", "samples_per_opt_step"), 1)
    return (
        f"{number(played)} environment ({format_rate(per_s[1], number)}), "
        f"{number(optimized)} optimization ({format_rate(per_s[0], number)}): {per_opt} to 1"
    )


def _returns(status: Status) -> str:
    mean, std = (read_number(status, "eval", name) for name in ("return_mean", "return_std"))
    best, version = (read_number(status, "eval", n) for n in ("best_return_mean", "best_version"))
    evaluated = "no evaluation yet"
    if mean is not None:
        evaluated = (
            f"evaluation {format_number(mean, 1)} ± {format_number(std, 1)}, "
            f"best {format_number(best, 1)} at version {format_number(version)}"
        )
    message = rollout_return(status)
    return evaluated if message is None else f"actors {format_number(message, 1)}, {evaluated}"


def _samples(status: Status, number: Number) -> str:
    names = ("produced", "inserted", "dropped", "rejected", "in_flight", "lost", "duplicates")
    counts = ((name, read_number(status, "samples", name)) for name in names)
    always = ("produced", "inserted")
    return ", ".join(
        f"{number(count)} {name.replace('_', ' ')}"
        for name, count in counts
        if count or name in always
    )


def _replay(status: Status, number: Number) -> str:
    held = read_number(status, "replay", "bytes")
    size_said = "-" if held is None else bytes_text(held)
    size, capacity = (read_number(status, "replay", name) for name in ("size", "capacity"))
    drawn = read_number(status, "limiter", "samples_per_insert")
    drawing = f", each drawn {format_number(drawn, 1)} times" if drawn is not None else ""
    return f"{number(size)} of {number(capacity)} samples ({size_said}){drawing}"


def _lag(status: Status, number: Number) -> str:
    mean, p95, top = (read_number(status, "lag", name) for name in ("mean", "p95", "max"))
    late_s = read_number(status, "lag", "seconds_mean")
    return (
        f"{number(mean)} versions (p95 {number(p95)}, max {number(top)}); "
        f"actors' models {format_number(late_s, 2)} s old"
    )


def _refused(status: Status) -> str:
    """What was refused, where anything was."""
    counts = [
        (read_number(status, "garbage"), "messages of unknown senders"),
        (read_number(status, "refused", "keys"), "keys"),
        (read_number(status, "refused", "ids"), "ids of others"),
        (read_number(status, "refused", "handshakes"), "handshakes"),
    ]
    return ", ".join(f"{format_number(count)} {words}" for count, words in counts if count)


def run_title(status: Status) -> str:
    """What is trained, as a status has it."""
    return f"{status.get('agent', 'a run')} on {status.get('env', 'an environment')}"


def stop_conditions(status: Status) -> Mapping[str, Any]:
    """The stop conditions, as a status has them."""
    stop = status.get("stop")
    return stop if isinstance(stop, Mapping) else {}

"""Which runs a sweep is made of, and which of them are over already."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette.reports.record import is_run
from vedette_services.config import RunConfig
from vedette_services.errors import UsageError

TRIALS_MAX = 1000

Changes = Mapping[str, Any]
"""Dotted keys of the configuration, and the values that this trial has."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a sweep.

    Args:
        name: ``seed-3``, or ``agent.learning_rate=0.001/seed-3``.
        config: with everything that sets it apart.
        out: its run directory, the sweep's with the name under it.
    """

    name: str
    config: RunConfig
    out: Path


def plan_trials(
    configure: Callable[[Changes], RunConfig],
    out: Path,
    *,
    seeds: int = 1,
    sweep: Mapping[str, Sequence[Any]] | None = None,
) -> list[Trial]:
    """Every combination of settings with every seed; a first seed of all comes before a second.

    Args:
        configure: from what is changed to a configuration.
        out: the sweep's directory.
        seeds: how many, counted on from the configured one.
        sweep: the values that a key is to have, one after another.

    Raises:
        UsageError: there is nothing to do or far too much, or `out` holds a run of its own.
        ConfigError: a combination is wrong.
    """
    if is_run(out):
        raise UsageError(f"--out {out}: holds a run of its own; name another for several")
    axes = [[(key, value) for value in values] for key, values in (sweep or {}).items()]
    empty = [key for key, values in (sweep or {}).items() if not values]
    if empty:
        raise UsageError(f"--sweep {empty[0]}: write KEY=VALUE,VALUE")
    combinations = [dict(combination) for combination in itertools.product(*axes)]
    if len(combinations) * seeds > TRIALS_MAX:
        count = len(combinations) * seeds
        raise UsageError(f"{count:,} runs are more than {TRIALS_MAX:,}; sweep less")
    first = [configure(changes) for changes in combinations]
    names = list(_unique(_combination_name(changes) for changes in combinations))
    trials = []
    for number in range(seeds):
        for changes, config, name in zip(combinations, first, names, strict=True):
            seed = config.seed + number
            own = config if not number else configure({**changes, "seed": seed})
            trials.append(Trial(f"{name}seed-{seed}", own, out / f"{name}seed-{seed}"))
    return trials


def parse_sweep(texts: Sequence[str]) -> dict[str, list[str]]:
    """``KEY=V1,V2`` texts; commas within brackets and quotes part nothing.

    Raises:
        UsageError: one is something else, or two name one key.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise UsageError(
                f"--sweep {text}: write KEY=VALUE,VALUE, such as agent.learning_rate=1e-3,3e-4"
            )
        if key.strip() in found:
            raise UsageError(f"--sweep {text}: {key.strip()} is swept twice; name all its values")
        found[key.strip()] = [part for part in _parts(values) if part]
    return found


def _parts(text: str) -> Iterator[str]:
    """What is between the commas outside of brackets and quotes."""
    depth, quote, begin = 0, "", 0
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:index].strip()
            begin = index + 1
    yield text[begin:].strip()


def _combination_name(changes: Changes) -> str:
    message = ",".join(f"{key}={value}" for key, value in changes.items())
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", message)[:120]


def _unique(names: Iterator[str]) -> Iterator[str]:
    """As folders, none twice."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        again = f"-{seen[name]}" if seen[name] > 1 else ""
        yield f"{name}{again}/" if name else ""

"""From a status to named numbers: every number in it, called by its path.

::

    {"opt_steps": 7, "samples": {"lost": 9}, "managers": [{"id": "a", "window": {"batches": 1}}]}

    vedette_opt_steps_total 7
    vedette_samples_lost 9
    vedette_manager_window_batches{manager="a"} 1

What a later status says more is there at once, without a line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "vedette"

COUNTERS = frozenset(
    {
        "actor_env_steps",
        "actor_episodes",
        "actor_restarts",
        "env_steps",
        "garbage",
        "opt_steps",
        "refused_handshakes",
        "refused_ids",
        "refused_keys",
        "samples_dropped",
        "samples_duplicates",
        "samples_inserted",
        "samples_produced",
        "samples_rejected",
    }
)
"""What only grows while a learner lives (some of it over all its lives)."""

_WORDS = ("phase", "exit_reason", "limiter_state")
"""Texts of which there are a few: a number 1 with the word as its label."""

_INFO = ("vedette", "run_id", "env", "agent")


@dataclass(frozen=True, slots=True)
class Number:
    """One number with its name and labels.

    Args:
        name: without prefix and without a counter's ``_total``.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    @property
    def counts(self) -> bool:
        """Whether it only grows."""
        return self.name in COUNTERS


def numbers(status: Mapping[str, Any]) -> Iterator[Number]:
    """Every number of a status, then its few words."""
    yield Number("run", tuple((name, str(status.get(name, ""))) for name in _INFO), 1.0)
    for name, value in _flat(status, ()):
        if name.startswith("record_"):
            yield Number("record", (("name", name.removeprefix("record_")),), value)
        else:
            yield Number(name, (), value)
    for manager in status.get("managers", ()):
        yield from _of_manager(manager)
    words = {**status, "limiter_state": status.get("limiter", {}).get("state", "")}
    for name in _WORDS:
        yield Number(name, ((name.rpartition("_")[2], str(words.get(name) or "")),), 1.0)


def _of_manager(manager: Mapping[str, Any]) -> Iterator[Number]:
    whose = (("manager", str(manager["id"])), ("host", str(manager.get("host", ""))))
    yield Number("manager_present", whose, float(manager.get("state") != "gone"))
    for name, value in _flat(manager, ("manager",)):
        yield Number(name, whose, value)
    for actor in manager.get("actors", ()):
        which = (*whose, ("actor", str(actor["id"])))
        for name, value in _flat({**actor, "id": None}, ("actor",)):
            yield Number(name, which, value)


def _flat(part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Numbers and truths of nested mappings, by the path to each."""
    for name, value in part.items():
        match value:
            case bool() | int() | float():
                yield "_".join((*path, _clean(name))), float(value)
            case Mapping():
                yield from _flat(value, (*path, _clean(name)))
            case _:
                continue


def _clean(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)

"""Runs that differ in nothing but their seed, and what the others differ in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedette_services.report.record import RunRecord
from vedette_services.report.tables import flat, shown

_OF_A_SEED = ("seed", "preset", "replay.directory", "stop.")
"""Keys, and beginnings of keys, that do not change what is learned from a seed."""
_NAMED_MAX = 3
"""Keys in a group's name; all of them are in the table of differences."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one configuration.

    Args:
        label: what sets it apart from the others; no two groups have the same.
        runs: one a seed, in the order given.
        differs: the keys in which any two groups differ, with this one's values.
    """

    label: str
    runs: tuple[RunRecord, ...]
    differs: dict[str, str]


def grouped(records: Sequence[RunRecord]) -> list[Group]:
    """The runs in groups, in the order in which each first comes."""
    settings: dict[str, dict[str, str]] = {}
    members: dict[str, list[RunRecord]] = {}
    for record in records:
        found = _settings(record)
        # what was configured is not known: it is like no other
        key = repr(sorted(found.items())) if found else str(record.directory.resolve())
        settings[key] = found
        members.setdefault(key, []).append(record)
    keys = differing(list(settings.values()))
    groups: list[Group] = []
    for number, (key, runs) in enumerate(members.items(), 1):
        differs = {name: settings[key].get(name, "–") for name in keys}
        label = _label(differs, runs[0], number, len(runs) == 1)
        if any(group.label == label for group in groups):
            label = f"{number}: {label}"
        groups.append(Group(label, tuple(runs), differs))
    return groups


def differing(settings: Sequence[dict[str, str]]) -> list[str]:
    """Keys of which not all have the same value; environment and agent first."""
    known = [found for found in settings if found]
    names = dict.fromkeys(name for found in known for name in found)
    values = {name: {found.get(name) for found in known} for name in names}
    first = ("env.id", "agent.name")
    found = [name for name in names if len(values[name]) > 1]
    return sorted(found, key=lambda name: first.index(name) if name in first else len(first))


def _settings(record: RunRecord) -> dict[str, str]:
    found = dict(flat(record.config))
    return {name: shown(value) for name, value in found.items() if not name.startswith(_OF_A_SEED)}


def _label(differs: dict[str, str], run: RunRecord, number: int, alone: bool) -> str:
    if not run.config:
        return run.name
    if not differs:
        return run.title
    if len(differs) <= _NAMED_MAX:
        return _said(differs)
    if alone:
        return f"{number}: {run.name}"
    return f"{number}: {_said(dict(list(differs.items())[:1]))} …"


def _said(named: dict[str, str]) -> str:
    return ", ".join(f"{_last(name, named)}={value}" for name, value in named.items())


def _last(name: str, among: dict[str, str]) -> str:
    """The key's last part, where that says which."""
    tail = name.rpartition(".")[2]
    same = [other for other in among if other.rpartition(".")[2] == tail]
    return tail if len(same) == 1 and tail not in ("id", "name") else name

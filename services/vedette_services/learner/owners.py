"""Whose a manager's id is: the key's that used it first, for the whole run."""

from __future__ import annotations

import json
from pathlib import Path

from vedette_services.run_directory import write_json

IDS_MAX = 1024
"""Ids that one key may have at a time, as many as the ledger keeps managers (replicas that share a
key have one each); with one more it gives up the one not heard of for longest."""


class Owners:
    """Which key each manager id belongs to, kept in a file of the run directory.

    Args:
        path: the file, reread at the gateway's start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owner: dict[str, str] = {}  # by id, the one heard of last at the end
        self._changed = False
        if path.exists():
            found = json.loads(path.read_text())
            self._owner = {str(manager): str(key) for manager, key in found.items()}

    def claim(self, manager: str, key: str) -> bool:
        """Whether this key may speak for this manager; the first one that asks may."""
        owner = self._owner.get(manager)
        if owner is None:
            self._take(manager, key)
            return True
        if owner == key:
            self._owner[manager] = self._owner.pop(manager)
        return owner == key

    def _take(self, manager: str, key: str) -> None:
        own = [taken for taken, owner in self._owner.items() if owner == key]
        if len(own) >= IDS_MAX:
            del self._owner[own[0]]
        self._owner[manager] = key
        self._changed = True

    def save(self) -> None:
        """Write the file, if anything is new."""
        if self._changed:
            self._changed = False
            write_json(self._path, self._owner)

    def of(self, key: str) -> list[str]:
        """The ids of a key."""
        return [manager for manager, owner in self._owner.items() if owner == key]

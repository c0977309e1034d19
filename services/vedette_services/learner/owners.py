"""Whose a manager's id is: the key's that used it first, for the whole run."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from vedette_services.run_directory import write_json

log = logging.getLogger("vedette.gateway")

_AGAIN_S = 1.0

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
        self._changed = self._failing = False
        self._again_at = 0.0
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
        """Write the file, if anything is new; where that fails, again a second later."""
        if not self._changed or time.monotonic() < self._again_at:
            return
        try:
            write_json(self._path, self._owner)
        except OSError as error:  # a full disk, no descriptors left: who is served stays served
            self._again_at = time.monotonic() + _AGAIN_S
            if not self._failing:
                log.warning("whose key each id belongs to is not written: %s", error)
            self._failing = True
        else:
            self._changed = self._failing = False

    def of(self, key: str) -> list[str]:
        """The ids of a key."""
        return [manager for manager, owner in self._owner.items() if owner == key]

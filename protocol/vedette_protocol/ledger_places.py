"""The places of a ledger: how many accounts each key holds, and who may have one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from vedette_protocol.limits import ACCOUNTS_MAX

RESERVED_MAX: Final = 64
"""Places that are kept for each key at most."""

_SPARE: Final = 64  # for managers that start again before they count as gone


class LedgerPlaces:
    """Shares a bounded number of places among keys. Without keys it is one pool, of the key "".

    Each admitted key has reserved places, together at most half of all. A key may take any other
    place that is free. Where none is, the caller closes an account that is gone: of this key, or of
    one that holds more. So a key fills the table while no other key needs it, and takes no place
    from a key with fewer.

    A manager that starts again may have a spare account, beyond the limit. Accounts and the
    reserved places that are not taken are together at most the limit and the spare ones, so who
    starts again and again takes no reserved place either.
    """

    def __init__(self) -> None:
        self.limit = ACCOUNTS_MAX
        self._keys: frozenset[str] = frozenset()
        self._held: Counter[str] = Counter()
        self._total = 0

    def admit(self, keys: Collection[str]) -> None:
        """Set the names of the admitted keys."""
        self._keys = frozenset(keys)

    def is_admitted(self, key: str) -> bool:
        """Return True if this key is admitted now."""
        return key in self._keys

    def add(self, key: str, accounts: int) -> None:
        """Count accounts that were opened for a key, or closed if `accounts` is negative."""
        self._total += accounts
        self._held[key] += accounts
        if not self._held[key]:
            del self._held[key]

    def held(self, key: str) -> int:
        """Return the number of accounts of a key."""
        return self._held[key]

    @property
    def reserved(self) -> int:
        """The places that are kept for each key."""
        keys = len(self._keys)
        return max(1, min(RESERVED_MAX, self.limit // (2 * keys))) if keys > 1 else 0

    def has_room(self, key: str, leaving: int = 0) -> bool:
        """Return True if one more account may be opened for this key.

        Args:
            leaving: accounts that do not count: they are about to be closed.
        """
        if key in self._keys and self._held[key] < self.reserved:
            return self._total < self.limit + _SPARE  # spare accounts do not fill these
        return self._total - leaving + self._kept_from(key) < self.limit

    def has_spare(self, key: str) -> bool:
        """Return True if a manager that is known may have one more account, beyond the limit."""
        return self._total + self._kept_from(key) < self.limit + _SPARE

    def _kept_from(self, key: str) -> int:
        """Return the places that are reserved for other keys and not taken yet."""
        reserved = self.reserved
        others = self._keys - {key}
        taken = sum(min(reserved, self._held[other]) for other in others & self._held.keys())
        return reserved * len(others) - taken

    def may_close(self, owner: str, key: str) -> bool:
        """Return True if an account of `owner` that is gone may be closed for one of `key`."""
        return owner == key or self._held[owner] > max(self.reserved, self._held[key])

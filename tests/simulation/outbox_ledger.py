"""The model's ledger: today's rules for numbers, with accounts that are never forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

EXTRAS_MAX = 6
"""Range above `contiguous` in which numbers are taken: 1024 on the wire."""
OPEN_MAX = 3
"""Accounts of one manager that are open: 5 on the wire."""
GONE_AFTER = 60
"""Steps without a report after which nothing of a session is in flight."""

Key = tuple[str, int]
"""A manager's id and a session (an incarnation)."""


class RetiredError(Exception):
    """The account of this session was closed, and what it held is not known any more."""


@dataclass(slots=True)
class Account:
    """Numbers and counts of one session."""

    contiguous: int = 0
    extras: set[int] = field(default_factory=set)
    inserted: int = 0
    produced: int = 0
    dropped: int = 0
    held: int = 0
    last_seen: int = 0

    @property
    def beyond(self) -> int:
        """The number behind the highest one that is settled."""
        return max(self.extras, default=self.contiguous - 1) + 1

    def settle(self, number: int) -> bool:
        """Settle a number; return False if it was settled before."""
        if number < self.contiguous or number in self.extras:
            return False
        self.extras.add(number)
        self._advance()
        return True

    def advance_to(self, base: int) -> None:
        """Settle all below `base`."""
        if base > self.contiguous:
            self.contiguous = base
            self.extras = {number for number in self.extras if number >= base}
            self._advance()

    def counts(self, now: int, *, of_missing: bool) -> tuple[int, int, int, int, int]:
        """Return produced, inserted, dropped, in flight and lost."""
        produced = max(self.produced, self.inserted)
        if not of_missing:
            produced = max(produced, self.inserted + self.dropped)
        missing = produced - self.inserted
        dropped = min(self.dropped, missing)
        held = 0 if now - self.last_seen > GONE_AFTER else self.held
        in_flight = min(missing - dropped, held)
        return produced, self.inserted, dropped, in_flight, missing - in_flight - dropped

    def copy(self) -> Account:
        return replace(self, extras=set(self.extras))

    def _advance(self) -> None:
        while self.contiguous in self.extras:
            self.extras.remove(self.contiguous)
            self.contiguous += 1


class Ledger:
    """Accounts of all sessions. Those that are closed keep their numbers, which takes some bytes;
    a release without archive keeps only that they were closed."""

    def __init__(self, *, archives: bool) -> None:
        self.archives = archives
        self.accounts: dict[Key, Account] = {}
        self.archive: dict[Key, Account] = {}
        self.retired: dict[Key, Account] = {}

    def find(self, key: Key) -> Account | None:
        """Return the account of a session, open or in the archive."""
        return self.accounts.get(key) or self.archive.get(key)

    def all_accounts(self) -> dict[Key, Account]:
        """Return every account that was ever opened, with its counts."""
        return {**self.retired, **self.archive, **self.accounts}

    def open(
        self, key: Key, now: int, *, forgets: bool = False, keeps_gaps: bool = True
    ) -> Account:
        """Return the open account of a session; close another one of its manager if need be.

        Raises:
            RetiredError: it was closed, by a ledger without archive.
        """
        account = self.accounts.get(key)
        if account is None:
            if key in self.retired and not forgets:
                raise RetiredError
            account = self.archive.pop(key, None) or Account()
            mine = [other for other in self.accounts if other[0] == key[0]]
            if len(mine) >= OPEN_MAX:
                oldest = min(mine, key=lambda other: self.accounts[other].last_seen)
                closed = self.accounts.pop(oldest)
                if not keeps_gaps:
                    closed.extras = set()
                where = self.archive if self.archives and not forgets else self.retired
                where[oldest] = closed
            self.accounts[key] = account
        account.last_seen = now
        return account

    def retire(self, key: Key) -> None:
        """Close an account for good (a mutation)."""
        account = self.accounts.pop(key, None)
        if account is not None:
            self.retired[key] = account

    def copy(self) -> Ledger:
        ledger = Ledger(archives=self.archives)
        for mine, theirs in (
            (ledger.accounts, self.accounts),
            (ledger.archive, self.archive),
            (ledger.retired, self.retired),
        ):
            mine.update((key, account.copy()) for key, account in theirs.items())
        return ledger

"""The receiver's ledger: exactly what was settled, of every incarnation of every manager.

The gateway's loop, in the order of its calls::

    ledger = Ledger.from_bytes(stamp, now) if stamp else Ledger(run_id)
    batch = decode_up(frames)
    if not ledger.has_account(batch.manager, batch.incarnation):
        ledger.mark_alive(batch.manager, batch.incarnation, now)
    if ledger.record_batch(batch, now) == "new":
        ring.append(columns, batch.rows)  # or, where they are invalid, ledger.reject_batch(batch)
    ring.commit(ledger.to_bytes())            # rows and ledger become visible together ...
    send(encode(ledger.make_ack(...)))             # ... and only then are acknowledged

A batch is settled once it is taken: a second copy of it may be next. What is unsound is refused
before the commit.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from vedette_protocol.account import IncarnationAccount, ManagerEntry, SampleAccounting
from vedette_protocol.credit import Credit
from vedette_protocol.errors import LedgerFullError, RetiredError
from vedette_protocol.limits import ACCOUNTS_MAX, OLD_ACCOUNTS_MAX, RETIRED_MAX
from vedette_protocol.messages import Ack, Batch, Report
from vedette_protocol.stamp import pack_ledger, unpack_ledger

Verdict: TypeAlias = Literal["new", "duplicate", "beyond"]
"""What to do with a batch: take it; throw it away; throw it away, and it will be sent again."""


class Ledger:
    """What was settled on one run.

    It is bounded: of each manager it keeps the newest incarnation and a few that were replaced,
    of the others only the sums.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._entries: dict[str, ManagerEntry] = {}
        self._accounts = 0
        self._next_number = 0
        self._closed = SampleAccounting()  # of managers of which nothing else is kept
        self._retired: dict[int, None] = {}  # incarnations that were closed, oldest first

    @classmethod
    def from_bytes(cls, stamp: bytes | bytearray | memoryview, now: float) -> Ledger:
        """The ledger that these bytes were made of. Whoever lived then was seen just now.

        Raises:
            StampError: they are none.
        """
        state = unpack_ledger(stamp)
        ledger = cls(state.run_id)
        ledger._next_number = state.next_number
        ledger._closed = state.closed
        ledger._retired = dict.fromkeys(state.retired)
        ledger._entries = {entry.id: entry for entry in state.entries}
        for entry in state.entries:
            ledger._accounts += len(entry.accounts)
            for account in entry.accounts.values():
                account.last_seen = now
        return ledger

    def to_bytes(self) -> bytes:
        """All of it, for the ring's stamp: at most `STAMP_MAX_BYTES`."""
        entries = self._entries.values()
        return pack_ledger(self.run_id, self._next_number, self._closed, self._retired, entries)

    def mark_alive(self, manager: str, incarnation: int, now: float) -> None:
        """This incarnation lives: it has an account from now on.

        Raises:
            RetiredError: it was closed; its manager must begin anew.
            LedgerFullError: there is no place for another manager.
        """
        self._mark_alive(manager, incarnation, now)

    def record_batch(self, batch: Batch, now: float) -> Verdict:
        """Enter a batch as inserted, if it is new; what to do with it. Duplicates are counted.

        A gateway may look into many batches at once, after it has taken them and before it commits:
        those that it finds unsound it has to `refuse`.

        Raises:
            KeyError: it has no account yet: `hear` it. That may close another's account.
        """
        entry = self._entries[batch.manager]
        account = entry.accounts[batch.incarnation]
        account.last_seen = now
        account.gone = False
        entry.packed = None
        if batch.base > account.contiguous:
            account.catch_up(batch.base)
        if account.settle(batch.seq):
            account.inserted += batch.rows
            return "new"
        if account.is_beyond(batch.seq):
            return "beyond"
        account.duplicates += batch.rows
        return "duplicate"

    def reject_batch(self, batch: Batch) -> None:
        """A batch that was taken is unsound: it stays settled, and counts as rejected.

        Raises:
            KeyError: its incarnation is not known, or was closed since.
        """
        entry = self._entries[batch.manager]
        account = entry.accounts[batch.incarnation]
        account.inserted -= batch.rows
        account.rejected += batch.rows
        account.rejected_batches += 1
        entry.packed = None

    def is_new(self, manager: str, incarnation: int, seq: int) -> bool:
        """Whether this batch would be taken. Changes nothing."""
        account = self._find_account(manager, incarnation)
        if account is None:
            return incarnation not in self._retired
        return not account.is_settled(seq) and not account.is_beyond(seq)

    def has_settled(self, manager: str, incarnation: int, seq: int) -> bool:
        """Whether this batch is settled already: all it needs is an ack."""
        account = self._find_account(manager, incarnation)
        return account is not None and account.is_settled(seq)

    def has_account(self, manager: str, incarnation: int) -> bool:
        """Whether an account of this incarnation is kept."""
        return self._find_account(manager, incarnation) is not None

    def settle_rejected(
        self, manager: str, incarnation: int, seq: int, rows: int, now: float
    ) -> bool:
        """Enter a batch that was refused, so that it does not come again. False if it was not new.

        Raises:
            RetiredError, LedgerFullError: as `hear`.
        """
        entry, account = self._mark_alive(manager, incarnation, now)
        if not account.settle(seq):
            return False
        account.rejected += rows
        account.rejected_batches += 1
        entry.packed = None
        return True

    def on_report(self, report: Report, now: float) -> None:
        """Take a manager's counts; those for another run only show that it lives.

        Raises:
            RetiredError, LedgerFullError: as `hear`.
        """
        entry, account = self._mark_alive(report.manager, report.incarnation, now)
        if report.run_id == self.run_id:
            account.on_report(report)
            entry.packed = None

    def mark_gone(self, manager: str) -> None:
        """Nothing more will come of this manager, unless it is heard again."""
        entry = self._entries.get(manager)
        if entry is None:
            return
        for account in entry.accounts.values():
            account.gone = True
        entry.packed = None

    def make_ack(
        self,
        manager: str,
        incarnation: int,
        *,
        epoch: int,
        learner: int,
        credit: Credit,
        version: int,
        first_actor: int,
    ) -> Ack:
        """The ack for an incarnation. Only after what it says has been committed."""
        account = self._find_account(manager, incarnation) or IncarnationAccount(incarnation)
        return Ack(
            run_id=self.run_id,
            epoch=epoch,
            learner=learner,
            manager=manager,
            incarnation=incarnation,
            contiguous=account.contiguous,
            extras=account.extras,
            rejected_batches=account.rejected_batches,
            rejected_rows=account.rejected,
            credit_batches=credit.batches,
            credit_bytes=credit.bytes,
            version=version,
            first_actor=first_actor,
            reason=credit.reason,
        )

    def manager_ids(self) -> list[str]:
        """The ids of which accounts are kept, in the order of their numbers."""
        return list(self._entries)

    def alive_incarnations(self) -> list[tuple[str, int]]:
        """(manager, incarnation) of all that are not gone: to whom acks go."""
        return [
            (entry.id, account.incarnation)
            for entry in self._entries.values()
            for account in entry.accounts.values()
            if not account.gone
        ]

    def manager_number(self, manager: str) -> int:
        """The small integer that stands for this id in the replay: the same for the whole run.

        Raises:
            KeyError: it was never heard.
        """
        return self._entries[manager].number

    def last_seen(self, manager: str) -> float:
        """When it was last heard; at the restart, if not since.

        Raises:
            KeyError: it was never heard.
        """
        return max(account.last_seen for account in self._entries[manager].accounts.values())

    def accounting(self, manager: str | None = None) -> SampleAccounting:
        """Where the rows of a manager went, or of all together.

        Raises:
            KeyError: this manager was never heard.
        """
        if manager is not None:
            return self._entries[manager].accounting()
        return sum((entry.accounting() for entry in self._entries.values()), self._closed)

    def _find_account(self, manager: str, incarnation: int) -> IncarnationAccount | None:
        entry = self._entries.get(manager)
        return None if entry is None else entry.accounts.get(incarnation)

    def _mark_alive(
        self, manager: str, incarnation: int, now: float
    ) -> tuple[ManagerEntry, IncarnationAccount]:
        entry = self._entries.get(manager)
        account = None if entry is None else entry.accounts.get(incarnation)
        if entry is None or account is None:
            entry, account = self._open_account(manager, incarnation)
        account.last_seen = now
        if account.gone:
            account.gone = False
            entry.packed = None
        return entry, account

    def _open_account(
        self, manager: str, incarnation: int
    ) -> tuple[ManagerEntry, IncarnationAccount]:
        if incarnation in self._retired:
            raise RetiredError(manager, incarnation)
        if self._accounts >= ACCOUNTS_MAX:
            self._evict_account(manager, incarnation)
        entry = self._entries.get(manager)
        if entry is None:
            entry = self._entries[manager] = ManagerEntry(manager, self._next_number)
            self._next_number += 1
        for older in entry.accounts.values():  # a newer incarnation: the process behind them ended
            older.gone = True
        if len(entry.accounts) > OLD_ACCOUNTS_MAX:
            self._close_account(entry, min(entry.accounts.values(), key=lambda a: a.last_seen))
        account = entry.accounts[incarnation] = IncarnationAccount(incarnation)
        self._accounts += 1
        entry.packed = None
        return entry, account

    def _evict_account(self, manager: str, incarnation: int) -> None:
        """Close the account that has been silent longest among those that are gone."""
        gone = [
            (account.last_seen, entry.number, entry, account)
            for entry in self._entries.values()
            for account in entry.accounts.values()
            if account.gone
        ]
        if not gone:
            raise LedgerFullError(manager, incarnation, ACCOUNTS_MAX)
        _, _, entry, account = min(gone, key=lambda place: place[:2])
        self._close_account(entry, account)
        if not entry.accounts:
            self._closed += entry.closed
            del self._entries[entry.id]

    def _close_account(self, entry: ManagerEntry, account: IncarnationAccount) -> None:
        """Keep only the sums of an account, and that it is closed."""
        account.gone = True
        entry.closed += account.accounting()
        del entry.accounts[account.incarnation]
        entry.packed = None
        self._accounts -= 1
        self._retired[account.incarnation] = None
        if len(self._retired) > RETIRED_MAX:
            del self._retired[next(iter(self._retired))]

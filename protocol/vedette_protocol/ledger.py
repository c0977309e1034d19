"""The ledger: the learner's exact record of settled batches, per manager incarnation.

The gateway calls it in this order::

    ledger = Ledger.from_bytes(stamp, now) if stamp else Ledger(run_id)
    batch = decode_up(frames)
    if not ledger.has_account(batch.manager, batch.incarnation):
        ledger.mark_alive(batch.manager, batch.incarnation, now)
    if ledger.record_batch(batch, now) == "new":
        ring.append(columns, batch.rows)      # or, where it is invalid, ledger.reject_batch(batch)
    ring.commit(ledger.to_bytes())            # rows and ledger become visible together ...
    send(encode(ledger.make_ack(...)))        # ... and only then are acknowledged

A batch is settled as soon as it is recorded, because a second copy of it may be next. An invalid
batch is rejected before the commit.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from vedette_protocol.account import (
    IncarnationAccount,
    ManagerEntry,
    SampleAccounting,
    check_count,
)
from vedette_protocol.credit import Credit
from vedette_protocol.errors import LedgerFullError, MalformedError, RetiredError, StampError
from vedette_protocol.limits import (
    ACCOUNTS_MAX,
    OLD_ACCOUNTS_MAX,
    RETIRED_MAX,
    STAMP_MAX_BYTES,
)
from vedette_protocol.messages import Ack, Batch, Report
from vedette_protocol.packing import pack, unpack

_FORMAT: Final = 1

Verdict: TypeAlias = Literal["new", "duplicate", "beyond"]
"""Insert the batch; discard it; or discard it and expect it again, because it is too far ahead."""


class Ledger:
    """Exact record of the batches of one run that were inserted or rejected.

    It is bounded: of each manager it keeps the newest incarnation and a few that were replaced.
    Of the others it keeps the sums.

    Args:
        closed: sums of the managers that are not kept any more.
    """

    def __init__(self, run_id: str, closed: SampleAccounting | None = None) -> None:
        self.run_id = run_id
        self._entries: dict[str, ManagerEntry] = {}
        self._accounts = 0
        self._next_number = 0
        self._closed = closed or SampleAccounting()
        self._retired: dict[int, None] = {}  # closed incarnations, oldest first

    @classmethod
    def from_bytes(cls, stamp: bytes | bytearray | memoryview, now: float) -> Ledger:
        """Restore a ledger. Every manager in it counts as seen at `now`.

        Raises:
            StampError: the bytes are not a ledger, or one of another format.
        """
        try:
            value = unpack(stamp, STAMP_MAX_BYTES)
            if type(value) is not list or not value or value[0] != _FORMAT:
                raise StampError(f"expected format {_FORMAT}")
            _, run_id, next_number, closed, retired, packed = value
            entries = [ManagerEntry.from_bytes(blob) for blob in packed]
            ledger = cls(str(run_id), SampleAccounting.from_wire(closed))
            ledger._next_number = check_count(next_number)
            ledger._retired = dict.fromkeys(map(check_count, retired))
        except (MalformedError, ValueError, TypeError) as error:
            raise StampError(str(error)) from error
        ledger._entries = {entry.id: entry for entry in entries}
        for entry in entries:
            ledger._accounts += len(entry.accounts)
            for account in entry.accounts.values():
                account.last_seen = now
        return ledger

    def to_bytes(self) -> bytes:
        """Pack the ledger for the replay's commit record, in at most `STAMP_MAX_BYTES`."""
        packed = [entry.packed or entry.to_bytes() for entry in self._entries.values()]
        state = [self.run_id, self._next_number, self._closed.to_wire(), list(self._retired)]
        return pack([_FORMAT, *state, packed])

    def mark_alive(self, manager: str, incarnation: int, now: float) -> None:
        """Mark an incarnation as alive, and open its account if it has none.

        Raises:
            RetiredError: its account was closed; its manager must start again.
            LedgerFullError: there is no room for another manager.
        """
        self._mark_alive(manager, incarnation, now)

    def record_batch(self, batch: Batch, now: float) -> Verdict:
        """Record a batch as inserted if it is new, else count it as a duplicate.

        A gateway may validate many batches at once, after it has recorded them and before it
        commits. It must reject the invalid ones (`reject_batch`).

        Raises:
            KeyError: the incarnation has no account. `mark_alive` opens one, and may close another.
        """
        entry = self._entries[batch.manager]
        account = entry.accounts[batch.incarnation]
        account.last_seen = now
        account.gone = False
        entry.packed = None
        if batch.base > account.contiguous:
            account.advance_to(batch.base)
        if account.settle(batch.seq):
            account.inserted += batch.rows
            return "new"
        if account.is_beyond(batch.seq):
            return "beyond"
        account.duplicates += batch.rows
        return "duplicate"

    def reject_batch(self, batch: Batch) -> None:
        """Count a recorded batch as rejected instead of inserted. It stays settled.

        Raises:
            KeyError: its incarnation has no account.
        """
        entry = self._entries[batch.manager]
        account = entry.accounts[batch.incarnation]
        account.inserted -= batch.rows
        account.rejected += batch.rows
        account.rejected_batches += 1
        entry.packed = None

    def is_new(self, manager: str, incarnation: int, seq: int) -> bool:
        """Return True if this batch would be recorded as new. Changes nothing."""
        account = self._find_account(manager, incarnation)
        if account is None:
            return incarnation not in self._retired
        return not account.is_settled(seq) and not account.is_beyond(seq)

    def has_settled(self, manager: str, incarnation: int, seq: int) -> bool:
        """Return True if this batch is settled, so that it only needs an ack."""
        account = self._find_account(manager, incarnation)
        return account is not None and account.is_settled(seq)

    def has_account(self, manager: str, incarnation: int) -> bool:
        """Return True if this incarnation has an account."""
        return self._find_account(manager, incarnation) is not None

    def settle_rejected(
        self, manager: str, incarnation: int, seq: int, rows: int, now: float
    ) -> bool:
        """Settle an invalid batch, so that it is not sent again. Return False if it is not new.

        Raises:
            RetiredError, LedgerFullError: as `mark_alive`.
        """
        entry, account = self._mark_alive(manager, incarnation, now)
        if not account.settle(seq):
            return False
        account.rejected += rows
        account.rejected_batches += 1
        entry.packed = None
        return True

    def on_report(self, report: Report, now: float) -> None:
        """Copy a manager's counts. Those of another run only show that it is alive.

        Raises:
            RetiredError, LedgerFullError: as `mark_alive`.
        """
        entry, account = self._mark_alive(report.manager, report.incarnation, now)
        if report.run_id == self.run_id:
            account.on_report(report)
            entry.packed = None

    def mark_gone(self, manager: str) -> None:
        """Mark a manager as gone, until its next message."""
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
        """Make the ack for an incarnation. Call it after the commit of what the ack says."""
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
        """Return the ids of all managers with an account, in the order of their numbers."""
        return list(self._entries)

    def alive_incarnations(self) -> list[tuple[str, int]]:
        """Return (manager, incarnation) of all that are not gone: they get acks."""
        return [
            (entry.id, account.incarnation)
            for entry in self._entries.values()
            for account in entry.accounts.values()
            if not account.gone
        ]

    def manager_number(self, manager: str) -> int:
        """Return the integer that stands for this manager in the replay during the whole run.

        Raises:
            KeyError: this manager has no account.
        """
        return self._entries[manager].number

    def last_seen(self, manager: str) -> float:
        """Return the time of a manager's last message, or of the restart if there was none since.

        Raises:
            KeyError: this manager has no account.
        """
        return max(account.last_seen for account in self._entries[manager].accounts.values())

    def accounting(self, manager: str | None = None) -> SampleAccounting:
        """Return the sample accounting of a manager, or of all together.

        Raises:
            KeyError: this manager has no account.
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
        for older in entry.accounts.values():  # their process has ended
            older.gone = True
        if len(entry.accounts) > OLD_ACCOUNTS_MAX:
            self._close_account(entry, min(entry.accounts.values(), key=lambda a: a.last_seen))
        account = entry.accounts[incarnation] = IncarnationAccount(incarnation)
        self._accounts += 1
        entry.packed = None
        return entry, account

    def _evict_account(self, manager: str, incarnation: int) -> None:
        """Close the account that is gone and has been silent for the longest time."""
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
        """Drop an account. Its sums are kept, and that it is closed."""
        account.gone = True
        entry.closed += account.accounting()
        del entry.accounts[account.incarnation]
        entry.packed = None
        self._accounts -= 1
        self._retired[account.incarnation] = None
        if len(self._retired) > RETIRED_MAX:
            del self._retired[next(iter(self._retired))]

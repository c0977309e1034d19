"""The ledger: the learner's exact record of settled batches, per manager incarnation.

The gateway calls it in this order::

    ledger = Ledger.from_bytes(stamp, now) if stamp else Ledger(run_id)
    batch = decode_up(frames)
    if not ledger.has_account(batch.manager, batch.incarnation):
        ledger.mark_alive(batch.manager, batch.incarnation, now, has_sent=True)
    if ledger.record_batch(batch, now) == "new":
        ring.append(columns, batch.rows)      # or, where it is invalid, ledger.reject_batch(batch)
    ring.commit(ledger.to_bytes())            # rows and ledger become visible together ...
    ledger.account(batch.manager, batch.incarnation).grant(64)
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
from vedette_protocol.closed_accounts import Archive, ClosedAccounts
from vedette_protocol.errors import (
    ArchiveFullError,
    LedgerFormatError,
    LedgerFullError,
    MalformedError,
    RetiredError,
    StampError,
)
from vedette_protocol.ledger_places import LedgerPlaces
from vedette_protocol.limits import (
    EXTRAS_MAX,
    OLD_ACCOUNTS_MAX,
    RETIRED_MAX,
    ROWS_MAX,
    STAMP_MAX_BYTES,
)
from vedette_protocol.messages import OUTBOX, Ack, Batch, Report
from vedette_protocol.packing import pack, unpack

_FORMAT: Final = 2
_OUTBOX_FORMAT: Final = 3  # of a ledger that has known a manager with an outbox
_REPLACED_S: Final = 5.0  # silence after which a replaced incarnation has ended for certain

Verdict: TypeAlias = Literal["new", "duplicate", "beyond"]
"""Insert the batch; discard it; or discard it and expect it again: its number was not granted."""


class Ledger:
    """Exact record of the batches of one run that were inserted or rejected.

    It is bounded: of each manager it keeps the newest incarnation and a few that were replaced.
    Of the others it keeps the sums.

    Args:
        closed: sums of the managers that are not kept any more.
        places: bounds the accounts, and shares them among keys.
        batch_rows, window_batches: the rows of a batch and the batches of a manager's window:
            larger claims are not believed. The caller may set them.
        living: managers with an incarnation that is not gone; they get acks.
        env_steps: environment steps that inserted batches carried, as in `accounting`.
    """

    def __init__(self, run_id: str, closed: SampleAccounting | None = None) -> None:
        self.run_id = run_id
        self.batch_rows = ROWS_MAX
        self.window_batches = EXTRAS_MAX
        self.living: dict[str, ManagerEntry] = {}
        self._entries: dict[str, ManagerEntry] = {}
        self.places = LedgerPlaces()
        # Keys for which no account could be closed, and how many will be in a moment.
        self._full: dict[str, int] = {}
        self._next_number = 0
        self._closed = closed or SampleAccounting()
        self.env_steps = self._closed.env_steps
        self._retired: dict[int, None] = {}  # closed incarnations, oldest first
        self._kept = ClosedAccounts()  # of managers with an outbox
        # False: an older release has closed accounts here, perhaps of managers with an outbox.
        self._keeps_outboxes = True
        self._outboxes: dict[int, None] = {}  # accounts whose managers have an outbox

    @classmethod
    def from_bytes(cls, stamp: bytes | bytearray | memoryview, now: float) -> Ledger:
        """Restore a ledger. Every manager in it counts as seen at `now`.

        Raises:
            StampError: the bytes are not a ledger, or one of another format.
        """
        try:
            value = unpack(stamp, STAMP_MAX_BYTES)
            if type(value) is not list or not value:
                raise StampError(f"expected a list of format {_FORMAT}")
            outboxes: list[int] = []
            kept: list[bytes] = []
            sums: list[int] = SampleAccounting().to_wire()
            archive_end = 0
            keeps: bool | None = None
            if value[0] == _OUTBOX_FORMAT:
                *value, outboxes, kept, sums, archive_end, keeps = value
            elif value[0] != _FORMAT:
                raise LedgerFormatError(value[0], _FORMAT)
            _, run_id, next_number, closed, retired, packed = value
            entries = [ManagerEntry.from_bytes(blob) for blob in packed]
            ledger = cls(str(run_id), SampleAccounting.from_wire(closed))
            ledger._next_number = check_count(next_number)
            ledger._retired = dict.fromkeys(map(check_count, retired))
            ledger._outboxes = dict.fromkeys(map(check_count, outboxes))
            ledger._keeps_outboxes = not retired if keeps is None else bool(keeps)
            ledger._kept = ClosedAccounts(check_count(archive_end))
            ledger._kept.sums = SampleAccounting.from_wire(sums)
            for record in kept:
                ledger._kept.add_record(record)
        except (MalformedError, ValueError, TypeError) as error:
            raise StampError(str(error)) from error
        ledger._entries = {entry.id: entry for entry in entries}
        for entry in entries:
            ledger._note_living(entry)
            ledger.places.add(entry.key, len(entry.accounts))
            for account in entry.accounts.values():
                account.last_seen = now
                account.has_outbox = account.incarnation in ledger._outboxes
        ledger.env_steps = ledger.accounting().env_steps
        return ledger

    def to_bytes(self) -> bytes:
        """Pack the ledger for the replay's commit record, in at most `STAMP_MAX_BYTES`."""
        packed = [entry.packed or entry.to_bytes() for entry in self._entries.values()]
        state = [self.run_id, self._next_number, self._closed.to_wire(), list(self._retired)]
        kept = self._kept
        if not self._outboxes and not kept and not kept.end:
            return pack([_FORMAT, *state, packed])
        closed = [kept.records, kept.sums.to_wire(), kept.end, self._keeps_outboxes]
        return pack([_OUTBOX_FORMAT, *state, packed, list(self._outboxes), *closed])

    @property
    def archive_end(self) -> int:
        """Bytes of the archive that belong to this ledger."""
        return self._kept.end

    def use_archive(self, archive: Archive) -> None:
        """Find closed accounts there, and move there what closes."""
        self._kept.archive = archive

    def archive_closed(self) -> None:
        """Move closed accounts of managers with an outbox to the archive; call before `to_bytes`.

        Those that the disk does not have there yet stay here. Nobody waits for the disk.
        """
        self._kept.to_archive()

    def mark_alive(
        self,
        manager: str,
        incarnation: int,
        now: float,
        key: str = "",
        *,
        has_sent: bool = False,
        ended: bool = False,
        has_outbox: bool = False,
    ) -> None:
        """Mark an incarnation as alive, and open its account if it has none.

        Args:
            key: the key of its connection, which `may_use` this manager's id; the id is this key's
                then.
            has_sent: it has sent batches before, so that it may have had an account.
            ended: it is sent from an outbox beside the incarnation that lives.
            has_outbox: its account would be known if it had one.

        Raises:
            RetiredError: its account was closed, or may have been; its manager must start again.
            LedgerFullError: there is no room for another manager.
        """
        entry = self._entries.get(manager)
        if key and entry is not None and entry.key != key:
            self._hand_over(entry, key)
        self._mark_alive(
            manager,
            incarnation,
            now,
            key,
            has_sent=has_sent,
            ended=ended,
            has_outbox=has_outbox,
        )

    def may_use(self, manager: str, key: str) -> bool:
        """Return True if a connection with this key may speak for a manager.

        An id belongs to the key that opened its account, until it is closed. One whose manager is
        gone is also free if nothing came of it, or if its key is not admitted any more. But the
        name of an admitted key is an id that no other key may take.
        """
        entry = self._entries.get(manager)
        if not key or (entry is not None and entry.key == key):
            return True
        if manager != key and self.places.is_admitted(manager):
            return False
        if entry is None or not entry.key:
            return True
        if not entry.is_gone:
            return False
        return not (entry.accounting().inserted and self.places.is_admitted(entry.key))

    def retire(self, manager: str, incarnation: int) -> None:
        """Close an account for good: messages of this incarnation are refused from now on."""
        entry = self._entries.get(manager)
        account = self._find_account(manager, incarnation)
        if entry is not None and account is not None:
            self._close_account(entry, account)
            self._retired[incarnation] = None
            self._forget_empty(entry)

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
        if account.gone:
            account.gone = False
            self.living[entry.id] = entry
        entry.packed = None
        if batch.base > account.contiguous:
            account.advance_to(batch.base)
        if batch.seq >= account.limit:
            return "beyond"
        if account.settle(batch.seq):
            account.inserted += batch.rows
            account.env_steps += batch.env_steps
            self.env_steps += batch.env_steps
            return "new"
        # A duplicate is not validated: its number of rows is the sender's claim.
        account.duplicates += min(batch.rows, self.batch_rows)
        return "duplicate"

    def reject_batch(self, batch: Batch, why: str = "") -> None:
        """Count a recorded batch as rejected instead of inserted. It stays settled.

        Raises:
            KeyError: its incarnation has no account.
        """
        entry = self._entries[batch.manager]
        account = entry.accounts[batch.incarnation]
        account.inserted -= batch.rows
        account.env_steps -= batch.env_steps
        self.env_steps -= batch.env_steps
        account.rejected += min(batch.rows, self.batch_rows)
        account.rejected_batches += 1
        account.rejected_reason = why
        entry.packed = None

    def is_new(self, manager: str, incarnation: int, seq: int) -> bool:
        """Return True if this batch would be recorded as new. Changes nothing."""
        account = self._find_account(manager, incarnation)
        return account is not None and seq < account.limit and not account.is_settled(seq)

    def settled_below(self, manager: str, incarnation: int) -> int:
        """Return the number below which all of an incarnation is settled, also of a closed one."""
        account = self._find_account(manager, incarnation)
        account = account or self._kept.find(manager, incarnation)
        return 0 if account is None else account.contiguous

    def is_closed_with_all(self, report: Report) -> bool:
        """Return True if a report needs no account: the incarnation has ended, its account is
        closed, and all that it has is settled. `make_ack` answers it."""
        if not report.ended or self.has_account(report.manager, report.incarnation):
            return False
        closed = self._kept.find(report.manager, report.incarnation)
        return closed is not None and report.sequenced <= closed.contiguous

    def account(self, manager: str, incarnation: int) -> IncarnationAccount:
        """Return the account of an incarnation.

        Raises:
            KeyError: it has none.
        """
        return self._entries[manager].accounts[incarnation]

    def has_account(self, manager: str, incarnation: int) -> bool:
        """Return True if this incarnation has an account."""
        return self._find_account(manager, incarnation) is not None

    def settle_rejected(
        self, manager: str, incarnation: int, seq: int, rows: int, now: float, why: str = ""
    ) -> bool:
        """Settle an invalid batch, so that it is not sent again. Return False if it is not new.

        Args:
            rows: the sender's claim.
            why: the reason for its ack.

        Raises:
            RetiredError, LedgerFullError: as `mark_alive`.
        """
        entry, account = self._mark_alive(manager, incarnation, now, has_sent=True)
        if seq >= account.limit or not account.settle(seq):
            return False
        account.rejected += min(rows, self.batch_rows)
        account.rejected_batches += 1
        account.rejected_reason = why
        entry.packed = None
        return True

    def on_report(self, report: Report, now: float, claims_max: int = 0) -> int:
        """Copy a manager's counts. Those of another run only show that it is alive.

        Args:
            claims_max: batches by which its limit may be raised, because it has received a higher
                one from an earlier learner.

        Returns:
            The batches by which its limit was raised.

        Raises:
            RetiredError, LedgerFullError: as `mark_alive`.
        """
        entry, account = self._mark_alive(
            report.manager,
            report.incarnation,
            now,
            has_sent=self.has_sent(report),
            ended=report.ended,
            has_outbox=OUTBOX in report.features,
        )
        accepted = 0
        if report.run_id == self.run_id:
            account.advance_to(report.base)
            accepted = account.accept_claim(report.limit, claims_max)
            account.on_report(report, self.batch_rows, self.window_batches)
            if OUTBOX in report.features:
                account.has_outbox = True
                self._outboxes[account.incarnation] = None
            self._note_living(entry)
            entry.packed = None
            self._full.clear()  # it may be gone
        return accepted

    def has_sent(self, report: Report) -> bool:
        """Return True if the sender of a report has sent batches of this run."""
        return report.run_id == self.run_id and report.sequenced > 0

    def count_lost(self, newer: Ledger) -> None:
        """Count what a newer state of this ledger knew to be produced, and whose rows are gone.

        It is lost once its manager is gone, or has reported what it still holds.
        """
        for entry in self._entries.values():
            for incarnation, account in entry.accounts.items():
                closed = newer._kept.find(entry.id, incarnation)
                if closed is not None:
                    account.produced = max(account.produced, closed.accounting().produced)
                    entry.packed = None
        for entry in newer._entries.values():
            for incarnation, later in entry.accounts.items():
                try:
                    mine, account = self._mark_alive(entry.id, incarnation, 0.0, entry.key)
                except (RetiredError, LedgerFullError):
                    continue
                account.produced = max(account.produced, later.accounting().produced)
                account.gone = later.gone
                mine.packed = None
                self._note_living(mine)

    def mark_gone(self, manager: str) -> None:
        """Mark a manager as gone, until its next message."""
        entry = self._entries.get(manager)
        if entry is None:
            return
        for account in entry.accounts.values():
            account.gone = True
        entry.packed = None
        self._full.clear()
        self.living.pop(manager, None)

    def mark_silent(self, before: float) -> list[str]:
        """Mark incarnations as gone of which nothing came since `before`.

        Returns:
            The managers of which none is left.
        """
        left = []
        for entry in list(self.living.values()):
            silent = [a for a in entry.accounts.values() if not a.gone and a.last_seen < before]
            if not silent:
                continue
            for account in silent:
                account.gone = True
            entry.packed = None
            self._full.clear()
            self._note_living(entry)
            if entry.id not in self.living:
                left.append(entry.id)
        return left

    def make_ack(
        self,
        manager: str,
        incarnation: int,
        *,
        epoch: int,
        learner: int,
        version: int,
        first_actor: int,
        reason: str = "",
        safe: int | None = None,
    ) -> Ack:
        """Make the ack for an incarnation. Call it after the commit of what the ack says."""
        account = self._find_account(manager, incarnation)
        account = account or self._kept.find(manager, incarnation)
        account = account or IncarnationAccount(incarnation)
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
            limit=account.limit,
            version=version,
            first_actor=first_actor,
            reason=reason,
            rejected_reason=account.rejected_reason,
            safe=safe,
        )

    def manager_ids(self) -> list[str]:
        """Return the ids of all managers with an account, in the order of their numbers."""
        return list(self._entries)

    def alive_incarnations(self) -> list[tuple[str, int]]:
        """Return (manager, incarnation) of all that are not gone: they get acks."""
        return [
            (entry.id, incarnation)
            for entry in self.living.values()
            for incarnation in entry.alive_incarnations()
        ]

    def manager_number(self, manager: str) -> int:
        """Return the integer that stands for this manager in the replay during the whole run.

        Raises:
            KeyError: this manager has no account.
        """
        return self._entries[manager].number

    def accounting(self, manager: str | None = None) -> SampleAccounting:
        """Return the sample accounting of a manager, or of all together.

        Raises:
            KeyError: this manager has no account.
        """
        if manager is not None:
            return self._entries[manager].accounting()
        kept = self._kept
        closed = [kept.sums.counts(), *(account.counts() for _, account in kept.items())]
        return self._closed.plus(closed).plus(
            part for entry in self._entries.values() for part in entry.parts()
        )

    def _find_account(self, manager: str, incarnation: int) -> IncarnationAccount | None:
        entry = self._entries.get(manager)
        return None if entry is None else entry.accounts.get(incarnation)

    def _mark_alive(
        self,
        manager: str,
        incarnation: int,
        now: float,
        key: str = "",
        *,
        has_sent: bool = False,
        ended: bool = False,
        has_outbox: bool = False,
    ) -> tuple[ManagerEntry, IncarnationAccount]:
        entry = self._entries.get(manager)
        account = None if entry is None else entry.accounts.get(incarnation)
        if entry is None or account is None:
            # One that has sent batches had an account. Once closed ones are forgotten, it cannot be
            # told from one of them, whose batches would be inserted twice.
            forgets = len(self._retired) >= RETIRED_MAX
            if has_outbox and self._keeps_outboxes:
                forgets = False
            is_doubtful = has_sent and forgets and self._kept.find(manager, incarnation) is None
            if incarnation in self._retired or is_doubtful:
                raise RetiredError(manager, incarnation, replaced=entry is not None)
            entry, account = self._open_account(manager, incarnation, key, now, ended=ended)
        account.last_seen = now
        if account.gone:
            account.gone = False
            entry.packed = None
            self.living[manager] = entry
        return entry, account

    def _hand_over(self, entry: ManagerEntry, key: str) -> None:
        """Give an id to another key. Places that may be reserved for its owner stay the owner's."""
        if not self.places.is_admitted(entry.key):
            self.places.add(entry.key, -len(entry.accounts))
            self.places.add(key, len(entry.accounts))
            entry.key = key
            entry.packed = None
            return
        for account in list(entry.accounts.values()):  # nothing came of them
            self._close_account(entry, account)
        self._forget_empty(entry)

    def _note_living(self, entry: ManagerEntry) -> None:
        if entry.alive_incarnations():
            self.living[entry.id] = entry
        else:
            self.living.pop(entry.id, None)

    def _open_account(
        self, manager: str, incarnation: int, key: str, now: float, *, ended: bool
    ) -> tuple[ManagerEntry, IncarnationAccount]:
        if self._kept.is_full:  # another account may have to be closed for it
            raise ArchiveFullError(manager, incarnation, self._kept.end)
        while not self.places.has_room(key):
            if self._evict_account(key, now):
                continue
            if manager not in self._entries:
                if self.places.has_room(key, self._full[key]) and self.places.has_spare(key):
                    break  # its place is of one that was replaced a moment ago
                raise LedgerFullError(manager, incarnation, self.places.limit)
            # Its process has started again, and the one before is not known to be gone.
            if not self.places.has_spare(key):
                before = self._entries[manager]
                self._close_account(before, min(before.accounts.values(), key=_worth))
            break
        entry = self._entries.get(manager)
        if entry is None:
            entry = self._entries[manager] = ManagerEntry(manager, self._next_number, key=key)
            self._next_number += 1
        for older in [] if ended else entry.accounts.values():  # their process has ended
            older.gone = True
        if len(entry.accounts) > OLD_ACCOUNTS_MAX:
            self._close_account(entry, min(entry.accounts.values(), key=_worth))
        account = self._kept.take(manager, incarnation) or IncarnationAccount(incarnation)
        if account.has_outbox:
            self._outboxes[incarnation] = None
        entry.accounts[incarnation] = account
        self.places.add(entry.key, 1)
        self._full.clear()
        entry.packed = None
        self.living[manager] = entry
        return entry, account

    def _evict_account(self, key: str, now: float) -> bool:
        """Close an account that is gone, of the key that holds most: a blank one, or else the one
        that has been silent for the longest time. Return False if there is none.

        One that was replaced a moment ago may still live, if two managers use its id.
        """
        if key in self._full:
            return False
        gone = [
            (-self.places.held(entry.key), _worth(account), entry.number, entry, account)
            for entry in self._entries.values()
            if self.places.may_close(entry.key, key)
            for account in entry.accounts.values()
            if account.gone
        ]
        closable = [
            place for place in gone if now - place[-1].last_seen >= _REPLACED_S or place[-2].is_gone
        ]
        if not closable:
            self._full[key] = len(gone)
            return False
        *_, entry, account = min(closable, key=lambda place: place[:3])
        self._close_account(entry, account)
        self._forget_empty(entry)
        return True

    def _forget_empty(self, entry: ManagerEntry) -> None:
        """Keep only the sums of a manager that has no account any more."""
        if not entry.accounts:
            self._closed += entry.closed
            del self._entries[entry.id]

    def _close_account(self, entry: ManagerEntry, account: IncarnationAccount) -> None:
        """Drop an account. Its sums are kept, and that it is closed unless it is blank."""
        account.gone = True
        self._outboxes.pop(account.incarnation, None)
        if account.has_outbox and not account.is_blank:
            self._kept.add(entry.id, account)
        else:
            entry.closed += account.accounting()
        del entry.accounts[account.incarnation]
        entry.packed = None
        self.places.add(entry.key, -1)
        self._note_living(entry)
        self._full.clear()
        if not account.is_blank and not account.has_outbox:
            self._retire(account.incarnation)

    def _retire(self, incarnation: int) -> None:
        self._retired[incarnation] = None
        if len(self._retired) > RETIRED_MAX:
            del self._retired[next(iter(self._retired))]


def _worth(account: IncarnationAccount) -> tuple[bool, float]:
    """Order accounts by what is lost with them: blank ones first, then by their last message."""
    return not account.is_blank, account.last_seen

"""Closed accounts of managers with an outbox, which a ledger never forgets.

What is in a manager's files may come at any time: after months offline, or from a copy of its disk.
So the account of each of its incarnations is kept exactly. The newest are in the ledger's stamp;
the others in an *archive*, a file that is only appended to::

    ledger.archive_closed()                    # append those that closed; drop those on the disk
    ring.commit(ledger.to_bytes())             # has the archive's length with it

An account leaves the stamp when the disk has it in the archive, so a loss of power takes neither.
A start cuts the archive to the length in the stamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from vedette_protocol.account import IncarnationAccount, SampleAccounting
from vedette_protocol.limits import ARCHIVE_MAX_BYTES, CLOSING_MAX, STAMP_MAX_BYTES
from vedette_protocol.packing import pack, unpack


class Archive(Protocol):
    """The records behind the ledger's stamp, each under an incarnation."""

    @property
    def end(self) -> int:
        """Bytes of the records."""
        ...

    @property
    def synced(self) -> int:
        """Those of them that the disk has."""
        ...

    def append(self, records: Sequence[tuple[int, bytes]]) -> bool:
        """Append records; False: none can be appended now."""
        ...

    def find(self, key: int, below: int | None = None) -> Iterator[bytes]:
        """Yield the records of an incarnation that begin below a byte, the newest first."""
        ...


@dataclass(slots=True)
class _Closed:
    """An account that the stamp still has.

    Args:
        record: its bytes, which are written with each commit.
        end: of the archive, when it was appended; 0: it was not.
    """

    account: IncarnationAccount
    record: bytes
    end: int = 0


class ClosedAccounts:
    """The closed accounts of a ledger.

    Args:
        end: bytes of the archive that belong to the ledger.

    Attributes:
        archive: None: it cannot be read here, and the stamp keeps all.
        sums: of those that are in the archive alone.
    """

    def __init__(self, end: int = 0) -> None:
        self.archive: Archive | None = None
        self.end = end
        self.sums = SampleAccounting()
        self._closed: dict[tuple[str, int], _Closed] = {}  # oldest first

    def __len__(self) -> int:
        """Return how many the stamp has."""
        return len(self._closed)

    def items(self) -> Iterator[tuple[str, IncarnationAccount]]:
        """Yield those that the stamp has, each with its manager."""
        for (manager, _), closed in self._closed.items():
            yield manager, closed.account

    @property
    def records(self) -> list[bytes]:
        """The same as bytes."""
        return [closed.record for closed in self._closed.values()]

    @property
    def is_full(self) -> bool:
        """True if no more can be closed now, because the disk does not take them, or at all."""
        return len(self._closed) >= CLOSING_MAX or self.end >= ARCHIVE_MAX_BYTES

    def add(self, manager: str, account: IncarnationAccount) -> None:
        """Keep an account as it is."""
        account.gone = True
        account.has_outbox = True
        record = pack([manager, account.to_wire()])
        self._closed[manager, account.incarnation] = _Closed(account, record)

    def add_record(self, record: bytes) -> None:
        """Keep an account of a stamp.

        Raises:
            ProtocolError, ValueError, TypeError: it is none.
        """
        self.add(*_unpacked(record))

    def find(self, manager: str, incarnation: int) -> IncarnationAccount | None:
        """Return the account of an incarnation, to be read; None: it has no closed one."""
        closed = self._closed.get((manager, incarnation))
        if closed is not None:
            return closed.account
        return self._find_archived(manager, incarnation)

    def take(self, manager: str, incarnation: int) -> IncarnationAccount | None:
        """Return an account that is opened again, as it was; None: it has no closed one."""
        closed = self._closed.pop((manager, incarnation), None)
        if closed is not None:
            return closed.account
        account = self._find_archived(manager, incarnation)
        if account is not None:
            self.sums = self.sums.without(account.counts())
        return account

    def to_archive(self) -> None:
        """Drop those that the disk has in the archive; append what is not there."""
        if self.archive is None:
            return
        synced = self.archive.synced
        for key, closed in list(self._closed.items()):
            if not closed.end or closed.end > synced:
                break
            del self._closed[key]
            self.sums += closed.account.accounting()
            self.end = closed.end
        waiting = [closed for closed in self._closed.values() if not closed.end]
        records = [(closed.account.incarnation, closed.record) for closed in waiting]
        if waiting and self.archive.append(records):
            for closed in waiting:
                closed.end = self.archive.end

    def _find_archived(self, manager: str, incarnation: int) -> IncarnationAccount | None:
        if self.archive is None or not self.end:
            return None
        for record in self.archive.find(incarnation, self.end):
            owner, account = _unpacked(record)
            if owner == manager:
                account.gone = True
                account.has_outbox = True
                return account
        return None


def _unpacked(record: bytes) -> tuple[str, IncarnationAccount]:
    manager, account = unpack(record, STAMP_MAX_BYTES)
    return str(manager), IncarnationAccount.from_wire(account)

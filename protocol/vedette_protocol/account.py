"""Sample accounting: the ledger's record of each incarnation, the sums, and both as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from vedette_protocol.errors import StampError
from vedette_protocol.limits import COUNT_MAX, EXTRAS_MAX, OUTBOX_BATCHES_MAX, STAMP_MAX_BYTES
from vedette_protocol.messages import OUTBOX, Report
from vedette_protocol.packing import pack, unpack

_COUNTS: Final = (
    *("inserted", "duplicates", "rejected", "rejected_batches"),
    *("produced", "dropped", "window_rows", "sequenced", "base", "env_steps"),
)
"""The counts of an incarnation, in the order of its packed form."""
_counts_of: Final = attrgetter(*_COUNTS)  # each commit packs the managers that sent something


@dataclass(frozen=True, slots=True)
class SampleAccounting:
    """Counts of rows: ``produced == inserted + rejected + dropped + in_flight + lost``.

    Args:
        produced: reported by the manager, at least the rows that are counted below, and at most
            what its sequence numbers make possible.
        inserted: put into the replay; some may have been overwritten since.
        duplicates: received again and discarded; not part of the sum.
        rejected: refused because they were invalid.
        dropped: discarded by the manager before it sent them.
        in_flight: held by a living manager, or on their way.
        lost: held by no process. Their manager is gone, the run ended before they arrived, or they
            were acknowledged by a learner that was then restored from an older state.
        env_steps: environment steps that inserted batches carried; not part of the sum.
    """

    produced: int = 0
    inserted: int = 0
    duplicates: int = 0
    rejected: int = 0
    dropped: int = 0
    in_flight: int = 0
    lost: int = 0
    env_steps: int = 0

    def __add__(self, other: SampleAccounting) -> SampleAccounting:
        return self.plus([other.counts()])

    def plus(self, others: Iterable[tuple[int, ...]]) -> SampleAccounting:
        """Add up this and the counts of others, of thousands of managers at every status."""
        return SampleAccounting(*map(sum, zip(self.counts(), *others, strict=True)))

    def without(self, others: tuple[int, ...]) -> SampleAccounting:
        """Subtract counts that were added before; sums were limited, so none falls below 0."""
        pairs = zip(self.counts(), others, strict=True)
        return SampleAccounting(*(max(0, mine - other) for mine, other in pairs))

    def counts(self) -> tuple[int, ...]:
        """Return the counts in the order of the fields."""
        return (
            *(self.produced, self.inserted, self.duplicates, self.rejected),
            *(self.dropped, self.in_flight, self.lost, self.env_steps),
        )

    def to_wire(self) -> list[int]:
        """Return the counts, limited to 64 bits even where peers reported absurd ones."""
        counts = self.counts()
        return [*counts] if max(counts) <= COUNT_MAX else [min(c, COUNT_MAX) for c in counts]

    @classmethod
    def from_wire(cls, value: Any) -> SampleAccounting:
        """Convert what `to_wire` returned.

        Args:
            value: read from a file, checked here.

        Raises:
            StampError: it is not a list of counts.
        """
        counts = [check_count(count) for count in value]
        if len(counts) != 8:
            raise StampError(f"{len(counts)} sums")
        return cls(*counts)


@dataclass(slots=True)
class IncarnationAccount:
    """The ledger's record of one incarnation of a manager: an exact set of numbers, and counts.

    Args:
        contiguous: every sequence number below it is settled.
        extras: bit map of the settled numbers above: bit ``i`` for ``contiguous + i``; bit 0 is 0.
        env_steps: the environment steps that inserted batches carried.
        produced, dropped, window_rows, sequenced, base: numbers of the last report.
        limit: the highest limit that it was granted, or that a learner before this one may have
            granted. Not kept over a restart.
        rejected_reason: why the last batch that was rejected was; not kept over a restart.
        gone: no more messages are expected from it.
        last_seen: time of its last message; not kept over a restart.
        has_outbox: its batches lie in files, so that they may come at any time.
    """

    incarnation: int
    contiguous: int = 0
    extras: int = 0
    inserted: int = 0
    duplicates: int = 0
    rejected: int = 0
    rejected_batches: int = 0
    produced: int = 0
    dropped: int = 0
    window_rows: int = 0
    sequenced: int = 0
    base: int = 0
    env_steps: int = 0
    gone: bool = False
    last_seen: float = field(default=0.0, compare=False)
    limit: int = field(default=0, compare=False)
    rejected_reason: str = field(default="", compare=False)
    has_outbox: bool = field(default=False, compare=False)

    @property
    def settled_batches(self) -> int:
        """Number of batches that were inserted or rejected."""
        return self.contiguous + self.extras.bit_count()

    @property
    def open_batches(self) -> int:
        """Number of batches that it may send, or has sent, and that are not settled."""
        return self.limit - self.settled_batches

    def grant(self, batches: int) -> None:
        """Raise the limit so that `batches` may be unsettled; never lower it."""
        # `settle` keeps no exact set beyond EXTRAS_MAX, so no number there may be sent.
        limit = self.contiguous + min(batches + self.extras.bit_count(), EXTRAS_MAX)
        self.limit = max(self.limit, min(limit, COUNT_MAX))  # an ack holds no larger number

    def accept_claim(self, limit: int, batches_max: int) -> int:
        """Raise the limit to one that an earlier learner granted, by `batches_max` at most.

        Returns:
            The batches by which it was raised.
        """
        more = min(limit, self.contiguous + EXTRAS_MAX) - self.limit
        accepted = max(0, min(more, batches_max))
        self.limit += accepted
        return accepted

    def is_settled(self, seq: int) -> bool:
        """Return True if batch `seq` was inserted or rejected."""
        offset = seq - self.contiguous
        return offset < 0 or bool(self.extras >> offset & 1)

    @property
    def is_blank(self) -> bool:
        """True if it has counted nothing, so that nothing is forgotten with it."""
        return not (self.contiguous or self.extras or self.produced)

    def settle(self, seq: int) -> bool:
        """Mark batch `seq` as settled. Return False if it was before, or is too far ahead."""
        offset = seq - self.contiguous
        if offset == 0:
            self.contiguous += 1
            self.extras >>= 1
            if self.extras:
                self._advance_contiguous()
            return True
        if offset < 0 or offset >= EXTRAS_MAX or self.extras >> offset & 1:
            return False
        self.extras |= 1 << offset
        return True

    def advance_to(self, base: int) -> None:
        """Mark all below `base` as settled: an earlier state of the ledger acknowledged them."""
        if base > self.contiguous:
            self.extras >>= base - self.contiguous
            self.contiguous = base
            self._advance_contiguous()
            self.limit = max(self.limit, self.contiguous)  # else `open_batches` would be negative

    def on_report(self, report: Report, rows_max: int, window_batches: int) -> None:
        """Copy the counts of a report, unless it is older than the last one.

        Args:
            rows_max, window_batches: the largest believable batch and window; an outbox is larger.
        """
        produced = self.produced
        smaller = report.produced < produced or report.dropped < self.dropped
        smaller = smaller or report.base < self.base or report.sequenced < self.sequenced
        # The files of one that has ended may have lost their tail, or be an older copy.
        if smaller and not report.ended:
            return
        self.gone = report.state == "gone"
        self.sequenced = max(report.sequenced, self.sequenced)
        self.base = max(report.base, self.base)
        self.dropped = max(report.dropped, self.dropped)
        # Files hold more than a window does.
        most = OUTBOX_BATCHES_MAX if OUTBOX in report.features else window_batches
        self.window_rows = min(report.window_rows, rows_max * min(report.window_batches, most))
        sent = rows_max * min(report.sequenced, self.limit)  # no number above was granted
        self.produced = min(report.produced, self.dropped + self.window_rows + sent)
        if report.ended:
            self.produced = max(produced, self.produced)

    def accounting(self) -> SampleAccounting:
        """Return the sample accounting of this incarnation."""
        return SampleAccounting(*self.counts())

    def counts(self) -> tuple[int, ...]:
        """Return the counts of `accounting`, in the order of its fields."""
        settled = self.inserted + self.rejected
        produced = max(self.produced, settled)
        missing = produced - settled
        # A batch that an outbox has dropped was perhaps on its way, or comes with an older copy.
        dropped = min(self.dropped, missing)
        missing -= dropped
        # Rows in a living manager's window may still arrive. The others were settled in a state
        # of the ledger that is gone.
        in_flight = 0 if self.gone else min(missing, self.window_rows)
        return (
            *(produced, self.inserted, self.duplicates, self.rejected),
            *(dropped, in_flight, missing - in_flight, self.env_steps),
        )

    def to_wire(self) -> list[object]:
        """Return what is kept of it over a restart."""
        return [
            self.incarnation,
            self.contiguous,
            self.extras.to_bytes(-(-self.extras.bit_length() // 8), "big"),
            *_counts_of(self),
            self.gone,
        ]

    @classmethod
    def from_wire(cls, value: Any) -> IncarnationAccount:
        """Convert what `to_wire` returned.

        Args:
            value: read from a file, checked here.

        Raises:
            StampError, ValueError, TypeError: it is not an account.
        """
        incarnation, contiguous, extras, *counts, gone = value
        account = cls(check_count(incarnation), check_count(contiguous))
        account.extras = int.from_bytes(extras, "big")
        for name, count in zip(_COUNTS, counts, strict=True):
            setattr(account, name, check_count(count))
        account.gone = bool(gone)
        # What was granted before is not stored: the manager's report claims it again.
        account.limit = account.contiguous + account.extras.bit_length()
        return account

    def _advance_contiguous(self) -> None:
        ones = (self.extras ^ (self.extras + 1)).bit_length() - 1  # trailing bits that are set
        self.contiguous += ones
        self.extras >>= ones


@dataclass(slots=True)
class ManagerEntry:
    """The ledger's record of one manager id.

    Args:
        number: the small integer that stands for the id in the replay's `manager` column.
        accounts: the accounts by incarnation, in the order of their first messages.
        closed: sums of the accounts that are not kept any more.
        key: the key that the id belongs to; "" without keys.
        packed: the entry as bytes; None after a change.
    """

    id: str
    number: int
    accounts: dict[int, IncarnationAccount] = field(default_factory=dict)
    closed: SampleAccounting = field(default_factory=SampleAccounting)
    key: str = ""
    packed: bytes | None = field(default=None, compare=False)

    @property
    def is_gone(self) -> bool:
        """True if all of its incarnations are gone."""
        return all(account.gone for account in self.accounts.values())

    def alive_incarnations(self) -> list[int]:
        """Return the incarnations that are not gone."""
        return [account.incarnation for account in self.accounts.values() if not account.gone]

    def accounting(self) -> SampleAccounting:
        """Return the sample accounting of this manager, over all its incarnations."""
        return SampleAccounting().plus(self.parts())

    def parts(self) -> Iterator[tuple[int, ...]]:
        """Yield the counts of which `accounting` is the sum."""
        yield self.closed.counts()
        for account in self.accounts.values():
            yield account.counts()

    def to_bytes(self) -> bytes:
        """Pack the entry, and keep the bytes in `packed`."""
        accounts = [account.to_wire() for account in self.accounts.values()]
        self.packed = pack([self.id, self.number, self.closed.to_wire(), accounts, self.key])
        return self.packed

    @classmethod
    def from_bytes(cls, blob: bytes) -> ManagerEntry:
        """Unpack what `to_bytes` packed.

        Raises:
            ProtocolError, ValueError, TypeError: it is not an entry.
        """
        manager, number, closed, accounts, key = unpack(blob, STAMP_MAX_BYTES)
        if type(key) is not str:
            raise StampError("a key that is no text")
        closed = SampleAccounting.from_wire(closed)
        entry = cls(str(manager), check_count(number), closed=closed, key=key)
        for value in accounts:
            account = IncarnationAccount.from_wire(value)
            entry.accounts[account.incarnation] = account
        return entry


def check_count(value: Any) -> int:  # Any: read from a file, checked here
    """Return a count that was read.

    Raises:
        StampError: it is none.
    """
    if type(value) is not int or value < 0:
        raise StampError(f"{value!r} is not a count")
    return value

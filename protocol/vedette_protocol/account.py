"""The learner's account of one incarnation: an exact set of numbers, and counts of rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from vedette_protocol.limits import EXTRAS_MAX
from vedette_protocol.messages import Report


@dataclass(frozen=True, slots=True)
class SampleAccounting:
    """Where the rows went. ``produced == inserted + rejected + dropped + in_flight + lost``.

    Args:
        produced: what the manager said, or what is known to exist, whichever is more.
        inserted: are in the replay, or were.
        duplicates: arrived once more and were thrown away; no part of the balance.
        rejected: were refused.
        dropped: were given up by the manager, unsent.
        in_flight: a living manager holds them, or they are on their way.
        lost: nobody holds them any more: their manager is gone, the run was over before they came,
            or the learner was restored from an older state and had acknowledged them before.
    """

    produced: int = 0
    inserted: int = 0
    duplicates: int = 0
    rejected: int = 0
    dropped: int = 0
    in_flight: int = 0
    lost: int = 0

    def __add__(self, other: SampleAccounting) -> SampleAccounting:
        return SampleAccounting(
            *(a + b for a, b in zip(self.counts(), other.counts(), strict=True))
        )

    def counts(self) -> tuple[int, ...]:
        """The counts in the order of the fields."""
        return (
            *(self.produced, self.inserted, self.duplicates, self.rejected),
            *(self.dropped, self.in_flight, self.lost),
        )


@dataclass(slots=True)
class IncarnationAccount:
    """One incarnation of a manager, as the learner knows it.

    Args:
        contiguous: every sequence number below is settled.
        extras: bit map of those settled beyond: bit ``i`` for ``contiguous + i``; bit 0 is 0.
        produced, dropped, window_rows, sequenced, base: as last reported.
        gone: it will not be heard again, as far as is known.
        last_seen: when it was last heard; not kept over a restart.
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
    gone: bool = False
    last_seen: float = field(default=0.0, compare=False)

    def is_settled(self, seq: int) -> bool:
        """Whether batch `seq` was inserted or rejected."""
        offset = seq - self.contiguous
        return offset < 0 or bool(self.extras >> offset & 1)

    def is_beyond(self, seq: int) -> bool:
        """Whether batch `seq` is further ahead than the exact set reaches."""
        return seq - self.contiguous >= EXTRAS_MAX

    def settle(self, seq: int) -> bool:
        """Enter batch `seq`; False if it was settled before, or is beyond."""
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

    def catch_up(self, base: int) -> None:
        """Everything below `base` was acknowledged by an earlier state of the ledger."""
        if base > self.contiguous:
            self.extras >>= base - self.contiguous
            self.contiguous = base
            self._advance_contiguous()

    def on_report(self, report: Report) -> None:
        """Take a report's counts, unless a later one came first."""
        if report.produced < self.produced or report.dropped < self.dropped:
            return
        if report.base < self.base or report.sequenced < self.sequenced:
            return
        self.gone = report.state == "gone"
        self.produced, self.dropped = report.produced, report.dropped
        self.window_rows = report.window_rows
        self.sequenced, self.base = report.sequenced, report.base
        self.catch_up(report.base)

    def accounting(self) -> SampleAccounting:
        """Where this incarnation's rows went."""
        accounted = self.inserted + self.rejected + self.dropped
        produced = max(self.produced, accounted)
        missing = produced - accounted
        # What a living manager says it holds can still come; the rest was settled in a forgotten
        # state and cannot
        in_flight = 0 if self.gone else min(missing, self.window_rows)
        return SampleAccounting(
            produced,
            self.inserted,
            self.duplicates,
            self.rejected,
            self.dropped,
            in_flight,
            missing - in_flight,
        )

    def _advance_contiguous(self) -> None:
        ones = (self.extras ^ (self.extras + 1)).bit_length() - 1  # trailing bits that are set
        self.contiguous += ones
        self.extras >>= ones


@dataclass(slots=True)
class ManagerEntry:
    """All of one manager id.

    Args:
        number: the small integer that stands for the id in the replay's `manager` column.
        accounts: by incarnation, in the order in which they were first heard.
        closed: what the accounts held that are not kept any more.
        packed: the entry as bytes while nothing changes; None when something has.
    """

    id: str
    number: int
    accounts: dict[int, IncarnationAccount] = field(default_factory=dict)
    closed: SampleAccounting = field(default_factory=SampleAccounting)
    packed: bytes | None = field(default=None, compare=False)

    def accounting(self) -> SampleAccounting:
        """Where this manager's rows went, over all incarnations."""
        return sum((account.accounting() for account in self.accounts.values()), self.closed)

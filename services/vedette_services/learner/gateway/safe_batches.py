"""The batches that are safe: settled in the ledger of the last commit that the disk has, or, where
there is a snapshot, of its newest generation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vedette_protocol.closed_accounts import Archive
from vedette_protocol.ledger import Ledger
from vedette_protocol.messages import OUTBOX, Report
from vedette_rl.storage.latest_value import LatestValueReader
from vedette_services.run.ring_stamp import read_stamp


class SafeBatches:
    """Says to managers with an outbox what they may delete. Others are not told.

    Args:
        run_id: the run of the stamps.
        now: of the start.
        archive: has the accounts that the stamps have no room for; None: there is none.
    """

    def __init__(self, run_id: str, now: float, archive: Archive | None = None) -> None:
        self._run_id = run_id
        self._archive = archive
        self._now = now
        self._stamp = b""  # of the last commit that is safe
        self._ledger: Ledger | None = None  # of that stamp; None: not read yet
        self._settled: dict[tuple[str, int], int] = {}  # what was asked of it
        self._outboxes: set[tuple[str, int]] = set()

    def on_synced(self, stamp: bytes) -> None:
        """Note the stamp of the last commit that is safe, with its rows."""
        if stamp is not self._stamp:
            self._stamp = stamp
            self._ledger = None

    def on_report(self, report: Report) -> None:
        """Note who has an outbox."""
        if OUTBOX in report.features:
            self._outboxes.add((report.manager, report.incarnation))

    @property
    def is_asked_for(self) -> bool:
        """True while a manager with an outbox is here."""
        return bool(self._outboxes)

    def retain(self, living: Iterable[tuple[str, int]]) -> None:
        """Forget everybody else."""
        self._outboxes.intersection_update(living)

    def below(self, manager: str, incarnation: int) -> int | None:
        """Return the sequence number below which all of an incarnation is safe; None: not said."""
        if (manager, incarnation) not in self._outboxes:
            return None
        return self.settled_below(manager, incarnation)

    def unsafe_batches(self, ledger: Ledger) -> int:
        """Return the batches of managers with an outbox that a newer ledger has, and that are not
        safe yet: of each those below the first that is missing."""
        return sum(
            max(0, ledger.settled_below(*sender) - self.settled_below(*sender))
            for sender in self._outboxes
        )

    def settled_below(self, manager: str, incarnation: int) -> int:
        """Return the number below which all of an incarnation is safe, also of one that is gone."""
        if self._ledger is None:
            self._ledger, _ = read_stamp(self._run_id, self._stamp, self._now)
            self._settled = {}
            if self._archive is not None:
                self._ledger.use_archive(self._archive)
        sender = manager, incarnation
        if sender not in self._settled:  # a session that began since is looked for in the archive
            self._settled[sender] = self._ledger.settled_below(*sender)
        return self._settled[sender]


class SnapshotStamp:
    """The stamp of the newest generation of this start, as the snapshot's process says it.

    Args:
        path: of its map, which may come later: nothing is safe until then.
    """

    def __init__(self, path: Path) -> None:
        self._map = LatestValueReader(path)
        self._seq = 0
        self._stamp = b""

    def read(self) -> bytes:
        """Return it; the same object as before until there is another one."""
        if self._map.seq != self._seq and (newest := self._map.read()) is not None:
            self._seq, self._stamp = newest
        return self._stamp

"""The books of a run in one process, and its actors as the fleet that a status shows."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vedette_protocol.account import Books
from vedette_protocol.messages import Report
from vedette_rl.replay.rows import MemoryRing
from vedette_services.in_process.actors import InProcessActor
from vedette_services.in_process.inserting import Inserting
from vedette_services.learner.boards import Ingest
from vedette_services.learner.fleet import Fleet
from vedette_services.learner.rate import Rate


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier starts of the run came to, in rows. The replay itself does not outlive them."""

    produced: int = 0
    inserted: int = 0
    rejected: int = 0
    sampled: int = 0


class Account:
    """What was produced, what became of it, and by whom.

    Args:
        run_id: the run's.
        epoch: this start of it.
        earlier: what starts before it came to.
        ring: where samples are.
        inserting: the way into it.
        actors: all of them.
    """

    def __init__(
        self,
        run_id: str,
        epoch: int,
        earlier: Earlier,
        ring: MemoryRing,
        inserting: Inserting,
        actors: Sequence[InProcessActor],
    ) -> None:
        self._run_id, self._epoch, self.earlier = run_id, epoch, earlier
        self._ring, self._inserting, self._actors = ring, inserting, actors
        self._fleet, self._rate = Fleet(), Rate()

    def books(self) -> Books:
        """Over all starts of the run, in rows."""
        earlier = self.earlier
        produced = sum(actor.produced for actor in self._actors)
        inserted, rejected = self._ring.inserted, self._inserting.rejected
        return Books(
            produced=earlier.produced + produced,
            inserted=earlier.inserted + inserted,
            rejected=earlier.rejected + rejected,
            in_flight=produced - inserted - rejected,
            lost=earlier.produced - earlier.inserted - earlier.rejected,
        )

    def report(self, now: float) -> None:
        """Take the actors' word, as a manager reports it."""
        report = Report(
            manager="in-process",
            incarnation=self._epoch,
            host=socket.gethostname(),
            state="running",
            run_id=self._run_id,
            produced=self.books().produced,
            dropped=0,
            window_batches=0,
            window_rows=0,
            window_bytes=0,
            sequenced=0,
            actors=tuple(actor.report() for actor in self._actors),
        )
        self._fleet.on_report(report, now)

    def ingest(self, now: float, rows: int) -> Ingest:
        """What a gateway would tell.

        Args:
            rows: that can be drawn.
        """
        return Ingest(
            samples=asdict(self.books()),
            managers=self._fleet.status(now),
            replay_size=rows,
            replay_bytes=self._ring.total_bytes,
            samples_per_sec=self._rate.at(self._ring.inserted, now),
            lag=self._inserting.lag.figures(),
            rejecting=self._inserting.rejecting,
        )

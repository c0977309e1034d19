"""The archive of closed sessions of a fleet that has been started very often."""

from __future__ import annotations

import os
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import summarize_rounds
from vedette_protocol.account import IncarnationAccount
from vedette_protocol.closed_accounts import ClosedAccounts
from vedette_rl.replay.ring_files import ARCHIVE
from vedette_rl.storage.record_file import RecordFile
from vedette_services.host.system import private_bytes

_AT_ONCE = 1000  # sessions that are appended together; by a learner a few
_LOOKED_UP = 10_000


@dataclass(frozen=True, slots=True)
class SessionsBench:
    """Measures the archive: its size, opening it, and looking a session up.

    Args:
        sessions: of all managers together.
        managers: that were started in turn.
        directory: where the archive is written; None: in the place for temporary files.
        rounds: each opens the archive once.
    """

    sessions: int = 1_800_000
    managers: int = 100
    directory: Path | None = None
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure; bytes, seconds and microseconds."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            path = Path(place) / ARCHIVE
            append_us = self._write(path)
            size = path.stat().st_size
            opened = [self._open(path, size) for _ in range(self.rounds)]
        return {
            "sessions": self.sessions,
            "archive_bytes": size,
            "append_us": append_us,
            "open_s": summarize_rounds([seconds for seconds, *_ in opened]),
            "open_processor_s": summarize_rounds([spent for _, spent, *_ in opened]),
            "index_bytes": opened[0][2],
            "look_up_us": summarize_rounds([look_up for *_, look_up in opened]),
        }

    def _write(self, path: Path) -> float:
        """Write the archive; returns the microseconds of a session."""
        rng = random.Random(1)
        records = RecordFile(path, 0)
        spent = 0.0
        for first in range(0, self.sessions, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, self.sessions))
            closed = ClosedAccounts()
            closed.archive = records
            for number in some:
                closed.add(self._manager(number), _account(rng))
            began = time.perf_counter()
            closed.to_archive()
            spent += time.perf_counter() - began
        records.close()
        return 1e6 * spent / self.sessions

    def _open(self, path: Path, size: int) -> tuple[float, float, int, float]:
        """Open the archive; returns seconds, those of the processor, bytes of memory, and the
        microseconds in which a session is found."""
        before = private_bytes(os.getpid())
        began, spent = time.perf_counter(), time.process_time()
        records = RecordFile(path, size)
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        memory = private_bytes(os.getpid()) - before
        closed = ClosedAccounts(size)
        closed.archive = records
        rng = random.Random(1)
        count = min(_LOOKED_UP, self.sessions)
        accounts = [_account(rng) for _ in range(count)]
        began = time.perf_counter()
        for number, account in enumerate(accounts):
            found = closed.find(self._manager(number), account.incarnation)
            assert found is not None, "each was written"
        look_up = 1e6 * (time.perf_counter() - began) / count
        records.close()
        return seconds, spent, memory, look_up

    def _manager(self, number: int) -> str:
        return f"robot-{number % self.managers:03d}"


def _account(rng: random.Random) -> IncarnationAccount:
    """The account of a session of a few minutes to hours."""
    account = IncarnationAccount(rng.getrandbits(64), rng.randrange(1, 2000))
    account.sequenced = account.base = account.contiguous
    account.produced = account.inserted = account.env_steps = 100 * account.contiguous
    account.has_outbox = True
    return account

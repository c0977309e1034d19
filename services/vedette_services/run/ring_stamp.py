"""The stamp that the gateway commits with the replay's rows: ledger and actor numbers."""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack, suppress
from pathlib import Path

from vedette_protocol.account import SampleAccounting
from vedette_protocol.errors import StampError
from vedette_protocol.ledger import Ledger
from vedette_rl.errors import ReplayFormatError, ReplayTornError
from vedette_rl.replay.commits import COMMITS, last_commit
from vedette_rl.replay.ring_files import ARCHIVE
from vedette_rl.storage.record_file import RecordFile

_PREFIX = struct.Struct("<I")  # bytes of the numbers that follow; the ledger is the rest


def pack_stamp(ledger: Ledger, slots: ActorNumbers) -> bytes:
    """Encode ledger and actor numbers."""
    numbers = slots.to_bytes()
    return _PREFIX.pack(len(numbers)) + numbers + ledger.to_bytes()


def read_stamp(run_id: str, stamp: bytes, now: float) -> tuple[Ledger, ActorNumbers]:
    """Decode ledger and actor numbers; new ones if nothing was committed yet.

    Raises:
        StampError: the stamp cannot be decoded, or is of another run.
    """
    if not stamp:
        return Ledger(run_id), ActorNumbers()
    try:
        (length,) = _PREFIX.unpack_from(stamp)
        slots = ActorNumbers.from_bytes(stamp[_PREFIX.size : _PREFIX.size + length])
    except (struct.error, ValueError, TypeError, AttributeError) as error:
        raise StampError(str(error)) from error
    ledger = Ledger.from_bytes(stamp[_PREFIX.size + length :], now)
    if ledger.run_id != run_id:
        raise StampError(f"it is of run {ledger.run_id!r}, not {run_id!r}")
    return ledger, slots


def read_archive_end(run_id: str, stamp: bytes) -> int:
    """Return the bytes of the replay's archive that belong to a stamp.

    Raises:
        StampError: as `read_stamp`.
    """
    return read_stamp(run_id, stamp, now=0.0)[0].archive_end


def read_env_steps(run_id: str, replay: Path) -> int:
    """Return the environment steps that a replay's inserted batches carried; 0 without a replay.

    Raises:
        ReplayTornError, StampError: its last commit cannot be read.
    """
    if not (replay / COMMITS).exists():
        return 0
    return read_stamp(run_id, last_commit(replay).stamp, now=0.0)[0].env_steps


def read_counts(run_id: str, replay: Path) -> SampleAccounting:
    """Return the sample accounting of a replay's last commit; zeros where none can be read."""
    try:
        return read_stamp(run_id, last_commit(replay).stamp, now=0.0)[0].accounting()
    except (ReplayFormatError, StampError):
        return SampleAccounting()


def count_lost(run_id: str, replay: Path, synced: bytes, newer: bytes) -> bytes:
    """Count as lost, in a stamp, what a newer one knew, whose rows a power failure has taken.

    Args:
        replay: the replay's directory, with the archive that the newer stamp goes on in.
    """
    ledger, slots = read_stamp(run_id, synced, now=0.0)
    try:
        later, _ = read_stamp(run_id, newer, now=0.0)
    except StampError:
        return synced
    with ExitStack() as opened:
        with suppress(ReplayTornError):  # it is as old as the rows
            archive = RecordFile(replay / ARCHIVE, later.archive_end)
            opened.callback(archive.close)
            later.use_archive(archive)
        ledger.count_lost(later)
    return pack_stamp(ledger, slots)


# An actor's exploration rank comes from its number, so numbers stay small and do not change when
# another host joins or leaves.


class ActorNumbers:
    """First-fit allocation of actor numbers to managers."""

    def __init__(self, taken: dict[str, tuple[int, int]] | None = None) -> None:
        self._taken = dict(taken or {})  # manager -> (first, count)
        self._bytes = b""  # of what is taken; empty where that has changed since

    def assign(self, manager: str, count: int) -> int:
        """The first of `count` numbers for this manager, the same while it has them."""
        first, have = self._taken.get(manager, (0, 0))
        if have < count:
            self._taken.pop(manager, None)
            first = self._first_fit(count)
            self._taken[manager] = (first, count)
            self._bytes = b""
        return first

    def release(self, manager: str) -> None:
        """Free the numbers of a manager, if it has any."""
        if self._taken.pop(manager, None) is not None:
            self._bytes = b""

    def _first_fit(self, count: int) -> int:
        first = 0
        for taken, length in sorted(self._taken.values()):
            if taken - first >= count:
                break
            first = taken + length
        return first

    def to_bytes(self) -> bytes:
        if not self._bytes:  # called at every commit, and seldom changed
            self._bytes = json.dumps(self._taken, separators=(",", ":")).encode()
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> ActorNumbers:
        taken = json.loads(data) if data else {}
        return cls({manager: (int(first), int(count)) for manager, (first, count) in taken.items()})

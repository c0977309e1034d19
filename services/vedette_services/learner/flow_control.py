"""Flow control of the gateway: when acks are due, and the credit that managers are held to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from vedette_protocol.credit import Credit

CHANGED_S = 0.02
"""The least time between two acks of which the second has something new."""

ANYWAY_S = 0.2
"""Acks are state and the heartbeat: repeated even when nothing is new."""

_SHARE_S = 0.004  # added to CHANGED_S for each manager, which bounds the cost of acks
_POLL_SHARE_S = 3e-4  # from one poll to the next, for each manager
_POLL_S = 0.05  # and no longer
_AT_ONCE = 1 << 62  # batches


class AckScheduler:
    """Counts the batches that were not acknowledged yet, and decides when acks are due.

    The more managers there are, the longer acks wait. A manager that has used a quarter of what it
    may have in flight does not wait, so that none has to stop for want of an ack.

    Args:
        window: the most that a manager holds; None: credit alone bounds it.
        batch_bytes: of a full batch.
    """

    def __init__(self, window: FlightLimits | None, batch_bytes: int) -> None:
        self._window, self._batch_bytes = window, batch_bytes
        self._unacked: dict[str, int] = {}  # batches since the last ack
        self._acked: dict[str, float] = {}
        self._credit = Credit(0, 0)  # the least that was given last
        self._poll_at = 0.0

    def on_batch(self, manager: str) -> None:
        """Count a batch of this manager."""
        self._unacked[manager] = self._unacked.get(manager, 0) + 1

    def expedite(self, manager: str) -> None:
        """Send this manager's next ack without waiting for more batches."""
        self._unacked[manager] = _AT_ONCE

    def on_subscribed(self, manager: str) -> None:
        """Send an ack at the next poll to a manager that has just subscribed."""
        self._acked.pop(manager, None)

    @property
    def has_unacked(self) -> bool:
        """True while a batch waits for an ack."""
        return bool(self._unacked)

    def is_poll_due(self, now: float) -> bool:
        """Return True once `due_acks` is to be called."""
        return now >= self._poll_at

    def due_acks(self, living: list[Sender], now: float) -> list[Sender]:
        """Return those who are sent an ack now."""
        self._poll_at = now + min(_POLL_S, _POLL_SHARE_S * len(living))
        unacked = self._unacked
        self._unacked = {m: unacked[m] for m, *_ in living if m in unacked}  # some have gone
        wait_s, soon = max(CHANGED_S, _SHARE_S * len(living)), self._urgent_batches()
        return [sender for sender in living if self._is_due(sender[0], now, wait_s, soon)]

    def on_sent(self, managers: Iterable[str], least: Credit, now: float) -> None:
        """Note that acks were sent to these managers, with no less credit than `least`."""
        self._credit = least
        for manager in managers:
            self._acked[manager] = now
            self._unacked.pop(manager, None)

    def _is_due(self, manager: str, now: float, wait_s: float, soon: int) -> bool:
        waited = now - self._acked.get(manager, float("-inf"))
        if waited >= ANYWAY_S:
            return True
        unacked = self._unacked.get(manager, 0)
        return bool(unacked) and waited >= (CHANGED_S if unacked >= soon else wait_s)

    def _urgent_batches(self) -> int:
        size = self._batch_bytes
        batches = min(self._credit.batches, self._credit.bytes // size)
        if self._window is not None:
            batches = min(batches, self._window.batches_of(size))
        return batches // 4


# Between two acks, a manager can send no more new batches than the credit of an ack that it has
# received.

REMEMBERED_S = 30.0
"""A manager may act on an ack of this age: batches in flight at a cut of credit still count."""

Sender = tuple[str, int]
"""A manager's id and its incarnation."""


@dataclass(slots=True)
class _Given:
    acks: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how many batches
    allowed: int = 0
    since_ack: int = 0


class CreditEnforcer:
    """Holds managers to their credit: counts their new batches between acks.

    Args:
        at_first: batches that a manager may send before its first ack.
    """

    def __init__(self, at_first: int) -> None:
        self._at_first = at_first
        self._given: dict[Sender, _Given] = {}

    def is_exhausted(self, manager: str, incarnation: int) -> bool:
        """Return True if one more new batch of this manager would exceed its credit."""
        given = self._given.get((manager, incarnation))
        return given is not None and given.since_ack >= given.allowed

    def on_batch(self, manager: str, incarnation: int) -> None:
        """Count a new batch of this manager."""
        given = self._given.get((manager, incarnation))
        if given is not None:
            given.since_ack += 1

    def on_ack(self, manager: str, incarnation: int, batches: int, now: float) -> None:
        """Note that an ack with this credit is sent."""
        given = self._given.get((manager, incarnation))
        if given is None:
            # It may have received more credit from an earlier gateway.
            given = self._given[manager, incarnation] = _Given()
            given.acks.append((now, self._at_first))
        acks = given.acks
        if acks[-1][1] != batches:
            acks.append((now, batches))
        elif len(acks) > 1:
            acks[-1] = (now, batches)
        while len(acks) > 1 and acks[0][0] < now - REMEMBERED_S:
            acks.popleft()
        given.allowed = max(credit for _, credit in acks)
        given.since_ack = 0

    def retain(self, living: Iterable[Sender]) -> None:
        """Forget everybody else."""
        living = set(living)
        for gone in [sender for sender in self._given if sender not in living]:
            del self._given[gone]


@dataclass(frozen=True, slots=True)
class FlightLimits:
    """Limits of unacknowledged batches, by default of all managers together.

    Args:
        batches: fewer than the receiving queue holds, so that it is never full.
    """

    batches: int = 4096
    payload_bytes: int = 256 << 20

    def batches_of(self, size: int) -> int:
        """Return how many batches of `size` bytes both limits allow."""
        return min(self.batches, self.payload_bytes // size)

"""When each manager is sent its next ack: soon where much is new, and never late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from vedette_protocol.credit import Credit

CHANGED_S = 0.02
"""An ack that says something new waits so long at least."""

ANYWAY_S = 0.2
"""Acks are state and the heartbeat: repeated even when nothing is new."""

_SHARE_S = 0.004  # news wait longer where managers are many: each takes its share of the acks' cost
_LOOK_SHARE_S = 3e-4  # from one look at who is due to the next, for each manager
_LOOK_S = 0.05  # and no longer
_AT_ONCE = 1 << 62  # batches


class AckScheduler:
    """Counts what no ack has told yet.

    Where managers are many, news wait; but not a manager that has used up a quarter of what it may
    have under way, so that none has to stop for want of an ack.

    Args:
        window: what a manager holds at most; None: credit alone bounds it.
        batch_bytes: of a full batch.
    """

    def __init__(self, window: FlightLimits | None, batch_bytes: int) -> None:
        self._window, self._batch_bytes = window, batch_bytes
        self._news: dict[str, int] = {}  # batches of which no ack has told
        self._acked: dict[str, float] = {}
        self._credit = Credit(0, 0)  # the least that was given last
        self._look_at = 0.0

    def on_batch(self, manager: str) -> None:
        """A batch of this manager came."""
        self._news[manager] = self._news.get(manager, 0) + 1

    def expedite(self, manager: str) -> None:
        """What is new to this manager does not wait for more."""
        self._news[manager] = _AT_ONCE

    def on_subscribed(self, manager: str) -> None:
        """It has just subscribed: an ack at the next look, too."""
        self._acked.pop(manager, None)

    @property
    def has_unacked(self) -> bool:
        """Whether there is something that no ack has told."""
        return bool(self._news)

    def is_poll_due(self, now: float) -> bool:
        """Whether it is worth while to ask who is due."""
        return now >= self._look_at

    def due_acks(self, living: list[Sender], now: float) -> list[Sender]:
        """Those who are sent an ack now."""
        self._look_at = now + min(_LOOK_S, _LOOK_SHARE_S * len(living))
        self._news = {m: self._news[m] for m, *_ in living if m in self._news}  # some have gone
        wait_s, soon = max(CHANGED_S, _SHARE_S * len(living)), self._urgent_batches()
        return [sender for sender in living if self._is_due(sender[0], now, wait_s, soon)]

    def on_sent(self, managers: Iterable[str], least: Credit, now: float) -> None:
        """These were told everything; nobody was given less credit than `least`."""
        self._credit = least
        for manager in managers:
            self._acked[manager] = now
            self._news.pop(manager, None)

    def _is_due(self, manager: str, now: float, wait_s: float, soon: int) -> bool:
        waited = now - self._acked.get(manager, float("-inf"))
        if waited >= ANYWAY_S:
            return True
        news = self._news.get(manager, 0)
        return bool(news) and waited >= (CHANGED_S if news >= soon else wait_s)

    def _urgent_batches(self) -> int:
        size = self._batch_bytes
        batches = min(self._credit.batches, self._credit.bytes // size)
        if self._window is not None:
            batches = min(batches, self._window.batches_of(size))
        return batches // 4


# Between two acks to a manager, batches that are new can only be some that it counted as
# outstanding when it sent them, and of those there are no more than the credit of an ack that
# it had heard.

REMEMBERED_S = 30.0
"""A manager may act on an ack that is so old: what was under way when its credit was cut still
counts."""

Sender = tuple[str, int]
"""A manager's id and its incarnation."""


@dataclass(slots=True)
class _Given:
    acks: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how many batches
    allowed: int = 0
    since_ack: int = 0


class CreditEnforcer:
    """Counts new batches between acks.

    Args:
        at_first: batches a manager may send before anything is known of its credit.
    """

    def __init__(self, at_first: int) -> None:
        self._at_first = at_first
        self._given: dict[Sender, _Given] = {}

    def is_exhausted(self, manager: str, incarnation: int) -> bool:
        """Whether one more new batch of this manager would be beyond its credit."""
        given = self._given.get((manager, incarnation))
        return given is not None and given.since_ack >= given.allowed

    def on_batch(self, manager: str, incarnation: int) -> None:
        """A new batch of this manager was taken."""
        given = self._given.get((manager, incarnation))
        if given is not None:
            given.since_ack += 1

    def on_ack(self, manager: str, incarnation: int, batches: int, now: float) -> None:
        """An ack goes out that gives so much."""
        given = self._given.get((manager, incarnation))
        if given is None:
            # It may have heard more from the learner before this one.
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
        """Forget all others."""
        living = set(living)
        for gone in [sender for sender in self._given if sender not in living]:
            del self._given[gone]


@dataclass(frozen=True, slots=True)
class FlightLimits:
    """Bounds over all managers together.

    Args:
        batches: unacknowledged batches; below the receiving queue, so that it is never full.
        payload_bytes: unacknowledged bytes.
    """

    batches: int = 4096
    payload_bytes: int = 256 << 20

    def batches_of(self, size: int) -> int:
        """How many batches of so many bytes are within both."""
        return min(self.batches, self.payload_bytes // size)

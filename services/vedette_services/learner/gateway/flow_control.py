"""Flow control of the gateway: the limit that each manager is granted, and when acks are due."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from vedette_protocol.account import IncarnationAccount
from vedette_protocol.limits import EXTRAS_MAX
from vedette_rl.replay.limiter import LimiterOrigin
from vedette_services.config.run_config import RunConfig
from vedette_services.learner.gateway.run_grants import RunGrants
from vedette_services.run.replay_layout import make_run_limiter

CHANGED_S = 0.02
"""The least time between two acks of which the second has something new. Few managers have it
shorter: the window of one, which is a quarter of what all may have in flight, would bound them."""

ANYWAY_S = 0.2
"""Acks are state and the heartbeat: repeated even when nothing is new."""

_CHANGED_SHARE_S = 0.005  # for each manager, up to CHANGED_S
_ANYWAY_SHARE_S = 5e-4  # from one such ack to the next, for each manager: 2,000 a second in all
_ANYWAY_MOST_S = 1.0  # and no longer: managers wait for three times as long
_SHARE_S = 0.004  # added to CHANGED_S for each manager, which bounds the cost of acks
_POLL_SHARE_S = 3e-4  # from one poll to the next, for each manager
_POLL_S = 0.05  # and no longer
_AT_ONCE = 1 << 62  # a count of batches above every threshold
_UNUSED_MOST = 8  # batches that an incarnation may have open which has used none lately
_USE_S = 2.0  # lately: used batches are counted for so long


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


class InsertLimiter(Protocol):
    """Decides whether actors wait: `vedette_rl.replay.limiter.Limiter`, or a `QueueLimiter`."""

    def insert_wait_reason(self, inserted: int, sampled: int) -> str:
        """The reason why inserting waits, as a sentence; empty where it need not."""
        ...

    def insertable_samples(self, inserted: int, sampled: int) -> int | None:
        """Samples that may be inserted before inserting waits; None: as many as there are."""
        ...


class QueueLimiter:
    """Lets in the rows of the next block and of one batch, and none whose place is not free yet.

    Args:
        capacity: rows of the ring.
        block: rows of a block.
        batch_rows: the most rows of a batch: without them the next block could never become whole.
        ahead: further rows that may wait.
    """

    def __init__(self, capacity: int, block: int, batch_rows: int, ahead: int) -> None:
        self._capacity = capacity
        self._ahead = ahead
        self._batch_rows = batch_rows
        self._most = block + batch_rows + ahead
        self._taken = 0
        self._kept: int | None = None

    def follow(self, taken: int, kept: int | None) -> None:
        """Note how far the trainer is.

        Args:
            taken: the first row that it has not looked at.
            kept: the first row that may not be overwritten; None: not known.
        """
        self._taken = taken
        self._kept = kept

    def insert_wait_reason(self, inserted: int, sampled: int) -> str:
        """See `InsertLimiter`."""
        kept = self._kept
        if kept is None:
            return "actors wait: the learner is starting"
        if kept + self._capacity - inserted < self._batch_rows:
            return (
                f"actors wait for a checkpoint: rows from {kept:,} on may not be overwritten "
                "before one has them"
            )
        if self._taken + self._most - inserted < self._batch_rows:
            waiting = inserted - self._taken
            return (
                f"actors wait for the learner: {waiting:,} rows wait for it (the next block, and "
                f"replay.ahead={self._ahead:,})"
            )
        return ""

    def insertable_samples(self, inserted: int, sampled: int) -> int:
        """See `InsertLimiter`."""
        if self._kept is None:
            return 0
        room = min(self._taken + self._most, self._kept + self._capacity) - inserted
        return max(0, room)


def make_run_grants(config: RunConfig, now: float) -> RunGrants | None:
    """Says how many runs actors may play on a model; None where it is as many as they like."""
    replay = config.replay
    if not replay.strict:
        return None
    return RunGrants(config.actors.envs_per_actor, replay.block // replay.sequence, now)


def make_insert_limiter(
    config: RunConfig, floor: int = 0, origin: LimiterOrigin | None = None
) -> InsertLimiter:
    """The limiter of the actors' side: a queue's, or that of both sides.

    Args:
        floor, origin: as `make_run_limiter` takes them.
    """
    replay = config.replay
    if replay.is_queue:
        rows = config.actors.n_buffer
        return QueueLimiter(replay.capacity, replay.block, rows, replay.ahead)
    return make_run_limiter(config, floor, origin)


class Budget(NamedTuple):
    """The batches that all managers together may have unsettled; the reason if that is none."""

    batches: int
    reason: str = ""


IncarnationId = tuple[str, int]
"""A manager's id, and which start of it."""


class _Use:
    """What an incarnation has used of its limit lately, and what it may therefore have open.

    Args:
        settled: its batches that are settled now.

    Attributes:
        allowed: batches that it may have open: twice those that it has used in so many seconds.
        open: batches that it has open, as they were counted last.
        expected: those of them that are likely to come soon.
    """

    __slots__ = ("_before", "_settled", "_since", "allowed", "expected", "open")

    def __init__(self, settled: int, now: float) -> None:
        self._since = now
        self._settled = settled
        self._before = 0.0  # settled in the seconds before `since`
        self.allowed = _UNUSED_MOST
        self.open = 0
        self.expected = 0

    def follow(self, account: IncarnationAccount, now: float) -> None:
        """Take over the counts of its account."""
        settled = account.settled_batches
        used: float = settled - self._settled
        elapsed = now - self._since
        if elapsed >= _USE_S:
            self._before = used * _USE_S / elapsed
            self._since = now
            self._settled = settled
        self.allowed = max(_UNUSED_MOST, math.ceil(2 * max(used, self._before)))
        self.open = account.open_batches
        self.expected = min(self.open, self.allowed)


class CreditGrants:
    """Grants limits: batches below a manager's limit, and not settled, are *open*.

    A manager gets up to an equal part of the budget, and one batch in any case, so that it makes
    progress. No incarnation gets much more than it has used lately: what was granted is never taken
    back, and one that is slow would hold for minutes what others need. What it holds nevertheless,
    because it was faster before, does not count while others share the limiter's part; but the open
    batches of all stay within the limits of what may be in flight.

    Args:
        batch_bytes: the size of a full batch, which turns the byte limit into batches.
        rows_per_batch: the rows of a full batch.
    """

    def __init__(
        self, limiter: InsertLimiter, limits: FlightLimits, batch_bytes: int, rows_per_batch: int
    ) -> None:
        self._limiter = limiter
        self._rows_per_batch = rows_per_batch
        self._most = max(1, limits.batches_of(batch_bytes))
        self._uses: dict[IncarnationId, _Use] = {}
        self._open_sum = 0
        self._expected_sum = 0
        self.claims_left = limits.batches
        """Batches by which limits may still be raised because their managers claim that an earlier
        gateway granted them. That one could not grant more: a manager that lies gains this once."""

    def budget(self, inserted: int, sampled: int, *, needs_samples: bool = False) -> Budget:
        """Return the batches that limiter and flight limits allow.

        Args:
            needs_samples: the learner waits until there are more, so that the limiter, by which
                actors wait for the learner, has no part.
        """
        if needs_samples:
            return Budget(self._most)
        reason = self._limiter.insert_wait_reason(inserted, sampled)
        if reason:
            return Budget(0, reason)
        rows = self._limiter.insertable_samples(inserted, sampled)
        allowed = self._most if rows is None else min(self._most, rows // self._rows_per_batch)
        return Budget(max(1, allowed))

    def share(self, budget: Budget, managers: int) -> int:
        """Return the open batches that each manager may have."""
        return max(1, budget.batches // max(1, managers)) if budget.batches else 0

    def grant(
        self,
        incarnation: IncarnationId,
        account: IncarnationAccount,
        budget: Budget,
        managers: int,
        now: float,
        *,
        sessions: int = 1,
        draining: bool = False,
    ) -> int:
        """Raise the limit of an account, if it may be raised.

        Args:
            managers: number of those that share the budget.
            sessions: accounts among which its manager's share is divided.
            draining: it is to send what it holds before it leaves: the budget does not count.

        Returns:
            The batches that it may have open; 0 where nothing is granted.
        """
        use = self.update(incarnation, account, now)
        share = self.share(budget, managers)
        if draining:
            share = max(1, self._most // max(1, managers))
        if not share:
            return 0
        share = share // sessions
        if not draining:
            share = min(
                share,
                use.allowed,
                use.expected + budget.batches - self._expected_sum,
                use.open + self._most - self._open_sum,
            )
        share = max(1, share)
        account.grant(share)
        self.update(incarnation, account, now)
        return share

    def update(self, incarnation: IncarnationId, account: IncarnationAccount, now: float) -> _Use:
        """Note how many batches of an account are settled and open now."""
        use = self._uses.get(incarnation)
        if use is None:
            use = self._uses[incarnation] = _Use(account.settled_batches, now)
        self._open_sum -= use.open
        self._expected_sum -= use.expected
        use.follow(account, now)
        self._open_sum += use.open
        self._expected_sum += use.expected
        return use

    def retain(self, living: Iterable[IncarnationId]) -> None:
        """Forget everybody else: their open batches are free for others."""
        living = set(living)
        for gone in self._uses.keys() - living:
            use = self._uses.pop(gone)
            self._open_sum -= use.open
            self._expected_sum -= use.expected


class AckScheduler:
    """Counts the batches that were not acknowledged yet, and decides when acks are due.

    The more managers there are, the longer acks wait. A manager that has used a quarter of what it
    may have in flight does not wait, so that none has to stop for want of an ack. A poll costs
    time for the managers with something new and for those whose ack is due, not for all.

    Args:
        window: the most that a manager holds; None: credit alone bounds it.
        batch_bytes: the size of a full batch.
        living: managers that were alive before; they get an ack at the first poll.
    """

    def __init__(
        self, window: FlightLimits | None, batch_bytes: int, living: Iterable[str] = ()
    ) -> None:
        self._window_batches = window.batches_of(batch_bytes) if window else EXTRAS_MAX
        self._unacked: dict[str, int] = {}  # batches since the last ack
        # Time of the last ack, oldest first.
        self._acked: dict[str, float] = dict.fromkeys(living, float("-inf"))
        self._granted: dict[str, int] = {}  # open batches that each may have
        # Managers that may send nothing, since the last ack to them.
        self._stopped: dict[str, None] = {}
        self._poll_at = 0.0

    def on_batch(self, manager: str) -> None:
        """Count a batch of this manager."""
        self._unacked[manager] = self._unacked.get(manager, 0) + 1

    def expedite(self, manager: str) -> None:
        """Send this manager's next ack without waiting for more batches."""
        self._unacked[manager] = _AT_ONCE

    def expedite_joiner(self, manager: str) -> None:
        """Send an ack at the next poll to a manager that is new here, or has just subscribed."""
        self._acked.pop(manager, None)
        self.expedite(manager)

    @property
    def unacked(self) -> Collection[str]:
        """The managers of which a batch waits for an ack."""
        return self._unacked.keys()

    @property
    def is_awaited(self) -> bool:
        """True while managers wait for an ack: for one of a batch, or for one that lets them send
        again."""
        return bool(self._unacked or self._stopped)

    def is_poll_due(self, now: float) -> bool:
        """Return True once `due_acks` is to be called."""
        return now >= self._poll_at

    def due_acks(self, living: Collection[str], now: float, *, grants: bool = True) -> list[str]:
        """Return the managers that are sent an ack now.

        Args:
            grants: batches are granted now. Who may send nothing hears it soon: else a learner that
                draws fast would wait for the next ack that is sent anyway.
        """
        self._poll_at = now + min(_POLL_S, _POLL_SHARE_S * len(living))
        acked = self._acked
        wait_s = max(CHANGED_S, _SHARE_S * len(living))
        soon_s = min(CHANGED_S, _CHANGED_SHARE_S * len(living))
        anyway_s = max(ANYWAY_S, min(_ANYWAY_MOST_S, _ANYWAY_SHARE_S * len(living)))
        for manager in [m for m in self._unacked if m not in living]:  # some have gone
            del self._unacked[manager]
        for manager in [m for m in self._stopped if m not in living]:
            del self._stopped[manager]
        if len(self._granted) > len(living):
            self._granted = {m: most for m, most in self._granted.items() if m in living}
        due: dict[str, None] = {}
        if grants:
            for manager in self._stopped:
                if now - acked.get(manager, float("-inf")) >= soon_s:
                    due[manager] = None
        for manager, batches in self._unacked.items():
            many = min(self._granted.get(manager, 0), EXTRAS_MAX, self._window_batches) // 4
            after_s = soon_s if batches >= many else wait_s
            if now - acked.get(manager, float("-inf")) >= after_s:
                due[manager] = None
        gone = []
        for manager, at in acked.items():
            if now - at < anyway_s:
                break  # oldest first: the others are not due either
            if manager in living:
                due[manager] = None
            else:
                gone.append(manager)
        for manager in gone:
            del acked[manager]
        return list(due)

    def on_sent(
        self, granted: Mapping[str, int], now: float, stopped: Collection[str] = ()
    ) -> None:
        """Note that acks were sent to these managers, and how many batches each may have open.

        Args:
            stopped: those of them that may send nothing.
        """
        self._granted.update(granted)
        self._stopped.update(dict.fromkeys(stopped))
        for manager in granted:
            if manager not in stopped:
                self._stopped.pop(manager, None)
            self._acked.pop(manager, None)  # so that it comes last: the order is that of the times
            self._acked[manager] = now
            self._unacked.pop(manager, None)


# libzmq limits the size of a frame and the number of messages, but not the frames of one message,
# and the gateway gets control only between messages. A restart costs it only a moment, because it
# can reread all its state.

_OWN_BYTES = 512 << 20  # interpreter, libraries, connections, statuses in queues
_MODELS = 12  # the map's copy, the one being sent, those queued and those being evaluated


def gateway_memory_limit(model_map_bytes: int) -> int:
    """Return the bytes that a gateway may hold: twice what managers may have in flight, and more.

    Args:
        model_map_bytes: the size of the map that models come in, which has room for three.
    """
    return _OWN_BYTES + 2 * FlightLimits().payload_bytes + _MODELS * model_map_bytes // 3

"""The sender's window: batches that were produced and are not yet settled.

The manager calls it in this order::

    window = Window(manager, incarnation, run_id, schema, max_batches=1024, max_bytes=64 << 20)
    while window.has_room(len(payload)):
        window.add_batch(actor, epoch, version, rows, payload, now=now)
    for batch in window.next_batches(now):        # below the limit of the acks
        send(encode(batch))
    window.on_ack(ack, now)                       # frees the settled batches
    window.resend_stalled(now)                    # every second
    window.resend_all()                           # after new sockets
    send(encode(window.make_report(host, state, actors)))

A window belongs to one incarnation and one run. Another run needs another window with another
incarnation: sequence numbers of two runs must not get into one ledger.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from vedette_protocol.errors import WindowFullError
from vedette_protocol.messages import Ack, ActorReport, Batch, Buffer, Report, ReportedState
from vedette_protocol.sent_batches import STALL_S, SentBatches, make_report

OnFull = Literal["block", "drop_oldest"]
_tuple: Final = tuple.__new__


_Fresh: TypeAlias = tuple[int, int, int, int, Buffer, int, float]
"""A batch that was not sent yet: actor, epoch, version, rows, payload, env_steps, and when it was
added."""


class Window:
    """Holds batches until they are settled.

    A batch gets its sequence number when it is first sent, so that a batch that is dropped before
    leaves no gap.

    Args:
        manager, incarnation, run_id: the sender, and the run of its batches.
        schema: hash of the batches' schema.
        max_batches, max_bytes: limits of the contents.
        on_full: ``"block"``: the producer waits for room; ``"drop_oldest"``: the oldest unsent
            batch is dropped and counted (the new one, if all others were sent).
        max_age_s: unsent batches older than this are dropped and counted (`drop_old`).
    """

    def __init__(
        self,
        manager: str,
        incarnation: int,
        run_id: str,
        schema: str,
        *,
        max_batches: int,
        max_bytes: int,
        on_full: OnFull = "block",
        max_age_s: float = math.inf,
    ) -> None:
        if max_batches < 1 or max_bytes < 1:
            raise ValueError(f"a window of {max_batches} batches, {max_bytes} bytes holds nothing")
        self.manager = manager
        self.incarnation = incarnation
        self.run_id = run_id
        self.schema = schema
        self.max_batches = max_batches
        self.max_bytes = max_bytes
        self.on_full = on_full
        self.max_age_s = max_age_s
        self.produced = self.dropped = self.settled = 0
        self.bytes = 0
        self.sequenced = 0
        """The next sequence number."""
        self.base = 0
        """The lowest sequence number that may still be sent."""
        self._fresh: deque[_Fresh] = deque()  # not sent yet, without a number
        self._numbered: dict[int, Batch] = {}  # sent at least once and not settled, ascending
        self._added_at: dict[int, float] = {}  # those of `_numbered`
        self._sent = SentBatches(manager, incarnation, run_id)
        self._learner: tuple[int, int] | None = None  # epoch, learner

    @property
    def batches(self) -> int:
        """Number of batches in the window."""
        return len(self._fresh) + len(self._numbered)

    @property
    def rows(self) -> int:
        """Number of rows in the window."""
        return self.produced - self.dropped - self.settled

    @property
    def unsent(self) -> int:
        """Number of batches that were not sent yet."""
        return len(self._fresh)

    @property
    def outstanding(self) -> int:
        """Number of batches that were sent and are not settled."""
        return len(self._sent.sent_at)

    @property
    def limit(self) -> int:
        """Sequence numbers below it may be sent: the highest limit of an ack."""
        return self._sent.limit

    @property
    def rejected(self) -> int:
        """Number of rows that the learner has rejected."""
        return self._sent.rejected

    @property
    def resent(self) -> int:
        """Number of batches that were sent again."""
        return self._sent.resent

    def has_room(self, payload_bytes: int) -> bool:
        """Return True if there is room for a payload of this size without dropping a batch."""
        held = len(self._fresh) + len(self._numbered)
        return held < self.max_batches and self.bytes + payload_bytes <= self.max_bytes

    def add_batch(
        self,
        actor: int,
        epoch: int,
        version: int,
        rows: int,
        payload: Buffer,
        env_steps: int | None = None,
        now: float = 0.0,
    ) -> int:
        """Add a batch. Return the number of rows that were dropped to make room for it.

        Args:
            env_steps: environment steps since the actor's last batch; None: as many as rows.
            now: the time from which its delay is counted.

        The caller must not write to the payload any more: it is sent as it is, perhaps repeatedly.

        Raises:
            WindowFullError: there is no room and nothing may be dropped, or the batch is larger
                than the window.
        """
        size = len(payload)
        dropped = 0
        if not self.has_room(size):
            dropped = self._make_room(size)
            if not self.has_room(size):  # the others were sent and may arrive: the new one goes
                self.produced += rows
                self.dropped += rows
                return dropped + rows
        self.produced += rows
        steps = rows if env_steps is None else env_steps
        self._fresh.append((actor, epoch, version, rows, payload, steps, now))
        self.bytes += size
        return dropped

    def _make_room(self, size: int) -> int:
        """Drop the oldest unsent batches, where that is allowed. Return the number of rows."""
        if size > self.max_bytes or self.on_full == "block":
            raise WindowFullError(size, self.bytes, self.max_bytes)
        dropped = 0
        while self._fresh and not self.has_room(size):
            dropped += self._drop(self._fresh.popleft())
        return dropped

    def drop_old(self, now: float) -> int:
        """Drop unsent batches that are older than `max_age_s`. Return the number of rows."""
        fresh = self._fresh
        dropped = 0
        while fresh and now - fresh[0][-1] > self.max_age_s:
            dropped += self._drop(fresh.popleft())
        return dropped

    def delay_s(self, now: float) -> float:
        """Return how old the oldest batch is that is not settled; 0 where all are."""
        oldest = next(iter(self._added_at.values()), None)
        if oldest is None:
            if not self._fresh:
                return 0.0
            oldest = self._fresh[0][-1]
        return max(0.0, now - oldest)

    def next_batches(self, now: float, limit: int = 64) -> list[Batch]:
        """Return the batches to send now, at most `limit`: first those to send again, in order.

        They count as sent. Give those that the socket did not accept to `put_back`.
        """
        batches: list[Batch] = []
        self._next_resends(now, limit, batches)
        self._next_fresh(now, limit, batches)
        return batches

    def _next_resends(self, now: float, limit: int, batches: list[Batch]) -> None:
        sent = self._sent
        while sent.again and len(batches) < limit:
            seq = sent.again.popleft()
            batch = self._numbered.get(seq)
            if batch is None:  # settled while it waited
                continue
            sent.resent += 1
            sent.sent_at[seq] = now
            batches.append(batch._replace(base=self.base))

    def _next_fresh(self, now: float, limit: int, batches: list[Batch]) -> None:
        """Number unsent batches. Thousands a second: no function is called for each."""
        if self._sent.again:  # they go first
            return
        fresh = self._fresh
        numbered = self._numbered
        added_at = self._added_at
        sent_at = self._sent.sent_at
        run_id = self.run_id
        manager = self.manager
        incarnation = self.incarnation
        schema = self.schema
        base = self.base
        seq = self.sequenced
        until = min(self.limit, seq + min(limit - len(batches), len(fresh)))
        while seq < until:
            actor, epoch, version, rows, payload, env_steps, added_at[seq] = fresh.popleft()
            # Twice as fast as calling `Batch`, which does the same.
            numbered[seq] = batch = _tuple(
                Batch,
                (
                    run_id,
                    manager,
                    incarnation,
                    seq,
                    actor,
                    epoch,
                    version,
                    schema,
                    rows,
                    payload,
                    base,
                    env_steps,
                ),
            )
            sent_at[seq] = now
            batches.append(batch)
            seq += 1
        self.sequenced = seq

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Send these batches again, because the socket did not accept them."""
        self._sent.send_again([batch.seq for batch in batches])

    def on_ack(self, ack: Ack, now: float) -> int:
        """Free the batches that an ack settles. Return the number of their rows.

        Acks for another manager, incarnation or run are ignored, and acks of an older epoch. After
        an ack of a new epoch or another learner everything unsettled is sent again: batches that
        the former learner had received and not committed are gone. Learners of one epoch have no
        order, so a late ack of the former one has the same effect. It costs duplicates only.

        Raises:
            AckError: it acknowledges batches that were never sent. Nothing is freed.
        """
        known = self._learner
        if not self._sent.concerns(ack, known):
            return 0
        self._sent.on_ack(ack, now, self.sequenced)
        before = self.settled
        self._settle(ack)
        self._learner = (ack.epoch, ack.learner)
        if known is not None and known != self._learner:
            self.resend_all()
        return self.settled - before

    def follow_older(self) -> None:
        """Let acks of an older epoch count: the run was put back, and its learner is followed."""
        self._learner = None
        self.resend_all()

    def resend_all(self) -> int:
        """Send everything unsettled again, after a new connection. Return the number of batches."""
        return self._sent.send_again(list(self._sent.sent_at))

    def resend_stalled(self, now: float, after_s: float = STALL_S) -> int:
        """Send batches again that acks pass over: see `SentBatches.resend_stalled`."""
        return self._sent.resend_stalled(now, after_s)

    def drop_unsent(self) -> int:
        """Drop all unsent batches. Return the number of rows. Sent ones may still arrive."""
        dropped = 0
        while self._fresh:
            dropped += self._drop(self._fresh.popleft())
        return dropped

    def make_report(
        self,
        host: str,
        state: ReportedState,
        actors: tuple[ActorReport, ...] = (),
        *,
        delay_s: float | None = None,
        failures: int = 0,
    ) -> Report:
        """Make the manager's report with the counts of this window."""
        return make_report(self, host, state, actors, delay_s=delay_s, failures=failures)

    def stats(self) -> dict[str, float]:
        """Return counts: batches in `batches`, `outstanding`, `resent`; else rows or bytes."""
        return {
            "batches": self.batches,
            "bytes": self.bytes,
            "rows": self.rows,
            "outstanding": len(self._sent.sent_at),
            "credit": self.limit - self.sequenced,
            "produced": self.produced,
            "dropped": self.dropped,
            "settled": self.settled,
            "rejected": self.rejected,
            "resent": self.resent,
        }

    def _drop(self, fresh: _Fresh) -> int:
        _, _, _, rows, payload, _, _ = fresh
        self.bytes -= len(payload)
        self.dropped += rows
        return rows

    def _settle(self, ack: Ack) -> None:
        self._free(range(self.base, ack.contiguous))
        self.base = max(self.base, ack.contiguous)
        extras = ack.extras
        seq = ack.contiguous
        if seq < self.base:  # the ledger was restored from an older state
            extras = extras >> (self.base - seq)
            seq = self.base
        beyond = []
        while extras:
            bit = extras & -extras
            beyond.append(seq + bit.bit_length() - 1)
            extras ^= bit
        self._free(beyond)
        # Numbers that were settled out of order, also by earlier acks, may follow directly.
        while self.base < self.sequenced and self.base not in self._numbered:
            self.base += 1

    def _free(self, settled: Iterable[int]) -> None:
        numbered = self._numbered
        added_at = self._added_at
        sent_at = self._sent.sent_at
        bytes_freed = rows_freed = 0
        for seq in settled:
            batch = numbered.pop(seq, None)
            if batch is None:
                continue
            bytes_freed += len(batch.payload)
            rows_freed += batch.rows
            added_at.pop(seq, None)
            sent_at.pop(seq, None)
        self.bytes -= bytes_freed
        self.settled += rows_freed

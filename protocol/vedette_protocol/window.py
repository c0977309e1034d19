"""The sender's window: the batches that were produced and are not yet settled.

The manager's loop, in the order of its calls::

    window = Window(manager, incarnation, run_id, schema, max_batches=1024, max_bytes=64 << 20)
    while window.has_room(len(payload)):
        window.offer(actor, epoch, version, rows, payload)
    for batch in window.take(now):                # within the credit of the newest ack
        send(encode(batch))
    window.on_ack(ack, now)                       # frees what is settled
    window.resend_stalled(now)                    # every second
    window.resend_all()                           # when sockets were remade
    send(encode(window.report(host, state, actors)))

A window belongs to one incarnation on one run. Another run needs another window, with another
incarnation: sequence numbers of two runs must not meet in one ledger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from vedette_protocol.errors import AckError, WindowFullError
from vedette_protocol.limits import EXTRAS_MAX
from vedette_protocol.messages import Ack, ActorReport, Batch, Buffer, ManagerState, Report

OnFull = Literal["block", "drop_oldest"]
STALL_S: Final = 5.0


@dataclass(slots=True)
class _Held:
    """A batch in the window. `waiting`: it is to be sent (again)."""

    actor: int
    epoch: int
    version: int
    rows: int
    payload: Buffer
    seq: int = -1
    sent_at: float = 0.0
    waiting: bool = True


class Window:
    """Holds batches until they are settled.

    A batch gets its sequence number when it is first sent, so that a batch that was dropped unsent
    leaves no hole.

    Args:
        manager, incarnation, run_id: who sends, and for which run.
        schema: hash of the batches' schema.
        max_batches, max_bytes: what it may hold.
        on_full: ``"block"``: the producer waits for room; ``"drop_oldest"``: the oldest batch that
            was never sent is dropped (the offered one, if all others were) and counted.
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
    ) -> None:
        if max_batches < 1 or max_bytes < 1:
            raise ValueError(f"a window of {max_batches} batches, {max_bytes} bytes holds nothing")
        self.manager, self.incarnation = manager, incarnation
        self.run_id, self.schema = run_id, schema
        self.max_batches, self.max_bytes, self.on_full = max_batches, max_bytes, on_full
        self.produced = self.dropped = self.settled = self.rejected = self.resent = 0
        self.bytes = 0
        self.sequenced = 0
        """The next sequence number."""
        self.base = 0
        """The lowest sequence number that may still be sent."""
        self._fresh: deque[_Held] = deque()  # never sent, without a number
        self._numbered: dict[int, _Held] = {}  # sent at least once and not settled, ascending
        self._again: deque[int] = deque()  # those of them that are to be sent again, ascending
        self._outstanding_batches = self._outstanding_bytes = 0
        self._credit_batches = self._credit_bytes = 0
        self._learner: tuple[int, int] | None = None  # epoch, learner
        self._acked_at = float("-inf")

    @property
    def batches(self) -> int:
        """Batches held."""
        return len(self._fresh) + len(self._numbered)

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.produced - self.dropped - self.settled

    @property
    def unsent(self) -> int:
        """Batches held that were never sent."""
        return len(self._fresh)

    @property
    def outstanding(self) -> int:
        """Batches sent and not settled."""
        return self._outstanding_batches

    @property
    def outstanding_bytes(self) -> int:
        """Their payloads' bytes."""
        return self._outstanding_bytes

    def has_room(self, payload_bytes: int) -> bool:
        """Whether a batch of this size can be held without dropping another."""
        held = len(self._fresh) + len(self._numbered)
        return held < self.max_batches and self.bytes + payload_bytes <= self.max_bytes

    def offer(self, actor: int, epoch: int, version: int, rows: int, payload: Buffer) -> int:
        """Take a batch in; how many rows were dropped to make room for it.

        The payload must not be written any more: it is sent, perhaps again, as it is.

        Raises:
            WindowFullError: there is no room and nothing may be dropped, or there never will be.
        """
        size, dropped = len(payload), 0
        if not self.has_room(size):
            dropped = self._make_room(size)
            if not self.has_room(size):
                self.produced += rows
                self.dropped += rows
                return dropped + rows
        self.produced += rows
        self._fresh.append(_Held(actor, epoch, version, rows, payload))
        self.bytes += size
        return dropped

    def _make_room(self, size: int) -> int:
        """Drop the oldest that were never sent, where that is allowed; how many rows."""
        if size > self.max_bytes or self.on_full == "block":
            raise WindowFullError(size, self.bytes, self.max_bytes)
        dropped = 0
        while self._fresh and not self.has_room(size):
            dropped += self._drop(self._fresh.popleft())
        return dropped

    def take(self, now: float, limit: int = 64) -> list[Batch]:
        """The batches to send now, at most `limit`: first those to send again, in order.

        They count as sent: what could not be handed to the socket goes to `put_back`.
        """
        batches: list[Batch] = []
        while len(batches) < limit:
            held = self._next()
            if held is None or not self._may_send(len(held.payload)):
                break
            if held.seq < 0:
                self._fresh.popleft()
                held.seq = self.sequenced
                self._numbered[held.seq] = held
                self.sequenced += 1
            else:
                self._again.popleft()
                self.resent += 1
            held.waiting = False
            held.sent_at = now
            self._outstanding_batches += 1
            self._outstanding_bytes += len(held.payload)
            batches.append(self._batch(held))
        return batches

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Send these again: the socket did not take them."""
        self._send_again(held for b in batches if (held := self._numbered.get(b.seq)) is not None)

    def on_ack(self, ack: Ack, now: float) -> int:
        """Free what is settled; how many rows that were.

        Acks for another manager, incarnation or run are ignored, and those of an older epoch. A
        new epoch, or another learner, makes everything unsettled be sent again: what the former
        one had received and not committed is gone. Learners of one epoch have no order, so a late
        ack of the former one does the same, which costs duplicates and nothing else.

        Raises:
            AckError: it acknowledges what was never sent. Nothing is freed.
        """
        if ack.manager != self.manager or ack.incarnation != self.incarnation:
            return 0
        known = self._learner
        if ack.run_id != self.run_id or (known is not None and ack.epoch < known[0]):
            return 0
        if ack.beyond > self.sequenced:
            raise AckError(ack.beyond, self.sequenced)
        self._acked_at = now
        self._credit_batches, self._credit_bytes = ack.credit_batches, ack.credit_bytes
        self.rejected = max(self.rejected, ack.rejected_rows)
        before = self.settled
        self._settle(ack)
        self._learner = (ack.epoch, ack.learner)
        if known is not None and known != self._learner:
            self.resend_all()
        return self.settled - before

    def resend_all(self) -> int:
        """Send everything unsettled again (a fresh connection); how many batches that are."""
        return self._send_again(self._numbered.values())

    def resend_stalled(self, now: float, after_s: float = STALL_S) -> int:
        """Send again what an ack `after_s` after its sending still did not settle.

        Without acks nothing is stalled but everything: then sockets are remade instead.
        """
        if now - self._acked_at >= after_s:
            return 0
        heard = self._acked_at - after_s
        return self._send_again(h for h in self._numbered.values() if h.sent_at <= heard)

    def abandon(self) -> int:
        """Drop what was never sent (at the end); how many rows. What was sent may yet arrive."""
        dropped = 0
        while self._fresh:
            dropped += self._drop(self._fresh.popleft())
        return dropped

    def report(
        self, host: str, state: ManagerState, actors: tuple[ActorReport, ...] = ()
    ) -> Report:
        """How the manager does, with this window's counts."""
        return Report(
            manager=self.manager,
            incarnation=self.incarnation,
            host=host,
            state=state,
            run_id=self.run_id,
            produced=self.produced,
            dropped=self.dropped,
            window_batches=self.batches,
            window_rows=self.rows,
            window_bytes=self.bytes,
            sequenced=self.sequenced,
            base=self.base,
            actors=actors,
        )

    def stats(self) -> dict[str, float]:
        """What the window holds and has seen; rows but for `batches`, `outstanding`, `resent`."""
        return {
            "batches": self.batches,
            "bytes": self.bytes,
            "rows": self.rows,
            "outstanding": self._outstanding_batches,
            "credit_batches": self._credit_batches,
            "produced": self.produced,
            "dropped": self.dropped,
            "settled": self.settled,
            "rejected": self.rejected,
            "resent": self.resent,
        }

    def _next(self) -> _Held | None:
        while self._again:
            held = self._numbered.get(self._again[0])
            if held is not None:
                return held
            self._again.popleft()  # settled while it waited
        # Beyond this the ledger keeps no exact set and would refuse
        if self._fresh and self.sequenced - self.base < EXTRAS_MAX:
            return self._fresh[0]
        return None

    def _may_send(self, payload_bytes: int) -> bool:
        if self._outstanding_batches >= self._credit_batches:
            return False
        if self._outstanding_batches == 0:  # one larger than the credit would wait for ever
            return self._credit_bytes > 0
        return self._outstanding_bytes + payload_bytes <= self._credit_bytes

    def _batch(self, held: _Held) -> Batch:
        return Batch(
            self.run_id,
            self.manager,
            self.incarnation,
            held.seq,
            held.actor,
            held.epoch,
            held.version,
            self.schema,
            held.rows,
            held.payload,
            self.base,
        )

    def _drop(self, held: _Held) -> int:
        self.bytes -= len(held.payload)
        self.dropped += held.rows
        return held.rows

    def _send_again(self, batches: Iterable[_Held]) -> int:
        marked = 0
        for held in batches:
            if not held.waiting:
                held.waiting = True
                self._outstanding_batches -= 1
                self._outstanding_bytes -= len(held.payload)
                marked += 1
        if marked:
            self._again = deque(seq for seq, held in self._numbered.items() if held.waiting)
        return marked

    def _settle(self, ack: Ack) -> None:
        for seq in range(self.base, ack.contiguous):
            self._free(seq)
        extras, seq = ack.extras, ack.contiguous
        if seq < self.base:  # a ledger that was restored from an older state
            extras, seq = extras >> (self.base - seq), self.base
        while extras:
            bit = extras & -extras
            self._free(seq + bit.bit_length() - 1)
            extras ^= bit
        while self.base < self.sequenced and self.base not in self._numbered:
            self.base += 1

    def _free(self, seq: int) -> None:
        held = self._numbered.pop(seq, None)
        if held is None:
            return
        self.bytes -= len(held.payload)
        self.settled += held.rows
        if not held.waiting:
            self._outstanding_batches -= 1
            self._outstanding_bytes -= len(held.payload)

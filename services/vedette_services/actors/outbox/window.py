"""The batches of one session of an outbox that are to be sent: what a `Window` is for memory.

A batch has its number from the moment on at which it was added, is held until it is safe, and sent
until it is stored. What one learner has stored says nothing of another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from vedette_protocol.errors import WindowFullError
from vedette_protocol.messages import (
    OUTBOX,
    Ack,
    ActorReport,
    Batch,
    Buffer,
    Report,
    ReportedState,
)
from vedette_protocol.send_window import OnFull
from vedette_protocol.sent_batches import STALL_S, SentBatches, make_report
from vedette_rl.number_format import format_bytes
from vedette_services.actors.outbox.files import HeldBatch, OutboxFiles, Session


@dataclass(slots=True)
class Following:
    """The learner that a process follows, in all its sessions.

    Args:
        learner: its epoch and name; None: none yet.
        changes: how often it was another one.
        is_older: it knows no outbox: what it has stored has to count as safe.
    """

    learner: tuple[int, int] | None = None
    changes: int = 0
    is_older: bool = False


class OutboxWindow:
    """Sends the batches of a session, its own process's or one that has ended.

    Args:
        following: shared by the windows of a process.
        on_full: ``"block"``: the producer waits for room; ``"drop_oldest"``: the oldest segment is
            dropped, and counted.
        droppable: the sessions of which it may be.
    """

    max_age_s = math.inf
    """A batch in a file is not too old."""

    def __init__(
        self,
        files: OutboxFiles,
        session: Session,
        following: Following,
        *,
        on_full: OnFull = "block",
        droppable: Iterable[Session] = (),
    ) -> None:
        self.session = session
        self.manager = session.manager
        self.incarnation = session.incarnation
        self.run_id = session.run_id
        self.schema = session.schema
        self.on_full = on_full
        self.awaits_ack = True
        """The connection is new: the next ack says what need not be sent again."""
        self.refused_until = float("-inf")
        self.settled = 0
        self.uploaded = 0
        """Rows that were sent here and are stored: others the learner had already."""
        self._sent = SentBatches(self.manager, self.incarnation, self.run_id)
        self._files = files
        self._droppable = [*droppable, session]
        self._following = following
        self._changes = following.changes
        self._next = session.base  # the next number to be sent, but for those to send again
        self._sent_end = 0  # above each number that was sent
        self._settled_below = session.base  # those below were marked as stored
        self._oldest = session.base  # none below is to be sent
        self._unreadable: list[int] = []  # numbers whose files cannot be read now
        self._returns = files.returns

    @property
    def batches(self) -> int:
        """Number of batches that are not stored."""
        return self.session.unstored_batches

    @property
    def unsent(self) -> int:
        """Number of batches that are to be sent."""
        unread = len(self._sent.again) + len(self._unreadable)
        return max(0, self.session.end - self._next) + unread

    @property
    def waits_for_files(self) -> bool:
        """True if it may send nothing but what cannot be read before the outbox's folder is
        back."""
        is_through = not self._sent.again and self._next >= min(self.session.end, self.limit)
        return self.has_unreadable and is_through

    @property
    def has_unreadable(self) -> bool:
        """True if it has batches to send that cannot be read before the folder is back."""
        return bool(self._unreadable) and self._returns == self._files.returns

    @property
    def rows(self) -> int:
        """Number of rows that are not stored."""
        return self.session.unstored_rows

    @property
    def bytes(self) -> int:
        """Number of payload bytes that are not stored."""
        return self.session.unstored_bytes

    @property
    def base(self) -> int:
        """The lowest number that is held."""
        return self.session.base

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

    @property
    def produced(self) -> int:
        """Rows of the session."""
        return self.session.produced

    @property
    def dropped(self) -> int:
        """Rows that were given up."""
        return self.session.dropped

    @property
    def sequenced(self) -> int:
        """A number above each one that was sent."""
        session = self.session
        return session.end if session.ended else max(self._sent_end, session.base)

    def has_room(self, payload_bytes: int) -> bool:
        """Return True if there is room for a payload of this size without dropping a batch."""
        return self._files.has_room(payload_bytes)

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
        """Add a batch. Return the number of rows that were dropped to make room for it."""
        dropped = 0
        if not self._files.has_room(len(payload)):
            if self.on_full == "block":
                files = self._files
                raise WindowFullError(len(payload), files.bytes, files.max_bytes)
            dropped = self._files.make_room(len(payload), self._droppable)
            if not self._files.has_room(len(payload)):  # others' files take the room
                self.session.produced += rows
                self.session.dropped += rows
                files = self._files
                size, most = format_bytes(len(payload)), format_bytes(files.max_bytes)
                files.faults.append(
                    f"{files.directory}: new samples are dropped: a batch of {size} has no room in "
                    f"{most}, whatever is dropped of this run: start this manager with a larger "
                    "--outbox-mib, or remove the files of other runs"
                )
                return dropped + rows
        steps = rows if env_steps is None else env_steps
        batch = self._files.append(self.session, actor, epoch, version, rows, steps, payload)
        batch.added_at = now
        return dropped

    def drop_old(self, now: float) -> int:
        """A batch in a file is not too old."""
        return 0

    def delay_s(self, now: float) -> float:
        """Return how old the oldest batch is that is not stored; 0 where all are."""
        session = self.session
        while self._oldest < session.end:
            batch = session.held.get(self._oldest)
            if batch is not None and not batch.stored:
                return max(0.0, now - batch.added_at)
            self._oldest += 1
        return 0.0

    def next_batches(self, now: float, limit: int = 64) -> list[Batch]:
        """Return the batches to send now, at most `limit`: first those to send again, in order.

        They count as sent. Give those that the socket did not accept to `put_back`.
        """
        batches: list[Batch] = []
        again = self._sent.again
        if self._returns != self._files.returns:
            self._returns = self._files.returns
            readable = sorted([*again, *self._unreadable])
            again.clear()
            again.extend(readable)
            self._unreadable.clear()
        while again and len(batches) < limit:
            self._add_to(batches, again.popleft(), now)
        session = self.session
        until = min(session.end, self.limit)
        while self._next < until and len(batches) < limit:
            self._add_to(batches, self._next, now)
            self._next += 1
        self._sent_end = max(self._sent_end, self._next)
        return batches

    def _add_to(self, batches: list[Batch], seq: int, now: float) -> None:
        held = self.session.held.get(seq)
        if held is None or held.stored:
            return
        try:
            payload = self._files.read(self.session, held)
        except OSError as error:
            if self._files.may_be_read_later(held, error):
                self._unreadable.append(seq)
            else:
                self._files.give_up_unreadable(self.session, held, error)
            return
        self._sent.resent += seq < self._sent_end
        self._sent.sent_at[seq] = now
        batches.append(self._batch(held, payload))

    def _batch(self, held: HeldBatch, payload: Buffer) -> Batch:
        numbers = held.numbers
        return Batch(
            self.run_id,
            self.manager,
            self.incarnation,
            numbers.seq,
            numbers.actor,
            numbers.epoch,
            numbers.version,
            self.schema,
            numbers.rows,
            payload,
            self.session.base,
            numbers.env_steps,
        )

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Send these batches again, because the socket did not accept them."""
        self._sent.send_again([batch.seq for batch in batches])

    def on_ack(self, ack: Ack, now: float, *, is_current: bool) -> int:
        """Mark what an ack settles as stored, and delete what is safe. Return the rows settled.

        Acks for another manager, incarnation or run are ignored, and acks of an older epoch.

        Args:
            is_current: it is of the start of the learner that was announced last.

        Raises:
            AckError: it acknowledges batches that a session never had which is not ended. Of an
                ended one the file may have lost its tail.
        """
        following = self._following
        if not self._sent.concerns(ack, following.learner):
            return 0
        session = self.session
        self._sent.on_ack(ack, now, None if session.ended else session.end)
        learner = (ack.epoch, ack.learner)
        if following.learner != learner:
            following.learner = learner
            following.changes += 1
        self.follow()
        before = session.unstored_rows
        self._settle(ack)
        settled = before - session.unstored_rows
        self.settled += settled
        if self.awaits_ack:
            self.awaits_ack = False
            self.resend_all()
        self._delete_safe(ack, is_current=is_current)
        return settled

    def follow(self) -> None:
        """Begin anew where another learner answers: what the former had, it may not have."""
        if self._changes == self._following.changes:
            return
        self._changes = self._following.changes
        self._files.forget_stored(self.session)
        self._settled_below = self._oldest = self.session.base
        self.resend_all()

    def _settle(self, ack: Ack) -> None:
        session = self.session
        for seq in range(max(session.base, self._settled_below), min(ack.contiguous, session.end)):
            self._mark_stored(seq)
        self._settled_below = max(self._settled_below, min(ack.contiguous, session.end))
        extras = ack.extras
        while extras:
            bit = extras & -extras
            self._mark_stored(ack.contiguous + bit.bit_length() - 1)
            extras ^= bit

    def _mark_stored(self, seq: int) -> None:
        was_sent = self._sent.sent_at.pop(seq, None) is not None
        held = self.session.held.get(seq)
        if held is not None:
            if was_sent and not held.stored:
                self.uploaded += held.numbers.rows
            self._files.mark_stored(self.session, held)

    def _delete_safe(self, ack: Ack, *, is_current: bool) -> None:
        if not self._following.is_older:
            safe = ack.safe or 0
        else:
            safe = ack.contiguous if is_current else 0
        self._files.free_below(self.session, safe)

    def resend_all(self) -> int:
        """Send everything unsettled again, after a new connection. Return the number of batches."""
        self._next = self.session.base
        self._unreadable.clear()
        return self._sent.forget()

    def resend_stalled(self, now: float, after_s: float = STALL_S) -> int:
        """Send batches again that acks pass over: see `SentBatches.resend_stalled`."""
        return self._sent.resend_stalled(now, after_s)

    def make_report(
        self,
        host: str,
        state: ReportedState,
        actors: tuple[ActorReport, ...] = (),
        *,
        delay_s: float | None = None,
        failures: int = 0,
    ) -> Report:
        """Make the report with the counts of this session."""
        return make_report(
            self,
            host,
            state,
            actors,
            delay_s=delay_s,
            failures=failures,
            features=(OUTBOX,),
            ended=self.session.ended,
            memory_rows=0 if self.session.ended else self._files.rows_in_memory_alone,
        )

    def stats(self) -> dict[str, float]:
        """Return counts: batches in `batches`, `outstanding`, `resent`; else rows or bytes."""
        session = self.session
        return {
            "batches": session.unstored_batches,
            "bytes": session.unstored_bytes,
            "rows": session.unstored_rows,
            "outstanding": len(self._sent.sent_at),
            "credit": self.limit - self._next,
            "produced": session.produced,
            "dropped": session.dropped,
            "settled": self.settled,
            "rejected": self.rejected,
            "resent": self.resent,
        }

"""The gateway's thinking: what came in, and what is to be done about it. No socket, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vedette_protocol import topics
from vedette_protocol.batch_reader import BatchReader
from vedette_protocol.codec import encode
from vedette_protocol.credit import Credit, share
from vedette_protocol.errors import (
    LedgerFullError,
    ProtocolError,
    RetiredError,
    Sender,
    VersionError,
)
from vedette_protocol.messages import Batch, Buffer, Refusal, Report, Run, Status, Stop
from vedette_protocol.schema import Schema
from vedette_rl.replay.limiter import Limiter
from vedette_services.host.rate_limited import Complaints
from vedette_services.learner.fleet import Fleet, Owners
from vedette_services.learner.flow_control import AckPace, CreditWatch, FlightLimits
from vedette_services.learner.intake import Block, Intake
from vedette_services.learner.lag import LagMeter
from vedette_services.run.boards import GONE_AFTER_S
from vedette_services.run.ring_stamp import pack_stamp, read_stamp

_REFUSALS_A_TURN = 64

Frames = list[Buffer]


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Position:
    """How far learning has come, as the trainer last told."""

    epoch: int = 0
    version: int = 0
    sampled: int = 0


class GatewayState:
    """Batches in, blocks and acks out; subscriptions in, runs out.

    ::

        state = GatewayState(run_id, learner, schema, stamp=ring.stamp, now=now, ...)
        for _ in range(ring.room // rows_per_batch): state.on_samples(frames, now)
        for block in state.blocks(now): block.append_to(ring)
        if state.dirty: ring.commit(state.stamp())
        send(state.acks_due(now, ring.inserted))
    """

    def __init__(
        self,
        run_id: str,
        learner: int,
        schema: Schema,
        *,
        stamp: bytes,
        now: float,
        limiter: Limiter,
        rows_per_batch: int,
        limits: FlightLimits | None = None,
        window: FlightLimits | None = None,
        batch_bytes: int = 0,
        owners: Owners | None = None,
    ) -> None:
        self.run_id, self.learner, self.schema = run_id, learner, schema
        self.ledger, self.slots = read_stamp(run_id, stamp, now)
        self.fleet = Fleet()
        self.lag = LagMeter()
        self.position = Position()
        self.garbage = 0
        self.refused_ids = 0
        self.refused_credit = 0
        self.complaints = Complaints()
        self.limiter_reason = ""
        self.rejecting = ""  # why the last batch was rejected; "" where one was inserted since
        self.notes: list[Note] = []
        self.dirty = False  # the ledger holds something that the ring has not committed
        self._limiter = limiter
        self._rows_per_batch = rows_per_batch
        self._reader = BatchReader()
        self._intake = Intake(schema, rows_per_batch, self.ledger.number)
        self._blocks: list[Block] = []  # looked into, and not yet handed out
        self._limits = limits or FlightLimits()
        self._credit_watch = CreditWatch(self._limits.batches)
        self._owners = owners  # None: nobody shows a key, anybody may be anybody
        self._pace = AckPace(window, batch_bytes or self._intake.full_bytes)
        self._refusals: list[Refusal] = []
        self._run: Run | None = None

    # What comes up

    @property
    def held_bytes(self) -> int:
        """Of the batches that were taken and not looked into yet."""
        return self._intake.bytes

    @property
    def stacks(self) -> bool:
        """Whether the run's batches are small, and copied together before they are looked into."""
        return self._intake.stacks

    def on_samples(self, frames: Sequence[Any], now: float, key: str = "") -> None:
        """One message from the samples' socket; a batch that is new is held for `blocks`.

        Args:
            key: the name of the key that its connection showed; "" without keys.
        """
        try:
            message = self._reader.read(frames)
            if self._owners is not None and not self._is_owned(
                message.manager, message.incarnation, key
            ):
                return
            if type(message) is Batch:
                self._on_batch(message, now)
            else:
                assert isinstance(message, Report), "nothing else comes up"
                self._look(now)
                self._on_report(message, now)
        except ProtocolError as error:
            self._look(now)
            self._refuse(error, now, key)

    def blocks(self, now: float) -> list[Block]:
        """The sound batches of those that were taken: to be appended, then committed.

        Call before `stamp`, which speaks of them as inserted.
        """
        self._look(now)
        blocks, self._blocks = self._blocks, []
        return blocks

    def _is_owned(self, manager: str, incarnation: int, key: str) -> bool:
        """Whether this key may speak for this manager; the refusal if not."""
        if self._owners is None or self._owners.claim(manager, key):
            return True
        self.refused_ids += 1
        self.complaints.add("refused", f"key {key!r} speaks for manager {manager!r} of another key")
        # Told only to an incarnation that its owner never used: the topic is the owner's, too, and
        # a liar may name the owner's incarnation.
        if not self.ledger.knows(manager, incarnation):
            reason = f"the manager id {manager!r} belongs to another key; choose another --id"
            self._tell_refusal(Refusal(manager, incarnation, "id", reason))
        return False

    def _tell_refusal(self, refusal: Refusal) -> None:
        if len(self._refusals) < _REFUSALS_A_TURN:
            self._refusals.append(refusal)

    def _on_batch(self, batch: Batch, now: float) -> None:
        if batch.run_id != self.run_id:
            self.garbage += 1  # its manager drops that run's window when it hears of this one
            return
        manager, incarnation = batch.manager, batch.incarnation
        if self._credit_watch.is_spent(manager, incarnation) and not self.ledger.has_settled(
            manager, incarnation, batch.seq
        ):
            self.fleet.on_batch(manager, now)
            self.refused_credit += 1  # not settled: it may come again, within its credit
            self.complaints.add("credit", f"manager {manager} sends more than it may")
            return
        self._pace.heard(manager)
        try:
            verdict = self.ledger.take(batch, now)
        except KeyError:
            self._look(now)  # its account may take the place of one whose batches are held
            self.ledger.hear(manager, incarnation, now)
            verdict = self.ledger.take(batch, now)
        if verdict == "new":
            self._credit_watch.took(manager, incarnation)
            self._intake.add(batch)
            self.dirty = True
        else:
            self.fleet.on_batch(manager, now)

    def _look(self, now: float) -> None:
        """Look into the batches that are held: the unsound ones become rejected."""
        if not self._intake.bytes:
            return
        found = self._intake.look()
        self._blocks += found.blocks
        for manager in found.managers:
            self.fleet.on_batch(manager, now)
        for version, rows in found.rows_by_version.items():
            self.lag.inserted(version, self.position.version, rows, now)
        for batch, error in found.unsound:
            self.ledger.refuse(batch)
            self._complain_of(batch.seq, batch.manager, error)
        if found.blocks:
            self.rejecting = ""

    def _reject(self, sender: Sender, rows: int, error: ProtocolError, now: float) -> None:
        assert sender.seq is not None, "only batches are rejected"
        self.ledger.settle_rejected(sender.manager, sender.incarnation, sender.seq, rows, now)
        self._pace.hurry(sender.manager)
        self.dirty = True
        self._complain_of(sender.seq, sender.manager, error)

    def _complain_of(self, seq: int, manager: str, error: ProtocolError) -> None:
        self.complaints.add("rejected", f"batch {seq} of {manager}: {error}")
        self.rejecting = str(error)

    def _refuse(self, error: ProtocolError, now: float, key: str = "") -> None:
        """A message that is none; a batch of a sender we know is settled, lest it come again."""
        sender = error.sender
        if sender is None or not self.fleet.knows(sender.manager):
            self._bin(error)
        elif not self._is_owned(sender.manager, sender.incarnation, key):
            return
        elif isinstance(error, VersionError):
            self._bin(error)
            self._tell_refusal(Refusal(sender.manager, sender.incarnation, "version", str(error)))
        elif isinstance(error, RetiredError | LedgerFullError):  # else it would wait for ever
            self._tell_refusal(Refusal(sender.manager, sender.incarnation, "id", str(error)))
        elif sender.seq is None or not self.ledger.is_new(
            sender.manager, sender.incarnation, sender.seq
        ):
            self._bin(error)
        else:
            try:
                self._reject(sender, error.rows, error, now)
            except ProtocolError as full:  # no account for it, so there is nothing to settle
                self._bin(full)

    def _bin(self, error: ProtocolError) -> None:
        self.garbage += 1
        self.complaints.add("garbage", f"refused a message: {error}")

    def _on_report(self, report: Report, now: float) -> None:
        self.ledger.on_report(report, now)  # first: it refuses what is more than it can keep
        self.dirty = True
        new = self.fleet.on_report(report, now)
        if report.state == "gone":
            self.slots.release(report.manager)
            why = next((f": {actor.error}" for actor in report.actors if actor.error), "")
            self._note("warning" if why else "info", f"manager {report.manager} has left{why}")
        elif new:
            self._pace.hurry(report.manager)
            count = len(report.actors)
            actors = f"{count} actor{'' if count == 1 else 's'}"
            self._note("info", f"manager {report.manager} on {report.host} is here, {actors}")

    # What goes down

    def begin(self, run: Run) -> list[Frames]:
        """The trainer has a model, or a new epoch: everybody is told what is being run."""
        self._run = run
        return [[topics.ALL, *encode(run)]]

    def on_subscription(self, event: bytes, status: bytes, now: float) -> list[Frames]:
        """Somebody subscribed on the control socket; answers go to its private topic alone.

        Args:
            event: what the XPUB socket said.
            status: the status as JSON, for those who ask for it.
        """
        try:
            subscription = topics.parse_subscription(event)
        except ProtocolError as error:
            self._bin(error)
            return []
        if not subscription.subscribed:
            return []
        if subscription.audience == "status":
            return [[subscription.topic, *encode(Status(status))]]
        if subscription.audience == "manager" and self._run is not None:
            self._pace.joined(subscription.name)
            return [[subscription.topic, *encode(self._run)]]
        return []

    def on_model_subscription(self, event: bytes) -> bytes:
        """Somebody subscribed on the models' socket: the topic that wants a model, or b""."""
        try:
            subscription = topics.parse_subscription(event)
        except ProtocolError as error:
            self._bin(error)
            return b""
        wants = subscription.subscribed and subscription.audience == "manager"
        return subscription.topic if wants else b""

    @property
    def has_news(self) -> bool:
        """Whether an ack will be due sooner than those that are sent anyway."""
        return self._pace.news

    def acks_due(self, now: float, inserted: int) -> list[Frames]:
        """The acks to send now. Call only after everything settled has been committed."""
        messages: list[Frames] = [
            [topics.manager_topic(refusal.manager), *encode(refusal)] for refusal in self._refusals
        ]
        self._refusals.clear()
        if not self._pace.may_look(now):
            return messages
        living = self.ledger.living()
        due = self._pace.due(living, now)
        if not due:
            return messages
        credits = self._credits({manager for manager, _ in living}, inserted)
        least = min(credits.values(), key=lambda credit: credit.batches)
        self._pace.sent((manager for manager, _ in due), least, now)
        for manager, incarnation in due:
            self._credit_watch.granted(manager, incarnation, credits[manager].batches, now)
            ack = self.ledger.ack(
                manager,
                incarnation,
                epoch=self.position.epoch,
                learner=self.learner,
                credit=credits[manager],
                version=self.position.version,
                first_actor=self.slots.assign(manager, self.fleet.actors(manager)),
            )
            messages.append([topics.manager_topic(manager), *encode(ack)])
        return messages

    def _credits(self, managers: set[str], inserted: int) -> dict[str, Credit]:
        """What each manager may have in flight, from the shared budget and the limiter."""
        if self._run is None:
            return share(1, 1, managers, paused="the learner is starting")
        sampled = self.position.sampled
        self.limiter_reason = self._limiter.may_insert(inserted, sampled)
        batches = self._limits.batches
        allowed = self._limiter.insertable(inserted, sampled)
        if allowed is not None:
            batches = max(1, min(batches, allowed // self._rows_per_batch))
        credits = share(batches, self._limits.payload_bytes, managers, paused=self.limiter_reason)
        # A manager that leaves may hand in what it has: its window bounds that.
        leaving = share(self._limits.batches, self._limits.payload_bytes, self.fleet.draining)
        return {**credits, **leaving}

    def stop(self, reason: str, *, final: bool) -> list[Frames]:
        """Tell everybody that the learner ends."""
        return [[topics.ALL, *encode(Stop(self.run_id, self.position.epoch, reason, final))]]

    # Time

    def tick(self, now: float) -> None:
        """A few times a second: notice who has gone silent."""
        self._credit_watch.keep(self.ledger.living())
        silent = [
            manager  # in the ledger of the gateway before this one, and never heard by this one
            for manager, _ in self.ledger.living()
            if not self.fleet.knows(manager) and now - self.ledger.last_seen(manager) > GONE_AFTER_S
        ]
        for manager in self.fleet.newly_gone(now) + silent:
            self.ledger.mark_gone(manager)
            self.slots.release(manager)
            self.dirty = True
            self._note("warning", f"manager {manager} has been silent; it counts as gone")

    def over(self) -> None:
        """The run has ended and takes no more: what has not come by now is lost.

        Should it go on all the same, whoever still holds something brings it, and it is in flight
        again.
        """
        for manager in self.ledger.managers():
            self.ledger.mark_gone(manager)
            self.slots.release(manager)
        self.dirty = True

    def stamp(self) -> bytes:
        """The ledger and the actor numbers, to be committed with the rows they speak of."""
        held = self._intake.bytes or self._blocks
        assert not held, "what the stamp calls inserted is in the ring"
        self.dirty = False
        return pack_stamp(self.ledger, self.slots)

    def _note(self, level: str, text: str) -> None:
        self.notes.append(Note(level, text))

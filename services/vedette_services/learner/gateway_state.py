"""The gateway's thinking: what came in, and what is to be done about it. No socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vedette_protocol import topics
from vedette_protocol.codec import BatchReader, encode
from vedette_protocol.credit import Credit, share_credit
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
from vedette_rl.replay.rows import RowAppender
from vedette_services.config.run_config import RunConfig
from vedette_services.host.rate_limited import RateLimitedLog
from vedette_services.learner.fleet import Fleet, ManagerIds
from vedette_services.learner.flow_control import AckScheduler, CreditEnforcer, FlightLimits
from vedette_services.learner.intake import Block, Intake
from vedette_services.learner.lag import LagMeter, RateMeter
from vedette_services.run.ring_stamp import pack_stamp, read_stamp
from vedette_services.run.status import Rates, Refused, Replay, Samples
from vedette_services.run.status_records import GONE_AFTER_S, GatewayStatus

_REFUSALS_A_TURN = 64
_LOG_LINES_A_TICK = 5

Frames = list[Buffer]


@dataclass(frozen=True, slots=True)
class LogLine:
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
        window: FlightLimits | None = None,
        batch_bytes: int = 0,
        manager_ids: ManagerIds | None = None,
        figures_time: Callable[[float], float] | None = None,
    ) -> None:
        """`figures_time` turns a `now` into the time that rates and lag are measured by."""
        self.run_id, self.learner, self.schema = run_id, learner, schema
        self.ledger, self.actor_numbers = read_stamp(run_id, stamp, now)
        self._figures_time = figures_time or _same
        self.fleet = Fleet(self._figures_time)
        self._rate = RateMeter()
        self.lag = LagMeter()
        self.position = Position()
        self.garbage = 0
        self.refused_ids = 0
        self.refused_credit = 0
        self.rejections = RateLimitedLog()
        self.limiter_reason = ""
        self.rejecting = ""  # why the last batch was rejected; "" where one was inserted since
        self.log_lines: list[LogLine] = []
        self.dirty = False  # the ledger holds something that the ring has not committed
        self._limiter = limiter
        self._rows_per_batch = rows_per_batch
        self._reader = BatchReader()
        self._intake = Intake(schema, rows_per_batch, self.ledger.manager_number)
        self._blocks: list[Block] = []  # looked into, and not yet handed out
        self._limits = FlightLimits()
        self._credit_enforcer = CreditEnforcer(self._limits.batches)
        self._manager_ids = manager_ids  # None: nobody shows a key, anybody may be anybody
        self._ack_scheduler = AckScheduler(window, batch_bytes or self._intake.full_bytes)
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
            if self._manager_ids is not None and not self._may_speak_for(
                message.manager, message.incarnation, key
            ):
                return
            if type(message) is Batch:
                self._on_batch(message, now)
            else:
                assert isinstance(message, Report), "nothing else comes up"
                self._validate_held(now)
                self._on_report(message, now)
        except ProtocolError as error:
            self._validate_held(now)
            self._handle_error(error, now, key)

    def blocks(self, now: float) -> list[Block]:
        """The sound batches of those that were taken: to be appended, then committed.

        Call before `stamp`, which speaks of them as inserted.
        """
        self._validate_held(now)
        blocks, self._blocks = self._blocks, []
        return blocks

    def _may_speak_for(self, manager: str, incarnation: int, key: str) -> bool:
        """Whether this key may speak for this manager; the refusal if not."""
        if self._manager_ids is None or self._manager_ids.claim(manager, key):
            return True
        self.refused_ids += 1
        self.rejections.add("refused", f"key {key!r} speaks for manager {manager!r} of another key")
        # Told only to an incarnation that its owner never used: the topic is the owner's, too, and
        # a liar may name the owner's incarnation.
        if not self.ledger.has_account(manager, incarnation):
            reason = f"the manager id {manager!r} belongs to another key; choose another --id"
            self._queue_refusal(Refusal(manager, incarnation, "id", reason))
        return False

    def _queue_refusal(self, refusal: Refusal) -> None:
        if len(self._refusals) < _REFUSALS_A_TURN:
            self._refusals.append(refusal)

    def _on_batch(self, batch: Batch, now: float) -> None:
        if batch.run_id != self.run_id:
            self.garbage += 1  # its manager drops that run's window when it hears of this one
            return
        manager, incarnation = batch.manager, batch.incarnation
        if self._credit_enforcer.is_exhausted(manager, incarnation) and not self.ledger.has_settled(
            manager, incarnation, batch.seq
        ):
            self.fleet.on_batch(manager, now)
            self.refused_credit += 1  # not settled: it may come again, within its credit
            self.rejections.add("credit", f"manager {manager} sends more than it may")
            return
        self._ack_scheduler.on_batch(manager)
        try:
            verdict = self.ledger.record_batch(batch, now)
        except KeyError:
            self._validate_held(now)  # its account may take the place of one whose batches are held
            self.ledger.mark_alive(manager, incarnation, now)
            verdict = self.ledger.record_batch(batch, now)
        if verdict == "new":
            self._credit_enforcer.on_batch(manager, incarnation)
            self._intake.add(batch)
            self.dirty = True
        else:
            self.fleet.on_batch(manager, now)

    def _validate_held(self, now: float) -> None:
        """Look into the batches that are held: the unsound ones become rejected."""
        if not self._intake.bytes:
            return
        found = self._intake.validate_held()
        self._blocks += found.blocks
        for manager in found.managers:
            self.fleet.on_batch(manager, now)
        for version, rows in found.rows_by_version.items():
            self.lag.on_inserted(version, self.position.version, rows, self._figures_time(now))
        for batch, error in found.invalid:
            self.ledger.reject_batch(batch)
            self._log_rejection(batch.seq, batch.manager, error)
        if found.blocks:
            self.rejecting = ""

    def _reject(self, sender: Sender, rows: int, error: ProtocolError, now: float) -> None:
        assert sender.seq is not None, "only batches are rejected"
        self.ledger.settle_rejected(sender.manager, sender.incarnation, sender.seq, rows, now)
        self._ack_scheduler.expedite(sender.manager)
        self.dirty = True
        self._log_rejection(sender.seq, sender.manager, error)

    def _log_rejection(self, seq: int, manager: str, error: ProtocolError) -> None:
        self.rejections.add("rejected", f"batch {seq} of {manager}: {error}")
        self.rejecting = str(error)

    def _handle_error(self, error: ProtocolError, now: float, key: str = "") -> None:
        """A message that is none; a batch of a sender we know is settled, lest it come again."""
        sender = error.sender
        if sender is None or not self.fleet.knows(sender.manager):
            self._discard(error)
        elif not self._may_speak_for(sender.manager, sender.incarnation, key):
            return
        elif isinstance(error, VersionError):
            self._discard(error)
            self._queue_refusal(Refusal(sender.manager, sender.incarnation, "version", str(error)))
        elif isinstance(error, RetiredError | LedgerFullError):  # else it would wait for ever
            self._queue_refusal(Refusal(sender.manager, sender.incarnation, "id", str(error)))
        elif sender.seq is None or not self.ledger.is_new(
            sender.manager, sender.incarnation, sender.seq
        ):
            self._discard(error)
        else:
            try:
                self._reject(sender, error.rows, error, now)
            except ProtocolError as full:  # no account for it, so there is nothing to settle
                self._discard(full)

    def _discard(self, error: ProtocolError) -> None:
        self.garbage += 1
        self.rejections.add("garbage", f"refused a message: {error}")

    def _on_report(self, report: Report, now: float) -> None:
        self.ledger.on_report(report, now)  # first: it refuses what is more than it can keep
        self.dirty = True
        new = self.fleet.on_report(report, now)
        if report.state == "gone":
            self.actor_numbers.release(report.manager)
            why = next((f": {actor.error}" for actor in report.actors if actor.error), "")
            self._log("warning" if why else "info", f"manager {report.manager} has left{why}")
        elif new:
            self._ack_scheduler.expedite(report.manager)
            count = len(report.actors)
            actors = f"{count} actor{'' if count == 1 else 's'}"
            self._log("info", f"manager {report.manager} on {report.host} is here, {actors}")

    # What goes down

    def on_progress(self, opt_steps: int, sampled: int) -> None:
        """The trainer has come so far."""
        version = max(self.position.version, opt_steps)
        self.position = Position(self.position.epoch, version, sampled)

    def on_model(self, run: Run, version: int, now: float) -> list[Frames]:
        """The trainer has a newer model; one of another epoch begins the run anew."""
        self.lag.on_published(version, self._figures_time(now))
        if run.epoch == self.position.epoch:
            return []
        self.position = Position(run.epoch, version, self.position.sampled)
        return self.announce_run(run)

    def run_message(self, config: RunConfig, epoch: int, model: Schema) -> Run:
        """The message that announces the run to managers."""
        return Run(
            run_id=self.run_id,
            epoch=epoch,
            learner=self.learner,
            schema=self.schema,
            model=model,
            env=config.env.model_dump(mode="json"),
            agent=config.agent.model_dump(mode="json"),
            actors=config.actors.model_dump(mode="json"),
            seed=config.seed,
        )

    def announce_run(self, run: Run) -> list[Frames]:
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
            self._discard(error)
            return []
        if not subscription.subscribed:
            return []
        if subscription.audience == "status":
            return [[subscription.topic, *encode(Status(status))]]
        if subscription.audience == "manager" and self._run is not None:
            self._ack_scheduler.on_subscribed(subscription.name)
            return [[subscription.topic, *encode(self._run)]]
        return []

    def on_model_subscription(self, event: bytes) -> bytes:
        """Somebody subscribed on the models' socket: the topic that wants a model, or b""."""
        try:
            subscription = topics.parse_subscription(event)
        except ProtocolError as error:
            self._discard(error)
            return b""
        wants = subscription.subscribed and subscription.audience == "manager"
        return subscription.topic if wants else b""

    @property
    def has_unacked(self) -> bool:
        """Whether an ack will be due sooner than those that are sent anyway."""
        return self._ack_scheduler.has_unacked

    def acks_due(self, now: float, inserted: int) -> list[Frames]:
        """The acks to send now. Call only after everything settled has been committed."""
        messages: list[Frames] = [
            [topics.manager_topic(refusal.manager), *encode(refusal)] for refusal in self._refusals
        ]
        self._refusals.clear()
        if not self._ack_scheduler.is_poll_due(now):
            return messages
        living = self.ledger.alive_incarnations()
        due = self._ack_scheduler.due_acks(living, now)
        if not due:
            return messages
        credits = self._credits({manager for manager, _ in living}, inserted)
        least = min(credits.values(), key=lambda credit: credit.batches)
        self._ack_scheduler.on_sent((manager for manager, _ in due), least, now)
        for manager, incarnation in due:
            self._credit_enforcer.on_ack(manager, incarnation, credits[manager].batches, now)
            ack = self.ledger.make_ack(
                manager,
                incarnation,
                epoch=self.position.epoch,
                learner=self.learner,
                credit=credits[manager],
                version=self.position.version,
                first_actor=self.actor_numbers.assign(manager, self.fleet.actors(manager)),
            )
            messages.append([topics.manager_topic(manager), *encode(ack)])
        return messages

    def _credits(self, managers: set[str], inserted: int) -> dict[str, Credit]:
        """What each manager may have in flight, from the shared budget and the limiter."""
        if self._run is None:
            return share_credit(1, 1, managers, paused="the learner is starting")
        sampled = self.position.sampled
        self.limiter_reason = self._limiter.insert_wait_reason(inserted, sampled)
        batches = self._limits.batches
        allowed = self._limiter.insertable_samples(inserted, sampled)
        if allowed is not None:
            batches = max(1, min(batches, allowed // self._rows_per_batch))
        credits = share_credit(
            batches, self._limits.payload_bytes, managers, paused=self.limiter_reason
        )
        # A manager that leaves may hand in what it has: its window bounds that.
        leaving = share_credit(
            self._limits.batches, self._limits.payload_bytes, self.fleet.draining
        )
        return {**credits, **leaving}

    def announce_stop(self, reason: str, *, final: bool) -> list[Frames]:
        """Tell everybody that the learner ends."""
        return [[topics.ALL, *encode(Stop(self.run_id, self.position.epoch, reason, final))]]

    # Time

    def tick(self, now: float) -> None:
        """A few times a second: notice who has gone silent."""
        self._credit_enforcer.retain(self.ledger.alive_incarnations())
        silent = [
            manager  # in the ledger of the gateway before this one, and never heard by this one
            for manager, _ in self.ledger.alive_incarnations()
            if not self.fleet.knows(manager) and now - self.ledger.last_seen(manager) > GONE_AFTER_S
        ]
        for manager in self.fleet.newly_gone(now) + silent:
            self.ledger.mark_gone(manager)
            self.actor_numbers.release(manager)
            self.dirty = True
            self._log("warning", f"manager {manager} has been silent; it counts as gone")

    def end_run(self) -> None:
        """The run has ended and takes no more: what has not come by now is lost.

        Should it go on all the same, whoever still holds something brings it, and it is in flight
        again.
        """
        for manager in self.ledger.manager_ids():
            self.ledger.mark_gone(manager)
            self.actor_numbers.release(manager)
        self.dirty = True

    def stamp(self) -> bytes:
        """The ledger and the actor numbers, to be committed with the rows they speak of."""
        held = self._intake.bytes or self._blocks
        assert not held, "what the stamp calls inserted is in the ring"
        self.dirty = False
        return pack_stamp(self.ledger, self.actor_numbers)

    # Status and log

    def take_log_lines(self, now: float) -> list[LogLine]:
        """Return the lines to log now, at a bounded rate."""
        lines, more = self.log_lines[:_LOG_LINES_A_TICK], len(self.log_lines) - _LOG_LINES_A_TICK
        self.log_lines.clear()
        if more > 0:
            lines.append(LogLine("warning", f"and {more} more lines like these"))
        return lines + [LogLine("warning", line) for line in self.rejections.due_lines(now)]

    def status(
        self,
        ring: RowAppender,
        ring_bytes: int,
        now: float,
        *,
        refused: Mapping[str, int] | None = None,
        ended: bool = False,
    ) -> GatewayStatus:
        """The status that the trainer and the supervisor read.

        Args:
            ring: where the samples are.
            ring_bytes: what it takes.
            refused: connections, by why.
            ended: everybody was told that the run is over, and has drained.
        """
        return GatewayStatus(
            samples=Samples(**asdict(self.ledger.accounting())),
            managers=self.fleet.status(now),
            replay=Replay(size=ring.size, bytes=ring_bytes),
            rates=Rates(samples_per_sec=self._rate.update(ring.inserted, self._figures_time(now))),
            limiter_reason=self.limiter_reason,
            lag=self.lag.summarize(),
            garbage=self.garbage,
            refused=Refused(
                **(refused or {"keys": 0, "handshakes": 0}),
                ids=self.refused_ids,
                credit=self.refused_credit,
            ),
            ended=ended,
            rejecting=self.rejecting,
        )

    def _log(self, level: str, text: str) -> None:
        self.log_lines.append(LogLine(level, text))


def _same(now: float) -> float:
    return now

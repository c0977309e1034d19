"""The gateway's state machine: messages in, messages and rows out. No socket, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from vedette_protocol import topics
from vedette_protocol.closed_accounts import Archive
from vedette_protocol.codec import BatchReader, encode
from vedette_protocol.errors import (
    LedgerFullError,
    ProtocolError,
    RetiredError,
    Sender,
    VersionError,
)
from vedette_protocol.limits import ACCOUNTS_MAX, EXTRAS_MAX, QUESTION_VERSION
from vedette_protocol.messages import OUTBOX, Ack, Batch, Buffer, Report, Run, Status, Stop
from vedette_protocol.schema import Schema
from vedette_rl.envs.spaces import ElementBounds
from vedette_rl.replay.rows import RowAppender
from vedette_services.config.peer_settings import settings_for_peers
from vedette_services.config.run_config import RunConfig
from vedette_services.host.rate_limited_log import LogLine, LogLines, RateLimitedLog
from vedette_services.learner.gateway.actor_evaluations import ActorEvaluations
from vedette_services.learner.gateway.admission import Admission
from vedette_services.learner.gateway.fleet import Fleet
from vedette_services.learner.gateway.flow_control import (
    AckScheduler,
    Budget,
    CreditGrants,
    FlightLimits,
    InsertLimiter,
    QueueLimiter,
)
from vedette_services.learner.gateway.intake import Block, Intake
from vedette_services.learner.gateway.lag import LagMeter
from vedette_services.learner.gateway.rejection_watch import RejectionWatch
from vedette_services.learner.gateway.run_grants import RunGrants
from vedette_services.learner.gateway.safe_batches import SafeBatches
from vedette_services.run.ring_stamp import pack_stamp, read_stamp
from vedette_services.status.rate_meter import RateMeter
from vedette_services.status.records import GONE_AFTER_S, GatewayStatus, TrainerStatus
from vedette_services.status.status import Rates, ReplayStatus, Samples

_LOG_LINES_A_TICK = 5
_ANSWERS_A_TURN = 256
_COMES_AGAIN_S = 8.0  # a refused batch is sent again after 5, unless its manager has gone

Frames = list[Buffer]


class Position(NamedTuple):
    """The trainer's progress, as it was last reported."""

    epoch: int = 0
    version: int = 0
    sampled: int = 0
    needs_samples: bool = False


class QueuePlace(NamedTuple):
    """The trainer's place in a queue, as it was last reported.

    Args:
        taken: the first row that it has not looked at.
        kept: the first row that may not be overwritten; None: not known.
        lacking: runs that the block lacks of which it is made up; 0 while it is learned from.
        model: epoch and version of the weights that would learn from it.
    """

    taken: int = 0
    kept: int | None = None
    lacking: int = 0
    model: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, status: TrainerStatus) -> QueuePlace:
        """The place that a trainer's record names."""
        model = (status.epoch, status.opt_steps)
        return cls(status.taken, status.kept, status.lacking, model)


class GatewayState:
    """Batches in, blocks and acks out; subscriptions in, runs out.

    ::

        state = GatewayState(run_id, learner, schema, ..., stamp=ring.stamp, now=now)
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
        limiter: InsertLimiter,
        rows_per_batch: int,
        elements: ElementBounds | None,
        window: FlightLimits | None = None,
        batch_bytes: int = 0,
        batch_env_steps: int | None = None,
        max_managers: int = ACCOUNTS_MAX,
        max_env_steps: int = 0,
        policy: Mapping[str, Any] | None = None,
        evaluated: RunConfig | None = None,
        rates_clock: Callable[[float], float] | None = None,
        run_length: int = 0,
        archive: Archive | None = None,
        run_grants: RunGrants | None = None,
    ) -> None:
        """State of a gateway.

        Args:
            elements: the ranges of single elements of a sample; None: its schema is of no
                environment.
            window, batch_bytes: the window of each manager, and the size of a usual full batch.
            batch_env_steps: the most that a batch may carry; None: as many as it has rows.
            max_env_steps: the batch that reaches them is the last one inserted; 0: no limit.
            policy: describes it to managers that do not build the agent; None: it is not described.
            evaluated: says how managers play evaluations; None: they are not asked to.
            rates_clock: turns a `now` into the time that rates and lag are measured in.
            run_length: steps of a run, of a replay that is a queue; 0: it is none.
            archive: has the accounts that the stamp has no room for; None: there is none.
            run_grants: says how many runs actors may play on a model; None: as many as they like.
        """
        self.run_id = run_id
        self.learner = learner
        self.schema = schema
        self._policy = dict(policy or {})
        self._started = now
        self.ledger, self.actor_numbers = read_stamp(run_id, stamp, now)
        if archive is not None:
            self.ledger.use_archive(archive)
        # Incarnations that are to be told that all they have is settled, though their accounts are
        # closed.
        self._answers: dict[tuple[str, int], None] = {}
        self._rates_clock = rates_clock or (lambda now: now)
        self.ledger.places.limit = max_managers
        self.fleet = Fleet(self._rates_clock, max_managers)
        self._rate = RateMeter()
        self.lag = LagMeter()
        self.position = Position()
        self.rejections = RateLimitedLog()
        self.admission = Admission(self.ledger, self.rejections)
        self.rejected_reason = ""
        """Why the last batch was rejected."""
        self.rejecting = False
        """The last batch was rejected: none was inserted since."""
        self.unusable = ""
        """Why the run gains no samples any more; it stays."""
        self._rejection_watch = RejectionWatch()
        self.log_lines = LogLines(_LOG_LINES_A_TICK)
        self.dirty = False  # the ledger holds something that the ring has not committed
        self._rows_per_batch = rows_per_batch
        self._max_env_steps = max_env_steps or math.inf
        self._batch_env_steps = rows_per_batch if batch_env_steps is None else batch_env_steps
        self.ledger.batch_rows = rows_per_batch
        self.ledger.window_batches = window.batches if window else EXTRAS_MAX
        self._reader = BatchReader()
        self.garbage = 0
        """Messages that are invalid, or batches of another run."""
        self.refused_credit = 0
        """Batches beyond their manager's limit."""
        self._intake = Intake(
            schema,
            rows_per_batch,
            self._batch_env_steps,
            self.ledger.manager_number,
            elements,
            run_length=run_length,
        )
        self._limiter = limiter
        self._run_grants = run_grants
        self._limiter_reason = ""  # why the last acks granted nothing
        self._place = QueuePlace()
        self._room: int | None = None
        # When each manager was refused last for want of room, in the order of their first refusals.
        self._without_room: dict[str, float] = {}
        self._blocks: list[Block] = []  # validated, and not yet returned
        self._published: int | None = None  # the newest version of this epoch; None: none yet
        self._behind = 0  # the epoch in which managers were seen to be ahead of this run
        size = batch_bytes or self._intake.full_bytes
        self._grants = CreditGrants(limiter, FlightLimits(), size, rows_per_batch)
        self.safe = SafeBatches(run_id, now, archive)
        """What managers with an outbox may delete."""
        self._ack_scheduler = AckScheduler(window, size, self.ledger.living)
        self._run: Run | None = None
        self._over: Stop | None = None  # the end of the run
        self.closing = ""  # why no manager is granted more, at the end
        self.evaluations = ActorEvaluations(
            run_id, evaluated, first_request=learner, log=self.log_lines.add, now=now
        )

    # What comes up

    @property
    def held_bytes(self) -> int:
        """Payload bytes of the batches that are not validated yet."""
        return self._intake.bytes

    @property
    def stacks(self) -> bool:
        """True if the run's batches are small, and copied together before they are validated."""
        return self._intake.stacks

    def on_samples(self, frames: Sequence[Any], now: float, key: str = "") -> None:
        """Take one message from the samples' socket; a new batch is held for `blocks`.

        Args:
            key: name of the connection's key; "" without keys.
        """
        try:
            message = self._reader.read(frames)
            if not self._may_speak_for(message.manager, message.incarnation, key, now):
                return
            if type(message) is Batch:
                self._on_batch(message, now, key)
            else:
                assert isinstance(message, Report), "nothing else comes up"
                self._validate_held(now)  # a report, too, may close an account with held batches
                self._on_report(message, now, key)
        except ProtocolError as error:
            self._validate_held(now)
            self._handle_error(error, now, key)

    def limit_room(self, rows: int) -> None:
        """Refuse what goes beyond so many rows, of those that come until this is called again.

        A refused batch is not settled: its manager sends it again. So too much credit costs a
        second sending and never a row, and reports are read on while there is no room.
        """
        self._room = rows

    def blocks(self, now: float) -> list[Block]:
        """Return the valid batches of those held: to be appended, then committed.

        Call before `stamp`, which counts them as inserted.
        """
        self._validate_held(now)
        blocks = self._blocks
        self._blocks = []
        return blocks

    def _may_speak_for(self, manager: str, incarnation: int, key: str, now: float) -> bool:
        """Return True if this key may use this manager's id; queue a refusal if not."""
        if self.ledger.may_use(manager, key):
            return True
        # After a loss of power the ledger may not have the owner's incarnation, which an impostor
        # may name, so the owner has time to come back first.
        heard = self.fleet.knows(manager) or now - self._started > GONE_AFTER_S
        self.admission.refuse_id(manager, incarnation, key, sends_refusal=heard)
        return False

    def _on_batch(self, batch: Batch, now: float, key: str) -> None:
        if batch.run_id != self.run_id:
            self.garbage += 1  # its manager drops that run's window once it receives this run
            return
        manager = batch.manager
        self._ack_scheduler.on_batch(manager)  # a duplicate too: its sender may lack the ack
        if self._lacks_room(batch, now):
            self.refused_credit += 1
            self.rejections.add("room", f"a batch of {manager} comes before there is room for it")
            self.fleet.on_batch(manager, now)
            return
        beyond_limit = self._is_limit_reached(now)  # before: the batch that reaches it is inserted
        try:
            verdict = self.ledger.record_batch(batch, now)
        except KeyError:
            self._validate_held(now)  # its account may take the place of one whose batches are held
            self.ledger.mark_alive(manager, batch.incarnation, now, key, has_sent=True)
            verdict = self.ledger.record_batch(batch, now)
        if self.position.epoch > self._behind and self._is_ahead(batch):
            self._log_behind(batch)
        if verdict == "new":
            self.dirty = True
            if not beyond_limit:
                if self._room is not None:
                    self._room -= batch.rows
                    self._without_room.pop(manager, None)
                self._intake.add(batch)
                if self._run_grants is not None:
                    whose = batch.actor, batch.epoch, batch.version
                    self._run_grants.on_batch(manager, *whose, now)
                return
            self.admission.reject_late(batch)
        self.fleet.on_batch(manager, now)
        if verdict == "beyond":
            self.refused_credit += 1  # not settled: it may come again, within its limit
            self.rejections.add("credit", f"manager {manager} sends more than it may")

    def _lacks_room(self, batch: Batch, now: float) -> bool:
        """Return True for a batch that would be inserted, if there were room for it and for those
        of managers that were refused before."""
        if self._room is None or batch.rows > self._rows_per_batch:
            return False
        if batch.rows <= self._room - self._reserved_rows(batch.manager, now):
            return False
        if not self._would_insert(batch):
            return False
        self._without_room[batch.manager] = now  # its place stays, if it has one
        return True

    def _reserved_rows(self, manager: str, now: float) -> int:
        """Return the rows that are kept free for managers that have waited longer than this one: a
        refused batch comes again some seconds later, while others send at once."""
        for gone in [m for m, at in self._without_room.items() if now - at > _COMES_AGAIN_S]:
            del self._without_room[gone]
        if not self._without_room:
            return 0
        waiting = list(self._without_room)
        ahead = waiting.index(manager) if manager in self._without_room else len(waiting)
        return ahead * self._rows_per_batch

    @property
    def _has_room(self) -> bool:
        """True unless a full batch would be refused for want of room."""
        return self._room is None or self._room >= self._rows_per_batch

    def _would_insert(self, batch: Batch) -> bool:
        sender = batch.manager, batch.incarnation
        is_first = not self.ledger.has_account(*sender)
        return is_first or self.ledger.is_new(*sender, batch.seq)

    def _is_ahead(self, batch: Batch) -> bool:
        """Return True if a batch was made with a model that this run has not come to yet."""
        epoch = self.position.epoch
        later = self._published is not None and batch.version > self._published
        return batch.epoch > epoch or (batch.epoch == epoch and later)

    def _log_behind(self, batch: Batch) -> None:
        """Log, once for each epoch, that a manager plays a later model than this run has made.

        It is a manager's claim, so nothing else follows from it.
        """
        epoch = self.position.epoch
        self._behind = epoch
        theirs, ours = f"of epoch {batch.epoch}", f"epoch {epoch}"
        follow = "after a minute without the other"
        if batch.epoch == epoch:
            theirs, ours = (
                f"{theirs}, version {batch.version:,}",
                f"version {self._published:,} of it",
            )
            follow = "at once"
        self.log_lines.add(
            "warning",
            f"manager {batch.manager} plays a model {theirs}, and this run is at {ours}: it was "
            "put back from an older copy, or another learner of it runs; managers follow this one "
            f"{follow}, those of an earlier release once they are started again",
        )

    def _is_limit_reached(self, now: float) -> bool:
        """Return True if valid batches have carried `max_env_steps`."""
        if self.ledger.env_steps >= self._max_env_steps:
            self._validate_held(now)  # an invalid one may have claimed them
        return self.ledger.env_steps >= self._max_env_steps

    def _validate_held(self, now: float) -> None:
        """Validate the batches that are held, and reject the invalid ones."""
        if not self._intake.bytes:
            return
        validated = self._intake.validate_held()
        self._blocks += validated.blocks
        for manager in validated.managers:
            self.fleet.on_batch(manager, now)
        for model, rows in validated.rows_by_model.items():
            self.lag.on_inserted(model, self.position.version, rows, self._rates_clock(now))
        for manager, rows in validated.rows_by_manager.items():
            self._rejection_watch.on_inserted(manager, rows)
        for batch, error in validated.invalid:
            self.ledger.reject_batch(batch, str(error))
            self._log_rejection(batch.seq, batch.manager, batch.rows, error, now)
        if validated.blocks:
            self.rejecting = False

    def _reject(self, sender: Sender, rows: int, error: ProtocolError, now: float) -> None:
        manager, incarnation, seq = sender
        assert seq is not None, "only batches are rejected"
        self.ledger.settle_rejected(manager, incarnation, seq, rows, now, str(error))
        self._ack_scheduler.expedite(manager)
        self.dirty = True
        self._log_rejection(seq, manager, rows, error, now)

    def _log_rejection(
        self, seq: int, manager: str, rows: int, error: ProtocolError, now: float
    ) -> None:
        self.rejections.add("rejected", f"batch {seq} of {manager}: {error}")
        self._rejection_watch.on_rejected(manager, rows, str(error), self._rates_clock(now))
        self.rejected_reason = str(error)
        self.rejecting = True

    def _handle_error(self, error: ProtocolError, now: float, key: str = "") -> None:
        """Refuse an invalid message; a known sender's batch is settled so that it is not resent."""
        sender = error.sender
        known = sender is not None and self.fleet.knows(sender.manager)
        if isinstance(error, RetiredError | LedgerFullError):
            self.admission.refuse_place(error, now)
        elif sender is None or not (known or isinstance(error, VersionError)):
            self._discard(error)
        elif not self._may_speak_for(sender.manager, sender.incarnation, key, now):
            return
        elif isinstance(error, VersionError):  # also of one that could not report
            if error.theirs != QUESTION_VERSION:
                self._discard(error)
            manager, incarnation, _ = sender
            self.admission.refuse(manager, incarnation, "version", str(error))
        elif sender.seq is None or not self.ledger.is_new(
            sender.manager, sender.incarnation, sender.seq
        ):
            self._discard(error)
        else:
            try:
                self.ledger.mark_alive(sender.manager, sender.incarnation, now, key)
                self._reject(sender, error.rows, error, now)
            except (RetiredError, LedgerFullError) as full:
                self.admission.refuse_place(full, now)

    def _discard(self, error: ProtocolError) -> None:
        self.garbage += 1
        self.rejections.add("garbage", f"refused a message: {error}")

    def _on_report(self, report: Report, now: float, key: str) -> None:
        manager = report.manager
        if report.run_id == self.run_id and self.ledger.is_closed_with_all(report):
            if len(self._answers) < _ANSWERS_A_TURN:  # the others report again
                self._answers[manager, report.incarnation] = None
            return
        was_living = manager in self.ledger.living
        self.ledger.mark_alive(
            manager,
            report.incarnation,
            now,
            key,
            has_sent=self.ledger.has_sent(report),
            ended=report.ended,
            has_outbox=OUTBOX in report.features,
        )
        self._grants.claims_left -= self.ledger.on_report(report, now, self._grants.claims_left)
        self.dirty = True
        self.safe.on_report(report)
        inserted = self.ledger.account(manager, report.incarnation).inserted
        had_left = self.fleet.has_left(report)  # a last report is sent again until it is answered
        new = self.fleet.on_report(report, now, inserted) or not was_living
        if rivals := self.fleet.pop_rivals(manager):
            self.admission.refuse_rival(*rivals, now)
        if not report.ended and self.evaluations.on_report(report, now, key):
            self._ack_scheduler.expedite(manager)
        if report.state == "gone":
            self.actor_numbers.release(manager)
            why = next((f": {actor.error}" for actor in report.actors if actor.error), "")
            if not had_left:
                self.log_lines.add("warning" if why else "info", f"manager {manager} has left{why}")
        elif new:
            self._ack_scheduler.expedite_joiner(manager)
            count = len(report.actors)
            actors = f"{count} actor{'' if count == 1 else 's'}"
            self.log_lines.add("info", f"manager {manager} on {report.host} is here, {actors}")

    # What goes down

    def on_place(self, place: QueuePlace) -> None:
        """Note how far the trainer is in a queue."""
        self._place = place
        if isinstance(self._limiter, QueueLimiter):
            self._limiter.follow(place.taken, place.kept)

    def on_progress(self, opt_steps: int, sampled: int, *, needs_samples: bool = False) -> None:
        """Note the trainer's progress, and whether it can draw nothing from what is there."""
        version = max(self.position.version, opt_steps)
        self.position = Position(self.position.epoch, version, sampled, needs_samples)

    def on_model(self, run: Run, version: int, now: float) -> list[Frames]:
        """Note that the trainer has a newer model; announce the run if it is of another epoch."""
        self.lag.on_published((run.epoch, version), self._rates_clock(now))
        self._published = version
        if self._run_grants is not None:
            self._run_grants.on_model(run.epoch, version, self.fleet.alive_actors, now)
            for manager in self.fleet.present:
                self._ack_scheduler.expedite(manager)
        if run.epoch == self.position.epoch:
            return []
        self.position = Position(run.epoch, version, self.position.sampled)
        return self.announce_run(run)

    def run_message(self, config: RunConfig, epoch: int, model: Schema) -> Run:
        """Make the message that announces the run to managers."""
        return Run(
            run_id=self.run_id,
            epoch=epoch,
            learner=self.learner,
            schema=self.schema,
            model=model,
            env=settings_for_peers(config.env),
            agent=settings_for_peers(config.agent),
            actors=settings_for_peers(config.actors_of_peers),
            seed=config.seed,
            batch_rows=self._rows_per_batch,
            batch_env_steps=self._batch_env_steps,
            policy=self._policy,
            evaluation=config.evaluation.for_managers if config.evaluates_on_actors else {},
        )

    def announce_run(self, run: Run) -> list[Frames]:
        """Send the run to all managers."""
        self._run = run
        return [[topics.ALL, *encode(run)]]

    def on_subscription(self, event: bytes, status: bytes) -> list[Frames]:
        """Answer a subscription on the control socket, on its private topic.

        Args:
            event: the event of the XPUB socket.
            status: the status as JSON, for peers that ask for it.
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
        if subscription.audience == "manager" and self._over is not None:
            return [[subscription.topic, *encode(self._over)]]
        if subscription.audience == "manager" and self._run is not None:
            self._ack_scheduler.expedite_joiner(subscription.name)
            return [[subscription.topic, *encode(self._run)]]
        return []

    def on_model_subscription(self, event: bytes) -> bytes:
        """Return the topic of a subscription to models if it wants a model, or b""."""
        try:
            subscription = topics.parse_subscription(event)
        except ProtocolError as error:
            self._discard(error)
            return b""
        wants = subscription.subscribed and subscription.audience == "manager"
        return subscription.topic if wants else b""

    @property
    def is_ack_awaited(self) -> bool:
        """True while a manager waits for an ack: see `AckScheduler.is_awaited`."""
        return self._ack_scheduler.is_awaited

    def acks_due(self, now: float, inserted: int) -> list[Frames]:
        """Return the acks to send now. Call only after everything settled was committed."""
        messages: list[Frames] = [*self.admission.pop_refusals(), *self._pop_answers()]
        if not self._ack_scheduler.is_poll_due(now):
            return messages
        living = self.ledger.living
        self._raise_runs(inserted, now)
        if isinstance(self._limiter, QueueLimiter) and self._is_limit_reached(now):
            self.closing = "all environment steps are played: the learner learns from the last"
        budget = Budget(0, self.closing or "the learner is starting")
        is_limited = self._run is not None and not self.closing
        if is_limited:
            position = self.position
            budget = self._grants.budget(
                inserted, position.sampled, needs_samples=position.needs_samples
            )
        due = self._ack_scheduler.due_acks(living, now, grants=budget.batches > 0)
        if not due:
            return messages
        if is_limited:
            self._limiter_reason = budget.reason
        self._update_grants(now)
        granted = dict.fromkeys(due, 0)
        stopped = []
        for manager in due:
            topic = topics.manager_topic(manager)
            alive = living[manager].alive_incarnations()
            for incarnation in alive:
                granted[manager] += self._grant(manager, incarnation, budget, len(alive), now)
                messages.append([topic, *encode(self._ack(manager, incarnation, budget.reason))])
            if self.fleet.knows(manager) and self._may_send_nothing(manager, alive):
                stopped.append(manager)
        self._ack_scheduler.on_sent(granted, now, stopped)
        return messages

    def _may_send_nothing(self, manager: str, incarnations: Sequence[int]) -> bool:
        accounts = (self.ledger.account(manager, incarnation) for incarnation in incarnations)
        return all(account.open_batches <= 0 for account in accounts)

    def _pop_answers(self) -> list[Frames]:
        """Return the acks of closed accounts."""
        answers = self._answers
        self._answers = {}
        return [
            [
                topics.manager_topic(manager),
                *encode(
                    self._plain_ack(
                        manager, incarnation, self.safe.settled_below(manager, incarnation)
                    )
                ),
            ]
            for manager, incarnation in answers
        ]

    def _raise_runs(self, inserted: int, now: float) -> None:
        """Let actors play further runs on the newest model, where the block lacks them."""
        if self._run_grants is None or self._place.taken < inserted:
            return  # the trainer has not looked at all that has come
        alive = self.fleet.alive_actors
        place = self._place
        for manager in self._run_grants.raise_runs(place.lacking, place.model, alive, now):
            self._ack_scheduler.expedite(manager)

    def _update_grants(self, now: float) -> None:
        """Count what managers have used of their limits, before anything more is granted."""
        for manager in self._ack_scheduler.unacked:
            for account in self.ledger.living[manager].accounts.values():
                if not account.gone:
                    self._grants.update((manager, account.incarnation), account, now)

    def _grant(
        self, manager: str, incarnation: int, budget: Budget, sessions: int, now: float
    ) -> int:
        """Grant what the budget allows to a manager that has reported here. Return the batches that
        it may have open.

        Args:
            sessions: incarnations of this manager that send side by side.
        """
        if not self.fleet.knows(manager):  # it may hold a limit of an earlier gateway
            return 0
        return self._grants.grant(
            (manager, incarnation),
            self.ledger.account(manager, incarnation),
            budget,
            len(self.ledger.living),
            now,
            sessions=sessions,
            draining=self._has_room and self._must_drain(manager),
        )

    def _ack(self, manager: str, incarnation: int, reason: str) -> Ack:
        """Make an ack, which asks for an evaluation where one is wanted.

        Args:
            reason: why nothing is granted; "" where it is.
        """
        asked = self.evaluations.request_for(manager, incarnation)
        safe = self.safe.below(manager, incarnation)
        ack = self._plain_ack(manager, incarnation, safe, reason=reason)
        if self._run_grants is not None and self._published is not None:
            runs = self._run_grants.runs(manager)
            ack = replace(ack, version=self._published, runs=runs)
        if not asked.number:
            return ack
        return replace(
            ack,
            evaluate=asked.number,
            evaluate_version=asked.version,
            evaluate_fresh=asked.fresh,
        )

    def _must_drain(self, manager: str) -> bool:
        """Return True for a manager that leaves, and of which what it holds is lost unless it is
        sent before that. What is in an outbox stays there, however much that is: the limiter counts
        for it until the run is over."""
        if not self.fleet.is_draining(manager):
            return False
        return self._over is not None or not self.fleet.has_outbox(manager)

    def _plain_ack(
        self, manager: str, incarnation: int, safe: int | None, *, reason: str = ""
    ) -> Ack:
        """Make an ack that grants and asks nothing."""
        return self.ledger.make_ack(
            manager,
            incarnation,
            epoch=self.position.epoch,
            learner=self.learner,
            version=self.position.version,
            first_actor=self.actor_numbers.assign(manager, self.fleet.actors(manager)),
            reason=reason,
            safe=safe,
        )

    def announce_stop(self, reason: str, *, final: bool) -> list[Frames]:
        """Send the end of the learner to all managers; the end of the run also to all joiners."""
        stop = Stop(self.run_id, self.position.epoch, reason, final)
        self._over = stop if final else None
        return [[topics.ALL, *encode(stop)]]

    # Time

    @property
    def expected(self) -> list[str]:
        """The managers that are here, or that were at an earlier gateway and have not come back."""
        unreported = [m for m in self.ledger.living if not self.fleet.knows(m)]
        return self.fleet.present + unreported

    def tick(self, now: float) -> None:
        """Mark silent managers as gone; call a few times a second."""
        alive = self.ledger.alive_incarnations()
        self._grants.retain(alive)
        self.safe.retain(alive)
        # The ledger knows more than the fleet: managers of an earlier gateway, and incarnations
        # that seemed to live again by a late message.
        silent = self.ledger.mark_silent(now - GONE_AFTER_S)
        for manager in dict.fromkeys(self.fleet.newly_gone(now) + silent):
            self.ledger.mark_gone(manager)
            self.actor_numbers.release(manager)
            self.dirty = True
            self.log_lines.add("warning", f"manager {manager} has been silent; it counts as gone")
        if asked := self.evaluations.tick(now, self.fleet.present):
            self._ack_scheduler.expedite(asked)
        self.unusable = self.unusable or self._rejection_watch.judge(self.fleet.present)

    def admit_keys(self, keys: Collection[str]) -> None:
        """Set the names of the admitted keys; each has some places of its own."""
        self.ledger.places.admit(keys)

    def end_run(self) -> None:
        """Count batches that have not come by now as lost.

        If the run resumes, managers that still hold them send them, and they are in flight again.
        """
        for manager in self.ledger.manager_ids():
            self.ledger.mark_gone(manager)
            self.actor_numbers.release(manager)
        self.dirty = True

    def stamp(self) -> bytes:
        """Return ledger and actor numbers, to be committed together with the rows they count."""
        held = self._intake.bytes or self._blocks
        assert not held, "the stamp counts only rows that are in the ring"
        self.dirty = False
        self.ledger.archive_closed()
        return pack_stamp(self.ledger, self.actor_numbers)

    # Status and log

    def pop_log_lines(self, now: float) -> list[LogLine]:
        """Return the lines to log now, at a bounded rate."""
        return self.log_lines.pop() + [
            LogLine("warning", line) for line in self.rejections.due_lines(now)
        ]

    @property
    def _actors_wait_reason(self) -> str:
        """The reason why actors wait, as a sentence; "" where they need not."""
        if self._limiter_reason or self._run_grants is None:
            return self._limiter_reason
        return self._run_grants.wait_reason

    def accounting(self) -> Samples:
        """Return the sample accounting."""
        counts = asdict(self.ledger.accounting())
        return Samples(**{name: n for name, n in counts.items() if name != "env_steps"})

    def status(
        self,
        ring: RowAppender,
        ring_bytes: int,
        now: float,
        *,
        refused: Mapping[str, int] | None = None,
        ended: bool = False,
    ) -> GatewayStatus:
        """Return the gateway's status record.

        Args:
            ring_bytes: size of the ring's files.
            refused: refused connections, by reason.
            ended: the end was announced and the last batches have come.
        """
        return GatewayStatus(
            env_steps=self.ledger.env_steps,
            samples=self.accounting(),
            managers=self.fleet.status(now),
            replay=ReplayStatus(size=ring.size, bytes=ring_bytes),
            rates=Rates(samples_per_sec=self._rate.update(ring.inserted, self._rates_clock(now))),
            limiter_reason=self._actors_wait_reason,
            lag=self.lag.summarize(),
            garbage=self.garbage,
            refused=self.admission.refused(refused, credit=self.refused_credit),
            rivals=self.admission.describe_rivals(now),
            ended=ended,
            rejected_reason=self.rejected_reason,
            rejecting=self.rejecting,
            unusable=self.unusable,
            rows=ring.inserted,
            unsafe_batches=self.safe.unsafe_batches(self.ledger),
            evaluating=self.evaluations.state,
            confirms=self.evaluations.confirms,
            unevaluated=self.evaluations.missing,
        )

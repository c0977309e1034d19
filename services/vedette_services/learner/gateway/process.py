"""The gateway process owns every socket and writes the replay. It loads no torch.

It can reread all its state: the ledger is in the ring's stamp, the model and the trainer's progress
are in the trainer's maps.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import zmq

from vedette_protocol.messages import Run
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import ElementBounds, Spaces
from vedette_rl.errors import OneWriterError
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.ring_files import ARCHIVE
from vedette_rl.storage.record_file import RecordFile
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import RunMovedError
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import WakeupEvent, die_with_parent, ignore_stop_signals
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.system import process_state
from vedette_services.learner.gateway.actor_evaluations import PublishedModel
from vedette_services.learner.gateway.disk_lag import DiskLag
from vedette_services.learner.gateway.evaluation_handover import EvaluationHandover
from vedette_services.learner.gateway.flow_control import (
    FlightLimits,
    make_insert_limiter,
    make_run_grants,
)
from vedette_services.learner.gateway.model_publisher import ModelPublisher, PackedModel
from vedette_services.learner.gateway.safe_batches import SnapshotStamp
from vedette_services.learner.gateway.sockets import GatewaySockets, ReceiveBackoff
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.learner.heartbeat import HeartbeatThread
from vedette_services.net.keys import LearnerKeys
from vedette_services.net.sockets import send_now
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.model_map import ModelMapReader
from vedette_services.run.replay_hold import ReplayHold
from vedette_services.run.replay_layout import (
    ReplayLayout,
    replay_directory,
    replay_layout,
)
from vedette_services.run.ring_stamp import read_archive_end
from vedette_services.run.sources import open_interventions, sizes_of
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.heartbeats import HeartbeatReader, Liveness, OwnPauses
from vedette_services.status.records import (
    GatewayStatus,
    IngestProgress,
    SnapshotProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.schema import encode
from vedette_services.status.status import Eval

log = logging.getLogger("vedette.gateway")

T = TypeVar("T")

_POLL_MS = 10  # while a manager waits for an ack
_IDLE_POLL_MS = 20  # else; a newer model wakes it
_LATE_POLL_MS = 100  # once the run is over
_EVENTS_A_TURN = 256  # subscriptions answered before the other sockets have their turn
_DRAIN_MESSAGES = 256  # taken from the samples' socket before a commit
_DRAIN_BYTES = 64 << 20  # the same in bytes, so that acks are never late
_HELD_BYTES = 512 << 10  # validated together: they fit a processor's cache
_TICK_S = 0.2
_LOOK_S = 2.0  # from one look at the run's and the replay's directory to the next
_STATUS_SHARE = 20.0  # times what writing it takes, before it is written again
_RING_WAIT_S = 5.0  # a gateway killed a moment ago releases the replay within a second
_END_WAIT_S = 5.0  # for the last batches of managers when the run is over
_SNAPSHOT_WAIT_S = 10.0  # the same where these also wait for a generation of the snapshot
_LAST_REPORTS_S = 1.0  # for reports when the learner is only interrupted
_ANNOUNCE_EVERY_S = 0.5  # the end is repeated, because a joiner may have missed it


class Gateway:
    """Sockets, ring and clock around a `GatewayState`.

    Args:
        wakeup: set when there is a newer model.
        mark_turn: called each time that the loop comes round.
    """

    def __init__(
        self,
        spec: LearnerSpec,
        wakeup: WakeupEvent,
        mark_turn: Callable[[], None] = lambda: None,
    ) -> None:
        config = spec.config
        self._spec = spec
        self._mark_turn = mark_turn
        spaces = spec.spaces
        layout = replay_layout(config, spaces)
        keys = LearnerKeys.read(spec.keys) if spec.keys else None
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._is_queue = config.replay.is_queue
        kept = (self._learning.read().kept or 0) if self._is_queue else None
        self._ring = ring = _once_released(lambda: _open_ring(spec, layout, kept))
        self._interventions = _once_released(
            lambda: open_interventions(config, spec.run.root, spec.run_id, spaces, ring)
        )
        self._archive = RecordFile(
            replay_directory(config, spec.run.root) / ARCHIVE,
            read_archive_end(spec.run_id, ring.stamp),
        )
        self._state = GatewayState(
            spec.run_id,
            secrets.randbits(63),
            layout.schema,
            stamp=self._ring.stamp,
            now=time.monotonic(),
            limiter=make_insert_limiter(config, self._ring.floor, spec.run.limiter_origin),
            rows_per_batch=config.actors.n_buffer,
            window=FlightLimits(config.actors.window_batches, config.actors.window_bytes),
            batch_bytes=layout.batch_bytes,
            batch_env_steps=config.actors.env_steps_max(config.row_steps),
            max_managers=config.learner.max_managers,
            max_env_steps=config.stop.max_env_steps,
            policy=describe_acting(config, spaces),
            evaluated=config if config.evaluates_on_actors else None,
            elements=ElementBounds(spaces),
            run_length=config.replay.sequence if self._is_queue else 0,
            archive=self._archive,
            run_grants=make_run_grants(config, time.monotonic()),
        )
        # Where there is a snapshot, only what it has is safe.
        self._snapshot = SnapshotStamp(spec.run.safe_map) if config.learner.snapshot else None
        self._publisher = ModelPublisher()
        self._model_map = ModelMapReader(spec.run.sent_map(spec.config))
        self._evaluations = StatusRecordReader(spec.run.evaluation_map, Eval)
        self._snapshot_progress = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress)
        self._status_record = StatusRecordWriter(spec.run.ingest_map, GatewayStatus)
        self._progress = StatusRecordWriter(spec.run.progress_map, IngestProgress)
        self._pauses = OwnPauses()
        self._heartbeats = HeartbeatReader(spec.run.heartbeat_map, process_state)
        self._handover = EvaluationHandover(spec, self._evaluations)
        self._run: Run | None = None
        self._last_status: GatewayStatus | None = None  # once the run has ended
        self._next_tick = self._next_status = 0.0
        self._synced_said = 0  # rows that the trainer was told that the disk has
        self._receive_backoff = ReceiveBackoff()
        self._disk_lag = DiskLag()
        self._failures = RateLimitedLog()
        self._replay = ReplayHold(replay_directory(config, spec.run.root))
        self._next_look = 0.0
        self._misplaced = ""
        queue = self._publisher.queue_chunks
        copies = self._state.stacks
        self._sockets = GatewaySockets(spec.address, keys, queue, copies=copies)
        self._admit_keys()  # before the first message
        self._wakeup = wakeup
        self._sockets.poller.register(wakeup.fileno(), zmq.POLLIN)
        whom = "listed keys" if keys else "everybody who reaches it"
        log.info("listening at %s and the two ports above, for %s", spec.address, whom)

    def _admit_keys(self) -> None:
        """Tell the state whose keys are admitted, and whose evaluations count."""
        spec = self._spec
        self._state.admit_keys(self._sockets.admitted)
        # Who reaches loopback without keys is a process of this host.
        everybody = not spec.keys and spec.address.loopback
        named = self._sockets.names_of(spec.config.evaluation.trusted)
        self._state.evaluations.trusted = None if everybody else named

    # The loop

    def run(self, stop: WakeupEvent) -> None:
        """Serve until the trainer is done, or the supervisor sets `stop`."""
        self._sockets.poller.register(stop.fileno(), zmq.POLLIN)
        while not stop.is_set and self._learning.read().phase != "done":
            self._run_once()
        self._sockets.poller.unregister(stop.fileno())  # it stays readable
        self._await_last_evaluation(stop)
        reason = self._learning.read().exit_reason or "interrupted"
        self._end(reason)
        if reason != "interrupted":
            self._answer_late_managers(stop, reason)
        self._sockets.close()

    def _run_once(self) -> None:
        """Do one round over the sockets, the maps and the clock."""
        self._mark_turn()
        sockets = self._sockets
        rest_ms = self._receive_backoff.remaining_ms(time.monotonic())
        wait_ms = self._wait_ms()
        ready = sockets.poll(min(wait_ms, rest_ms or wait_ms), samples=not rest_ms)
        now = time.monotonic()
        self._pauses.note(now)
        if self._wakeup.fileno() in ready:
            self._wakeup.clear()
        if sockets.samples in ready and self._drain(now):
            self._receive_backoff.start(now)
        if self._state.dirty or self._ring.pending:
            self._check_held()
            self._ring.commit(self._state.stamp())
            self._write_progress()
            if self._interventions:
                self._interventions.follow()
        self._answer_subscriptions(ready, now)
        self._poll_trainer(now)
        sockets.set_model_queue(self._publisher.queue_chunks)
        for frames in self._publisher.next_messages():
            send_now(sockets.models, frames)
        safe = self._ring.synced_stamp if self._snapshot is None else self._snapshot.read()
        self._state.safe.on_synced(safe)
        for message in self._state.acks_due(now, self._ring.inserted):
            send_now(sockets.control, message)
        if now >= self._next_tick:
            self._next_tick = now + _TICK_S
            self._tick(now)

    def _write_progress(self) -> None:
        self._progress.write(IngestProgress(self._state.ledger.env_steps, self._ring.synced_rows))

    def _follow_queue(self, learning: TrainerStatus) -> None:
        """Take over how far the trainer is in a queue, and sync what a checkpoint waits for."""
        self._state.on_place(QueuePlace.of(learning))
        if learning.kept is not None:
            self._ring.keep_from(learning.kept)
        if learning.sync_until > self._synced_said:
            self._synced_said = self._ring.synced_rows
            self._write_progress()
            if learning.sync_until > self._synced_said:
                self._ring.request_sync()

    def _check_held(self) -> None:
        """Check that no other learner has taken the run over, before rows become visible.

        Where its directory was moved the maps are still its own: rows go on into them.
        """
        with suppress(RunMovedError):
            self._spec.run.check_held(often=True)

    def _wait_ms(self) -> int:
        if self._publisher.busy or self._model_map.has_new:
            return 0
        return _POLL_MS if self._state.is_ack_awaited else _IDLE_POLL_MS

    def _drain(self, now: float) -> bool:
        """Move the messages that have come into the ring; the next commit makes them visible.

        Returns:
            True if no more have come, or no more can be taken until the disk has more of the ring.
        """
        all_taken = False
        state = self._state
        receive = self._sockets.receive
        bytes_left = _DRAIN_BYTES
        # No more than the ring has room for: a commit in between would count held rows as inserted.
        most = _DRAIN_MESSAGES
        if self._is_queue:  # what has no room is refused, and reports are read on
            state.limit_room(self._ring.room)
        else:
            room = self._batches_room
            self._disk_lag.note(now, lags=not room)
            if not room:
                return True
            most = min(most, room)
        for _ in range(most):
            try:
                frames, key = receive()
            except zmq.Again:
                all_taken = True
                break
            if key is None:
                continue
            state.on_samples(frames, now, key)
            if state.held_bytes >= _HELD_BYTES:
                bytes_left -= state.held_bytes
                self._insert(now)
                if bytes_left <= 0:
                    break
        self._insert(now)
        return all_taken

    @property
    def _batches_room(self) -> int:
        """Batches that may be inserted before the disk has more of the ring."""
        return self._ring.room // self._spec.config.actors.n_buffer

    def _insert(self, now: float) -> None:
        for block in self._state.blocks(now):
            block.append_to(self._ring)

    def _answer_subscriptions(self, ready: dict[object, int], now: float) -> None:
        """Answer a bounded number of subscriptions with the run, the latest model or the status."""
        sockets = self._sockets
        if sockets.control in ready:
            status = b""  # made once for all that ask in this turn
            for event in _received(sockets.control):
                if not status and event[1:3] == b"s/":
                    status = self._status_json(now)
                for frames in self._state.on_subscription(event, status):
                    send_now(sockets.control, frames)
        if sockets.models in ready:
            for event in _received(sockets.models):
                topic = self._state.on_model_subscription(event)
                if topic:
                    self._publisher.on_subscribed(topic)

    def _poll_trainer(self, now: float) -> None:
        """Read the trainer's progress, and a newer model in its map, perhaps of another epoch."""
        state = self._state
        learning = self._learning.read()
        needed = learning.needs_samples
        state.on_progress(learning.opt_steps, learning.sampled, needs_samples=needed)
        if self._is_queue:
            self._follow_queue(learning)
        if not self._model_map.has_new or (self._publisher.busy and state.position.epoch):
            return  # versions are skipped while one is sent
        model = self._model_map.read()
        if model is None:
            return
        if self._run is None or model.epoch != state.position.epoch:
            set_log_context(epoch=model.epoch)
            self._run = state.run_message(self._spec.config, model.epoch, model.schema)
        for frames in state.on_model(self._run, model.version, now):
            send_now(self._sockets.control, frames)
        self._publisher.publish(
            PackedModel(self._spec.run_id, model.epoch, model.schema.hash, model.body, model.digest)
        )
        self._handover.schema = model.schema
        state.evaluations.on_model(
            PublishedModel(model.epoch, model.version, model.env_steps, model.body)
        )

    def _tick(self, now: float) -> None:
        state = self._state
        state.tick(now)
        if not self._is_queue:
            self._disk_lag.note(now, lags=not self._batches_room)  # also when nothing more comes
        self._receive_backoff.managers = len(state.fleet.present)
        self._sockets.log_refusals(state.rejections, now)
        for line in state.pop_log_lines(now):
            log.log(logging.getLevelNamesMapping()[line.level.upper()], "%s", line.text)
        if self._archive.failing and self._failures.first("archive"):
            log.warning(
                "the replay's archive of closed sessions is not written: %s", self._archive.failing
            )
        elif not self._archive.failing:
            self._failures.reset("archive")
        self._sockets.close_removed_keys(now)
        self._admit_keys()  # those that may connect from now on
        self._handover.pass_on(state.evaluations)
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._look_for_directories()
        if now >= self._next_status:  # with thousands of managers it takes long to write
            began = time.monotonic()
            self._status_record.write(self._ingest(now))
            self._next_status = now + _STATUS_SHARE * (time.monotonic() - began)

    def _look_for_directories(self) -> None:
        """Note for the status whether the run's directory and the replay are where they were.

        Rows go on into the maps. Of the run's directory the supervisor's log tells.
        """
        before = self._misplaced
        try:
            self._spec.run.check_held()
        except RunMovedError as error:
            self._misplaced = f"{error}: no checkpoint is written"
            return
        loss = self._replay.find_loss()
        self._misplaced = "" if loss is None else str(loss)
        if loss is not None and before != self._misplaced:
            log.error("%s", loss)

    def _ingest(self, now: float, *, ended: bool = False) -> GatewayStatus:
        ring = self._ring
        refused = self._sockets.refused
        size = ring.manifest.total_bytes
        status = self._state.status(ring, size, now, refused=refused, ended=ended)
        replay = replace(status.replay, disk_lag_s=self._disk_lag.seconds(now))
        sizes = sizes_of(self._interventions)
        return replace(status, replay=replay, source_sizes=sizes, misplaced=self._misplaced)

    def _status_json(self, now: float) -> bytes:
        learning, evaluations = self._learning.read(), self._evaluations.read()
        run_id = self._spec.run_id
        config = self._spec.config
        ingest = self._last_status or self._ingest(now)
        over = learning.phase == "done"
        since = self._pauses.since
        liveness = Liveness.read(self._heartbeats, now, is_training_over=over, since=since)
        progress = self._snapshot_progress.read()
        known = assemble_known(run_id, config, learning, ingest, evaluations, liveness, progress)
        return encode(counted(known))

    # The end

    def _await_last_evaluation(self, stop: WakeupEvent) -> None:
        """Have managers evaluate the last model, while they are granted no more batches."""
        learning = self._learning.read()
        config = self._spec.config
        if not (config.evaluates_on_actors and learning.evaluates):
            return
        state = self._state
        version = learning.opt_steps
        state.closing = f"the run is over: its last model, version {version:,}, is evaluated"
        deadline = time.monotonic() + config.evaluation.end_timeout_s
        while not stop.is_set and (now := time.monotonic()) < deadline:
            state.evaluations.finish_with(version)
            if self._evaluations.read().version == version or state.evaluations.is_hopeless(now):
                return
            self._run_once()

    def _end(self, reason: str) -> None:
        """Announce the end, take the last messages for a bounded time, commit the accounting."""
        final = reason != "interrupted"
        began = time.monotonic()
        self._state.evaluations.stop()
        wait_s = _LAST_REPORTS_S
        if final:
            wait_s = _END_WAIT_S if self._snapshot is None else _SNAPSHOT_WAIT_S
        announced_at = 0.0
        while (now := time.monotonic()) < began + wait_s and self._state.expected:
            if now >= announced_at + _ANNOUNCE_EVERY_S:
                announced_at = now
                self._announce_stop(reason, final=final)
                if final and self._state.safe.is_asked_for:
                    self._ring.request_sync()  # managers wait until all that they sent is safe
            self._run_once()
        if final:
            self._state.end_run()
        self._check_held()
        self._ring.commit(self._state.stamp())
        if self._interventions:
            self._interventions.close()
        self._last_status = self._ingest(time.monotonic(), ended=True)
        self._ring.close()
        self._archive.close()
        self._replay.close()
        self._status_record.write(self._last_status)

    def _answer_late_managers(self, stop: WakeupEvent, reason: str) -> None:
        """Say that the run is over, and how it ended, until the supervisor stops this process."""
        sockets = self._sockets
        announced_at = 0.0
        while not stop.is_set:
            self._mark_turn()
            ready = sockets.poll(_LATE_POLL_MS, samples=True)
            if sockets.samples in ready:
                sockets.discard_samples()
            now = time.monotonic()
            self._answer_subscriptions(ready, now)
            if now >= announced_at + _ANNOUNCE_EVERY_S:
                announced_at = now
                sockets.close_removed_keys(now)
                self._announce_stop(reason, final=True)

    def _announce_stop(self, reason: str, *, final: bool) -> None:
        for frames in self._state.announce_stop(reason, final=final):
            send_now(self._sockets.control, frames)


def _open_ring(spec: LearnerSpec, layout: ReplayLayout, kept: int | None) -> RingWriter:
    return open_writer(
        replay_directory(spec.config, spec.run.root),
        layout.stored,
        spec.config.replay.capacity,
        run_id=spec.run_id,
        guard=layout.guard,
        batch_rows=layout.batch_rows,
        keep=layout.keep,
        shared=layout.shared,
        sync_interval_s=spec.config.replay.sync_interval_s,
        recovers=False,  # the trainer may have it mapped; the supervisor has recovered it
        kept_from=kept,
    )


def describe_acting(config: RunConfig, spaces: Spaces) -> dict[str, Any] | None:
    """How to act, for clients in other languages; None where that is not described."""
    kind = agent_kind(config.agent.name)
    described = kind.describe(config.agent, spaces) if kind.describe else None
    begins = config.actors_of_peers.explore_from
    return {**described, "explore_from": begins} if described and begins else described


def _once_released(open_ring: Callable[[], T]) -> T:
    """Open a ring, once a gateway that was killed a moment ago has released it."""
    deadline = time.monotonic() + _RING_WAIT_S
    while True:
        try:
            return open_ring()
        except OneWriterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _received(socket: zmq.Socket[bytes]) -> Iterator[bytes]:
    """Yield the messages that have come, up to a bounded number."""
    for _ in range(_EVENTS_A_TURN):
        try:
            yield socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return


def main() -> None:
    """`python -m vedette_services.learner.gateway.process RUN WAKEUP STOP`"""
    die_with_parent()
    ignore_stop_signals()
    set_up_logging()
    with report_exit():
        wakeup, stop = (WakeupEvent(argument) for argument in sys.argv[2:4])
        run = RunDirectory(Path(sys.argv[1]))
        heartbeat = HeartbeatThread(run.heartbeat_map("gateway"))
        spec = LearnerSpec.read(run.root)
        spec.hold_run()
        Gateway(spec, wakeup, heartbeat.mark_turn).run(stop)


if __name__ == "__main__":
    run_to_end(main, log.warning)

"""The gateway process: every socket, and the replay's writing end. It loads no torch.

It keeps nothing that it could not reread: the ledger is in the ring's stamp, the model and the
learning in the trainer's maps.
"""

from __future__ import annotations

import logging
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import zmq

from vedette_protocol.messages import Run
from vedette_rl.envs.make import probe_environment
from vedette_rl.errors import OneWriterError
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.ring import RingWriter
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import StopSignals, WakeupEvent, die_with_parent
from vedette_services.learner.fleet import ManagerIds
from vedette_services.learner.flow_control import FlightLimits
from vedette_services.learner.gateway_sockets import GatewaySockets
from vedette_services.learner.gateway_state import GatewayState
from vedette_services.learner.model_publisher import ModelPublisher, PackedModel
from vedette_services.net.keys import LearnerKeys
from vedette_services.net.sockets import send_now
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.model_map import ModelMapReader
from vedette_services.run.replay_layout import (
    ReplayLayout,
    make_run_limiter,
    replay_directory,
    replay_layout,
)
from vedette_services.run.status import Eval
from vedette_services.run.status_fields import encode
from vedette_services.run.status_records import (
    GatewayStatus,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
    assemble_status,
)

log = logging.getLogger("vedette.gateway")

_POLL_MS = 10  # from one look at who is due an ack to the next when no message comes
_IDLE_POLL_MS = 20  # and one without; a newer model wakes it
_EVENTS_A_TURN = 256  # subscriptions answered before the other sockets have their turn
_DRAIN_MESSAGES = 256  # taken from the samples' socket before a commit
_DRAIN_BYTES = 64 << 20  # the same in bytes, so that acks are never late
_HELD_BYTES = 512 << 10  # looked into together: what a processor's own cache holds
_TICK_S = 0.2
_RING_WAIT_S = 5.0  # a gateway killed a moment ago lets go of the replay within a second
_END_WAIT_S = 5.0  # for managers to hand in what they have when the run is over
_LAST_REPORTS_S = 1.0  # for reports when the learner is only interrupted


class Gateway:
    """Sockets, ring and clock around a `GatewayState`.

    Args:
        wakeup: set when there is a newer model.
    """

    def __init__(self, spec: LearnerSpec, wakeup: WakeupEvent) -> None:
        config = spec.config
        self._spec = spec
        layout = replay_layout(config, probe_environment(config.env))
        keys = LearnerKeys.read(spec.keys) if spec.keys else None
        self._ring = _open_ring(spec, layout)
        self._manager_ids = ManagerIds(spec.run.manager_ids_file) if keys else None
        self._state = GatewayState(
            spec.run_id,
            secrets.randbits(63),
            layout.schema,
            stamp=self._ring.stamp,
            now=time.monotonic(),
            limiter=make_run_limiter(config),
            rows_per_batch=config.actors.n_buffer,
            window=FlightLimits(config.actors.window_batches, config.actors.window_bytes),
            batch_bytes=layout.batch_bytes,
            manager_ids=self._manager_ids,
        )
        self._publisher = ModelPublisher()
        self._model_map = ModelMapReader(spec.run.model_map)
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._evaluations = StatusRecordReader(spec.run.evaluation_map, Eval)
        self._board = StatusRecordWriter(spec.run.ingest_map, GatewayStatus)
        self._run: Run | None = None
        self._next_tick = 0.0
        self._receive_backoff = ReceiveBackoff()
        queue, copies = self._publisher.queue_chunks, self._state.stacks
        self._sockets = GatewaySockets(spec.address, keys, queue, copies=copies)
        self._wakeup = wakeup
        self._sockets.poller.register(wakeup.fileno(), zmq.POLLIN)
        whom = "listed keys" if keys else "everybody who reaches it"
        log.info("listening at %s and the two ports above, for %s", spec.address, whom)

    # The loop

    def run(self, stop: StopSignals) -> None:
        """Serve until the trainer is done, or the supervisor says stop."""
        self._sockets.poller.register(stop.fileno(), zmq.POLLIN)
        while not stop and self._learning.read().phase != "done":
            self._run_once()
        self._end(self._learning.read().exit_reason or "interrupted")

    def _run_once(self) -> None:
        """One round over the sockets, the maps and the clock."""
        sockets = self._sockets
        rest_ms, wait_ms = self._receive_backoff.remaining_ms(time.monotonic()), self._wait_ms()
        ready = sockets.poll(min(wait_ms, rest_ms or wait_ms), samples=not rest_ms)
        now = time.monotonic()
        if self._wakeup.fileno() in ready:
            self._wakeup.clear()
        if sockets.samples in ready and self._drain(now):
            self._receive_backoff.start(now)
        if self._manager_ids is not None:
            self._manager_ids.save()
        if self._state.dirty or self._ring.pending:
            self._ring.commit(self._state.stamp())
        self._answer_subscriptions(ready, now)
        self._poll_trainer(now)
        sockets.set_model_queue(self._publisher.queue_chunks)
        for frames in self._publisher.next_messages():
            send_now(sockets.models, frames)
        for message in self._state.acks_due(now, self._ring.inserted):
            send_now(sockets.control, message)
        if now >= self._next_tick:
            self._next_tick = now + _TICK_S
            self._tick(now)

    def _wait_ms(self) -> int:
        if self._publisher.busy or self._model_map.has_new:
            return 0
        return _POLL_MS if self._state.has_unacked else _IDLE_POLL_MS

    def _drain(self, now: float) -> bool:
        """Take what has come, into the ring; visible and acknowledged at the next commit. Whether
        that was all."""
        all_taken = False
        state, receive = self._state, self._sockets.receive
        bytes_left = _DRAIN_BYTES
        # No more than the ring has room for: a commit in between would call inserted what is held.
        room = self._ring.room // self._spec.config.actors.n_buffer
        for _ in range(min(_DRAIN_MESSAGES, room)):
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

    def _insert(self, now: float) -> None:
        for block in self._state.blocks(now):
            block.append_to(self._ring)

    def _answer_subscriptions(self, ready: dict[object, int], now: float) -> None:
        """Subscriptions: joiners get the run and the newest model, askers the status.

        A bounded number a turn: somebody may subscribe for ever.
        """
        sockets = self._sockets
        if sockets.control in ready:
            status = b""  # made once for all who ask in this turn
            for event in _received(sockets.control):
                if not status and event[1:3] == b"s/":
                    status = self._status_json(now)
                for frames in self._state.on_subscription(event, status, now):
                    send_now(sockets.control, frames)
        if sockets.models in ready:
            for event in _received(sockets.models):
                topic = self._state.on_model_subscription(event)
                if topic:
                    self._publisher.on_subscribed(topic)

    def _poll_trainer(self, now: float) -> None:
        """How far the trainer is; a newer model in its map, perhaps of another epoch."""
        state, learning = self._state, self._learning.read()
        state.on_progress(learning.opt_steps, learning.sampled)
        if not self._model_map.has_new or (self._publisher.busy and state.position.epoch):
            return  # versions are skipped while one is going out
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

    def _tick(self, now: float) -> None:
        state = self._state
        state.tick(now)
        self._receive_backoff.managers = len(state.fleet.present)
        self._sockets.log_refusals(state.rejections, now)
        for line in state.take_log_lines(now):
            log.log(logging.getLevelNamesMapping()[line.level.upper()], "%s", line.text)
        self._sockets.close_removed_keys(now)
        self._board.write(self._ingest(now))

    def _ingest(self, now: float, *, ended: bool = False) -> GatewayStatus:
        ring = self._ring
        refused, size = self._sockets.refused, ring.manifest.total_bytes
        return self._state.status(ring, size, now, refused=refused, ended=ended)

    def _status_json(self, now: float) -> bytes:
        learning, evaluations = self._learning.read(), self._evaluations.read()
        run_id, config = self._spec.run_id, self._spec.config
        return encode(assemble_status(run_id, config, learning, self._ingest(now), evaluations))

    # The end

    def _end(self, reason: str) -> None:
        """Tell everybody, take what still comes for a bounded time, commit the accounting."""
        final = reason != "interrupted"
        began = time.monotonic()
        wait_s = _END_WAIT_S if final else _LAST_REPORTS_S
        announced_at = 0.0
        while (now := time.monotonic()) < began + wait_s and self._state.fleet.present:
            if now >= announced_at + 0.5:  # a stop message is repeated: a joiner may have missed it
                announced_at = now
                for frames in self._state.announce_stop(reason, final=final):
                    send_now(self._sockets.control, frames)
            self._run_once()
        if final:
            self._state.end_run()
        self._ring.commit(self._state.stamp())
        self._board.write(self._ingest(time.monotonic(), ended=True))
        self._ring.close()
        self._sockets.close()


def _open_ring(spec: LearnerSpec, layout: ReplayLayout) -> RingWriter:
    """The replay's writing end, once a gateway that was killed a moment ago has let go of it."""
    deadline = time.monotonic() + _RING_WAIT_S
    while True:
        try:
            return open_writer(
                replay_directory(spec.config, spec.run.root),
                layout.stored,
                spec.config.replay.capacity,
                run_id=spec.run_id,
                guard=layout.guard,
                shared=layout.shared,
            )
        except OneWriterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _received(socket: zmq.Socket[bytes]) -> Iterator[bytes]:
    """What has come, a bounded number of frames of it."""
    for _ in range(_EVENTS_A_TURN):
        try:
            yield socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return


def main() -> None:
    """`python -m vedette_services.learner.gateway RUN WAKEUP`"""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    set_up_logging()
    with report_exit():
        gateway = Gateway(LearnerSpec.read(Path(sys.argv[1])), WakeupEvent(int(sys.argv[2])))
        gateway.run(StopSignals((signal.SIGTERM,)))


_REST_S = 0.002
_SHARE_S = 3e-5  # longer for each manager: a commit tells of every one that sent something
_MOST_S = 0.005


class ReceiveBackoff:
    """More batches come together, and each costs less; the first after a silence is taken at once.

    Other sockets are heard meanwhile.
    """

    def __init__(self) -> None:
        self.managers = 0
        self._until = 0.0

    def start(self, now: float) -> None:
        """All that came were taken."""
        self._until = now + min(_MOST_S, _REST_S + _SHARE_S * self.managers)

    def remaining_ms(self, now: float) -> int:
        """What is left of it, to the nearest; 0 when it is over."""
        return max(0, round(1e3 * (self._until - now)))


if __name__ == "__main__":
    main()

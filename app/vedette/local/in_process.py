"""A run in one process: the daemons' states on an in-memory network.

Learner and actors take turns: the one that would wait lets the other one take a step. Two runs with
the same configuration and seed are bit-identical, except for what depends on the wall clock
(`stop.max_seconds`, a signal): delivery has a virtual clock, on which a step of the actors takes
`STEP_S`.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from vedette.live import View
from vedette.local.daemons import configured_packages
from vedette_protocol.account import SampleAccounting
from vedette_protocol.ledger import Ledger
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.envs.spaces import ElementBounds, Spaces
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.frame_ring import MemoryFrameRing
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.rows import MemoryRing, default_guard
from vedette_rl.storage.checkpoints import refuse_diverged
from vedette_services.actors.actor import ActorLoop, build_actor
from vedette_services.actors.actor_spec import SLOTS, ActorSpec
from vedette_services.actors.custom_actor import LocalModels
from vedette_services.actors.handover import (
    AllowedRuns,
    LocalHandover,
    SlotLayout,
    slot_layout,
)
from vedette_services.actors.instructions import StartActor, StoreModel
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    SamplesRejectedError,
    ServicesError,
    UnsavedEndError,
    describe_with_notes,
)
from vedette_services.host.output import divert_output_past_python
from vedette_services.host.processes import StopSignals, pause
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.learner.evaluator import ModelEvaluation
from vedette_services.learner.gateway.flow_control import (
    FlightLimits,
    make_insert_limiter,
    make_run_grants,
)
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.learner.trainer.learner import Learner, make_replay
from vedette_services.run.active_time import training_time_before
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEventLog
from vedette_services.run.hold import log_loss
from vedette_services.run.model_map import MappedModel
from vedette_services.run.outcome import (
    describe_loss,
    describe_unsaved,
    exit_at_once,
    write_summary,
)
from vedette_services.run.prepare import prepare_start
from vedette_services.run.provenance import record_provenance
from vedette_services.run.replay_layout import (
    ReplayLayout,
    make_run_limiter,
    replay_layout,
)
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp
from vedette_services.run.sources import (
    describe_sources,
    open_interventions,
    open_sources,
    sizes_of,
)
from vedette_services.run.start_plan import StartPlan
from vedette_services.simulation.hosts import GatewayHost, ManagerHost
from vedette_services.simulation.network import MemoryNetwork, VirtualClock
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.records import EndedEvaluations, GatewayStatus, TrainerStatus
from vedette_services.status.status import Eval, Status
from vedette_services.status.stop_conditions import (
    STOPPED,
    given_up_at,
    late_end,
    missing_evaluation,
    unfinished_evaluation,
)

log = logging.getLogger("vedette.in_process")

STEP_S = 0.001
"""Seconds of the virtual clock for a step of all actors."""

_SIGNAL_S = 0.2
"""From the death of a simulator to our own signal, where something signals a group's processes one
after another."""

PRINTED = "environments.log"
"""The file of a run's logs for what environments print past Python into a pipe."""

_WAIT_S = 0.02  # of the virtual clock, while something is waited for
_SHOW_EVERY_S = 0.5
_SUMMARY_EVERY_S = 5.0


class _Handover(LocalHandover):
    """A handover of one thread: it does not wait for the manager, but calls it."""

    def __init__(self, layout: SlotLayout, take_batches: Callable[[float], None]) -> None:
        super().__init__(layout, SLOTS)
        self._take_batches = take_batches

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        """Hand a batch over and have the manager take it."""
        super().publish(rows, epoch, version, entries, env_steps)
        self._take_batches(0.0)

    def poll(self, wait_s: float) -> None:
        """Give the manager time to take batches, if `wait_s` is not 0."""
        if wait_s:
            self._take_batches(_WAIT_S)


class InProcessActor:
    """An actor of the daemons without a process of its own: a `HostedActor`."""

    def __init__(
        self, host: ManagerHost[InProcessActor], order: StartActor, config: RunConfig
    ) -> None:
        self._host = host
        self._order = order
        run = order.run
        layout = slot_layout(run.schema, config.actors)
        self._handover = _Handover(layout, self._take_batches)
        self._models = LocalModels()
        try:
            self._actor: ActorLoop = build_actor(
                ActorSpec.of(order),
                self._handover,
                self._models,
                lambda stats: host.on_stats(order.index, stats),
                clock=lambda: host.clock.now,
            )
        except BaseException:
            self._handover.close()
            raise
        self._begun = False

    def step(self) -> None:
        """Step every environment once, unless it waits for a model."""
        if not self._begun:
            self._begun = True
            self._actor.begin()
        if self._actor.may_play():
            self._actor.step()

    def publish_stats(self) -> None:
        """Publish the actor's statistics to its manager."""
        self._actor.publish_stats("playing")

    def store(self, model: StoreModel) -> None:
        run = self._order.run
        self._models.store(MappedModel(model.epoch, model.version, run.model, model.body, None))

    def allow_runs(self, allowed: AllowedRuns) -> None:
        self._handover.allow_runs(allowed)

    def stop(self) -> None:
        self._host.clock.call_at(self._host.clock.now, self._finish)

    def kill(self) -> None:
        _close_environments(self._actor.close, "an actor")
        self._handover.close()

    def _finish(self) -> None:
        self._actor.finish()
        self._actor.publish_stats("ended")
        while self._handover.ready_batches:
            self._take_batches(_WAIT_S)
        self.kill()
        self._host.on_exited(self._order.index)

    def _take_batches(self, seconds: float) -> None:
        """Let time pass, then have the manager take the batches that were handed over."""
        host = self._host
        waiting = self._handover
        if seconds:
            host.clock.advance(seconds)
        while waiting.ready_batches and host.state.has_room_for(waiting.next_bytes):
            host.offer(self._order.index, self._order.run, waiting.receive())


def _close_environments(close: Callable[[], None], whose: str) -> None:
    """Close environments; an error of that ends no run, as it ends no actor of a daemon."""
    try:
        close()
    except Exception as error:  # noqa: BLE001 - of an environment, which may raise anything
        log.warning("close() of %s's environments failed: %s", whose, describe_with_notes(error))


class InProcessRun:
    """Trains with a learner, its actors and its evaluator; the `Peers` of the learner.

    Args:
        spaces: the environment's spaces.
        view: shows the run.
        stop: true once the run is to end.
        clock: seconds, monotonic, for everything except delivery.
        on_loaded: called once the checkpoint has loaded.
    """

    def __init__(
        self,
        config: RunConfig,
        spaces: Spaces,
        run: RunDirectory,
        *,
        view: View | None = None,
        stop: StopSignals | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self._run = run
        self._view = view or View()
        self._stop = stop
        self._wall_clock = clock
        identity, host = run.begin_epoch(), socket.gethostname()
        self.run_id = identity.run_id
        self._epoch = identity.epoch
        self._evaluate_until = clock() + (config.stop.max_seconds or math.inf)  # evaluations end
        self._gave_up = False
        self._evaluation_is_open = False
        self._unevaluated = ""  # why the last model has no evaluation
        self._event_log = RunEventLog(run.events_file)
        self._failures = RateLimitedLog()
        layout = replay_layout(config, spaces)
        self.ring = _memory_ring(config, layout)
        self._interventions = open_interventions(config, run.root, self.run_id, spaces, self.ring)
        sources = {name: (rows, None) for name, rows in open_sources(config, run.root).items()}
        self.learner = Learner(
            config,
            run,
            self.run_id,
            self._epoch,
            spaces=spaces,
            open_replay=lambda: make_replay(
                config, spaces, self.ring, self._epoch, sources=sources
            ),
            lasting=False,
            sources=describe_sources(config, run.root),
            trained=training_time_before(run),
            clock=clock,
        )
        on_loaded()
        self.agent = self.learner.agent
        self.replay = self.learner.replay
        self._env_steps = self.learner.earlier.env_steps  # when the last model was published
        where = f"in one process on {host}"
        self._event_log.log_start(where, self.agent.opt_steps, self._env_steps)
        self._evaluation = ModelEvaluation(
            config, spaces, self.run_id, run.best, check=run.check_held
        )
        self._models = Schema.from_arrays(self.agent.model_info().arrays)
        self.clock = VirtualClock()
        network = MemoryNetwork(self.clock)
        self._gateway = self._make_gateway(layout, spaces, network)
        self._manager = self._make_manager(host, network)
        self._trainer = self.learner.status
        self._announced = self._gateway.state.run_message(config, self._epoch, self._models)
        self._take_over(self._gateway.status())
        self._next_show = 0.0
        self._next_summary = self._wall_clock() + _SUMMARY_EVERY_S

    def _make_gateway(
        self, layout: ReplayLayout, spaces: Spaces, network: MemoryNetwork
    ) -> GatewayHost:
        config = self.config
        before = self.learner.earlier
        lost = before.produced - before.inserted - before.rejected
        earlier = SampleAccounting(
            before.produced,
            before.inserted,
            rejected=before.rejected,
            lost=lost,
            env_steps=before.env_steps,
        )
        actors = config.actors
        state = GatewayState(
            self.run_id,
            1,
            layout.schema,
            stamp=pack_stamp(Ledger(self.run_id, earlier), ActorNumbers()),
            now=0.0,
            # In lock step no actor inserts while the learner may draw.
            limiter=(
                make_insert_limiter(config)
                if config.replay.is_queue
                else Limiter(0.0, 0, 0.0, config.samples_per_opt)
            ),
            run_length=config.replay.sequence if config.replay.is_queue else 0,
            run_grants=make_run_grants(config, now=0.0),
            rows_per_batch=actors.n_buffer,
            elements=ElementBounds(spaces),
            window=FlightLimits(actors.window_batches, actors.window_bytes),
            batch_bytes=layout.batch_bytes,
            batch_env_steps=actors.env_steps_max(config.row_steps),
            max_env_steps=config.stop.max_env_steps,
            rates_clock=lambda _: self._wall_clock(),
        )
        return GatewayHost(
            state, self.ring, network, actors.n_buffer, is_queue=config.replay.is_queue
        )

    def _make_manager(self, host: str, network: MemoryNetwork) -> ManagerHost[InProcessActor]:
        config = self.config
        return ManagerHost(
            "in-process",
            network,
            self._start_actor,
            seed=self._epoch,
            who=(host, "this process"),
            count=config.actors.count,
            allow_import=configured_packages(config),
        )

    def train(self) -> Status:
        """Train to the end of the run; its summary."""
        self._event_log.log_epoch(self._epoch, self.agent.opt_steps)
        try:
            with ExitStack() as closing:  # also after an error
                if self._interventions:
                    closing.callback(self._interventions.close)
                closing.callback(_close_environments, self._evaluation.close, "the evaluation")
                closing.callback(self._manager.kill)
                last = self.learner.train(self, lock_step(self.config), idle=self._play, tick_s=0.0)
                self.learner.close(last)
        except Exception as error:
            if self._run.find_loss() is None:
                self._event_log.log("failed", "learner", describe_with_notes(error))
            raise
        unusable = self._gateway_status.unusable
        if self._run.find_loss() is None:
            how = ("failed", unusable) if unusable else ("ended", last.exit_reason)
            self._event_log.log(how[0], "learner", how[1])
        status = self._write_summary(ended=True)
        if unusable:
            raise SamplesRejectedError(unusable)
        return status

    def _play(self) -> None:
        """Have every actor play a step: the learner waits."""
        actors = self._manager.actors.values()
        try:
            for actor in actors:
                actor.step()
            if actors and not self._evaluation_is_open:
                self._evaluation_is_open = True
                if self.config.learner.eval_interval:
                    self._evaluation.open()  # once the actors have their environments
        except Exception as error:  # noqa: BLE001 - of an environment, which may raise anything
            self._tolerate_after_stop(error)
        self._pass_time(STEP_S if actors else _WAIT_S)

    def _start_actor(
        self, manager: ManagerHost[InProcessActor], order: StartActor
    ) -> InProcessActor | None:
        try:
            return InProcessActor(manager, order, self.config)
        except Exception as error:  # noqa: BLE001 - of an environment, which may raise anything
            self._tolerate_after_stop(error)
            return None

    def _tolerate_after_stop(self, error: Exception) -> None:
        """Log an environment's error where the run was asked to stop: a terminal's Ctrl-C, and
        what `timeout` sends, reaches simulators, too.

        Raises:
            Exception: the error, where it was not.
        """
        if self._stop is not None and not self._stop:
            pause(self._stop, _SIGNAL_S)
        if not self._stop:
            raise error
        log.warning("the run was asked to stop, and then: %s", describe_with_notes(error))

    def _pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if (left := self._manager.exit) is not None and left.code:
            raise ServicesError(left.reason)

    # Evaluating

    def end_evaluation(self, exit_reason: str) -> None:
        """Evaluate the last model, unless its result is not needed or the run was stopped."""
        if self.is_stopped() or exit_reason == "target_return":
            return
        model = self.agent.model_info()
        evaluation = self._evaluation
        is_due = evaluation.is_newer(model.version) or evaluation.cut_confirmation
        if self.config.learner.eval_interval > 0 and is_due:
            self._unevaluated = self._evaluate_last(model)
            if self._unevaluated:
                log.warning("%s", self._unevaluated)

    def _evaluate_last(self, model: ModelInfo) -> str:
        """Evaluate the last model, unless one was given up; return why it has no evaluation, or was
        not confirmed."""
        evaluation = self._evaluation
        if not self._gave_up:
            self._evaluate_until = self._wall_clock() + self.config.evaluation.end_timeout_s
            self._evaluate(model)
            how = late_end(self.config.evaluation.end_timeout_s)
            if self._wall_clock() < self._evaluate_until:
                how = STOPPED if self._stop else ""
        else:
            how = given_up_at(self.config.stop.max_seconds)
        if not evaluation.is_newer(model.version) and not evaluation.cut_confirmation:
            return ""
        if not how:
            return missing_evaluation()
        return unfinished_evaluation(how, confirming=evaluation.cut_confirmation)

    def _evaluate(self, model: ModelInfo) -> None:
        self._trainer = replace(self._trainer, opt_steps=model.version)
        waits = f"learner waits: version {model.version:,} is being evaluated"

        def is_cancelled() -> bool:
            """Update the view; True once the run does not wait for evaluations any more."""
            now = self._wall_clock()
            if now >= self._next_show:
                self._next_show = now + _SHOW_EVERY_S
                self._view.show(replace(self.status(), waits=waits))
            self._gave_up = self._is_over(now)
            return self._gave_up

        evaluation = self._evaluation
        try:
            evaluation.evaluate(self._epoch, model, self._env_steps, is_cancelled=is_cancelled)
            while evaluation.confirms:
                waits = f"learner waits: {evaluation.status.confirming}"
                evaluation.confirm(is_cancelled=is_cancelled)
        except Exception as error:  # noqa: BLE001 - of an environment, which may raise anything
            self._tolerate_after_stop(error)
        self._next_show = 0.0  # the result is shown at once

    def _is_over(self, now: float) -> bool:
        """True once the run does not wait for evaluations any more."""
        return self.is_stopped() or now >= self._evaluate_until

    # Peers

    def publish_status(self, status: TrainerStatus) -> None:
        # In lock step the actors play while the learner waits: no side limits the other.
        own = replace(status.time, optimizing_share=None, sampling_share=None, waiting_share=None)
        self._trainer = replace(status, time=own)
        self._gateway.state.on_progress(status.opt_steps, status.sampled)
        if self.config.replay.is_queue:
            self._gateway.follow_queue(QueuePlace.of(status))
        now = self._wall_clock()
        done = status.phase == "done"
        if now >= self._next_show or done:
            self._next_show = now + _SHOW_EVERY_S
            self._refresh()
            log_loss(self._run.loss, log, self._failures)
            if self._run.loss is None:
                self._event_log.log_changes(status, self._gateway_status)
            if not done:
                self._view.show(self.status())
            if now >= self._next_summary:
                self._next_summary = now + _SUMMARY_EVERY_S
                self._write_summary()

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        if fresh:
            self._refresh()
        elif self._commits != self._gateway.commits:
            state = self._gateway.state
            samples = state.accounting()
            env_steps = state.ledger.env_steps
            self._take_over(replace(self._gateway_status, samples=samples, env_steps=env_steps))
        return self._gateway_status, self._evaluation.status

    def read_ended_evaluations(self) -> EndedEvaluations:
        return self._evaluation.ended

    def publish_model(self, model: ModelInfo) -> None:
        refuse_diverged(model.version, model.arrays)
        body = pack_model(model.version, model.arrays, self._models)
        self._gateway.publish(self._announced, model.version, body)
        self._env_steps = self._gateway.state.ledger.env_steps
        self._pass_time(0.0)
        is_due = self._evaluation.is_due(self._epoch, model.version)
        if is_due and not self._is_over(self._wall_clock()):
            self._evaluate(model)

    def synced_rows(self) -> int:
        """All: nothing of this replay survives."""
        return self.ring.inserted

    def end_production(self) -> None:
        self._manager.leave("the run is over")
        while self._manager.exit is None:
            self._pass_time(_WAIT_S)

    def mark_turn(self) -> None:
        """Do nothing: no other process watches this one."""

    def is_stopped(self) -> bool:
        return bool(self._stop or self._gateway_status.unusable)

    # Status

    def status(self) -> Status:
        """The status as of the last refresh."""
        known = assemble_known(
            self.run_id, self.config, self._trainer, self._gateway_status, self._evaluation.status
        )
        return counted(known)

    def _refresh(self) -> None:
        """Collect the statistics of the actors and of the gateway."""
        for actor in self._manager.actors.values():
            actor.publish_stats()
        self._manager.report()
        self._pass_time(0.0)
        self._gateway.tick()
        self._take_over(self._gateway.status())

    def _take_over(self, status: GatewayStatus) -> None:
        """Keep a status of the gateway, with the interventions up to its last row."""
        self._commits = self._gateway.commits
        if self._interventions:
            self._interventions.follow()
        self._gateway_status = replace(status, source_sizes=sizes_of(self._interventions))

    def _write_summary(self, *, ended: bool = False) -> Status:
        status = replace(self.status(), unevaluated=self._unevaluated)
        if self._run.find_loss() is not None:
            return status  # it is said already
        if why := write_summary(self._run.summary_file, status, ended=ended):
            log.warning("summary.json not written: %s", why)
        return status


def lock_step(config: RunConfig) -> Limiter:
    """Make the limiter of lock step: the learner takes the next step whenever it may, else actors.

    `replay.samples_per_insert` is kept to the batch; if it is 0, an optimization step follows
    each step of an actor's vector of environments.
    """
    batch = config.samples_per_opt
    limiter = make_run_limiter(config)
    rate = limiter.samples_per_insert or batch / config.actors.envs_per_actor
    warmup = config.learner.warmup_period
    rows_per_step = limiter.rows_per_step
    return Limiter(rate, warmup, float(batch), batch, rows_per_step=rows_per_step)


def run_in_process(plan: StartPlan, *, view: View | None = None, signals: bool = False) -> Status:
    """Train in this process until the run is over; this seeds torch's global random numbers.

    The arguments are those of `run_locally`. A run that resumes begins with an empty replay, and a
    second signal ends this process at once.

    Returns:
        The last status, as ``summary.json`` has it.

    Raises:
        RunInUseError: another learner runs here.
        UnsavedEndError: the run has ended, and its end could not be written.
    """
    # Threads write checkpoints and records while an environment may be in a folder of its own.
    config, run = plan.config, RunDirectory(plan.out.absolute())
    run.make()
    shown = view or View()
    try:
        run.lock()
        prepared = prepare_start(plan, run)

        def leave() -> None:
            shown.release()
            exit_at_once(run.root)  # perhaps in an environment's folder

        stop = StopSignals(leave=leave) if signals else None
        printed = divert_output_past_python(run.log / PRINTED)
        with shown, record_provenance(config, run, plan.packages), printed:
            status = InProcessRun(
                config, plan.spaces, run, view=shown, stop=stop, on_loaded=prepared.save_settings
            ).train()
            if size := _size_of(run.log / PRINTED):
                shown.print_line(f"environments printed {format_bytes(size)}: {run.log / PRINTED}")
        if why := describe_loss(run.find_loss()) or describe_unsaved(plan.out, status):
            raise UnsavedEndError(why, status)
    finally:
        run.unlock()
    return status


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # nothing was diverted
        return 0


def _memory_ring(config: RunConfig, layout: ReplayLayout) -> MemoryRing:
    stored = layout.stored
    capacity = config.replay.capacity
    guard = layout.guard or default_guard(capacity, stored.itemsize)
    guard = max(guard, config.actors.n_buffer)
    if layout.shared is not None:
        return MemoryFrameRing(stored, capacity, layout.shared, guard=guard)
    return MemoryRing(stored, capacity, guard=guard)

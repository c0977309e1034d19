"""A run in one process: whoever must wait lets the other side take a step.

Two runs with the same configuration and seed are bit-identical, but for what depends on the clock
(`stop.max_seconds`, a signal).
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from vedette.live import QuietView, View
from vedette_protocol.account import SampleAccounting
from vedette_protocol.errors import SchemaError
from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_protocol.messages import ActorReport, Report
from vedette_protocol.model import check_model
from vedette_protocol.schema import Schema
from vedette_rl.acting_loop import RolloutLoop
from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import Agent, Columns, ModelInfo, ReplayBuffer, empty_columns
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.row import make_vector_environment
from vedette_rl.exploration import exploration_ranks
from vedette_rl.loading import make_loader
from vedette_rl.networks.seeding import seed_process
from vedette_rl.recording.surviving import SurvivingRecorder
from vedette_rl.replay.frames_ring import MemoryFrameRing
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing, default_guard
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.actors.actor_spec import actor_seeds
from vedette_services.actors.batching import TransitionBatcher, make_transition_pipeline
from vedette_services.actors.stats import RecentEpisodes
from vedette_services.config import publish_config
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import UnsavedEndError
from vedette_services.host.files import write_json
from vedette_services.host.processes import StopSignals
from vedette_services.host.rate_limited import RateLimitedLog
from vedette_services.learner.background import CheckpointWriter
from vedette_services.learner.evaluator import ModelEvaluation
from vedette_services.learner.fleet import Fleet
from vedette_services.learner.lag import LagMeter, RateMeter
from vedette_services.learner.run_recorder import CurveRecorder, open_recorder, truncate_curves
from vedette_services.learner.trainer import resolve_device
from vedette_services.learner.training_loop import RunProgress, TrainingLoop, find_exit_reason
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEventLog
from vedette_services.run.outcome import describe_unsaved, exit_at_once
from vedette_services.run.replay_layout import ReplayLayout, make_run_limiter, replay_layout
from vedette_services.run.resume import erase_run
from vedette_services.run.status import Rates, Replay, Samples, Status
from vedette_services.run.status_records import GatewayStatus, TrainerStatus, assemble_status

log = logging.getLogger("vedette.in_process")

_SHOW_EVERY_S = 0.5
_LAST_SAVE_S = 60.0
_LAST_EVALUATION_S = 60.0  # beyond `stop.max_seconds`, as a learner daemon's


class InProcessRun:
    """The learner, its actors and its evaluator; the `LoopCallbacks` of the training loop."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        *,
        view: View | None = None,
        stop: StopSignals | None = None,
    ) -> None:
        self.config, self._run, self._view, self._stop = config, run, view or QuietView(), stop
        identity = run.begin_epoch()
        self.run_id, self._epoch = identity.run_id, identity.epoch
        self._began = time.monotonic()
        # no evaluation is played longer
        self._play_until = self._began + (config.stop.max_seconds or math.inf)
        self._gave_up = False
        self._event_log = RunEventLog(run.events_file)
        self._event_log.log_start(f"in one process on {socket.gethostname()}")
        torch.set_num_threads(config.learner.torch_threads)
        seed_process(config.seed, self._epoch)
        device, spaces = resolve_device(config.learner.device), probe_environment(config.env)
        self.agent: Agent = agent_type(config.agent.name).build_agent(
            config.agent, spaces, device=str(device), seed=config.seed
        )
        layout = replay_layout(config, spaces)
        self.ring = _memory_ring(config, layout)
        self.replay = _replay(config, self.ring, self._epoch)
        self._checkpoints = Checkpoints(run.checkpoints, keep=config.learner.keep_checkpoints)
        earlier = self._resume()
        self._loader = make_loader(self.replay, config.agent.batch_size, device)
        self._models = LatestModel()
        self._inserting = ReplayInserter(self.ring, layout.schema)
        self._actors = [
            build_actor(config, self._epoch, number, self._inserting, self._models.reader())
            for number in range(config.actors.count)
        ]
        self._evaluation = ModelEvaluation(config, self.run_id, run.best)
        self._recorder = SurvivingRecorder(lambda: open_recorder(config, run.root))
        recorded = truncate_curves(run.tensorboard, self.agent.opt_steps)
        self._curves = CurveRecorder(self._recorder, self, recorded)
        self._checkpoint_writer = CheckpointWriter(self._checkpoints)
        self._account = InProcessAccounting(
            self.run_id, self._epoch, earlier, self.ring, self._inserting, self._actors
        )
        self._learning = TrainerStatus(epoch=self._epoch, opt_steps=self.agent.opt_steps)
        self._acting = False
        self._next_show = 0.0

    def _resume(self) -> Earlier:
        """Go on from the last checkpoint, if there is one; the replay begins empty."""
        found = self._checkpoints.load_latest()
        if found is None:
            return Earlier()
        for warning in found.skipped:
            log.warning("%s", warning)
        self.agent.set_state(found.state["agent"])
        self.replay.set_state(found.state["replay"])
        log.info("resuming run %s at optimization step %d", self.run_id, self.agent.opt_steps)
        if "books" in found.meta:
            return Earlier(**found.meta["books"])
        rows = int(found.meta["inserted"])  # the daemons' own count is in their replay
        return Earlier(produced=rows, inserted=rows, sampled=int(found.meta["sampled"]))

    def train(self) -> Status:
        """Train to the end of the run; its summary."""
        config = self.config
        self._event_log.log_epoch(self._epoch, self.agent.opt_steps)
        loop = TrainingLoop(
            self.agent,
            self.replay,
            self._loader,
            lock_step(config),
            config.learner,
            self,
            learning=self._learning,
            max_opts=config.stop.max_opts,
            batch_size=config.agent.batch_size,
            idle=self._play,
            tick_s=0.0,
        )
        last = loop.run()
        self._evaluate_last(last.exit_reason)
        last = replace(last, unsaved=self._checkpoint_writer.close(_LAST_SAVE_S))
        self._look(last)
        self._evaluation.close()
        self._recorder.close()
        self._event_log.log_end(last.exit_reason)
        return self._write_summary()

    def _play(self) -> None:
        """The learner waits: every actor plays a step."""
        if not self._acting:
            self._acting = True
            for actor in self._actors:
                actor.begin()
        for actor in self._actors:
            actor.play()

    # Evaluating

    def _evaluate_last(self, exit_reason: str) -> None:
        if self._stop or self._gave_up or exit_reason == "target_return":
            return
        over_time = exit_reason == "max_seconds"
        self._play_until = time.monotonic() + _LAST_EVALUATION_S if over_time else math.inf
        newest = self._models.newest
        on = self.config.learner.eval_interval > 0
        if on and newest and self._evaluation.is_newer(newest.model.version):
            self._evaluate(newest.model)

    def _evaluate(self, model: ModelInfo) -> None:
        self._learning = replace(self._learning, opt_steps=model.version)
        waits = f"learner waits: version {model.version:,} is being evaluated"

        def is_cancelled() -> bool:
            """Whether nobody waits for it any more; meanwhile the view goes on."""
            now = time.monotonic()
            if now >= self._next_show:
                self._next_show = now + _SHOW_EVERY_S
                self._account.report(now)
                self._view.show(replace(self.status(), waits=waits))
            self._gave_up = self._is_over(now)
            return self._gave_up

        self._evaluation.evaluate(self._epoch, model, is_cancelled=is_cancelled)
        self._next_show = 0.0  # its curve is drawn where it was played, whatever the clock says

    def _is_over(self, now: float) -> bool:
        """Whether nobody waits for evaluations any more."""
        return bool(self._stop) or now >= self._play_until

    # Surroundings

    def publish(self, agent: Agent) -> None:
        model = agent.model_info()
        self._inserting.lag.on_published(model.version, time.monotonic())
        self._models.write(self._epoch, model)
        if self._evaluation.is_due(model.version) and not self._is_over(time.monotonic()):
            self._evaluate(model)

    def save(self, agent: Agent, learning: TrainerStatus) -> None:
        if learning.phase == "done":  # the last books have what actors had begun
            for actor in self._actors:
                actor.finish()
        state = {"agent": agent.get_state(), "replay": self.replay.get_state()}
        books = self._account.accounting()
        meta = {
            "run_id": self.run_id,
            "epoch": self._epoch,
            # Whoever goes on begins with an empty replay, and daemons compare these two.
            "sampled": 0,
            "inserted": 0,
            "books": {
                "produced": books.produced,
                "inserted": books.inserted,
                "rejected": books.rejected,
                "sampled": self._account.earlier.sampled + learning.sampled,
            },
        }
        self._checkpoint_writer.save(agent.opt_steps, state, meta)
        self._look(learning)
        self._write_summary()

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._recorder.store(record)

    def flush(self, opt_steps: int) -> None:
        self._recorder.flush(opt_steps)

    def tick(self, learning: TrainerStatus) -> str:
        self._inserting.version = learning.opt_steps
        now = time.monotonic()
        if now >= self._next_show:
            self._next_show = now + _SHOW_EVERY_S
            self._look(learning)
            self._view.show(self.status())
        if self._stop:
            return "interrupted"
        board = self._evaluation.board
        return find_exit_reason(
            self.config.stop,
            RunProgress(
                learning.opt_steps,
                self._account.accounting().produced,
                now - self._began,
                board.return_mean,
            ),
        )

    # Telling

    def status(self) -> Status:
        """The contract's status, as of the last look."""
        ingest = self._account.gateway_status(time.monotonic(), len(self.replay))
        sampled = self._account.earlier.sampled + self._learning.sampled
        learning = replace(self._learning, sampled=sampled)
        return assemble_status(self, learning, ingest, self._evaluation.board)

    def _look(self, learning: TrainerStatus) -> None:
        """Keep the learner's word, draw the curves, and say what was rejected."""
        self._learning = learning
        now = time.monotonic()
        self._account.report(now)
        ingest = self._account.gateway_status(now, len(self.replay))
        self._curves.record(now, learning, ingest, self._evaluation.board)
        self._event_log.log_changes(learning, ingest)
        for line in self._inserting.complaints.due_lines(now):
            log.warning("%s", line)

    def _write_summary(self) -> Status:
        status = self.status()
        try:
            write_json(self._run.summary_file, status.as_dict())
        except OSError as error:  # a full disk: training goes on, as without checkpoints
            log.warning("summary.json not written: %s", error.strerror or error)
        return status


def lock_step(config: RunConfig) -> Limiter:
    """Who takes the next step: the learner whenever it may, the actors otherwise.

    `replay.samples_per_insert` is kept to the batch; where it is 0, an optimization step follows
    each step of an actor's row of environments.
    """
    batch = config.agent.batch_size
    rate = make_run_limiter(config).samples_per_insert or batch / config.actors.envs_per_actor
    return Limiter(rate, config.learner.warmup_period, float(batch), batch)


def run_in_process(
    config: RunConfig,
    out: Path,
    *,
    fresh: bool = False,
    note: str = "",
    view: View | None = None,
    signals: bool = False,
) -> Status:
    """Train in this process until the run is over. It seeds torch's own random numbers here.

    Args:
        config: a checked configuration.
        out: the run's directory; one with a checkpoint resumes, with an empty replay.
        fresh: begin anew; a run that is there is erased.
        note: where the configuration comes from: a comment in `config.toml`.
        view: what shows it.
        signals: take SIGTERM and Ctrl-C: the first asks to stop, a second leaves at once.

    Returns:
        The last status, as ``summary.json`` has it.

    Raises:
        RunInUseError: another learner runs here.
        UnsavedEndError: the run has ended, and its end could not be written.
    """
    run = RunDirectory(out)
    run.make()
    run.lock()
    try:
        if fresh:
            erase_run(run)
            run.make()
        publish_config(config, run.config_file, note)
        run.ensure_id(in_process=True)
        with view or QuietView() as shown:
            stop = StopSignals(leave=lambda: exit_at_once(out)) if signals else None
            status = InProcessRun(config, run, view=shown, stop=stop).train()
        if why := describe_unsaved(out, status):
            raise UnsavedEndError(why, status)
    finally:
        run.unlock()
    return status


def _memory_ring(config: RunConfig, layout: ReplayLayout) -> MemoryRing:
    stored, capacity = layout.stored, config.replay.capacity
    guard = layout.guard or default_guard(capacity, stored.itemsize)
    guard = max(guard, config.actors.n_buffer)
    if layout.shared is not None:
        return MemoryFrameRing(stored, capacity, layout.shared, guard=guard)
    return MemoryRing(stored, capacity, guard=guard)


def _replay(config: RunConfig, ring: MemoryRing, epoch: int) -> ReplayBuffer:
    rng = np.random.default_rng([config.seed, epoch])
    if config.replay.prioritized:
        return PrioritizedReplay(ring, rng, config.replay)
    return UniformReplay(ring, rng)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier starts of the run came to, in rows. The replay itself does not outlive them."""

    produced: int = 0
    inserted: int = 0
    rejected: int = 0
    sampled: int = 0


class InProcessAccounting:
    """What was produced, what became of it, and by whom.

    Args:
        run_id: the run's.
        epoch: this start of it.
        earlier: what starts before it came to.
        ring: where samples are.
        inserting: the way into it.
        actors: all of them.
    """

    def __init__(
        self,
        run_id: str,
        epoch: int,
        earlier: Earlier,
        ring: MemoryRing,
        inserting: ReplayInserter,
        actors: Sequence[InProcessActor],
    ) -> None:
        self._run_id, self._epoch, self.earlier = run_id, epoch, earlier
        self._ring, self._inserting, self._actors = ring, inserting, actors
        self._fleet, self._rate = Fleet(), RateMeter()

    def accounting(self) -> SampleAccounting:
        """Over all starts of the run, in rows."""
        earlier = self.earlier
        produced = sum(actor.produced for actor in self._actors)
        inserted, rejected = self._ring.inserted, self._inserting.rejected
        return SampleAccounting(
            produced=earlier.produced + produced,
            inserted=earlier.inserted + inserted,
            rejected=earlier.rejected + rejected,
            in_flight=produced - inserted - rejected,
            lost=earlier.produced - earlier.inserted - earlier.rejected,
        )

    def report(self, now: float) -> None:
        """Take the actors' word, as a manager reports it."""
        report = Report(
            manager="in-process",
            incarnation=self._epoch,
            host=socket.gethostname(),
            state="running",
            run_id=self._run_id,
            produced=self.accounting().produced,
            dropped=0,
            window_batches=0,
            window_rows=0,
            window_bytes=0,
            sequenced=0,
            actors=tuple(actor.report() for actor in self._actors),
        )
        self._fleet.on_report(report, now)

    def gateway_status(self, now: float, rows: int) -> GatewayStatus:
        """What a gateway would tell.

        Args:
            rows: that can be drawn.
        """
        return GatewayStatus(
            samples=Samples(**asdict(self.accounting())),
            managers=self._fleet.status(now),
            replay=Replay(size=rows, bytes=self._ring.total_bytes),
            rates=Rates(samples_per_sec=self._rate.update(self._ring.inserted, now)),
            lag=self._inserting.lag.summarize(),
            rejecting=self._inserting.rejecting,
        )


class InProcessActor:
    """One actor. Seeds and place on the ladder are those that its process would have."""

    def __init__(self, loop: RolloutLoop, batching: TransitionBatcher, number: int) -> None:
        self._loop, self._number, self._batching = loop, number, batching
        self._tally = RecentEpisodes()
        self.produced = 0
        """Rows made so far."""

    def begin(self) -> None:
        """Take the first model, and begin new episodes."""
        self._loop.sync()
        self._loop.begin()

    def play(self) -> None:
        """Step every environment once; a batch that becomes full is inserted."""
        self._push(self._loop.step())

    def finish(self) -> None:
        """Insert even what is unfinished, and close the environments."""
        self._push(self._loop.flush())
        self._batching.flush()
        self._loop.close()

    def _push(self, transitions: Columns) -> None:
        rows = len(transitions["reward"])
        if rows:
            self.produced += rows
            self._batching.push(transitions, self._loop.made_by)

    def report(self) -> ActorReport:
        """How it does, as a manager would tell."""
        self._tally.add(self._loop.pop_finished_episodes())
        return ActorReport(
            id=self._number,
            alive=True,
            restarts=0,
            env_steps=self._loop.env_steps,
            episodes=self._tally.episodes,
            version=max(0, self._loop.acting_on[1]),
            return_mean=self._tally.return_mean,
            length_mean=self._tally.length_mean,
        )


def build_actor(
    config: RunConfig, epoch: int, number: int, inserting: ReplayInserter, models: LatestModelReader
) -> InProcessActor:
    """The actor of this number, from 0, with its environments.

    Raises:
        UnknownEnvironmentError, UnsupportedSpaceError: as they say.
    """
    agent, envs = config.agent, config.actors.envs_per_actor
    env_seed, exploration_seed = actor_seeds(config.seed, number, epoch)
    row = make_vector_environment(config.env, envs, env_seed)
    policy = agent_type(agent.name).build_policy(
        agent,
        row.spaces,
        ranks=exploration_ranks(number * envs, envs),
        seed=exploration_seed,
    )
    made = make_transition_pipeline(inserting.schema, row.spaces, policy, agent, config.actors)
    n_buffer = config.actors.n_buffer
    return InProcessActor(
        RolloutLoop(row, policy, made.processor, models, agent.n_step),
        made.make_batcher(ReplaySlot(inserting, n_buffer, number), n_buffer, lambda: True),
        number,
    )


@dataclass(slots=True)
class ReplayInserter:
    """The replay's writing end, which all actors share.

    Args:
        ring: where samples go.
        schema: what a row must be.
        version: the learner's, now.
        rejected: rows refused.
        rejecting: why the last batch was rejected; "" where one has been inserted since.
        complaints: what is to be said of those.
    """

    ring: MemoryRing
    schema: Schema
    version: int = 0
    rejected: int = 0
    rejecting: str = ""
    complaints: RateLimitedLog = field(default_factory=RateLimitedLog)
    lag: LagMeter = field(default_factory=LagMeter)

    def insert(self, columns: Columns, rows: int, version: int, actor: int) -> None:
        """A batch into the replay, visible at once; one that is unsound is counted, to be said."""
        try:
            self.schema.check_values(columns)
        except SchemaError as error:
            self.rejected += rows
            self.rejecting = str(error)
            self.complaints.add(f"rejected a batch of actor {actor}", self.rejecting)
            return
        self.rejecting = ""
        self.ring.append({**columns, "version": version, "manager": 0, "actor": actor}, rows)
        self.ring.commit()
        self.lag.on_inserted(version, self.version, rows, time.monotonic())


class ReplaySlot:
    """The one slot of an actor's `TransitionBatcher`: what is published is inserted at once."""

    def __init__(self, inserting: ReplayInserter, n_buffer: int, actor: int) -> None:
        self._inserting, self._actor = inserting, actor
        schema = inserting.schema
        self.columns: Columns = empty_columns(schema.row_dtype, n_buffer)
        self._shared = ""
        if schema.sharing is not None:
            entry, self._shared = schema.sharing.column, schema.sharing.column.name
            entries = schema.entries_max(n_buffer, PAYLOAD_MAX_BYTES)
            self.columns[self._shared] = np.empty((entries, *entry.shape), entry.numpy_dtype)

    def publish(self, rows: int, epoch: int, version: int, entries: int = 0) -> None:
        """The slot's first `rows` rows, and the entries they share, are a batch."""
        batch = {
            name: column[: entries if name == self._shared else rows]
            for name, column in self.columns.items()
        }
        self._inserting.insert(batch, rows, version, self._actor)


@dataclass(frozen=True, slots=True)
class EpochModel:
    """A model and the learner's start that made it."""

    epoch: int
    model: ModelInfo

    def info(self) -> ModelInfo:
        """What a policy syncs to."""
        return self.model


class LatestModel:
    """The newest model: one side writes, any number of readers look."""

    def __init__(self) -> None:
        self.seq = 0
        self.newest: EpochModel | None = None
        self._schema: Schema | None = None

    def write(self, epoch: int, model: ModelInfo) -> None:
        """Make a model the newest.

        Raises:
            ModelError: a value is not finite: daemons would not act on it either.
        """
        if self._schema is None:
            self._schema = Schema.from_arrays(model.arrays)
        check_model(model.version, model.arrays, self._schema)
        self.newest = EpochModel(epoch, model)
        self.seq += 1

    def reader(self) -> LatestModelReader:
        """One that has read nothing yet."""
        return LatestModelReader(self)


class LatestModelReader:
    """Where an `RolloutLoop` looks for models."""

    def __init__(self, models: LatestModel) -> None:
        self._models, self._seq = models, 0

    @property
    def has_new(self) -> bool:
        """Whether there is a model that `read` has not returned yet."""
        return self._models.seq != self._seq

    def read(self) -> EpochModel | None:
        """The newest model; None before the first."""
        self._seq = self._models.seq
        return self._models.newest

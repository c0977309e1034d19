"""A run in one process: whoever must wait lets the other side take a step.

Two runs with the same configuration and seed are bit-identical, but for what depends on the clock
(`stop.max_seconds`, a signal).
"""

from __future__ import annotations

import logging
import math
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import Agent, ModelInfo, ReplayBuffer
from vedette_rl.envs.make import probe
from vedette_rl.loading import make_loader
from vedette_rl.networks.seeding import seed_process
from vedette_rl.recording.surviving import SurvivingRecorder
from vedette_rl.replay.frames_ring import MemoryFrameRing
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing, default_guard
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.config import RunConfig, publish_config
from vedette_services.endings import leave_at_once, unsaved
from vedette_services.errors import UnsavedEndError
from vedette_services.in_process.account import Account, Earlier
from vedette_services.in_process.actors import build_actor
from vedette_services.in_process.inserting import Inserting
from vedette_services.in_process.models import NewestModel
from vedette_services.learner.boards import Learning
from vedette_services.learner.chronicle import Chronicle
from vedette_services.learner.curves import Curves
from vedette_services.learner.model_evaluation import ModelEvaluation
from vedette_services.learner.run_recorder import cut_curves_back, open_recorder
from vedette_services.learner.saver import Saver
from vedette_services.learner.status import assemble
from vedette_services.learner.stopping import Progress, exit_reason
from vedette_services.learner.trainer import device_of
from vedette_services.learner.training_loop import TrainingLoop
from vedette_services.live import QuietView, View
from vedette_services.processes import StopSignals
from vedette_services.replay_layout import ReplayLayout, replay_layout
from vedette_services.resuming import erase
from vedette_services.run_directory import RunDirectory, write_json
from vedette_services.run_replay import run_limiter

log = logging.getLogger("vedette.in_process")

_SHOW_EVERY_S = 0.5
_LAST_SAVE_S = 60.0
_LAST_EVALUATION_S = 60.0  # beyond `stop.max_seconds`, as a learner daemon's


class InProcessRun:
    """The learner, its actors and its evaluator; the `Surroundings` of the training loop."""

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
        self._chronicle = Chronicle(run.events_file)
        self._chronicle.started(f"in one process on {socket.gethostname()}")
        torch.set_num_threads(config.learner.torch_threads)
        seed_process(config.seed, self._epoch)
        device, spaces = device_of(config.learner.device), probe(config.env)
        self.agent: Agent = agent_type(config.agent.name).build_agent(
            config.agent, spaces, device=str(device), seed=config.seed
        )
        layout = replay_layout(config, spaces)
        self.ring = _memory_ring(config, layout)
        self.replay = _replay(config, self.ring, self._epoch)
        self._checkpoints = Checkpoints(run.checkpoints, keep=config.learner.keep_checkpoints)
        earlier = self._resume()
        self._loader = make_loader(self.replay, config.agent.batch_size, device)
        self._models = NewestModel()
        self._inserting = Inserting(self.ring, layout.schema)
        self._actors = [
            build_actor(config, self._epoch, number, self._inserting, self._models.reader())
            for number in range(config.actors.count)
        ]
        self._evaluation = ModelEvaluation(config, self.run_id, run.best)
        self._recorder = SurvivingRecorder(lambda: open_recorder(config, run.root))
        recorded = cut_curves_back(run.tensorboard, self.agent.opt_steps)
        self._curves = Curves(self._recorder, recorded)
        self._saver = Saver(self._checkpoints)
        self._account = Account(
            self.run_id, self._epoch, earlier, self.ring, self._inserting, self._actors
        )
        self._learning = Learning(epoch=self._epoch, opt_steps=self.agent.opt_steps)
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

    def train(self) -> dict[str, Any]:
        """Train to the end of the run; its summary."""
        config = self.config
        self._chronicle.epoch(self._epoch, self.agent.opt_steps)
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
        last = replace(last, unsaved=self._saver.close(_LAST_SAVE_S))
        self._look(last)
        self._evaluation.close()
        self._recorder.close()
        self._chronicle.ended(last.exit_reason)
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

        def given_up() -> bool:
            """Whether nobody waits for it any more; meanwhile the view goes on."""
            now = time.monotonic()
            if now >= self._next_show:
                self._next_show = now + _SHOW_EVERY_S
                self._account.report(now)
                self._view.show({**self.status(), "waits": waits})
            self._gave_up = self._is_over(now)
            return self._gave_up

        self._evaluation.evaluate(self._epoch, model, given_up=given_up)
        self._next_show = 0.0  # its curve is drawn where it was played, whatever the clock says

    def _is_over(self, now: float) -> bool:
        """Whether nobody waits for evaluations any more."""
        return bool(self._stop) or now >= self._play_until

    # Surroundings

    def publish(self, agent: Agent) -> None:
        model = agent.model_info()
        self._inserting.lag.published(model.version, time.monotonic())
        self._models.write(self._epoch, model)
        if self._evaluation.due(model.version) and not self._is_over(time.monotonic()):
            self._evaluate(model)

    def save(self, agent: Agent, learning: Learning) -> None:
        if learning.phase == "done":  # the last books have what actors had begun
            for actor in self._actors:
                actor.finish()
        state = {"agent": agent.get_state(), "replay": self.replay.get_state()}
        books = self._account.books()
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
        self._saver.save(agent.opt_steps, state, meta)
        self._look(learning)
        self._write_summary()

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._recorder.store(record)

    def flush(self, opt_steps: int) -> None:
        self._recorder.flush(opt_steps)

    def tick(self, learning: Learning) -> str:
        self._inserting.version = learning.opt_steps
        now = time.monotonic()
        if now >= self._next_show:
            self._next_show = now + _SHOW_EVERY_S
            self._look(learning)
            self._view.show(self.status())
        if self._stop:
            return "interrupted"
        board = self._evaluation.board
        return exit_reason(
            self.config.stop,
            Progress(
                learning.opt_steps,
                self._account.books().produced,
                now - self._began,
                board.return_mean if board.count else None,
            ),
        )

    # Telling

    def status(self) -> dict[str, Any]:
        """The contract's status, as of the last look."""
        ingest = self._account.ingest(time.monotonic(), len(self.replay))
        sampled = self._account.earlier.sampled + self._learning.sampled
        learning = replace(self._learning, sampled=sampled)
        return assemble(self, learning, ingest, self._evaluation.board)

    def _look(self, learning: Learning) -> None:
        """Keep the learner's word, draw the curves, and say what was rejected."""
        self._learning = learning
        now = time.monotonic()
        self._account.report(now)
        ingest = self._account.ingest(now, len(self.replay))
        self._curves.look(now, learning, ingest, self._evaluation.board)
        self._chronicle.look(learning, ingest)
        for line in self._inserting.complaints.due(now):
            log.warning("%s", line)

    def _write_summary(self) -> dict[str, Any]:
        status = self.status()
        try:
            write_json(self._run.summary_file, status)
        except OSError as error:  # a full disk: training goes on, as without checkpoints
            log.warning("summary.json not written: %s", error.strerror or error)
        return status


def lock_step(config: RunConfig) -> Limiter:
    """Who takes the next step: the learner whenever it may, the actors otherwise.

    `replay.samples_per_insert` is kept to the batch; where it is 0, an optimization step follows
    each step of an actor's row of environments.
    """
    batch = config.agent.batch_size
    rate = run_limiter(config).samples_per_insert or batch / config.actors.envs_per_actor
    return Limiter(rate, config.learner.warmup_period, float(batch), batch)


def run_in_process(
    config: RunConfig,
    out: Path,
    *,
    fresh: bool = False,
    note: str = "",
    view: View | None = None,
    signals: bool = False,
) -> dict[str, Any]:
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
            erase(run)
            run.make()
        publish_config(config, run.config_file, note)
        run.ensure_id(in_process=True)
        with view or QuietView() as shown:
            stop = StopSignals(leave=lambda: leave_at_once(out)) if signals else None
            status = InProcessRun(config, run, view=shown, stop=stop).train()
        if why := unsaved(out, status):
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

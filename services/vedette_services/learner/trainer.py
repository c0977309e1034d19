"""The trainer process: it owns the agent and reads the replay."""

from __future__ import annotations

import logging
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import Agent, ReplayBuffer
from vedette_rl.envs.make import probe_environment
from vedette_rl.errors import ReplayTornError
from vedette_rl.loading import make_loader
from vedette_rl.networks.seeding import seed_process
from vedette_rl.recording.surviving import SurvivingRecorder
from vedette_rl.replay.frames_ring import open_reader
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import StopSignals, WakeupEvent, die_with_parent
from vedette_services.learner.background import SWITCH_S, BackgroundPublisher, CheckpointWriter
from vedette_services.learner.run_recorder import CurveRecorder, open_recorder, truncate_curves
from vedette_services.learner.training_loop import RunProgress, TrainingLoop, find_exit_reason
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.run.replay_layout import make_run_limiter, replay_directory
from vedette_services.run.spec import LearnerSpec
from vedette_services.run.status import Eval
from vedette_services.run.status_records import (
    GatewayStatus,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)

log = logging.getLogger("vedette.trainer")

_LAST_SAVE_S = 60.0
_LAST_MODEL_S = 20.0


class Trainer:
    """The agent, its replay and its maps; the `LoopCallbacks` of the training loop."""

    def __init__(
        self, spec: LearnerSpec, epoch: int, wakeup: WakeupEvent, stop: StopSignals
    ) -> None:
        config = spec.config
        self._spec, self._epoch, self._stop = spec, epoch, stop
        self._began = time.monotonic()
        torch.set_num_threads(config.learner.torch_threads)
        seed_process(config.seed, epoch)
        device = resolve_device(config.learner.device)
        self.agent: Agent = agent_type(config.agent.name).build_agent(
            config.agent, probe_environment(config.env), device=str(device), seed=config.seed
        )
        self._checkpoints = Checkpoints(spec.run.checkpoints, keep=config.learner.keep_checkpoints)
        self.learning = TrainerStatus(epoch=epoch)
        self.replay = open_replay(spec, epoch)
        self._resume()
        self.loader = make_loader(self.replay, config.agent.batch_size, device)
        schema = Schema.from_arrays(self.agent.model_info().arrays)
        self._models = BackgroundPublisher(
            ModelMapWriter(spec.run.model_map, schema), epoch, wakeup.set
        )
        self._recorder = SurvivingRecorder(lambda: open_recorder(config, spec.run.root))
        recorded = truncate_curves(spec.run.tensorboard, self.agent.opt_steps)
        self._curves = CurveRecorder(self._recorder, spec, recorded)
        self._checkpoint_writer = CheckpointWriter(self._checkpoints)
        self._board = StatusRecordWriter(spec.run.learning_map, TrainerStatus)
        self._ingest = StatusRecordReader(spec.run.ingest_map, GatewayStatus)
        self._evaluations = StatusRecordReader(spec.run.evaluation_map, Eval)

    def _resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        found = self._checkpoints.load_latest()
        if found is None:
            if rows := self.replay.inserted:
                log.warning(
                    "no checkpoint in %s: it learns from the beginning, on the %s samples of the "
                    "replay",
                    self._checkpoints.root,
                    f"{rows:,}",
                )
            return
        for warning in found.skipped:
            log.warning("%s", warning)
        self.agent.set_state(found.state["agent"])
        self.replay.set_state(found.state["replay"])
        self.learning = TrainerStatus(
            epoch=self._epoch, opt_steps=self.agent.opt_steps, sampled=int(found.meta["sampled"])
        )
        log.info("resuming run %s at optimization step %d", self._spec.run_id, self.agent.opt_steps)

    def run(self) -> None:
        """Train to the end of the run."""
        config = self._spec.config
        self._board.write(self.learning)
        loop = TrainingLoop(
            self.agent,
            self.replay,
            self.loader,
            make_run_limiter(config),
            config.learner,
            self,
            learning=self.learning,
            max_opts=config.stop.max_opts,
            batch_size=config.agent.batch_size,
        )
        last = loop.run()
        last = replace(last, unsaved=self._checkpoint_writer.close(_LAST_SAVE_S))
        if last.unsaved:
            log.warning("the last checkpoint is not written: %s", last.unsaved)
        self._models.close(_LAST_MODEL_S)
        self._recorder.close()
        self._tell(last)

    # Surroundings

    def publish(self, agent: Agent) -> None:
        self._models.publish(agent.model_info())

    def save(self, agent: Agent, learning: TrainerStatus) -> None:
        state = {"agent": agent.get_state(), "replay": self.replay.get_state()}
        evaluations = self._evaluations.read()
        meta = {
            "run_id": self._spec.run_id,
            "epoch": self._epoch,
            "sampled": learning.sampled,
            "inserted": self.replay.inserted,
            "best_return_mean": evaluations.best_return_mean,
            "best_version": evaluations.best_version,
        }
        self._checkpoint_writer.save(agent.opt_steps, state, meta)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._recorder.store(record)

    def flush(self, opt_steps: int) -> None:
        self._recorder.flush(opt_steps)

    def tick(self, learning: TrainerStatus) -> str:
        self._models.raise_failure()
        now = time.monotonic()
        ingest, evaluations = self._ingest.read(), self._evaluations.read()
        self._tell(learning)
        if ingest.samples:
            self._curves.record(now, learning, ingest, evaluations)
        if self._stop:
            return "interrupted"
        return find_exit_reason(
            self._spec.config.stop,
            RunProgress(
                learning.opt_steps,
                ingest.produced,
                now - self._began,
                evaluations.best_return_mean,
            ),
        )

    def _tell(self, learning: TrainerStatus) -> None:
        self._board.write(replace(learning, seconds=time.monotonic() - self._began))


def resolve_device(name: str) -> torch.device:
    """The device that `learner.device` means."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def main() -> None:
    """`python -m vedette_services.learner.trainer RUN EPOCH BELL`"""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    sys.setswitchinterval(SWITCH_S)
    set_up_logging()
    root, epoch, wakeup = Path(sys.argv[1]), int(sys.argv[2]), WakeupEvent(int(sys.argv[3]))
    set_log_context(epoch=epoch)
    stop = StopSignals(signals=(signal.SIGTERM,))
    with report_exit():
        Trainer(LearnerSpec.read(root), epoch, wakeup, stop).run()


_WAIT_S = 30.0  # for the gateway to have made it


def open_replay(spec: LearnerSpec, epoch: int) -> ReplayBuffer:
    """The replay to draw from, once the gateway has made it.

    Args:
        epoch: makes every start draw otherwise, where no checkpoint says how to go on.

    Raises:
        ReplayFormatError: there is none after half a minute, or it is torn. Priorities alone that
            are torn are made anew.
        ReplayBudgetError: the disk has no room for the priorities.
    """
    replay = spec.config.replay
    directory = replay_directory(spec.config, spec.run.root)
    deadline = time.monotonic() + _WAIT_S
    while not (directory / MANIFEST).exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # the gateway is another process: there is nothing to wait on
    rng = np.random.default_rng([spec.config.seed, epoch])
    ring = open_reader(directory)
    if replay.prioritized:
        return PrioritizedReplay(ring, rng, replay, memory=_priorities(ring))
    return UniformReplay(ring, rng)


def _priorities(ring: RingReader) -> NDArray[np.float64]:
    """The priorities that were left, or new ones where those are damaged: no sample is lost."""
    try:
        return open_priorities(ring)
    except ReplayTornError as error:
        log.warning("%s %s: priorities begin anew, all samples count as new", error.path, error.why)
        error.path.unlink()
        return open_priorities(ring)


if __name__ == "__main__":
    main()

"""The trainer process: it owns the agent and reads the replay."""

from __future__ import annotations

import logging
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import Agent
from vedette_rl.envs.make import probe
from vedette_rl.loading import make_loader
from vedette_rl.networks.seeding import seed_process
from vedette_rl.recording.surviving import SurvivingRecorder
from vedette_services.bell import Bell
from vedette_services.last_words import told_to_the_supervisor
from vedette_services.learner.boards import BoardReader, BoardWriter, Evaluations, Ingest, Learning
from vedette_services.learner.curves import Curves
from vedette_services.learner.model_outlet import ModelOutlet
from vedette_services.learner.opening import open_replay
from vedette_services.learner.run_recorder import cut_curves_back, open_recorder
from vedette_services.learner.saver import SWITCH_S, Saver
from vedette_services.learner.spec import LearnerSpec
from vedette_services.learner.stopping import Progress, exit_reason
from vedette_services.learner.training_loop import TrainingLoop
from vedette_services.logs import place_log, set_up_logging
from vedette_services.model_map import ModelMapWriter
from vedette_services.processes import StopSignals, die_with_parent
from vedette_services.run_replay import run_limiter

log = logging.getLogger("vedette.trainer")

_LAST_SAVE_S = 60.0
_LAST_MODEL_S = 20.0


class Trainer:
    """The agent, its replay and its maps; the `Surroundings` of the training loop."""

    def __init__(self, spec: LearnerSpec, epoch: int, bell: Bell, stop: StopSignals) -> None:
        config = spec.config
        self._spec, self._epoch, self._stop = spec, epoch, stop
        self._began = time.monotonic()
        torch.set_num_threads(config.learner.torch_threads)
        seed_process(config.seed, epoch)
        device = device_of(config.learner.device)
        self.agent: Agent = agent_type(config.agent.name).build_agent(
            config.agent, probe(config.env), device=str(device), seed=config.seed
        )
        self._checkpoints = Checkpoints(spec.run.checkpoints, keep=config.learner.keep_checkpoints)
        self.learning = Learning(epoch=epoch)
        self.replay = open_replay(spec, epoch)
        self._resume()
        self.loader = make_loader(self.replay, config.agent.batch_size, device)
        schema = Schema.from_arrays(self.agent.model_info().arrays)
        self._models = ModelOutlet(ModelMapWriter(spec.run.model_map, schema), epoch, bell.ring)
        self._recorder = SurvivingRecorder(lambda: open_recorder(config, spec.run.root))
        recorded = cut_curves_back(spec.run.tensorboard, self.agent.opt_steps)
        self._curves = Curves(self._recorder, recorded)
        self._saver = Saver(self._checkpoints)
        self._board = BoardWriter(spec.run.learning_map, Learning)
        self._ingest = BoardReader(spec.run.ingest_map, Ingest)
        self._evaluations = BoardReader(spec.run.evaluation_map, Evaluations)

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
        self.learning = Learning(
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
            run_limiter(config),
            config.learner,
            self,
            learning=self.learning,
            max_opts=config.stop.max_opts,
            batch_size=config.agent.batch_size,
        )
        last = loop.run()
        last = replace(last, unsaved=self._saver.close(_LAST_SAVE_S))
        if last.unsaved:
            log.warning("the last checkpoint is not written: %s", last.unsaved)
        self._models.close(_LAST_MODEL_S)
        self._recorder.close()
        self._tell(last)

    # Surroundings

    def publish(self, agent: Agent) -> None:
        self._models.publish(agent.model_info())

    def save(self, agent: Agent, learning: Learning) -> None:
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
        self._saver.save(agent.opt_steps, state, meta)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._recorder.store(record)

    def flush(self, opt_steps: int) -> None:
        self._recorder.flush(opt_steps)

    def tick(self, learning: Learning) -> str:
        self._models.check()
        now = time.monotonic()
        ingest, evaluations = self._ingest.read(), self._evaluations.read()
        self._tell(learning)
        if ingest.samples:
            self._curves.look(now, learning, ingest, evaluations)
        if self._stop:
            return "interrupted"
        return exit_reason(
            self._spec.config.stop,
            Progress(
                learning.opt_steps,
                ingest.samples.get("produced", 0),
                now - self._began,
                evaluations.best_return_mean if evaluations.best_version >= 0 else None,
            ),
        )

    def _tell(self, learning: Learning) -> None:
        self._board.write(replace(learning, seconds=time.monotonic() - self._began))


def device_of(name: str) -> torch.device:
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
    root, epoch, bell = Path(sys.argv[1]), int(sys.argv[2]), Bell(int(sys.argv[3]))
    place_log(epoch=epoch)
    stop = StopSignals(signals=(signal.SIGTERM,))
    with told_to_the_supervisor():
        Trainer(LearnerSpec.read(root), epoch, bell, stop).run()


if __name__ == "__main__":
    main()

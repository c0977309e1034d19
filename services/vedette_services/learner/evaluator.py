"""The evaluator process: it plays the newest model, and keeps the best one."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import read_state, write_state
from vedette_rl.core import Evaluation
from vedette_rl.envs.make import probe
from vedette_rl.errors import CheckpointError
from vedette_rl.evaluation.greedy import GreedyEvaluator
from vedette_services.learner.boards import BoardReader, BoardWriter, Evaluations, Learning
from vedette_services.learner.spec import LearnerSpec
from vedette_services.model_map import MappedModel, ModelMapReader
from vedette_services.processes import die_with_parent

log = logging.getLogger("vedette.evaluator")

_POLL_S = 0.05
_NICE = 5  # playing must not take the trainer's core


class EvaluatorProcess:
    """Evaluates every `eval_interval` optimization steps, skipping to the newest model."""

    def __init__(self, spec: LearnerSpec) -> None:
        config = spec.config
        self._spec, self._interval = spec, config.learner.eval_interval
        self._evaluator = GreedyEvaluator(
            config.env, config.evaluation.episodes, config.evaluation.seed
        )
        self._policy = agent_type(config.agent.name).build_policy(
            config.agent, probe(config.env), positions=np.zeros(1), seed=config.seed
        )
        self._models = ModelMapReader(spec.run.model_map)
        self._learning = BoardReader(spec.run.learning_map, Learning)
        self._writer = BoardWriter(spec.run.evaluation_map, Evaluations)
        self._best, self._best_version = self._found_best()
        self._board = Evaluations(
            best_return_mean=self._best or 0.0, best_version=self._best_version
        )
        self._unwritten: tuple[MappedModel, Evaluation] | None = None
        self._next = 0  # the version from which on the next evaluation is due
        self._writer.write(self._board)

    def _found_best(self) -> tuple[float | None, int]:
        """The best model of an earlier start of this run."""
        try:
            _, meta = read_state(self._spec.run.best)
        except CheckpointError:
            return None, -1  # there is none yet, or it is torn: the next evaluation writes one
        return float(meta["return_mean"]), int(meta["version"])

    def run(self) -> None:
        """Evaluate until the trainer is done, then its last model."""
        model: MappedModel | None = None
        while self._interval:
            learning = self._learning.read()
            done = learning.phase == "done"
            if self._models.fresh:
                model = self._models.read()
            if model is not None and (model.version >= self._next or self._is_last(model, done)):
                self._evaluate(model)
            elif done:
                break
            else:
                time.sleep(_POLL_S)  # the maps have no event to wait for
        self._evaluator.close()

    def _is_last(self, model: MappedModel, done: bool) -> bool:
        return done and model.version > max(0, self._board.version)

    def _evaluate(self, model: MappedModel) -> None:
        self._next = (model.version // self._interval + 1) * self._interval
        if model.version == 0 or model.version == self._board.version:
            return  # nothing has been learned yet, or nothing since
        self._policy.sync_model(model.info())
        began = time.monotonic()
        found = self._evaluator.evaluate(self._policy, model.version)
        if self._best is None or found.return_mean > self._best:
            self._unwritten = (model, found)
            self._best, self._best_version = found.return_mean, model.version
        if self._unwritten is not None:
            self._keep(*self._unwritten)
        self._board = Evaluations(
            count=self._board.count + 1,
            version=found.version,
            return_mean=found.return_mean,
            return_std=found.return_std,
            length_mean=found.length_mean,
            episodes=found.episodes,
            best_return_mean=self._best if self._best is not None else 0.0,
            best_version=self._best_version,
        )
        self._writer.write(self._board)
        log.info(
            "version %d returns %.1f ± %.1f over %d episodes (%.1f s)",
            found.version,
            found.return_mean,
            found.return_std,
            found.episodes,
            time.monotonic() - began,
        )

    def _keep(self, model: MappedModel, found: Evaluation) -> None:
        """Strictly better than all before: RUN/best is what `eval` and `export` read."""
        meta = {
            "run_id": self._spec.run_id,
            "epoch": model.epoch,
            "version": model.version,
            "return_mean": found.return_mean,
            "return_std": found.return_std,
            "episodes": found.episodes,
            "seed": found.seed,
        }
        try:
            write_state(self._spec.run.best, {"model": dict(model.info().arrays)}, meta)
        except CheckpointError as error:
            log.warning("%s; tried again after the next evaluation", error)
            return
        self._unwritten = None


def main() -> None:
    """`python -m vedette_services.learner.evaluator RUN`"""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    os.nice(_NICE)
    EvaluatorProcess(LearnerSpec.read(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()

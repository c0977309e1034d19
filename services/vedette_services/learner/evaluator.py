"""The evaluator process: it plays the newest model, and keeps the best one."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Evaluation, ModelInfo
from vedette_rl.envs.make import probe_environment
from vedette_rl.errors import CheckpointError, EnvironmentFaultError, EvaluationCancelledError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.storage.state_file import read_state, write_state
from vedette_services.config.run_config import RunConfig
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import die_with_parent
from vedette_services.run.model_map import MappedModel, ModelMapReader
from vedette_services.run.spec import LearnerSpec
from vedette_services.run.status import Eval
from vedette_services.run.status_records import (
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)

_POLL_S = 0.05
_NICE = 5  # playing must not take the trainer's core


class EvaluatorProcess:
    """Evaluates every `eval_interval` optimization steps, skipping to the newest model."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._interval = spec.config.learner.eval_interval
        self._evaluation = ModelEvaluation(spec.config, spec.run_id, spec.run.best)
        self._models = ModelMapReader(spec.run.model_map)
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._writer = StatusRecordWriter(spec.run.evaluation_map, Eval)
        self._writer.write(self._evaluation.board)

    def run(self) -> None:
        """Evaluate until the trainer is done, then its last model."""
        model: MappedModel | None = None
        while self._interval:
            done = self._learning.read().phase == "done"
            if self._models.has_new:
                model = self._read_newest_model()
            if model is not None and self._should_evaluate(model.version, done):
                set_log_context(epoch=model.epoch)
                if self._evaluation.evaluate(model.epoch, model.info()):
                    self._writer.write(self._evaluation.board)
            elif done:
                break
            else:
                time.sleep(_POLL_S)  # the maps have no event to wait for
        self._evaluation.close()

    def _read_newest_model(self) -> MappedModel | None:
        """The newest model, unless an earlier start left it: the trainer may have gone back."""
        model = self._models.read()
        return model if model and model.epoch >= self._learning.read().epoch else None

    def _should_evaluate(self, version: int, done: bool) -> bool:
        last = done and self._evaluation.is_newer(version)
        return last or self._evaluation.is_due(version)


def main() -> None:
    """`python -m vedette_services.learner.evaluator RUN`"""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    set_up_logging()
    os.nice(_NICE)
    with report_exit():
        EvaluatorProcess(LearnerSpec.read(Path(sys.argv[1]))).run()


log = logging.getLogger("vedette.evaluator")


class ModelEvaluation:
    """Evaluations of one run, every `eval_interval` optimization steps.

    Args:
        config: the run's.
        run_id: noted beside the best model.
        best: the directory of the best model, which goes on from an earlier start of the run.
    """

    def __init__(self, config: RunConfig, run_id: str, best: Path) -> None:
        self._interval, self._run_id, self._best_place = (
            config.learner.eval_interval,
            run_id,
            best,
        )
        self._evaluator = GreedyEvaluator(
            config.env, config.evaluation.episodes, config.evaluation.seed
        )
        self._policy = agent_kind(config.agent.name).build_policy(
            config.agent, probe_environment(config.env), ranks=np.zeros(1), seed=config.seed
        )
        self._best, self._best_version = self._read_best()
        self.board = Eval(best_return_mean=self._best, best_version=self._best_version)
        """The last evaluation and the best one."""
        self._unwritten: tuple[int, ModelInfo, Evaluation] | None = None
        self._next = 0  # the version from which on the next evaluation is due

    def _read_best(self) -> tuple[float | None, int | None]:
        """The best model of an earlier start of this run."""
        try:
            _, meta = read_state(self._best_place)
        except CheckpointError:
            return None, None  # there is none yet, or it is torn: the next evaluation writes one
        return float(meta["return_mean"]), int(meta["version"])

    def is_due(self, version: int) -> bool:
        """Whether a model of this version is to be evaluated."""
        return self._interval > 0 and version >= self._next

    def is_newer(self, version: int) -> bool:
        """Whether more was learned than the last model evaluated knew."""
        return version > (self.board.version or 0)

    def evaluate(
        self, epoch: int, model: ModelInfo, *, is_cancelled: Callable[[], bool] = lambda: False
    ) -> bool:
        """Play a model; False if it is none to play: nothing was learned yet, or nothing since.

        An evaluation in which the environment gives what is not finite is said, and does not count;
        nor does one that is given up.

        Args:
            epoch: the learner's start that made it.
            model: what is played.
            is_cancelled: asked before every step: whether nobody waits for it any more.
        """
        self._next = (model.version // self._interval + 1) * self._interval
        if model.version in (0, self.board.version):
            return False
        self._policy.sync_model(model)
        began = time.monotonic()
        try:
            found = self._evaluator.evaluate(self._policy, model.version, is_cancelled=is_cancelled)
        except EvaluationCancelledError as error:
            log.warning("%s", error)
            return False
        except EnvironmentFaultError as error:
            log.warning("the evaluation of version %d does not count: %s", model.version, error)
            return False
        if self._best is None or found.return_mean > self._best:
            self._unwritten = (epoch, model, found)
            self._best, self._best_version = found.return_mean, model.version
        if self._unwritten is not None:
            self._save_best(*self._unwritten)
        self.board = Eval(
            version=found.version,
            return_mean=found.return_mean,
            return_std=found.return_std,
            return_min=min(found.returns),
            return_max=max(found.returns),
            length_mean=found.length_mean,
            episodes=found.episodes,
            best_return_mean=self._best,
            best_version=self._best_version,
        )
        log.info(
            "version %d returns %.1f ± %.1f over %d episodes (%.1f s)",
            found.version,
            found.return_mean,
            found.return_std,
            found.episodes,
            time.monotonic() - began,
        )
        return True

    def _save_best(self, epoch: int, model: ModelInfo, found: Evaluation) -> None:
        """Strictly better than all before: RUN/best is what `eval` and `export` read."""
        meta = {
            "run_id": self._run_id,
            "epoch": epoch,
            "version": model.version,
            "return_mean": found.return_mean,
            "return_std": found.return_std,
            "episodes": found.episodes,
            "seed": found.seed,
        }
        try:
            write_state(self._best_place, {"model": dict(model.arrays)}, meta)
        except CheckpointError as error:
            log.warning("%s; tried again after the next evaluation", error)
            return
        self._unwritten = None

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()


if __name__ == "__main__":
    main()

"""The evaluator process plays the latest model and keeps the best one."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vedette_rl.core import Evaluation, ModelInfo
from vedette_rl.errors import CheckpointError, EnvironmentFaultError, EvaluationCancelledError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.storage.state_file import write_state
from vedette_services.config.run_config import RunConfig
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import die_with_parent, ignore_stop_signals
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.finished import build_greedy_policy
from vedette_services.run.model_map import MappedModel, ModelMapReader
from vedette_services.run.status import Eval
from vedette_services.run.status_records import (
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
    read_best,
)

_POLL_S = 0.05
_LOG_EVERY_S = 1.0  # a small network is evaluated many times a second
_NICE = 5  # playing must not take the trainer's core


class EvaluatorProcess:
    """Evaluates the latest model every `eval_interval` optimization steps."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._interval = spec.config.learner.eval_interval
        self._evaluation = ModelEvaluation(spec.config, spec.run_id, spec.run.best)
        self._models = ModelMapReader(spec.run.model_map)
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._writer = StatusRecordWriter(spec.run.evaluation_map, Eval)
        self._writer.write(self._evaluation.status)

    def run(self) -> None:
        """Evaluate until the trainer has ended, then its last model."""
        model: MappedModel | None = None
        while self._interval:
            done = self._learning.read().phase == "done"
            if self._models.has_new:
                model = self._read_latest_model()
            if model is not None and self._should_evaluate(model.version, done):
                set_log_context(epoch=model.epoch)
                if self._evaluation.evaluate(model.epoch, model.info(), model.env_steps):
                    self._writer.write(self._evaluation.status)
            elif done:
                break
            else:
                time.sleep(_POLL_S)  # the maps have no event to wait for
        self._evaluation.close()

    def _read_latest_model(self) -> MappedModel | None:
        """Read the latest model; None if it is of an earlier epoch, which may be ahead."""
        model = self._models.read()
        return model if model and model.epoch >= self._learning.read().epoch else None

    def _should_evaluate(self, version: int, done: bool) -> bool:
        last = done and self._evaluation.is_newer(version)
        return last or self._evaluation.is_due(version)


def main() -> None:
    """`python -m vedette_services.learner.evaluator RUN`"""
    die_with_parent()
    ignore_stop_signals()
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
        best: directory of the best model, perhaps of an earlier start of the run.
    """

    def __init__(self, config: RunConfig, run_id: str, best: Path) -> None:
        self._interval = config.learner.eval_interval
        self._run_id, self._best_directory = run_id, best
        own = config.evaluation
        self._evaluator = GreedyEvaluator(
            config.env,
            own.episodes,
            own.seed,
            max_episode_steps=own.max_episode_steps,
            make_processes=ProcessEnvs,
        )
        self._policy = build_greedy_policy(config)
        self.status = read_best(best)
        """The last evaluation and the best one."""
        self._unwritten: tuple[int, ModelInfo, int, Evaluation] | None = None
        self._log_at = -math.inf
        self._next = 0  # the version from which on the next evaluation is due

    def is_due(self, version: int) -> bool:
        """Return True if a model of this version is to be evaluated."""
        return self._interval > 0 and version >= self._next

    def is_newer(self, version: int) -> bool:
        """Return True if this version is newer than the last one evaluated."""
        return version > (self.status.version or 0)

    def evaluate(
        self,
        epoch: int,
        model: ModelInfo,
        env_steps: int,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Play a model and update `status`.

        An evaluation that is cancelled, or whose environment gives values that are not finite, is
        logged and does not count.

        Args:
            epoch: the learner's start that made the model.
            env_steps: environment steps in the replay when it was made.
            is_cancelled: called before every step; True ends the evaluation.

        Returns:
            False if there is no new result: the model has learned nothing, was evaluated before, or
            the evaluation does not count.
        """
        self._next = (model.version // self._interval + 1) * self._interval
        if model.version in (0, self.status.version):
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
        best, best_version = self.status.best_return_mean, self.status.best_version
        if best is None or found.return_mean > best:
            self._unwritten = (epoch, model, env_steps, found)
            best, best_version = found.return_mean, model.version
        if self._unwritten is not None:
            self._save_best(*self._unwritten)
        self.status = Eval(
            version=found.version,
            env_steps=env_steps,
            return_mean=found.return_mean,
            return_std=found.return_std,
            return_min=min(found.returns),
            return_max=max(found.returns),
            length_mean=found.length_mean,
            episodes=found.episodes,
            episodes_cut=found.cut,
            best_return_mean=best,
            best_version=best_version,
        )
        self._log(found, time.monotonic() - began)
        return True

    def _log(self, found: Evaluation, took_s: float) -> None:
        """Log an evaluation, at most one a second at the level of information."""
        is_due = time.monotonic() >= self._log_at
        if is_due:
            self._log_at = time.monotonic() + _LOG_EVERY_S
        cut = f", {found.cut} of them cut at {found.max_episode_steps:,} steps" if found.cut else ""
        log.log(
            logging.INFO if is_due else logging.DEBUG,
            "version %d returns %.1f ± %.1f over %d episodes%s (%.1f s)",
            found.version,
            found.return_mean,
            found.return_std,
            found.episodes,
            cut,
            took_s,
        )

    def _save_best(self, epoch: int, model: ModelInfo, env_steps: int, found: Evaluation) -> None:
        """Write ``RUN/best``, which `eval` and `export` read."""
        meta = {
            "run_id": self._run_id,
            "epoch": epoch,
            "version": model.version,
            "env_steps": env_steps,
            "return_mean": found.return_mean,
            "return_std": found.return_std,
            "episodes": found.episodes,
            "episodes_cut": found.cut,
            "seed": found.seed,
        }
        try:
            write_state(self._best_directory, {"model": dict(model.arrays)}, meta)
        except CheckpointError as error:
            log.warning("%s; tried again after the next evaluation", error)
            return
        self._unwritten = None

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()


if __name__ == "__main__":
    main()

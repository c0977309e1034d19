"""The evaluator process: it plays the newest model, and keeps the best one."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from vedette_services.last_words import told_to_the_supervisor
from vedette_services.learner.boards import BoardReader, BoardWriter, Evaluations, Learning
from vedette_services.learner.model_evaluation import ModelEvaluation
from vedette_services.learner.spec import LearnerSpec
from vedette_services.logs import place_log, set_up_logging
from vedette_services.model_map import MappedModel, ModelMapReader
from vedette_services.processes import die_with_parent

_POLL_S = 0.05
_NICE = 5  # playing must not take the trainer's core


class EvaluatorProcess:
    """Evaluates every `eval_interval` optimization steps, skipping to the newest model."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._interval = spec.config.learner.eval_interval
        self._evaluation = ModelEvaluation(spec.config, spec.run_id, spec.run.best)
        self._models = ModelMapReader(spec.run.model_map)
        self._learning = BoardReader(spec.run.learning_map, Learning)
        self._writer = BoardWriter(spec.run.evaluation_map, Evaluations)
        self._writer.write(self._evaluation.board)

    def run(self) -> None:
        """Evaluate until the trainer is done, then its last model."""
        model: MappedModel | None = None
        while self._interval:
            done = self._learning.read().phase == "done"
            if self._models.fresh:
                model = self._newest()
            if model is not None and self._is_to_be_played(model.version, done):
                place_log(epoch=model.epoch)
                if self._evaluation.evaluate(model.epoch, model.info()):
                    self._writer.write(self._evaluation.board)
            elif done:
                break
            else:
                time.sleep(_POLL_S)  # the maps have no event to wait for
        self._evaluation.close()

    def _newest(self) -> MappedModel | None:
        """The newest model, unless an earlier start left it: the trainer may have gone back."""
        model = self._models.read()
        return model if model and model.epoch >= self._learning.read().epoch else None

    def _is_to_be_played(self, version: int, done: bool) -> bool:
        last = done and self._evaluation.is_newer(version)
        return last or self._evaluation.due(version)


def main() -> None:
    """`python -m vedette_services.learner.evaluator RUN`"""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    set_up_logging()
    os.nice(_NICE)
    with told_to_the_supervisor():
        EvaluatorProcess(LearnerSpec.read(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()

"""Evaluations on their way from the gateway to the trainer."""

from __future__ import annotations

import logging

from vedette_protocol.schema import Schema
from vedette_rl.errors import MapSpaceError
from vedette_services.learner.gateway.actor_evaluations import ActorEvaluations
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.model_map import ModelMapReader, ModelMapWriter
from vedette_services.status.records import (
    ReportedEvaluation,
    StatusRecordReader,
    StatusRecordWriter,
)
from vedette_services.status.status import Eval

log = logging.getLogger("vedette.gateway")


class EvaluationHandover:
    """Hands the evaluations of managers to the evaluator process, one after another.

    Args:
        seen: the evaluator's last record, which shows what it has taken.
    """

    def __init__(self, spec: LearnerSpec, seen: StatusRecordReader[Eval]) -> None:
        self._spec = spec
        self._seen = seen
        self.schema: Schema | None = None
        """Of the models."""
        self._models: ModelMapWriter | None = None
        self._last = self._read_last()  # None once the evaluator has taken it
        self._record = StatusRecordWriter(spec.run.reported_map, ReportedEvaluation)

    def pass_on(self, evaluations: ActorEvaluations) -> None:
        """Write the next evaluation, once the one before was taken."""
        if self._last is not None and not self._last.is_in(self._seen.read()):
            return
        self._last = None
        if (checked := evaluations.pop_finished()) is None:
            return
        epoch = checked.model.epoch
        model = checked.model
        if checked.counts:  # before the record, which says that it is there
            try:
                self._map().write_body(epoch, model.body)
            except MapSpaceError as error:
                log.warning("the evaluation of version %d is lost: %s", model.version, error)
                return
        self._last = ReportedEvaluation(checked.evaluation, epoch, checked.counts)
        self._record.write(self._last)

    def _read_last(self) -> ReportedEvaluation | None:
        """Read what a gateway before this one wrote last, which may not have been taken."""
        last = StatusRecordReader(self._spec.run.reported_map, ReportedEvaluation).read()
        if not last.epoch:
            return None
        model = ModelMapReader(self._spec.run.evaluated_map).read() if last.counts else None
        if last.counts and (model is None or model.version != last.found.version):
            return None  # it was taken: that gateway had begun to write the next one's model
        return last

    def _map(self) -> ModelMapWriter:
        assert self.schema is not None, "a model was published"
        if self._models is None:
            self._models = ModelMapWriter(self._spec.run.evaluated_map, self.schema)
        return self._models

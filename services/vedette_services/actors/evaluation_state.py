"""The state of the evaluation that an actor host plays and reports."""

from __future__ import annotations

from dataclasses import replace

from vedette_protocol.messages import CONFIRM, EVALUATE, Ack, EvaluationReport, Report, Run
from vedette_services.actors.instructions import (
    Instruction,
    PlayEvaluation,
    StopEvaluation,
    StoreModel,
    WriteLog,
)
from vedette_services.config.parts import EvaluationConfig
from vedette_services.config.peer_settings import read_peer_settings
from vedette_services.errors import RunNotUnderstoodError

_KEPT_SHARE = 0.125


class EvaluationState:
    """The evaluation that the newest ack wants. Events in, instructions out.

    Args:
        plays: this host plays evaluations.
    """

    def __init__(self, *, plays: bool) -> None:
        self._can_play = plays
        self._plays = plays  # those of the run
        self._request = 0  # of the last ack; 0: no evaluation is asked for
        self._least = (0, 0)  # the least epoch and version to be played
        self._run: Run | None = None
        self._fresh = 0  # number of the fresh evaluation that is asked for; 0: it is none
        self._newest: StoreModel | None = None
        self._played: StoreModel | None = None  # the model of the last evaluation
        self._report: EvaluationReport | None = None

    @property
    def kept_share(self) -> float:
        """The share of a window that a custom loop may fill without credit: its evaluation begins
        once its episodes have ended, also where the learner takes no more samples."""
        played = self._report is not None and self._report.return_mean is not None
        return _KEPT_SHARE if self._request and not played else 0.0

    def begin_run(self, run: Run) -> list[Instruction]:
        """Forget what was asked in the run before, or with other settings."""
        self._run = run
        self._newest = None
        self._played = None
        self._request = 0
        self._report = None
        return [StopEvaluation(), *self._check_settings(run)]

    def _check_settings(self, run: Run) -> list[Instruction]:
        """Leave evaluations to others where this host does not know how they are to be played."""
        self._plays = self._can_play
        if not self._plays or not run.evaluation:
            return []
        try:
            read_peer_settings(EvaluationConfig, run.evaluation)
        except RunNotUnderstoodError as error:
            self._plays = False
            return [WriteLog("warning", f"evaluations are left to other hosts: {error}")]
        return []

    def continue_run(self, run: Run) -> list[Instruction]:
        """Go on for a learner that is back, unless its evaluations have other settings now."""
        same = self._run is None or self._run.evaluation == run.evaluation
        return [] if same else self.begin_run(run)

    def on_ack(self, ack: Ack) -> list[Instruction]:
        """Do what an ack to this incarnation wants."""
        if not self._plays or ack.evaluate == self._request:
            return []
        unfinished = self._report is not None and self._report.return_mean is None
        self._request = ack.evaluate
        self._fresh = ack.evaluate_fresh
        self._report = None
        self._least = ack.epoch, ack.evaluate_version
        stop: list[Instruction] = [StopEvaluation()] if unfinished else []
        return [*stop, *self._begin()]

    def on_model(self, model: StoreModel) -> list[Instruction]:
        """Note the newest model; it may be the one that an evaluation waits for."""
        self._newest = model
        return self._begin()

    def _begin(self) -> list[Instruction]:
        model = self._newest
        run = self._run
        if not self._request or self._report is not None or model is None or run is None:
            return []
        if self._fresh:
            return self._begin_fresh(run)
        if (model.epoch, model.version) < self._least:
            return []
        self._report = EvaluationReport(self._request, model.epoch, model.version)
        self._played = model
        return [PlayEvaluation(run, self._request, model)]

    def _begin_fresh(self, run: Run) -> list[Instruction]:
        """Play the model of the last evaluation again; report where it is not here any more."""
        epoch, version = self._least
        played = self._played
        if played is None or played.version != version:
            why = f"the model of version {version:,} is not here any more"
            self._report = EvaluationReport(self._request, epoch, version, failed=why)
            return []
        self._report = EvaluationReport(self._request, played.epoch, played.version)
        return [PlayEvaluation(run, self._request, played, self._fresh)]

    def on_progress(self, report: EvaluationReport) -> bool:
        """Take what the process reports; True if it is at its end, well or badly."""
        before = self._report
        if before is None or report.request != before.request or before.return_mean is not None:
            return False
        self._report = report
        return report.return_mean is not None or bool(report.failed)

    def complete(self, report: Report) -> Report:
        """Return a manager's report with the evaluation, and with the feature."""
        if not self._plays:
            return report
        return replace(
            report, features=(*report.features, EVALUATE, CONFIRM), evaluation=self._report
        )

"""The evaluator process plays the latest model, or takes what managers have evaluated, and keeps
the best one."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vedette_rl.core import Evaluation, ModelInfo
from vedette_rl.envs.failures import EnvironmentFailure
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import CheckpointError, EnvironmentFaultError, EvaluationCancelledError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.storage.state_file import write_state
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    EnvironmentProcessError,
    RunMovedError,
    SettingError,
    describe_with_notes,
    environment_fix,
    foreign_error_message,
)
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import die_with_parent, ignore_stop_signals
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.slow_calls import say_slow_calls
from vedette_services.learner.confirmation import Confirmation, begin_confirmation, mark_reached
from vedette_services.learner.heartbeat import HeartbeatThread
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.finished import build_greedy_policy
from vedette_services.run.model_map import MappedModel, ModelMapReader
from vedette_services.run.resume import begins_new_best
from vedette_services.run.status_files import read_best
from vedette_services.status.records import (
    NO_ENDED_EVALUATIONS,
    EndedEvaluations,
    GatewayStatus,
    IngestProgress,
    ReportedEvaluation,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import RETURNS_OF_ACTORS, Eval

_POLL_S = 0.05
_PROGRESS_EVERY_S = 1.0
_LOG_EVERY_S = 1.0  # a small network is evaluated many times a second
_LOG_PART = 1000  # lines of a long run are this part of its time apart,
_LOG_MOST_S = 60.0  # and at most so long
_NICE = 5  # playing must not take the trainer's core


class EvaluatorProcess:
    """Evaluates the latest model every `eval_interval` optimization steps."""

    def __init__(self, spec: LearnerSpec, mark_turn: Callable[[], None] = lambda: None) -> None:
        self._mark_turn = mark_turn
        self._interval = spec.config.learner.eval_interval
        self._records = _EvaluationRecords(spec.run)
        self._evaluation = ModelEvaluation(
            spec.config,
            spec.spaces,
            spec.run_id,
            spec.run.best,
            check=spec.run.check_held,
            ended=self._records.ended_before,
        )
        self._models = ModelMapReader(spec.run.model_map)
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._write()
        self._written_at = time.monotonic()
        self._tried = -1  # the version that was played last, whether it counts or not
        self._progress = StatusRecordReader(spec.run.progress_map, IngestProgress)
        self._began_at = self._progress.read().env_steps

    def run(self) -> None:
        """Evaluate until the trainer has ended, then its last model."""
        model: MappedModel | None = None
        is_open = False
        while self._interval:
            if not is_open and self._progress.read().env_steps > self._began_at:
                # The actors have theirs: where there is no other one, that is said before the run
                # has trained for nothing.
                self._evaluation.open()
                is_open = True
            done = self._learning.read().phase == "done"
            if self._models.has_new:
                model = self._read_latest_model()
            if self._evaluation.confirms:
                self._evaluation.confirm(is_cancelled=self._show_progress)
                self._write()
            elif model is not None and self._should_evaluate(model, done):
                set_log_context(epoch=model.epoch)
                self._tried = model.version
                if self._evaluation.evaluate(
                    model.epoch, model.info(), model.env_steps, is_cancelled=self._show_progress
                ):
                    self._write()
            elif done:
                break
            else:
                self._show_progress()
                time.sleep(_POLL_S)  # the maps have no event to wait for
        self._evaluation.close()

    def _show_progress(self) -> bool:
        """Write the status again, now and then and before a step: the supervisor ends an evaluator
        that stands still. No evaluation is cancelled by it."""
        self._mark_turn()
        if (now := time.monotonic()) - self._written_at >= _PROGRESS_EVERY_S:
            self._written_at = now
            self._write()
        return False

    def _write(self) -> None:
        self._records.write(self._evaluation.status, self._evaluation.ended)

    def _read_latest_model(self) -> MappedModel | None:
        """Read the latest model; None if it is of an earlier epoch, which may be ahead."""
        model = self._models.read()
        return model if model and model.epoch >= self._learning.read().epoch else None

    def _should_evaluate(self, model: MappedModel, done: bool) -> bool:
        version = model.version
        last = done and version != self._tried and self._evaluation.is_newer(version)
        return last or self._evaluation.is_due(model.epoch, version)


class ReportedEvaluations:
    """Takes the evaluations that managers play, which the gateway has checked. It makes no
    environment."""

    def __init__(self, spec: LearnerSpec, mark_turn: Callable[[], None] = lambda: None) -> None:
        self._mark_turn = mark_turn
        run = spec.run
        self._interval = spec.config.learner.eval_interval
        self._records = _EvaluationRecords(run)
        self._results = EvaluationResults(
            spec.run_id,
            run.best,
            spec.config.evaluation.seed,
            check=run.check_held,
            ended=self._records.ended_before,
        )
        self._reported = StatusRecordReader(run.reported_map, ReportedEvaluation)
        self._models = ModelMapReader(run.evaluated_map)
        self._learning = StatusRecordReader(run.learning_map, TrainerStatus)
        self._gateway = StatusRecordReader(run.ingest_map, GatewayStatus)
        self._write()

    def run(self) -> None:
        """Take evaluations until the last model's is here, or the gateway has ended."""
        taken = ReportedEvaluation()
        while self._interval:
            self._mark_turn()
            learning = self._learning.read()
            ended = self._gateway.read().ended
            if (reported := self._reported.read()) != taken:
                taken = reported
                self.add_reported(reported)
            elif learning.phase == "done" and (ended or self._is_last_here(learning)):
                break
            else:
                time.sleep(_POLL_S)

    def _is_last_here(self, learning: TrainerStatus) -> bool:
        return not learning.evaluates or self._results.status.version == learning.opt_steps

    def add_reported(self, reported: ReportedEvaluation) -> None:
        """Note an evaluation, and its model if that is the best until now."""
        evaluation = reported.found
        results = self._results
        if not reported.counts:
            results.status = replace(
                results.status,
                shown_return_mean=evaluation.return_mean,
                shown_version=evaluation.version,
                shown_by=evaluation.played_by,
            )
        elif (model := self._models.read()) is not None and model.version == evaluation.version:
            set_log_context(epoch=reported.epoch)
            results.add(evaluation, reported.epoch, model.info())
        self._write()

    def _write(self) -> None:
        self._records.write(self._results.status, self._results.ended)


class _EvaluationRecords:
    """The evaluator's records: the last evaluation and the best one, and those that have ended."""

    def __init__(self, run: RunDirectory) -> None:
        self.ended_before = StatusRecordReader(run.ended_evaluations_map, EndedEvaluations).read()
        """By an evaluator before this one."""
        self._status = StatusRecordWriter(run.evaluation_map, Eval)
        self._ended = StatusRecordWriter(run.ended_evaluations_map, EndedEvaluations)
        self._written = self.ended_before

    def write(self, status: Eval, ended: EndedEvaluations) -> None:
        if ended is not self._written:
            self._written = ended
            self._ended.write(ended)
        self._status.write(status)


def main() -> None:
    """`python -m vedette_services.learner.evaluator RUN`"""
    die_with_parent()
    ignore_stop_signals()
    set_up_logging()
    os.nice(_NICE)
    with report_exit():
        run = RunDirectory(Path(sys.argv[1]).absolute())  # an environment may go elsewhere
        heartbeat = HeartbeatThread(run.heartbeat_map("evaluator"))
        spec = LearnerSpec.read(run.root)
        spec.hold_run()
        while spec.run.best.exists() and begins_new_best(spec.config, spec.run.root):
            time.sleep(_POLL_S)  # the best model is put away once the trainer has loaded
        kind = ReportedEvaluations if spec.config.evaluates_on_actors else EvaluatorProcess
        say_slow_calls(log.info)
        kind(spec, heartbeat.mark_turn).run()


log = logging.getLogger("vedette.evaluator")


class EvaluationResults:
    """The last evaluation, and the best one with its model.

    Args:
        run_id, seed: noted beside the best model.
        best: the directory of the best model, perhaps of an earlier start of the run.
        check: raises where the run is lost.
        ended: those of an evaluator before this one.
    """

    def __init__(
        self,
        run_id: str,
        best: Path,
        seed: int,
        *,
        check: Callable[[], None] = lambda: None,
        ended: EndedEvaluations = NO_ENDED_EVALUATIONS,
    ) -> None:
        self._check = check
        self._run_id = run_id
        self._best_directory = best
        self._seed = seed
        self.status = read_best(best)
        """The last evaluation and the best one."""
        self.ended = ended
        """Those whose models are decided upon; one that is being confirmed is not."""
        self._unwritten: tuple[Eval, int, ModelInfo] | None = None
        self._log_at = -math.inf
        self._began = time.monotonic()

    def add(self, evaluation: Eval, epoch: int, model: ModelInfo, detail: str = "") -> None:
        """Update `status`; keep the model if it is the best, or has reached the target.

        Args:
            evaluation: its `best_return_mean` is what it is ranked by; None: its own mean.
            epoch: the learner's start that made the model.
            detail: a text for the log, for example the time that it took.
        """
        best = self.status.best_return_mean
        ranked = evaluation.best_return_mean
        ranked = evaluation.return_mean if ranked is None else ranked
        has_reached = evaluation.reached_return_mean is not None
        if ranked is not None and (best is None or ranked > best or has_reached):
            evaluation = replace(evaluation, best_return_mean=ranked, best_version=model.version)
            self._unwritten = (evaluation, epoch, model)
        else:
            evaluation = replace(evaluation, best_return_mean=None)
        if self._unwritten is not None:
            self._save_best(*self._unwritten)
        self.show(evaluation, detail)
        self.ended = self.ended.with_added(self.status)

    def show(self, evaluation: Eval, detail: str = "") -> None:
        """Update `status` by an evaluation without a decision about its model.

        Args:
            evaluation: what it does not say of the best one stays as it is.
            detail: as of `add`.
        """
        before = self.status
        self.status = replace(
            evaluation,
            shown_return_mean=before.shown_return_mean,
            shown_version=before.shown_version,
            shown_by=before.shown_by,
            unconfirmed=before.unconfirmed + evaluation.unconfirmed,
        )
        if evaluation.best_return_mean is None:
            best, best_version = before.best_return_mean, before.best_version
            self.status = replace(self.status, best_return_mean=best, best_version=best_version)
        if evaluation.reached_return_mean is None:
            self.status = replace(
                self.status,
                reached_return_mean=before.reached_return_mean,
                reached_version=before.reached_version,
                reached_episodes=before.reached_episodes,
            )
        if (before.version, before.return_mean) != (evaluation.version, evaluation.return_mean):
            is_best = evaluation.best_version == evaluation.version
            self._log(evaluation, detail or f" ({evaluation.played_by})", is_best=is_best)

    def _log(self, evaluation: Eval, detail: str, *, is_best: bool) -> None:
        """Log an evaluation; those that are not the best at most once a second, as information."""
        now = time.monotonic()
        is_due = now >= self._log_at
        if is_due:
            part_s = min((now - self._began) / _LOG_PART, _LOG_MOST_S)
            self._log_at = now + max(_LOG_EVERY_S, part_s)
        log.log(
            logging.INFO if is_due or is_best else logging.DEBUG,
            "version %d returns %.1f%s over %d episodes%s",
            evaluation.version,
            evaluation.return_mean,
            "" if evaluation.return_std is None else f" ± {evaluation.return_std:.1f}",
            evaluation.episodes,
            detail,
        )

    def _save_best(self, evaluation: Eval, epoch: int, model: ModelInfo) -> None:
        """Write ``RUN/best``, which `eval` and `export` read."""
        meta = {
            "run_id": self._run_id,
            "epoch": epoch,
            "version": model.version,
            "env_steps": evaluation.env_steps,
            "return_mean": evaluation.best_return_mean,
            **_episodes_ranked_by(evaluation, self._seed),
            "played_by": evaluation.played_by,
        }
        if evaluation.reached_return_mean is not None:
            meta["reached_episodes"] = evaluation.reached_episodes
        try:
            self._check()
            write_state(self._best_directory, {"model": dict(model.arrays)}, meta)
        except (CheckpointError, RunMovedError) as error:
            log.warning("%s; tried again after the next evaluation", error)
            return
        self._unwritten = None


def _episodes_ranked_by(evaluation: Eval, seed: int) -> dict[str, Any]:
    """Return what is known of the episodes whose mean return ranks a model, as its header has it.

    Args:
        seed: of the run's own evaluations.
    """
    if evaluation.fresh_episodes:  # of several seeds
        return {
            "return_std": evaluation.fresh_return_std,
            "episodes": evaluation.fresh_episodes,
            "episodes_cut": evaluation.fresh_episodes_cut,
            "fresh": True,
        }
    found = {
        "return_std": evaluation.return_std,
        "episodes": evaluation.episodes,
        "episodes_cut": evaluation.episodes_cut,
        "fresh": False,
    }
    explored = evaluation.played_by == RETURNS_OF_ACTORS  # in episodes of the actors' own seeds
    return found if explored else {**found, "seed": seed}


class ModelEvaluation:
    """Evaluations of one run, every `eval_interval` optimization steps, played here.

    Args:
        config: the run's.
        spaces: the spaces of its environment.
        run_id: noted beside the best model.
        best: directory of the best model, perhaps of an earlier start of the run.
        check: raises where the run is lost.
        ended: as of `EvaluationResults`.
    """

    def __init__(
        self,
        config: RunConfig,
        spaces: Spaces,
        run_id: str,
        best: Path,
        *,
        check: Callable[[], None] = lambda: None,
        ended: EndedEvaluations = NO_ENDED_EVALUATIONS,
    ) -> None:
        self._interval = config.learner.eval_interval
        self._config = config
        self._confirmation: tuple[Confirmation, int, ModelInfo] | None = None
        self.cut_confirmation = False
        """True after a confirmation that was cancelled."""
        self._fresh = 0  # fresh evaluations of this start
        settings = config.evaluation
        self._results = EvaluationResults(run_id, best, settings.seed, check=check, ended=ended)
        self._evaluator = GreedyEvaluator(
            config.env,
            settings.episodes,
            settings.seed,
            side_by_side=settings.envs,
            max_episode_steps=settings.max_episode_steps,
            make_processes=ProcessEnvs,
            on_failure=self._on_failure,
        )
        self._failures = RateLimitedLog()
        self._policy = build_greedy_policy(config, spaces)
        self._epoch = self._next = 0  # the version from which on the next is due in this epoch

    @property
    def status(self) -> Eval:
        """The last evaluation and the best one."""
        return self._results.status

    @property
    def ended(self) -> EndedEvaluations:
        """The evaluations that have ended; one that is being confirmed has not."""
        return self._results.ended

    def is_due(self, epoch: int, version: int) -> bool:
        """Return True if this model is to be evaluated: the first of an epoch, whose version may
        be lower than the last one evaluated, and then one every `eval_interval` steps."""
        return self._interval > 0 and (epoch != self._epoch or version >= self._next)

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
        """Play a model and update `status`. One that reaches the target is to be confirmed next.

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
        self._epoch = epoch
        self._next = (model.version // self._interval + 1) * self._interval
        if model.version in (0, self.status.version):
            return False
        self._policy.sync_model(model)
        began = time.monotonic()
        self.open()
        try:
            evaluation = self._evaluator.evaluate(
                self._policy, model.version, is_cancelled=is_cancelled
            )
        except EvaluationCancelledError as error:
            log.warning("%s", error)
            return False
        except EnvironmentFaultError as error:
            log.warning("the evaluation of version %d does not count: %s", model.version, error)
            return False
        cut = (
            f", {evaluation.cut} of them cut at {evaluation.max_episode_steps:,} steps"
            if evaluation.cut
            else ""
        )
        detail = f"{cut} ({time.monotonic() - began:.1f} s)"
        found = summarize_evaluation(evaluation, env_steps)
        confirmation = begin_confirmation(found, self._config)
        if confirmation is None:
            self._results.add(mark_reached(found, self._config), epoch, model, detail)
            return True
        self._confirmation = confirmation, epoch, model
        self._results.show(replace(found, confirming=confirmation.progress()), detail)
        return True

    @property
    def confirms(self) -> bool:
        """True while the model that was played last is to be confirmed on fresh episodes."""
        return self._confirmation is not None

    def confirm(self, *, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Play fresh episodes of the model that was played last, and update `status`.

        A confirmation that is cancelled, or whose environment gives values that are not finite, is
        given up: nothing is confirmed.

        Args:
            is_cancelled: called before every step; True ends it.
        """
        assert self._confirmation is not None, "an evaluation reached the target"
        confirmation, epoch, model = self._confirmation
        self._fresh += 1
        seed = self._config.evaluation.fresh_seed(self._fresh)
        try:
            found = self._evaluator.evaluate(
                self._policy, model.version, seed=seed, is_cancelled=is_cancelled
            )
        except (EvaluationCancelledError, EnvironmentFaultError) as error:
            log.warning("version %d is not confirmed: %s", model.version, error)
            self.cut_confirmation = isinstance(error, EvaluationCancelledError)
            self._end_confirmation(confirmation, epoch, model)
            return
        confirmation.add(summarize_evaluation(found))
        if confirmation.is_over:
            log.info("%s", confirmation.outcome())
            self._end_confirmation(confirmation, epoch, model)
        else:
            self._results.show(replace(confirmation.hit, confirming=confirmation.progress()))

    def _end_confirmation(self, confirmation: Confirmation, epoch: int, model: ModelInfo) -> None:
        self._confirmation = None
        self._results.add(confirmation.result(), epoch, model)

    def _on_failure(self, failure: EnvironmentFailure) -> None:
        why = describe_with_notes(failure.error)
        self._failures.add("evaluation", f"{why}: made again, its episode begins again")
        for line in self._failures.due_lines(time.monotonic()):
            log.warning("%s", line)

    def open(self) -> None:
        """Make the environments, beside those of the actors, where they are not there yet.

        Raises:
            SettingError: they cannot be made; names the keys that help where there is no other one.
        """
        try:
            self._evaluator.open()
        except EnvironmentProcessError:
            raise  # it says which process; one that was killed is made again
        except Exception as error:
            why = f"evaluations cannot make {self._config.env.id}: {foreign_error_message(error)}"
            own = "give each a port of its own (env.kwargs); " if environment_fix(error) else ""
            raise SettingError(
                "evaluation.where",
                why,
                f"{own}where it exists once, set learner.eval_interval=0, or have actors of a host "
                "that has another one play (evaluation.where=actors)",
            ) from error

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()


def summarize_evaluation(evaluation: Evaluation, env_steps: int | None = None) -> Eval:
    """Return an evaluation as the status has it."""
    return Eval(
        version=evaluation.version,
        env_steps=env_steps,
        return_mean=evaluation.return_mean,
        return_std=evaluation.return_std,
        return_min=min(evaluation.returns),
        return_max=max(evaluation.returns),
        length_mean=evaluation.length_mean,
        episodes=evaluation.episodes,
        episodes_cut=evaluation.cut,
    )


if __name__ == "__main__":
    run_to_end(main, log.warning)

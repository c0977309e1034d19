"""The recorder of a run, and the curves that it records from the status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import tomli_w

from vedette_rl.core import Recorder
from vedette_rl.core.protocols import implements
from vedette_rl.recording.file_recorder import FileRecorder
from vedette_rl.recording.pausing_recorder import PausingRecorder
from vedette_rl.recording.registry import TeeRecorder, close_after, make_recorders
from vedette_rl.recording.tensorboard import purge_events
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_table
from vedette_services.learner.trainer.record_pace import RecordPace
from vedette_services.run.directory import RunDirectory
from vedette_services.run.provenance import read_provenance
from vedette_services.status.assembly import assemble_known
from vedette_services.status.learning_charts import describe_tag
from vedette_services.status.records import (
    NO_ENDED_EVALUATIONS,
    EndedEvaluations,
    GatewayStatus,
    TrainerStatus,
)
from vedette_services.status.schema import is_against_opt_steps, tagged
from vedette_services.status.status import Eval

log = logging.getLogger("vedette.trainer")

_HYPERPARAMETERS = ("agent", "env", "actors", "replay", "learner")


class HparamsRecorder(Protocol):
    """A recorder that also takes hyperparameters."""

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """Write the configuration of the run."""
        ...


class DescribingRecorder(Protocol):
    """A recorder that also keeps a sentence about each curve."""

    def describe_tags(self, describe: Callable[[str], str]) -> None:
        """Keep what this returns for a tag with its curve."""
        ...


class EndingRecorder(Protocol):
    """A recorder that also notes how the run has ended."""

    def name_end(self, end: Callable[[], str]) -> None:
        """Ask this when it is closed; the words are those of `exit_reason`, "" while it goes on."""
        ...


def open_recorder(
    config: RunConfig,
    run: Path,
    is_paused: Callable[[], bool] = lambda: False,
    end: Callable[[], str] = lambda: "",
) -> Recorder:
    """Open every recorder of `learner.recorders` behind one, and record the configuration as a
    text and, for recorders that take them, as hyperparameters.

    Args:
        run: the run's directory.
        is_paused: True while recorders into files of the run are to write nothing.
        end: returns the run's `exit_reason`, "" while it goes on.

    Raises:
        UnknownNameError: a name is not known, or names no `Recorder`.
        RecordingError: a file cannot be written.
    """
    recorders = make_recorders(config.learner.recorders, run)
    table = config_table(config)
    tee = TeeRecorder(
        [
            PausingRecorder(recorder, is_paused) if isinstance(recorder, FileRecorder) else recorder
            for recorder in recorders
        ]
    )
    try:
        for recorder in recorders:
            if implements(recorder, HparamsRecorder):
                recorder.write_hparams(hyperparameters(table))
            if implements(recorder, DescribingRecorder):
                recorder.describe_tags(describe_tag)
            if implements(recorder, EndingRecorder):
                recorder.name_end(end)
        tee.write_text("config", tomli_w.dumps(table))
        for start in read_provenance(RunDirectory(run))[-1:]:
            tee.write_text("provenance", "\n".join(start.lines()))
    except Exception as error:
        close_after(error, tee)
        raise
    return tee


class LastRecorded(NamedTuple):
    """The last records of a run's earlier starts: an env step, and a value of each curve against
    env steps."""

    env_steps: int = 0
    values: Mapping[str, float] = MappingProxyType({})

    def is_last(self, name: str, value: float | None) -> bool:
        """Return True if this is a curve's last value, in TensorBoard's precision."""
        return value is not None and self.values.get(name) == np.float32(value)


def truncate_curves(tensorboard: Path, opt_steps: int) -> LastRecorded:
    """Remove what was recorded after the optimization step that a run resumes from.

    Returns:
        What stays.
    """
    try:
        purged = purge_events(tensorboard, opt_steps, is_against_opt_steps)
    except OSError as error:
        log.warning("curves of the last start stay as they are: %s", error)
        return LastRecorded()
    return LastRecorded(purged.last_other_step, purged.last_other_values)


def hyperparameters(table: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return a configuration as flat ``part.key`` values, and the seed."""
    flat: dict[str, bool | float | str] = {"seed": table["seed"]}
    for part in _HYPERPARAMETERS:
        flat.update(_flat(part, table[part]))
    return flat


def _flat(prefix: str, value: object) -> Iterator[tuple[str, bool | float | str]]:
    match value:
        case Mapping():
            for name, inner in value.items():
                yield from _flat(f"{prefix}.{name}", inner)
        case bool() | int() | float() | str():
            yield prefix, value
        case _:
            yield prefix, str(value)


_EVERY_S = 1.0
_NO_EVALUATION = Eval(episodes=None)  # they have steps of their own


class CurveRecorder:
    """Writes the status into a recorder, at most once a second, and evaluations as they come.

    An evaluation stands at the env steps of the model that was played. In a long run not every one
    is recorded, but each that is the best until then, and those that end with the run.

    Args:
        pace: says which are due; None: that of a run that begins at 0.
        before: the last records of earlier starts of the run. After a power failure the replay has
            fewer env steps, and a curve must not run backwards; an evaluation that was played
            before this start may have been recorded then.
    """

    def __init__(
        self,
        recorder: Recorder,
        run_id: str,
        config: RunConfig,
        before: LastRecorded = LastRecorded(),  # noqa: B008 - it is not changed
        *,
        pace: RecordPace | None = None,
    ) -> None:
        self._pace = pace or RecordPace(0.0, 0.0)
        self._recorder = recorder
        self._run_id = run_id
        self._config = config
        self._before: LastRecorded | None = before
        self._first = self._env_steps = before.env_steps
        self._next = 0.0
        self._ended = 0  # evaluations that are recorded, or were passed over
        self._evaluated: int | None = None  # the version of the last of them
        self._shown: tuple[int | None, str] = (None, "")

    def record(
        self,
        now: float,
        learning: TrainerStatus,
        ingest: GatewayStatus,
        seen: Eval,
        ended: EndedEvaluations = NO_ENDED_EVALUATIONS,
        *,
        is_last: bool = False,
    ) -> None:
        """Write what is due; does nothing most of the time.

        Args:
            now: infinite: all is due.
            seen: the evaluator's status.
            ended: the evaluations that are recorded.
            is_last: no other evaluation follows; one whose confirmation did not end counts, too.
        """
        env_steps = self._env_steps = max(self._env_steps, ingest.env_steps)
        if self._before is not None:
            self._skip_recorded(self._before, seen, ended)
        for evaluation in ended.after(self._ended):
            if evaluation.version == self._evaluated:
                continue  # an evaluator that was killed does the last one again
            if is_last or self._is_evaluation_due(now, evaluation):
                self._record_evaluation(evaluation)
            self._evaluated = evaluation.version
        self._ended = ended.count
        if is_last and seen.version != self._evaluated:
            self._evaluated = seen.version
            self._record_evaluation(seen)
        if (seen.shown_version, seen.shown_by) != self._shown:  # it stands where it came
            self._shown = seen.shown_version, seen.shown_by
            shown = Eval(episodes=None, shown_return_mean=seen.shown_return_mean)
            self._recorder.write(tagged(shown), env_steps)
        if now >= self._next and ingest.env_steps and self._pace.is_due("status", now):
            self._next = now + _EVERY_S
            status = assemble_known(self._run_id, self._config, learning, ingest, _NO_EVALUATION)
            self._recorder.write(tagged(status), env_steps)

    def _record_evaluation(self, evaluation: Eval) -> None:
        counted = replace(evaluation, shown_return_mean=None)
        self._recorder.write(tagged(counted), max(self._first, evaluation.env_steps or 0))

    def _is_evaluation_due(self, now: float, seen: Eval) -> bool:
        is_best = seen.version == seen.best_version
        return self._pace.is_due("evaluations", now) or is_best

    def _skip_recorded(self, before: LastRecorded, seen: Eval, ended: EndedEvaluations) -> None:
        """Pass over the evaluations that are there at the first call and were recorded before.

        Where the last record of them is not known, as without TensorBoard, all but the newest are.
        """
        self._before = None
        self._ended = max(0, ended.count - 1)
        for back, evaluation in enumerate(reversed(ended.newest)):
            if before.is_last("eval/version", evaluation.version):
                self._ended = ended.count - back
                self._evaluated = evaluation.version
                break
        if before.is_last("eval/untrusted_mean_reward", seen.shown_return_mean):
            self._shown = seen.shown_version, seen.shown_by

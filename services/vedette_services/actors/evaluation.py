"""Evaluations that this host plays for the learner: their state, and the process that plays.

The newest ack names the evaluation that it wants. The process, with environments of its own, is
started for the first and plays one after another, started by a manager as
``python -m vedette_services.actors.evaluation SPECFILE``.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from vedette_protocol.messages import FEATURES, Ack, EvaluationReport, Report, Run
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Evaluation
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe_environment
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.storage.latest_value import LatestValueReader, LatestValueWriter
from vedette_services.actors.instructions import (
    Instruction,
    PlayEvaluation,
    StopEvaluation,
    StoreModel,
)
from vedette_services.config.parts import EvaluationConfig
from vedette_services.errors import describe_exit
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import (
    ONE_THREAD,
    die_with_parent,
    ignore_stop_signals,
    python_module,
    spawn,
)
from vedette_services.run.model_map import ModelMapReader, ModelMapWriter

_REQUEST = struct.Struct("<Q")
_REPORT_MAX_BYTES = 4096
_POLL_S = 0.05
_NICE = 5  # playing must not take the actors' cores
_KEPT_SHARE = 0.125


class EvaluationState:
    """The evaluation that the newest ack wants. Events in, instructions out.

    Args:
        plays: this host plays evaluations.
    """

    def __init__(self, *, plays: bool) -> None:
        self._plays = plays
        self._request, self._least = 0, (0, 0)  # the least epoch and version to be played
        self._run: Run | None = None
        self._newest: StoreModel | None = None
        self._report: EvaluationReport | None = None

    @property
    def kept_share(self) -> float:
        """The share of a window that an own loop may fill without credit: its evaluation begins
        once its episodes have ended, also where the learner takes no more samples."""
        played = self._report is not None and self._report.return_mean is not None
        return _KEPT_SHARE if self._request and not played else 0.0

    def begin_run(self, run: Run) -> list[Instruction]:
        """Forget what was asked in the run before, or with other settings."""
        self._run, self._newest, self._request, self._report = run, None, 0, None
        return [StopEvaluation()]

    def continue_run(self, run: Run) -> list[Instruction]:
        """Go on for a learner that is back, unless its evaluations have other settings now."""
        same = self._run is None or self._run.evaluation == run.evaluation
        return [] if same else self.begin_run(run)

    def on_ack(self, ack: Ack) -> list[Instruction]:
        """Do what an ack to this incarnation wants."""
        if not self._plays or ack.evaluate == self._request:
            return []
        unfinished = self._report is not None and self._report.return_mean is None
        self._request, self._report = ack.evaluate, None
        self._least = ack.epoch, ack.evaluate_version
        stop: list[Instruction] = [StopEvaluation()] if unfinished else []
        return [*stop, *self._begin()]

    def on_model(self, model: StoreModel) -> list[Instruction]:
        """Note the newest model; it may be the one that an evaluation waits for."""
        self._newest = model
        return self._begin()

    def _begin(self) -> list[Instruction]:
        model, run = self._newest, self._run
        if not self._request or self._report is not None or model is None or run is None:
            return []
        if (model.epoch, model.version) < self._least:
            return []
        self._report = EvaluationReport(self._request, model.epoch, model.version)
        return [PlayEvaluation(run, self._request, model)]

    def on_progress(self, found: EvaluationReport) -> bool:
        """Take what the process reports; True if it is at its end, well or badly."""
        before = self._report
        if before is None or found.request != before.request or before.return_mean is not None:
            return False
        self._report = found
        return found.return_mean is not None or bool(found.failed)

    def complete(self, report: Report) -> Report:
        """Return a manager's report with the evaluation, and with what this host can do."""
        if not self._plays:
            return report
        return replace(report, features=FEATURES, evaluation=self._report)


class EvaluationProcess:
    """The process as its manager holds it; the caller's main thread must make it (see `spawn`).

    Args:
        run: whose environment and agent it makes.
        directory: for the files that it shares with the manager.
    """

    def __init__(self, run: Run, directory: Path) -> None:
        names = ("json", "model.map", "orders.map", "progress.map", "traceback")
        self._files = [directory / f"evaluation.{name}" for name in names]
        spec, models, orders, progress, self._traceback_file = self._files
        self._remove_files()
        self._models = ModelMapWriter(models, run.model)
        self._orders = LatestValueWriter(orders, _REQUEST.size)
        self._progress, self._seq = LatestValueReader(progress), 0
        self._ordered: EvaluationReport | None = None
        described = {"env": run.env, "agent": run.agent, "evaluation": run.evaluation}
        spec.write_text(json.dumps({**described, "seed": run.seed, "epoch": run.epoch}))
        self._process = spawn(
            python_module("vedette_services.actors.evaluation", str(spec)),
            environment=ONE_THREAD,
        )

    def play(self, order: PlayEvaluation) -> None:
        """Have it play a model."""
        self._ordered = EvaluationReport(order.request, order.model.epoch, order.model.version)
        self._models.write_body(order.model.epoch, order.model.body)
        self._orders.write(_REQUEST.pack(order.request))  # behind the model that it is for

    def progress(self) -> EvaluationReport | None:
        """Return what is new since the last call; `failed` says why the process has ended."""
        code = self._process.poll()
        if (found := self._progress.read(after=self._seq)) is not None:
            self._seq, data = found
            return EvaluationReport(**json.loads(data))
        if code is None or self._ordered is None:
            return None
        try:
            cause = self._traceback_file.read_text(errors="replace").partition("\n")[0]
        except FileNotFoundError:
            cause = describe_exit(code)
        return replace(self._ordered, failed=cause[:200])

    def kill(self, wait_s: float) -> None:
        """End it now, and remove what was shared with it."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it dies when it leaves it
            self._process.wait(wait_s)
        self._progress.close()
        self._orders.close()
        self._remove_files()

    def _remove_files(self) -> None:
        for file in self._files:
            file.unlink(missing_ok=True)


class EvaluationPlayer:
    """Plays what is ordered, in the process.

    Args:
        spec: environment, agent and evaluation of the run, as they travel.
        directory: of the files that it shares with the manager.

    Raises:
        SpecMismatchError: the environment here is not the one that the run declares.
        UnknownEnvironmentError, UnknownAgentError, UnsupportedSpaceError: as they say.
    """

    def __init__(self, spec: Mapping[str, Any], directory: Path) -> None:
        from vedette_services.actors.actor import check_env, limit_torch_threads

        env, own = EnvConfig.model_validate(spec["env"]), spec["evaluation"]
        settings = EvaluationConfig.model_validate(own)
        spaces = probe_environment(env)
        check_env(env, spaces)
        kind = agent_kind(spec["agent"]["name"])
        self._policy = kind.build_policy(
            kind.config.from_stored(spec["agent"]), spaces, ranks=np.zeros(1), seed=spec["seed"]
        )
        limit_torch_threads()
        self._evaluator = GreedyEvaluator(
            env,
            settings.episodes,
            settings.seed,
            max_episode_steps=settings.max_episode_steps,
            make_processes=ProcessEnvs,
        )
        self._models = ModelMapReader(directory / "evaluation.model.map")
        self._orders = LatestValueReader(directory / "evaluation.orders.map")
        self._progress = LatestValueWriter(directory / "evaluation.progress.map", _REPORT_MAX_BYTES)
        self._seq = 0

    def run(self) -> None:
        """Play whatever is ordered, until this process is killed."""
        while True:
            found = self._orders.read(after=self._seq)
            if found is None:
                time.sleep(_POLL_S)  # the maps have no event to wait for
                continue
            self._seq, order = found
            self.play(_REQUEST.unpack(order)[0])

    def play(self, request: int) -> None:
        """Play the model that was written with a request."""
        model = self._models.read()
        assert model is not None, "a model is written before the order to play it"
        set_log_context(epoch=model.epoch)
        report = EvaluationReport(request, model.epoch, model.version)
        self._policy.sync_model(model.info())
        found = self._evaluator.evaluate(
            self._policy,
            model.version,
            on_episodes=lambda ended: self._tell(replace(report, episodes=ended)),
        )
        self._tell(with_result(report, found))

    def _tell(self, report: EvaluationReport) -> None:
        self._progress.write(json.dumps(asdict(report)).encode())


def with_result(report: EvaluationReport, found: Evaluation) -> EvaluationReport:
    """Return the report with what came of all episodes."""
    return replace(
        report,
        episodes=found.episodes,
        return_mean=found.return_mean,
        return_std=found.return_std,
        return_min=min(found.returns),
        return_max=max(found.returns),
        length_mean=found.length_mean,
        cut=found.cut,
    )


def main() -> None:
    """The process: its one argument is its file."""
    from vedette_services.actors.actor import describe_cause

    die_with_parent()
    ignore_stop_signals()
    set_up_logging()
    os.nice(_NICE)
    file = Path(sys.argv[1])
    try:
        EvaluationPlayer(json.loads(file.read_bytes()), file.parent).run()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an environment may raise anything; it is reported
        said = f"{describe_cause(error)}\n{traceback.format_exc()}"
        file.with_name("evaluation.traceback").write_text(said)
        sys.exit(1)


if __name__ == "__main__":
    main()

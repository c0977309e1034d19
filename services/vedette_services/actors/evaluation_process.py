"""Evaluations that this host plays for the learner, in a process of their own.

The newest ack names the evaluation that it wants. The process, with environments of its own, is
started for the first and plays one after another, started by a manager as
``python -m vedette_services.actors.evaluation_process SPECFILE``.
"""

from __future__ import annotations

import json
import logging
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

from vedette_protocol.messages import EvaluationReport, Run
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Evaluation
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import described_spaces
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.storage.latest_value import LatestValueReader, LatestValueWriter
from vedette_services.actors.instructions import (
    PlayEvaluation,
)
from vedette_services.config.parts import EvaluationConfig
from vedette_services.config.peer_settings import read_peer_settings
from vedette_services.errors import FAILED, describe_exit, describe_with_notes
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import (
    ONE_THREAD,
    die_with_parent,
    ignore_stop_signals,
    python_module,
    spawn,
)
from vedette_services.host.slow_calls import say_slow_calls
from vedette_services.host.started_programs import end_programs_of
from vedette_services.run.model_map import ModelMapReader, ModelMapWriter

log = logging.getLogger("vedette.actors")

_REQUEST = struct.Struct("<QQ")
"""Number of the request, and of a fresh evaluation (0: of none)."""
_REPORT_MAX_BYTES = 4096
_POLL_S = 0.05
_NICE = 5  # playing must not take the actors' cores


class EvaluationProcess:
    """The process as its manager holds it; the caller's main thread must make it (see `spawn`).

    Args:
        run: whose environment and agent it makes.
        directory: the directory of the files that it shares with the manager.
    """

    def __init__(self, run: Run, directory: Path) -> None:
        names = ("json", "model.map", "orders.map", "progress.map", "traceback")
        self._files = [directory / f"evaluation.{name}" for name in names]
        spec, models, orders, progress, self._traceback_file = self._files
        self._remove_files()
        self._models = ModelMapWriter(models, run.model)
        self._orders = LatestValueWriter(orders, _REQUEST.size)
        self._progress = LatestValueReader(progress)
        self._seq = 0
        self._ordered: EvaluationReport | None = None
        described = {"env": run.env, "agent": run.agent, "evaluation": run.evaluation}
        spec.write_text(json.dumps({**described, "seed": run.seed, "epoch": run.epoch}))
        self._memory_kills = MemoryKills()
        self._process = spawn(
            python_module("vedette_services.actors.evaluation_process", str(spec)),
            name="the evaluation",
            environment=ONE_THREAD,
        )

    def play(self, order: PlayEvaluation) -> None:
        """Have it play a model."""
        self._ordered = EvaluationReport(order.request, order.model.epoch, order.model.version)
        self._models.write_body(order.model.epoch, order.model.body)
        self._orders.write(
            _REQUEST.pack(order.request, order.fresh)
        )  # behind the model that it is for

    def progress(self) -> EvaluationReport | None:
        """Return what is new since the last call; `failed` says why the process has ended."""
        code = self._process.poll()
        if (newest := self._progress.read(after=self._seq)) is not None:
            self._seq, data = newest
            return EvaluationReport(**json.loads(data))
        if code is None or self._ordered is None:
            return None
        try:
            cause = self._traceback_file.read_text(errors="replace").partition("\n")[0]
        except FileNotFoundError:
            cause = self._memory_kills.explain(code) or describe_exit(code)
        return replace(self._ordered, failed=cause[:200])

    def kill(self, wait_s: float) -> None:
        """End it now, with what its environments have started, and remove what was shared with
        it."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it dies when it leaves it
            self._process.wait(wait_s)
        end_programs_of([self._process])
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
        directory: the directory of the files that it shares with the manager.

    Raises:
        SpecMismatchError: the environment here is not the one that the run declares.
        UnknownEnvironmentError, UnknownAgentError, UnsupportedSpaceError: as they say.
    """

    def __init__(self, spec: Mapping[str, Any], directory: Path) -> None:
        from vedette_services.actors.actor import check_env, limit_torch_threads

        env = read_peer_settings(EnvConfig, spec["env"])
        settings = read_peer_settings(EvaluationConfig, spec["evaluation"])
        self._settings = settings
        self._evaluator = GreedyEvaluator(
            env,
            settings.episodes,
            settings.seed,
            side_by_side=settings.envs,
            max_episode_steps=settings.max_episode_steps,
            make_processes=ProcessEnvs,
        )
        spaces = described_spaces(self._evaluator.open().description, env)
        check_env(env, spaces)
        kind = agent_kind(spec["agent"]["name"])
        agent = read_peer_settings(kind.config, spec["agent"])
        self._policy = kind.build_policy(agent, spaces, ranks=np.zeros(1), seed=spec["seed"])
        limit_torch_threads()
        self._models = ModelMapReader(directory / "evaluation.model.map")
        self._orders = LatestValueReader(directory / "evaluation.orders.map")
        self._progress = LatestValueWriter(directory / "evaluation.progress.map", _REPORT_MAX_BYTES)
        self._seq = 0

    def run(self) -> None:
        """Play whatever is ordered, until this process is killed."""
        while True:
            newest = self._orders.read(after=self._seq)
            if newest is None:
                time.sleep(_POLL_S)  # the maps have no event to wait for
                continue
            self._seq, order = newest
            self.play(*_REQUEST.unpack(order))

    def play(self, request: int, fresh: int = 0) -> None:
        """Play the model that was written with a request.

        Args:
            fresh: as of `PlayEvaluation`.
        """
        model = self._models.read()
        assert model is not None, "a model is written before the order to play it"
        set_log_context(epoch=model.epoch)
        report = EvaluationReport(request, model.epoch, model.version)
        self._policy.sync_model(model.info())
        evaluation = self._evaluator.evaluate(
            self._policy,
            model.version,
            seed=self._settings.fresh_seed(fresh) if fresh else None,
            on_episodes=lambda ended: self._write_progress(replace(report, episodes=ended)),
        )
        self._write_progress(with_result(report, evaluation))

    def _write_progress(self, report: EvaluationReport) -> None:
        self._progress.write(json.dumps(asdict(report)).encode())


def with_result(report: EvaluationReport, evaluation: Evaluation) -> EvaluationReport:
    """Return the report with what came of all episodes."""
    return replace(
        report,
        episodes=evaluation.episodes,
        return_mean=evaluation.return_mean,
        return_std=evaluation.return_std,
        return_min=min(evaluation.returns),
        return_max=max(evaluation.returns),
        length_mean=evaluation.length_mean,
        cut=evaluation.cut,
    )


def main() -> None:
    """The process: its one argument is its file."""
    die_with_parent()
    ignore_stop_signals()
    set_up_logging()
    os.nice(_NICE)
    say_slow_calls(log.info)
    file = Path(sys.argv[1])
    try:
        EvaluationPlayer(json.loads(file.read_bytes()), file.parent).run()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an environment may raise anything; it is reported
        failure = f"{describe_with_notes(error)}\n{traceback.format_exc()}"
        file.with_name("evaluation.traceback").write_text(failure)
        sys.exit(FAILED)


if __name__ == "__main__":
    run_to_end(main, log.warning)

"""The trainer process owns the agent and reads the replay."""

from __future__ import annotations

import logging
import select
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo, ReplayBuffer
from vedette_rl.envs.make import environment_spaces
from vedette_rl.errors import ReplayTornError
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.prioritized import open_priorities
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.ring_files import read_floor
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.processes import WakeupEvent, die_with_parent, ignore_stop_signals
from vedette_services.learner.background import SWITCH_S, BackgroundPublisher
from vedette_services.learner.learner import Learner, make_replay
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.run.replay_layout import make_run_limiter, replay_directory
from vedette_services.run.sources import describe_sources, open_sources, source_directory
from vedette_services.run.status import Eval
from vedette_services.run.status_records import (
    GatewayStatus,
    IngestProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)

log = logging.getLogger("vedette.trainer")

_LAST_MODEL_S = 20.0
_STOP_S = 15.0  # for the supervisor, after `evaluation.end_timeout_s`


class Trainer:
    """The `Peers` of a learner in a process of its own, reached by memory maps.

    Args:
        wakeup: set for every new model.
        stop: set by the supervisor to end the run.
    """

    def __init__(
        self, spec: LearnerSpec, epoch: int, wakeup: WakeupEvent, stop: WakeupEvent
    ) -> None:
        run, self._config, self._stop = spec.run, spec.config, stop
        self._replay = replay_directory(spec.config, run.root)
        self._learner = Learner(
            spec.config,
            run,
            spec.run_id,
            epoch,
            spaces=environment_spaces(spec.config.env),
            open_replay=lambda: open_replay(spec, epoch),
            lasting=True,
            sources=describe_sources(spec.config, run.root),
        )
        schema = Schema.from_arrays(self._learner.agent.model_info().arrays)
        self._models = BackgroundPublisher(ModelMapWriter(run.model_map, schema), epoch, wakeup.set)
        self._status_record = StatusRecordWriter(run.learning_map, TrainerStatus)
        self._ingest = StatusRecordReader(run.ingest_map, GatewayStatus)
        self._progress = StatusRecordReader(run.progress_map, IngestProgress)
        self._evaluations = StatusRecordReader(run.evaluation_map, Eval)

    def run(self) -> None:
        """Train to the end of the run."""
        self.publish_status(self._learner.status)
        limiter = make_run_limiter(self._config, read_floor(self._replay))
        self._learner.close(self._learner.train(self, limiter))

    # Peers

    def publish_status(self, status: TrainerStatus) -> None:
        self._models.raise_failure()
        if status.phase == "done":
            self._models.close(_LAST_MODEL_S)
        self._status_record.write(status)

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        ingest = replace(self._ingest.read(), env_steps=self._progress.read().env_steps)
        return ingest, self._evaluations.read()

    def publish_model(self, model: ModelInfo) -> None:
        self._models.publish(model, self._progress.read().env_steps)

    def end_production(self) -> None:
        """Do nothing: the gateway collects it once it reads that training is over."""

    def end_evaluation(self, exit_reason: str) -> None:
        """Wait until the supervisor, which sees the evaluator end, asks this process to end."""
        timeout_s = self._config.evaluation.end_timeout_s + _STOP_S
        if not select.select([self._stop.fileno()], [], [], timeout_s)[0]:
            log.warning("the last evaluation is not recorded: it takes too long")

    def is_stopped(self) -> bool:
        return self._stop.is_set


def main() -> None:
    """`python -m vedette_services.learner.trainer RUN EPOCH WAKEUP STOP`"""
    die_with_parent()
    ignore_stop_signals()
    sys.setswitchinterval(SWITCH_S)
    set_up_logging()
    root, epoch = Path(sys.argv[1]), int(sys.argv[2])
    wakeup, stop = (WakeupEvent(argument) for argument in sys.argv[3:5])
    set_log_context(epoch=epoch)
    with report_exit():
        Trainer(LearnerSpec.read(root), epoch, wakeup, stop).run()


_WAIT_S = 30.0  # for the gateway to have made it


def open_replay(spec: LearnerSpec, epoch: int) -> ReplayBuffer:
    """Open the replay to draw from, once the gateway has made it.

    Raises:
        ReplayFormatError: there is none after half a minute, or it is torn. If only the priorities
            are torn, they are made anew.
        ReplayBudgetError: the disk has no room for the priorities.
    """
    directory = replay_directory(spec.config, spec.run.root)
    deadline = time.monotonic() + _WAIT_S
    places = [source_directory(spec.config, spec.run.root, n) for n in spec.config.replay.sources]
    for place in (directory, *places):
        while not (place / MANIFEST).exists() and time.monotonic() < deadline:
            time.sleep(0.02)  # the gateway is another process: there is nothing to wait on
    ring = open_reader(directory)
    sources = {
        name: (rows, _priorities(spec, rows))
        for name, rows in open_sources(spec.config, spec.run.root).items()
    }
    return make_replay(spec.config, ring, epoch, _priorities(spec, ring), sources)


def _priorities(spec: LearnerSpec, ring: RingReader) -> NDArray[np.float64] | None:
    """Open the priorities, or make new ones if they are damaged; None where rows have none."""
    if not spec.config.replay.prioritized:
        return None
    try:
        return open_priorities(ring)
    except ReplayTornError as error:
        log.warning("%s %s: priorities begin anew, all samples count as new", error.path, error.why)
        error.path.unlink()
        return open_priorities(ring)


if __name__ == "__main__":
    main()

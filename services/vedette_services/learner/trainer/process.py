"""The trainer process owns the agent and reads the replay."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo, ReplayBuffer
from vedette_rl.device.loader import RankLoader
from vedette_rl.device.ranks import join, leave, ranks, require_same
from vedette_rl.errors import ReplayTornError
from vedette_rl.networks.seeding import restore_process
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.prioritized import open_priorities, read_priorities
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.ring_files import read_floor
from vedette_rl.replay.syncing import PRIORITIES
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.system import wait_readable
from vedette_services.host.exit_report import report_descriptor, report_exit
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import (
    PARENT_VARIABLE,
    WakeupEvent,
    die_with_parent,
    ignore_stop_signals,
    import_path,
)
from vedette_services.host.system import adopt_descriptors
from vedette_services.learner.heartbeat import HeartbeatThread
from vedette_services.learner.trainer.background import SWITCH_S, BackgroundPublisher
from vedette_services.learner.trainer.device import require_same_device, resolve_device
from vedette_services.learner.trainer.learner import (
    Learner,
    build_learning_agent,
    configured_arithmetic,
    gather_capture,
    load_initial_weights,
    make_replay,
)
from vedette_services.learner.trainer.training_loop import is_recorded
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.run.replay_layout import make_run_limiter, replay_directory
from vedette_services.run.resume import load_checkpoint
from vedette_services.run.sources import describe_sources, open_sources, source_directory
from vedette_services.status.records import (
    EndedEvaluations,
    GatewayStatus,
    IngestProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import Eval

log = logging.getLogger("vedette.trainer")

_LAST_MODEL_S = 20.0
_STOP_S = 15.0  # for the supervisor, after `evaluation.end_timeout_s`


class Trainer:
    """The `Peers` of a learner in a process of its own, reached by memory maps.

    Args:
        wakeup: set for every new model.
        stop: set by the supervisor to end the run.
        mark_turn: called each time that the loop comes round.
    """

    def __init__(
        self,
        spec: LearnerSpec,
        epoch: int,
        wakeup: WakeupEvent,
        stop: WakeupEvent,
        mark_turn: Callable[[], None] = lambda: None,
    ) -> None:
        run = spec.run
        self.mark_turn = mark_turn
        self._config = spec.config
        self._stop = stop
        self._replay = replay_directory(spec.config, run.root)
        self._origin = run.limiter_origin
        before = StatusRecordReader(run.learning_map, TrainerStatus).read()
        require_same_device(before.device, resolve_device(spec.config.learner.device))
        self._learner = Learner(
            spec.config,
            run,
            spec.run_id,
            epoch,
            spaces=spec.spaces,
            open_replay=lambda: open_replay(spec, epoch),
            lasting=True,
            sources=describe_sources(spec.config, run.root),
            origin=self._origin,
            trained=before.trained,
        )
        if self._learner.has_saved_priorities:  # those of an earlier release are no longer read
            for place in _ring_directories(spec):
                (place / PRIORITIES).unlink(missing_ok=True)
        schema = Schema.from_arrays(self._learner.agent.model_info().arrays)
        models = ModelMapWriter(run.model_map, schema, run.sent_map(spec.config))
        self._models = BackgroundPublisher(models, epoch, wakeup.set)
        self._status_record = StatusRecordWriter(run.learning_map, TrainerStatus)
        self._ingest = StatusRecordReader(run.ingest_map, GatewayStatus)
        self._progress = StatusRecordReader(run.progress_map, IngestProgress)
        self._evaluations = StatusRecordReader(run.evaluation_map, Eval)
        self._ended_evaluations = StatusRecordReader(run.ended_evaluations_map, EndedEvaluations)

    def run(self) -> None:
        """Train to the end of the run."""
        self.publish_status(self._learner.status)
        floor = read_floor(self._replay)
        limiter = make_run_limiter(self._config, floor, self._origin)
        self._learner.close(self._learner.train(self, limiter))

    # Peers

    def publish_status(self, status: TrainerStatus) -> None:
        self.mark_turn()
        self._models.raise_failure()
        if status.phase == "done":
            self._models.close(_LAST_MODEL_S)
        self._status_record.write(status)

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        ingest = replace(self._ingest.read(), env_steps=self._progress.read().env_steps)
        return ingest, self._evaluations.read()

    def read_ended_evaluations(self) -> EndedEvaluations:
        return self._ended_evaluations.read()

    def publish_model(self, model: ModelInfo) -> None:
        self._models.publish(model, self._progress.read().env_steps)

    def synced_rows(self) -> int:
        return self._progress.read().synced

    def end_production(self) -> None:
        """Do nothing: the gateway collects it once it reads that training is over."""

    def end_evaluation(self, exit_reason: str) -> None:
        """Wait until the supervisor, which sees the evaluator end, asks this process to end."""
        timeout_s = self._config.evaluation.end_timeout_s + _STOP_S
        if not wait_readable(self._stop.fileno(), timeout_s):
            log.warning("the last evaluation is not recorded: it takes too long")

    def is_stopped(self) -> bool:
        return self._stop.is_set


def main() -> None:
    """`python -m vedette_services.learner.trainer.process RUN EPOCH WAKEUP STOP`"""
    die_with_parent()
    ignore_stop_signals()
    sys.setswitchinterval(SWITCH_S)
    set_up_logging()
    root = Path(sys.argv[1])
    epoch = int(sys.argv[2])
    wakeup, stop = (WakeupEvent(argument) for argument in sys.argv[3:5])
    set_log_context(epoch=epoch)
    spec = LearnerSpec.read(root)
    spec.hold_run()
    if spec.config.learner.ranks == 1:
        with report_exit():
            _train(spec, epoch, wakeup, stop)
    elif _IS_RANK not in os.environ:
        run_ranks(spec, epoch)
    else:
        train_as_rank(spec, epoch, wakeup, stop)


def _train(spec: LearnerSpec, epoch: int, wakeup: WakeupEvent, stop: WakeupEvent) -> None:
    heartbeat = HeartbeatThread(spec.run.heartbeat_map("trainer"))
    Trainer(spec, epoch, wakeup, stop, heartbeat.mark_turn).run()


# Several ranks: torchrun in the trainer's place, with trainers below it

_IS_RANK = "VEDETTE_RANK"
"""Set for the processes that torchrun starts."""
_POLL_S = 0.1


def run_ranks(spec: LearnerSpec, epoch: int) -> None:
    """Run torchrun in this process, which starts this program once for each rank, and ends all of
    them as soon as one dies; this process then ends as that one did."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    for path in (rendezvous := _rendezvous(spec, epoch)).parent.glob(f"{_RENDEZVOUS}*"):
        path.unlink()
    threads = str(spec.config.learner.torch_threads or 1)
    here = {PARENT_VARIABLE: str(os.getpid()), **import_path(), _IS_RANK: "1"}
    here["PYTHONSAFEPATH"] = "1"  # as `python_module` starts a process
    # A signal that no process sends: how a run ends is the supervisor's matter. Versions before 2.9
    # do not ask for it, and end without a last checkpoint at Ctrl-C.
    os.environ |= {"PET_SIGNALS_TO_HANDLE": "SIGVTALRM", "OMP_NUM_THREADS": threads, **here}
    try:
        torchrun(
            [
                *("--nproc-per-node", str(spec.config.learner.ranks), "--max-restarts", "0"),
                *("--monitor-interval", str(_POLL_S), "--local-addr", "localhost"),
                # by a file: torch's own server would listen to all hosts
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{rendezvous}.torchrun"),
                *("--rdzv-conf", "store_type=file", "--rdzv-id", f"{spec.run_id}-{epoch}"),
                *("-m", "vedette_services.learner.trainer.process", *sys.argv[1:]),
            ]
        )
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        # torchrun itself has ended the others by a SIGTERM
        code = min(codes - {-signal.SIGTERM}, default=-signal.SIGTERM)
        if code < 0:
            with suppress(OSError):  # SIGKILL has no other handler
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        sys.exit(code)


def train_as_rank(spec: LearnerSpec, epoch: int, wakeup: WakeupEvent, stop: WakeupEvent) -> None:
    """Train as one of several ranks: rank 0 does what the only one does, the others follow it."""
    descriptors = [*wakeup.descriptors, *stop.descriptors, *report_descriptor()]
    adopt_descriptors(os.getppid(), descriptors)
    with report_exit():
        join(resolve_device(spec.config.learner.device), _rendezvous(spec, epoch))
        if ranks().number:
            follow(spec, epoch)
        else:
            _train(spec, epoch, wakeup, stop)
        leave()


_RENDEZVOUS = "ranks."


def _rendezvous(spec: LearnerSpec, epoch: int) -> Path:
    """The file by which the ranks of a start find one another."""
    return spec.run.live / f"{_RENDEZVOUS}{epoch}"


def follow(spec: LearnerSpec, epoch: int) -> None:
    """Do to a copy of the agent what rank 0 does, each step on this rank's part of the batch."""
    config = spec.config
    run = spec.run
    device = resolve_device(config.learner.device)
    agent = build_learning_agent(config, spec.spaces, epoch, device)
    checkpoints = Checkpoints(run.checkpoints, keep=config.learner.keep_checkpoints)
    checkpoint = load_checkpoint(checkpoints, agent, config.agent.name)
    if checkpoint is not None:
        restore_process(checkpoint.state.get("torch", {}), device)
    elif config.learner.init_from:
        load_initial_weights(config.learner, agent)
    require_same(agent.opt_steps)
    rows = _open_rows(spec, replay_directory(config, run.root))
    replay = UniformReplay(rows, np.random.default_rng([config.seed, epoch]))
    settings = config.learner
    batch_size = config.agent.batch_size
    loader = RankLoader(
        replay,
        batch_size,
        device,
        copy_replay=settings.copy_replay,
        capture=gather_capture(device, settings),
    )
    with configured_arithmetic(settings, device):
        while (loaded := loader.follow()) is not None:
            record = is_recorded(settings, agent.opt_steps + 1)
            agent.opt(loaded.batch, loaded.weights, record=record)


_WAIT_S = 30.0  # for the gateway to have made it


def open_replay(spec: LearnerSpec, epoch: int, *, in_files: bool = False) -> ReplayBuffer:
    """Open the replay to draw from, once the gateway has made it.

    Args:
        epoch: of this start.
        in_files: priorities lie in files; else in checkpoints, and files of an earlier release are
            read.

    Raises:
        ReplayFormatError: there is none after half a minute, or it is torn. If only the priorities
            are torn, new ones are made.
        ReplayBudgetError: the disk has no room for the priorities.
    """
    ring = _open_rows(spec, *_ring_directories(spec))
    sources = {
        name: (rows, _priorities(spec, rows, in_files=in_files))
        for name, rows in open_sources(spec.config, spec.run.root).items()
    }
    priorities = _priorities(spec, ring, in_files=in_files)
    return make_replay(spec.config, spec.spaces, ring, epoch, priorities, sources)


def _ring_directories(spec: LearnerSpec) -> list[Path]:
    """Where the rings of actors and of sources lie."""
    config = spec.config
    root = spec.run.root
    sources = [source_directory(config, root, name) for name in config.replay.sources]
    return [replay_directory(config, root), *sources]


def _open_rows(spec: LearnerSpec, directory: Path, *places: Path) -> RingReader:
    """Open the replay of actors, once the gateway has made it and those of sources."""
    deadline = time.monotonic() + _WAIT_S
    for place in (directory, *places):
        while not (place / MANIFEST).exists() and time.monotonic() < deadline:
            time.sleep(0.02)  # the gateway is another process: there is nothing to wait on
    return open_reader(directory, batch_rows=spec.config.actors.n_buffer)


def _priorities(
    spec: LearnerSpec, ring: RingReader, *, in_files: bool
) -> NDArray[np.float64] | None:
    """Open the priorities, or make new ones if they are damaged; None where rows have none."""
    if not spec.config.replay.prioritized:
        return None
    open_them = open_priorities if in_files else read_priorities
    try:
        return open_them(ring)
    except ReplayTornError as error:
        log.warning("%s %s: priorities are empty; all samples count as new", error.path, error.why)
        error.path.unlink()
        return open_them(ring)


if __name__ == "__main__":
    run_to_end(main, log.warning)

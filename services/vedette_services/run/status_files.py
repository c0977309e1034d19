"""The status records of a run directory: read together as its status, and cleared at a start."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vedette_rl.errors import CheckpointError, LatestValueFormatError, MapSpaceError, OneWriterError
from vedette_rl.storage.state_file import check_state
from vedette_services.host.system import process_state
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.heartbeats import HeartbeatReader, Liveness
from vedette_services.status.records import (
    PROCESSES,
    B,
    EndedEvaluations,
    GatewayStatus,
    Heartbeat,
    IngestProgress,
    ReportedEvaluation,
    SnapshotProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
    status_records_bytes,
)
from vedette_services.status.status import Eval, Status


def read_best(directory: Path) -> Eval:
    """Read the best evaluation of the earlier starts of a run."""
    try:
        meta = check_state(directory)
    except CheckpointError:
        return Eval()  # there is none yet, or it is torn: the next evaluation writes one
    version = int(meta["version"])
    best = Eval(best_return_mean=float(meta["return_mean"]), best_version=version)
    episodes = meta.get("reached_episodes")  # of the one that reached the target alone
    if episodes is None:
        return best
    return replace(
        best,
        reached_return_mean=best.best_return_mean,
        reached_version=version,
        reached_episodes=int(episodes),
    )


def clear_status_records(run: RunDirectory, *, new_best: bool = False) -> None:
    """Remove the records of an earlier start, whose last phase was "done".

    Call it before any of them is opened to be read: a reader keeps the file that it has found.

    The best evaluation is known from then on, long before the evaluator is, unless it does not
    count any more (`new_best`).

    Where the disk has no room for new files, the files stay, each with an empty record.
    """
    has_room = shutil.disk_usage(run.live).free >= status_records_bytes()
    _clear(run.learning_map, TrainerStatus, has_room)
    _clear(run.ingest_map, GatewayStatus, has_room)
    _clear(run.progress_map, IngestProgress, has_room)
    _clear(run.evaluation_map, Eval, has_room, Eval() if new_best else read_best(run.best))
    _clear(run.ended_evaluations_map, EndedEvaluations, has_room)
    _clear(run.reported_map, ReportedEvaluation, has_room)
    for process in PROCESSES:
        _clear(run.heartbeat_map(process), Heartbeat, has_room)
    if run.snapshot_map.exists():  # few runs have one
        _clear(run.snapshot_map, SnapshotProgress, has_room)
    run.safe_map.unlink(missing_ok=True)
    run.evaluated_map.unlink(missing_ok=True)


def _clear(path: Path, kind: type[B], has_room: bool, first: B | None = None) -> None:
    if has_room:
        path.unlink(missing_ok=True)
    if has_room and first is None:
        return
    with suppress(LatestValueFormatError, MapSpaceError, OneWriterError):
        record = StatusRecordWriter(path, kind)
        record.write(kind() if first is None else first)
        record.close()


class StatusReader:
    """Reads the status from the records of a run's three processes; one reader per thread."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec
        self.learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self.ingest = StatusRecordReader(spec.run.ingest_map, GatewayStatus)
        self.evaluations = StatusRecordReader(spec.run.evaluation_map, Eval)
        self.snapshot = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress)
        self.heartbeats = HeartbeatReader(spec.run.heartbeat_map, process_state)

    def read(self) -> Status:
        """The status of the run, as it is sent."""
        return counted(self.read_known())

    def read_known(self) -> Status:
        """The status of known numbers alone; see `assemble_known`."""
        learning = self.learning.read()
        over = learning.phase == "done"
        return assemble_known(
            self._spec.run_id,
            self._spec.config,
            learning,
            self.ingest.read(),
            self.evaluations.read(),
            Liveness.read(self.heartbeats, time.monotonic(), is_training_over=over),
            self.snapshot.read(),
        )

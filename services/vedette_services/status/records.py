"""The status records that the learner's processes share, and the status made of them.

A status record is a frozen dataclass in a memory map of `vedette_rl.storage.latest_value`. One
process writes it and all may read it: the latest value wins, no process waits, and a process that
restarts rereads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from vedette_rl.storage.latest_value import (
    SLOTS,
    LatestValueReader,
    LatestValueWriter,
    latest_value_file_bytes,
)
from vedette_services.status.schema import decode, encode
from vedette_services.status.status import (
    Checkpoint,
    Disk,
    Eval,
    HostLoad,
    Lag,
    ManagerStatus,
    Rates,
    Refused,
    ReplayStatus,
    Samples,
    SourceStatus,
    Time,
)

PROCESSES = ("supervisor", "trainer", "gateway", "evaluator")
"""The processes of a learner that write a heartbeat."""

GONE_AFTER_S = 10.0  # silence after which a manager is shown as gone; it may still come back

SAMPLES_LATE_S = 10.0
"""A delay of a manager's samples that its log and the status say. It is no shorter: batches that a
slow actor fills take seconds to be made."""

DISK_LAG_S = 1.0  # a wait of samples for the disk that is longer is shown
DISK_LAGS = (
    "samples wait for the disk, which is slow to sync the replay: raise "
    "replay.sync_interval_s, or name a faster disk as replay.directory"
)

# Parts of the status before anything was measured.
_NO_TIME = Time(0.0, 0.0, 0.0, 0.0)
_NOT_MEASURED = ReplayStatus()
_NO_OPT_RATES, _NO_SAMPLE_RATES = Rates(opt_steps_per_sec=0.0), Rates(samples_per_sec=0.0)
_NO_LAG = Lag()
_NONE_REFUSED = Refused(0, 0, 0, 0, 0, 0, 0, 0)
_NO_CHECKPOINT = Checkpoint()
_NO_EVALUATION = Eval()
_NO_DISK = Disk()
_NO_LOAD = HostLoad()


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """How long a run has trained, in seconds.

    Args:
        start_s: since the learner's start, by all its trainers: `stop.max_seconds` bounds it.
        earlier_s: of the learner's starts before, together.
    """

    start_s: float = 0.0
    earlier_s: float = 0.0

    @property
    def run_s(self) -> float:
        """Of all starts together."""
        return self.earlier_s + self.start_s


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """The trainer's status record, written up to fifty times a second.

    Args:
        epoch: the trainer's epoch; 0 before the first.
        opt_steps: optimization steps over all epochs: the model's version.
        sampled: rows drawn from the replay over all epochs.
        phase: starting, waiting, training, or done.
        waits: why it waits, "" while it trains.
        taken: of a queue, the first row that was not looked at.
        lacking: of a queue, the runs that the block lacks of which it is made up, of the rows below
            `taken`; 0 while it is learned from.
        kept: of a queue, the first row that may not be overwritten, as no checkpoint on the disk is
            behind it; None: not known.
        sync_until: of a queue, the rows that a checkpoint waits for the disk to have.
        replay: the numbers of the replay that it measures.
        needs_samples: it waits for samples that actors have to insert whatever the limiter says:
            nothing can be drawn from those that are there.
        exit_reason: "" until it is done.
        trained: how long the run has trained.
        rates, time, lag: the numbers of these parts that it measures.
        record: the scalars last recorded by the agent.
        checkpoint: the newest, and whether another can be written.
        unsaved: the reason why the last checkpoint is not on the disk at the end; "" if it is.
        evaluates: the training is done, and the last model is being evaluated.
        sources: the named sources of samples.
        disk: the room of the run's disk.
        limiter_origin: samples inserted and drawn when the limiter's balance began; None: it began
            with the first sample drawn.
        host: the load of its host.
        device: torch's name of the device that it trains on; "" before that is known.
    """

    epoch: int = 0
    opt_steps: int = 0
    sampled: int = 0
    phase: str = "starting"
    waits: str = ""
    exit_reason: str = ""
    trained: TrainingTime = TrainingTime()
    rates: Rates = _NO_OPT_RATES
    time: Time = _NO_TIME
    lag: Lag = _NO_LAG
    record: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint = _NO_CHECKPOINT
    unsaved: str = ""
    evaluates: bool = False
    sources: tuple[SourceStatus, ...] = ()
    disk: Disk = _NO_DISK
    limiter_origin: tuple[int, int] | None = None
    host: HostLoad = _NO_LOAD
    needs_samples: bool = False
    replay: ReplayStatus = _NOT_MEASURED
    taken: int = 0
    lacking: int = 0
    kept: int | None = None
    sync_until: int = 0
    device: str = ""


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The gateway's status record: accounting, fleet and limiter, written 5 times a second.

    Args:
        samples: None until the gateway has opened the replay.
        env_steps: environment steps that inserted batches carried, over the whole run.
        managers: including those that are gone, until they are forgotten.
        replay, rates, lag: the numbers of these parts that it measures.
        limiter_reason: why actors have to wait, "" if they do not.
        garbage: invalid messages, of unknown senders and of known ones; batches are `rejected`.
        ended: the gateway has announced the end of the run and received the last batches.
        rejected_reason: why the last batch was rejected, but for those after the last step.
        rejecting: none was inserted since.
        unusable: why the run is to end: most samples are rejected; "" while it goes on.
        rivals: two managers that use one id, within the last minute; "" if there are none.
        evaluating: the evaluation that a manager plays, as text; "" if none does.
        confirms: it is fresh episodes of a model at the target, or was when the run ended.
        unevaluated: why no manager has evaluated a model that is due; "" if nothing is wrong.
        source_sizes: rows of the named sources that grow.
        rows: inserted into the replay since the run began.
        unsafe_batches: batches of managers with an outbox that are stored, and not safe yet.
        misplaced: the run's directory or the replay is not where it was; "" if both are.
    """

    samples: Samples | None = None
    managers: tuple[ManagerStatus, ...] = ()
    replay: ReplayStatus = _NOT_MEASURED
    rates: Rates = _NO_SAMPLE_RATES
    limiter_reason: str = ""
    lag: Lag = _NO_LAG
    garbage: int = 0
    refused: Refused = _NONE_REFUSED
    ended: bool = False
    rejected_reason: str = ""
    rejecting: bool = False
    unusable: str = ""
    rivals: str = ""
    env_steps: int = 0
    evaluating: str = ""
    confirms: bool = False
    unevaluated: str = ""
    source_sizes: dict[str, int] = field(default_factory=dict)
    misplaced: str = ""
    rows: int = 0
    unsafe_batches: int = 0


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """What the gateway writes at every commit.

    Args:
        env_steps: environment steps of inserted batches.
        synced: rows of the replay that the disk has.
    """

    env_steps: int = 0
    synced: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A process's sign of life, written every second by a thread of its own.

    Times are of the monotonic clock, which the processes of a host share.

    Args:
        pid: the process; 0 until it writes the first one itself.
        began_s: when it was started; 0: nobody was.
        beat_s: when this was written.
        turn_s: when its loop came round last; 0: it has not begun.
        moved_s: when its main thread was last seen at another place than before.
        place: where its main thread is; "" while its loop comes round.
        compiles: it compiles networks there.
        debugged: a debugger is loaded in it.
        bounded: False: its loop may take as long as it likes.
    """

    pid: int = 0
    began_s: float = 0.0
    beat_s: float = 0.0
    turn_s: float = 0.0
    moved_s: float = 0.0
    place: str = ""
    compiles: bool = False
    debugged: bool = False
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class ReportedEvaluation:
    """An evaluation that a manager played, as the gateway hands it to the evaluator.

    The model of one that counts is in `RunDirectory.evaluated_map`, written before.

    Args:
        counts: it may make its model the best one.
    """

    found: Eval = _NO_EVALUATION  # named as in the records of earlier versions, which are read
    epoch: int = 0
    counts: bool = False

    def is_in(self, seen: Eval) -> bool:
        """Return True if the evaluator has taken it."""
        if not self.counts:
            return (seen.shown_version, seen.shown_by) == (self.found.version, self.found.played_by)
        return (seen.version, seen.played_by) == (self.found.version, self.found.played_by)


@dataclass(frozen=True, slots=True)
class EndedEvaluations:
    """The evaluations that ended last, oldest first, for the curves.

    The status has the newest alone, and several may end from one look of the trainer to the next.

    Args:
        count: how many have ended since the learner's start.
    """

    count: int = 0
    newest: tuple[Eval, ...] = ()

    def with_added(self, evaluation: Eval) -> EndedEvaluations:
        """Return them with one more; the oldest give way."""
        return EndedEvaluations(self.count + 1, (*self.newest, evaluation)[-_ENDED_KEPT:])

    def after(self, count: int) -> tuple[Eval, ...]:
        """Return those that ended after the first `count`, as far as they are kept."""
        missing = max(0, self.count - count)
        return self.newest[-missing:] if missing else ()


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """The record of the process that writes the snapshot.

    Args:
        state: starting; written: a generation of this start is there; away: the directory cannot be
            reached or written; taken: it is another learner's.
        number, rows: of the last generation of this start.
        reserved: the highest epoch that it reserves.
        why: what is wrong.
        opt_steps: of the checkpoint in that generation; None: it has none.
        completed_s: when it was completed, on the monotonic clock; 0: never.
        began_s: when the one that is being written was begun; 0: none is.
        failures: tries in a row that failed.
    """

    state: str = "starting"
    number: int = 0
    rows: int = 0
    reserved: int = 0
    why: str = ""
    opt_steps: int | None = None
    completed_s: float = 0.0
    began_s: float = 0.0
    failures: int = 0


NO_ENDED_EVALUATIONS = EndedEvaluations()
_ENDED_KEPT = 32  # more than can end within a tick of the training loop

B = TypeVar(
    "B",
    TrainerStatus,
    GatewayStatus,
    IngestProgress,
    Eval,
    ReportedEvaluation,
    EndedEvaluations,
    SnapshotProgress,
    Heartbeat,
)


_STATUS_RECORD_BYTES = {
    TrainerStatus: 256 << 10,
    GatewayStatus: 4 << 20,  # 1,000 managers of 16 actors fit
    IngestProgress: 64,
    Eval: 16 << 10,
    ReportedEvaluation: 16 << 10,
    EndedEvaluations: 64 << 10,
    SnapshotProgress: 8 << 10,
    Heartbeat: 4 << 10,
}


def status_records_bytes() -> int:
    """Return the size of all record maps on disk, but that of a snapshot's process."""
    maps = dict.fromkeys(_STATUS_RECORD_BYTES, 1)
    maps |= {Heartbeat: len(PROCESSES), SnapshotProgress: 0}
    return sum(
        count * latest_value_file_bytes(_STATUS_RECORD_BYTES[kind], SLOTS)
        for kind, count in maps.items()
    )


class StatusRecordWriter(Generic[B]):
    """The one writer of a status record."""

    def __init__(self, path: Path, kind: type[B]) -> None:
        self._map = LatestValueWriter(path, _STATUS_RECORD_BYTES[kind])

    def write(self, record: B) -> None:
        self._map.write(encode(record))

    def close(self) -> None:
        """Let another process become the writer; the last record stays."""
        self._map.close()


class StatusRecordReader(Generic[B]):
    """A reader of a status record; an empty record until the first is written."""

    def __init__(self, path: Path, kind: type[B]) -> None:
        self._map = LatestValueReader(path)
        self._kind: type[B] = kind
        self._seq = 0
        self._record: B = kind()

    def read(self) -> B:
        """Return the latest record; the same object as before until a new one is written."""
        if self._map.seq != self._seq and (newest := self._map.read()) is not None:
            self._seq, data = newest
            self._record = decode(self._kind, data) or self._kind()
        return self._record

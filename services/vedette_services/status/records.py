"""The status records that the learner's processes share, and the status made of them.

A status record is a frozen dataclass in a memory map of `vedette_rl.storage.latest_value`. One
process writes it and all may read it: the latest value wins, no process waits, and a process that
restarts rereads it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_rl.storage.latest_value import (
    SLOTS,
    LatestValueReader,
    LatestValueWriter,
    latest_value_file_bytes,
)
from vedette_services.host.system import vedette_version
from vedette_services.status.schema import decode, encode, merged
from vedette_services.status.status import (
    Checkpoint,
    Eval,
    Lag,
    LimiterStatus,
    ManagerStatus,
    Rates,
    Refused,
    ReplayStatus,
    Samples,
    SourceStatus,
    Status,
    StopStatus,
    Time,
    WindowStatus,
    rollout_of,
)

if TYPE_CHECKING:  # `vedette status` needs no configuration
    from vedette_services.config.run_config import RunConfig

GONE_AFTER_S = 10.0  # silence after which a manager is shown as gone; it may still come back

DISK_LAG_S = 1.0  # a wait of samples for the disk that is longer is shown
DISK_LAGS = (
    "samples wait for the disk, which is slow to sync the replay: raise "
    "replay.sync_interval_s, or name a faster disk as replay.directory"
)

# Parts of the status before anything was measured.
_NO_SAMPLES = Samples(0, 0, 0, 0, 0, 0, 0)
_NO_TIME = Time(0.0, 0.0, 0.0, 0.0)
_NO_REPLAY = ReplayStatus(size=0, bytes=0)
_NO_OPT_RATES, _NO_SAMPLE_RATES = Rates(opt_steps_per_sec=0.0), Rates(samples_per_sec=0.0)
_NO_LAG_DRAWN = Lag(sample_mean=0.0, sample_p95=0.0, sample_max=0.0)
_NO_LAG = Lag(mean=0.0, p95=0.0, max=0.0, seconds_mean=0.0)
_NONE_REFUSED = Refused(0, 0, 0, 0, 0, 0, 0, 0)
_NO_CHECKPOINT = Checkpoint()
_NO_EVALUATION = Eval()


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """The trainer's status record, written up to fifty times a second.

    Args:
        epoch: the trainer's epoch; 0 before the first.
        opt_steps: optimization steps over all epochs: the model's version.
        sampled: rows drawn from the replay over all epochs.
        phase: starting, waiting, training, or done.
        waits: why it waits, "" while it trains.
        exit_reason: "" until it is done.
        seconds: since this start of the trainer.
        rates, time, lag: the numbers of these parts that it measures.
        record: the scalars last recorded by the agent.
        checkpoint: the newest, and whether another can be written.
        unsaved: the reason why the last checkpoint is not on the disk at the end; "" if it is.
        evaluates: the training is done, and the last model is being evaluated.
        sources: the named sources of samples.
    """

    epoch: int = 0
    opt_steps: int = 0
    sampled: int = 0
    phase: str = "starting"
    waits: str = ""
    exit_reason: str = ""
    seconds: float = 0.0
    rates: Rates = _NO_OPT_RATES
    time: Time = _NO_TIME
    lag: Lag = _NO_LAG_DRAWN
    record: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint = _NO_CHECKPOINT
    unsaved: str = ""
    evaluates: bool = False
    sources: tuple[SourceStatus, ...] = ()


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
        rivals: two managers that use one id, within the last minute; "" if there are none.
        evaluating: the evaluation that a manager plays, as text; "" if none does.
        source_sizes: rows of the named sources that grow.
    """

    samples: Samples | None = None
    managers: tuple[ManagerStatus, ...] = ()
    replay: ReplayStatus = _NO_REPLAY
    rates: Rates = _NO_SAMPLE_RATES
    limiter_reason: str = ""
    lag: Lag = _NO_LAG
    garbage: int = 0
    refused: Refused = _NONE_REFUSED
    ended: bool = False
    rejected_reason: str = ""
    rejecting: bool = False
    rivals: str = ""
    env_steps: int = 0
    evaluating: str = ""
    source_sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """The environment steps of inserted batches, which the gateway writes at every commit."""

    env_steps: int = 0


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


B = TypeVar("B", TrainerStatus, GatewayStatus, IngestProgress, Eval, ReportedEvaluation)


_STATUS_RECORD_BYTES = {
    TrainerStatus: 256 << 10,
    GatewayStatus: 4 << 20,  # 1,000 managers of 16 actors fit
    IngestProgress: 64,
    Eval: 16 << 10,
    ReportedEvaluation: 16 << 10,
}


def status_records_bytes() -> int:
    """Return the size of all record maps on disk."""
    return sum(latest_value_file_bytes(size, SLOTS) for size in _STATUS_RECORD_BYTES.values())


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


# The status


def assemble_status(
    run_id: str,
    config: RunConfig,
    learning: TrainerStatus,
    ingest: GatewayStatus,
    evaluations: Eval,
) -> Status:
    """Make the status of a run from the records of its processes."""
    samples = ingest.samples or _NO_SAMPLES
    inserted = samples.inserted or 0
    steps = learning.opt_steps
    capacity = config.replay.capacity
    window = config.actors
    since_warmup = (inserted - config.learner.warmup_period) / config.actors.rows_per_step
    return Status(
        vedette=vedette_version(),
        protocol=PROTOCOL_VERSION,
        time_s=time.time(),
        run_id=run_id,
        env=config.env.id,
        agent=config.agent.name,
        epoch=learning.epoch,
        version=steps,
        opt_steps=steps,
        env_steps=ingest.env_steps,
        exit_reason=learning.exit_reason,
        phase=learning.phase,
        seconds=learning.seconds,
        waits=describe_wait(learning, ingest, evaluations),
        stop=StopStatus(**config.stop.model_dump()),
        samples=samples,
        rejected_reason=ingest.rejected_reason,
        rates=merged(
            Rates(samples_per_opt_step=inserted / max(1, steps)), learning.rates, ingest.rates
        ),
        time=learning.time,
        replay=merged(ReplayStatus(capacity=capacity), ingest.replay),
        sources=_sources(learning, ingest),
        limiter=_limiter(learning, ingest, since_warmup),
        lag=merged(learning.lag, ingest.lag),
        rollout=rollout_of(ingest.managers),
        eval=evaluations,
        evaluating=ingest.evaluating,
        garbage=ingest.garbage,
        refused=ingest.refused,
        record=learning.record,
        checkpoint=learning.checkpoint,
        unsaved=learning.unsaved,
        rivals=ingest.rivals,
        window_limits=WindowStatus(window.window_batches, window.window_bytes),
        managers_present=sum(manager.is_present for manager in ingest.managers),
        managers=ingest.managers,
    )


def describe_wait(
    learning: TrainerStatus, ingest: GatewayStatus, evaluations: Eval | None = None
) -> str:
    """Return who waits and why, and what the disk cannot do; "" if all is well."""
    if learning.phase == "done":
        played = -1 if evaluations is None else evaluations.version
        waits = learning.evaluates and played != learning.opt_steps
        return f"the last evaluation: version {learning.opt_steps:,} is played" if waits else ""
    disk = DISK_LAGS if (ingest.replay.disk_lag_s or 0.0) > DISK_LAG_S else ""
    reasons = (_wait(learning, ingest), disk, _failing_checkpoint(learning.checkpoint))
    return "; ".join(reason for reason in reasons if reason)


def _failing_checkpoint(checkpoint: Checkpoint) -> str:
    if not checkpoint.failing:
        return ""
    kept = "there is none"
    if checkpoint.opt_steps is not None:
        kept = f"the last is of optimization step {checkpoint.opt_steps:,}"
    return f"no checkpoint can be written ({checkpoint.failing}), and {kept}"


def _wait(learning: TrainerStatus, ingest: GatewayStatus) -> str:
    if learning.phase == "starting":
        what = "trainer builds its agent" if ingest.samples else "gateway opens the replay"
        return f"the learner is starting: the {what}"
    if learning.phase == "waiting":
        present = sum(manager.is_present for manager in ingest.managers)
        why = f"; batches are rejected: {ingest.rejected_reason}" if ingest.rejecting else ""
        return f"{learning.waits}, {present} manager{'' if present == 1 else 's'} connected{why}"
    return ingest.limiter_reason


def _sources(learning: TrainerStatus, ingest: GatewayStatus) -> tuple[SourceStatus, ...]:
    """Make the sources' part: the gateway has the sizes of those that grow, to their last row."""
    sizes = ingest.source_sizes
    return tuple(replace(s, size=sizes.get(s.name, s.size)) for s in learning.sources)


def _limiter(learning: TrainerStatus, ingest: GatewayStatus, inserted: float) -> LimiterStatus:
    """Make the limiter's part of the status; `inserted` counts samples since the warm-up, one of
    each step."""
    if learning.phase == "waiting":
        state = "sample_waits"
        reason = learning.waits
    else:
        reason = "" if learning.phase == "done" else ingest.limiter_reason
        state = "insert_waits" if reason else "open"
    return LimiterStatus(
        samples_per_insert=learning.sampled / max(1.0, inserted),
        state=state,
        reason=reason,
        sample_waits=int(state == "sample_waits"),
        insert_waits=int(bool(ingest.limiter_reason) and learning.phase != "done"),
    )

"""Makes the status of a run from the status records of its processes."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_services.host.system import vedette_version
from vedette_services.status.heartbeats import Liveness
from vedette_services.status.records import (
    GatewayStatus,
    SnapshotProgress,
    TrainerStatus,
)
from vedette_services.status.schema import merged
from vedette_services.status.snapshot import snapshot_status
from vedette_services.status.status import (
    Eval,
    Lag,
    LimiterStatus,
    Rates,
    ReplayStatus,
    Samples,
    SnapshotStatus,
    SourceStatus,
    Status,
    StopStatus,
    WindowStatus,
    rollout_of,
)
from vedette_services.status.wait_reason import describe_wait

if TYPE_CHECKING:
    from vedette_services.config.run_config import RunConfig

_OPT_STEPS_STAND = Rates(opt_steps_per_sec=0.0)
_SAMPLES_STAND = Rates(samples_per_sec=0.0)
_NO_SAMPLES = Samples(**{number.name: 0 for number in fields(Samples)})
_NO_LAG = Lag(**{number.name: 0.0 for number in fields(Lag)})


def assemble_known(
    run_id: str,
    config: RunConfig,
    learning: TrainerStatus,
    ingest: GatewayStatus,
    evaluations: Eval,
    liveness: Liveness = Liveness(),  # noqa: B008 - it is not changed
    progress: SnapshotProgress | None = None,
) -> Status:
    """Make the status of a run from the records of its processes: of known numbers alone, as time
    series need it. What nothing was counted or measured of yet is None, such as `samples` until the
    gateway has opened the replay; see `counted`.

    What a process that stands still measured last is not passed off as its rate now.

    Args:
        progress: of the snapshot; None: no process writes one.
    """
    snapshot = SnapshotStatus()
    if progress is not None:
        snapshot = snapshot_status(config.learner, progress, ingest, time.monotonic())
    samples = ingest.samples or Samples()
    inserted = samples.inserted or 0
    steps = learning.opt_steps if learning.epoch else None
    capacity = config.replay.capacity
    window = config.actors
    warmup = 0 if config.replay.is_queue else config.learner.warmup_period
    begun, drawn = learning.limiter_origin or (warmup, 0)
    balanced = (inserted - begun) / config.actors.rows_per_step, learning.sampled - drawn
    return Status(
        vedette=vedette_version(),
        protocol=PROTOCOL_VERSION,
        time_s=time.time(),
        run_id=run_id,
        env=config.env.id,
        agent=config.agent.name,
        epoch=learning.epoch or None,
        version=steps,
        opt_steps=steps,
        env_steps=ingest.env_steps if ingest.samples else None,
        exit_reason=learning.exit_reason,
        phase=learning.phase,
        seconds=learning.trained.start_s,
        run_seconds=learning.trained.run_s,
        waits=describe_wait(
            learning,
            ingest,
            evaluations,
            liveness.standstills,
            ratio=_ratio(config),
            snapshot=snapshot,
        ),
        stop=StopStatus(**config.stop.model_dump()),
        samples=samples,
        rejected_reason=ingest.rejected_reason,
        rates=merged(
            Rates(samples_per_opt_step=inserted / steps if ingest.samples and steps else None),
            _OPT_STEPS_STAND if liveness.stands_still("trainer") else learning.rates,
            _SAMPLES_STAND if liveness.stands_still("gateway") else ingest.rates,
        ),
        time=learning.time,
        replay=merged(
            ReplayStatus(capacity=capacity),
            learning.replay,
            ingest.replay,
            _waiting(learning, ingest),
        ),
        sources=_sources(learning, ingest),
        limiter=_limiter(learning, ingest, *balanced),
        lag=merged(learning.lag, ingest.lag),
        rollout=rollout_of(ingest.managers, left=learning.phase == "done"),
        eval=evaluations,
        evaluating=ingest.evaluating,
        garbage=ingest.garbage,
        refused=ingest.refused,
        record=learning.record,
        checkpoint=learning.checkpoint,
        snapshot=snapshot,
        heartbeat=liveness.numbers,
        disk=learning.disk,
        host=learning.host,
        unsaved=learning.unsaved,
        unevaluated=ingest.unevaluated,
        rivals=ingest.rivals,
        window_limits=WindowStatus(window.window_batches, window.window_bytes),
        managers_present=sum(manager.is_present for manager in ingest.managers),
        managers=ingest.managers,
    )


def _ratio(config: RunConfig) -> str:
    """The setting that holds the replay ratio, with its value; "" where none does."""
    if config.replay.is_queue:
        return f"replay.passes = {config.replay.passes}"
    ratio = config.replay.samples_per_insert
    if ratio is None:
        ratio = config.agent.usual_samples_per_insert
    return f"replay.samples_per_insert = {ratio:g}" if ratio else ""


def counted(known: Status) -> Status:
    """The status that is sent and saved: with 0 for what nothing was counted or measured of yet,
    since scripts compare these numbers."""
    return replace(
        known,
        epoch=known.epoch or 0,
        version=known.version or 0,
        opt_steps=known.opt_steps or 0,
        env_steps=known.env_steps or 0,
        samples=merged(_NO_SAMPLES, known.samples),
        rates=merged(Rates(samples_per_opt_step=0.0), known.rates),
        replay=merged(ReplayStatus(size=0, bytes=0), known.replay),
        limiter=replace(known.limiter, samples_per_insert=known.limiter.samples_per_insert or 0.0),
        lag=merged(_NO_LAG, known.lag),
    )


def _waiting(learning: TrainerStatus, ingest: GatewayStatus) -> ReplayStatus:
    """Count the rows of a queue that nobody has looked at. The trainer knows those up to its last
    look, and more come until the gateway has ended."""
    if learning.replay.waiting is None:
        return ReplayStatus()
    return ReplayStatus(waiting=max(learning.replay.waiting, ingest.rows - learning.taken))


def _sources(learning: TrainerStatus, ingest: GatewayStatus) -> tuple[SourceStatus, ...]:
    """Make the sources' part: the gateway has the sizes of those that grow, to their last row."""
    sizes = ingest.source_sizes
    return tuple(replace(s, size=sizes.get(s.name, s.size)) for s in learning.sources)


def _limiter(
    learning: TrainerStatus, ingest: GatewayStatus, inserted: float, drawn: int
) -> LimiterStatus:
    """Make the limiter's part of the status; `inserted` counts samples since its balance began, one
    of each step, and `drawn` those drawn."""
    if learning.phase == "waiting":
        state = "sample_waits"
        reason = learning.waits
    else:
        reason = "" if learning.phase == "done" else ingest.limiter_reason
        state = "insert_waits" if reason else "open"
    return LimiterStatus(
        samples_per_insert=drawn / inserted if inserted > 0 else None,
        state=state,
        reason=reason,
        sample_waits=int(state == "sample_waits"),
        insert_waits=int(bool(ingest.limiter_reason) and learning.phase != "done"),
    )

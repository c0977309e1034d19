"""Why the learner or its actors wait: one sentence, from the status records."""

from __future__ import annotations

from collections.abc import Sequence

from vedette_services.status.heartbeats import Standstill
from vedette_services.status.records import (
    DISK_LAG_S,
    DISK_LAGS,
    SAMPLES_LATE_S,
    GatewayStatus,
    TrainerStatus,
)
from vedette_services.status.status import Checkpoint, Eval, SnapshotStatus


def describe_wait(
    learning: TrainerStatus,
    ingest: GatewayStatus,
    evaluations: Eval | None = None,
    standstills: Sequence[Standstill] = (),
    *,
    ratio: str = "",
    snapshot: SnapshotStatus = SnapshotStatus(),  # noqa: B008 - it is not changed
) -> str:
    """Return who stands still, who waits and why, and what the disks cannot do; "" if all is well.

    What a trainer that stands still waited for before is not its reason.

    Args:
        ratio: the setting by which one side waits for the other, with its value; "": nobody waits.
    """
    still = [str(one) for one in standstills]
    waits = ""
    if not any(one.process == "trainer" for one in standstills):
        waits = _limit(learning, ingest, ratio) or _wait(learning, ingest)
    if learning.phase == "done":
        played = -1 if evaluations is None else evaluations.version
        is_played = learning.evaluates and played != learning.opt_steps
        last = f"the last evaluation: version {learning.opt_steps:,} is played"
        return "; ".join([*still, *([last] if is_played else [])])
    late = _late_manager(ingest)
    unkept = _describe_unkept(ingest)
    disk = DISK_LAGS if (ingest.replay.disk_lag_s or 0.0) > DISK_LAG_S else ""
    failing = _failing_checkpoint(learning.checkpoint)
    unsafe = _failing_snapshot(snapshot)
    reasons = (
        *still,
        ingest.misplaced,
        waits,
        late,
        unkept,
        disk,
        failing,
        unsafe,
        learning.disk.short,
    )
    return "; ".join(reason for reason in reasons if reason)


def _late_manager(ingest: GatewayStatus) -> str:
    """Name the manager whose samples come latest, where that is late: no sum shows it."""
    delays = {m.id: m.window.delay_s or 0.0 for m in ingest.managers if m.is_present}
    latest = max(delays, key=delays.__getitem__, default="")
    if not latest or delays[latest] < SAMPLES_LATE_S:
        return ""
    return f"samples of {latest} come {delays[latest]:.0f} s late"


def _describe_unkept(ingest: GatewayStatus) -> str:
    """Name the managers whose outbox cannot write, and for how many samples."""
    unkept = [m for m in ingest.managers if m.is_present and m.memory_rows]
    if not unkept:
        return ""
    rows = sum(manager.memory_rows for manager in unkept)
    most = max(unkept, key=lambda manager: manager.memory_rows).id
    others = f" and {len(unkept) - 1:,} more managers" if len(unkept) > 1 else ""
    return (
        f"{rows:,} samples of {most}{others} are in memory alone, as their outbox's disk is away "
        "or takes no writes: they are kept no better than without an outbox"
    )


def _limit(learning: TrainerStatus, ingest: GatewayStatus, ratio: str) -> str:
    """Return what limits the speed, where samples flow and can be drawn."""
    if learning.needs_samples:
        return ""
    flows = any(manager.is_present for manager in ingest.managers) and not ingest.rejecting
    if not flows:
        return ""
    return describe_limit(learning, ratio, _held_back(ingest))


_HELD_S = 5.0
"""Managers that hold the samples of a longer time than this are held up on the way."""
_HELD_LEAST = 1000
"""As many may be a few batches of slow actors, which come one at a time."""


def _held_back(ingest: GatewayStatus) -> int:
    """Return the samples that managers hold though there is room for them; 0 where these are no
    more than are always on the way."""
    held = (ingest.samples.in_flight or 0) if ingest.samples else 0
    usual = _HELD_S * (ingest.rates.samples_per_sec or 0.0)
    return held if held > max(usual, _HELD_LEAST) else 0


MOSTLY = 0.5
"""A learner that waits for a larger share of the time than this is held up by its actors."""
HARDLY = 0.1
"""One that waits for a smaller share is what limits the speed."""


def describe_limit(learning: TrainerStatus, ratio: str, held: int = 0) -> str:
    """Return what limits the speed, from the shares of the last 10 s, and what would help; "" while
    that is not known, or there is no replay ratio by which one side waits for the other.

    Args:
        held: samples that managers have, and that do not come.
    """
    waiting = learning.time.waiting_share
    worked = (learning.time.optimizing_share or 0.0) + (learning.time.sampling_share or 0.0)
    if learning.phase not in ("waiting", "training") or not ratio:
        return ""
    if waiting is None or not worked:
        return ""
    waited = f"the learner waited for samples {100 * waiting:.0f} % of the last 10 s"
    if waiting >= MOSTLY and held:
        return (
            f"the way from the actors is the limit: {waited}, and managers hold {held:,}; a faster "
            "network or gateway helps, more actors do not"
        )
    if waiting >= MOSTLY:
        return f"the actors are the limit: {waited}; more actors help, at {ratio}"
    if waiting >= HARDLY:
        return f"learner and actors take turns, at {ratio}: {waited}"
    return (
        f"the learner is the limit: {waited}; a faster device or a lower replay ratio helps "
        f"({ratio}), more actors do not"
    )


def _failing_checkpoint(checkpoint: Checkpoint) -> str:
    if not checkpoint.failing:
        return ""
    kept = "there is none"
    if checkpoint.opt_steps is not None:
        kept = f"the last is of optimization step {checkpoint.opt_steps:,}"
    return f"no checkpoint can be written ({checkpoint.failing}), and {kept}"


def _failing_snapshot(snapshot: SnapshotStatus) -> str:
    if not snapshot.failing:
        return ""
    lacks = f", which lacks {snapshot.rows_behind:,} samples" if snapshot.rows_behind else ""
    kept = "there is none of this start"
    if snapshot.generation is not None:
        kept = f"the last is generation {snapshot.generation:,}{lacks}"
    return f"no snapshot can be written ({snapshot.failing}), and {kept}"


def _wait(learning: TrainerStatus, ingest: GatewayStatus) -> str:
    if learning.phase == "starting":
        what = "trainer builds its agent" if ingest.samples else "gateway opens the replay"
        return f"the learner is starting: the {what}"
    if learning.phase == "waiting":
        present = sum(manager.is_present for manager in ingest.managers)
        why = f"; batches are rejected: {ingest.rejected_reason}" if ingest.rejecting else ""
        refused = describe_refused(ingest)
        if refused and refused not in learning.waits:
            why = f"{why}; {refused}"
        return f"{learning.waits}, {present} manager{'' if present == 1 else 's'} connected{why}"
    return ingest.limiter_reason


def describe_refused(ingest: GatewayStatus) -> str:
    """Return why nobody plays, as managers that gave up or the gateway say it; "" where somebody
    does, or nobody has come."""
    if any(manager.is_present for manager in ingest.managers):
        return ""
    gave_up = [
        (manager.id, manager.actors[0].error)
        for manager in ingest.managers
        if manager.left and manager.actors and all(actor.error for actor in manager.actors)
    ]
    if gave_up:
        name, why = gave_up[-1]
        others = f" (and {len(gave_up) - 1} more)" if len(gave_up) > 1 else ""
        return f"manager {name}{others} gave up: {why}"
    if keys := ingest.refused.keys:
        several = " was" if keys == 1 else "s were"
        return f"{keys:,} connection{several} refused, whose keys are not let in here"
    return ""

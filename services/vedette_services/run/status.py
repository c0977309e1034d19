"""The status of a run: the contract's fields, from the boards of the three processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_services.config.run_config import RunConfig
from vedette_services.host.versions import vedette_version
from vedette_services.run.spec import LearnerSpec
from vedette_services.run.status_records import (
    EvaluatorStatus,
    GatewayStatus,
    StatusRecordReader,
    TrainerStatus,
)

_NO_SAMPLES = dict.fromkeys(
    ("produced", "inserted", "duplicates", "rejected", "dropped", "lost", "in_flight"), 0
)

_REFUSED = ("keys", "ids", "handshakes", "credit")


class RunDescription(Protocol):
    """Which run it is."""

    @property
    def run_id(self) -> str:
        """The run's."""
        ...

    @property
    def config(self) -> RunConfig:
        """What is run."""
        ...


def assemble_status(
    spec: RunDescription,
    learning: TrainerStatus,
    ingest: GatewayStatus,
    evaluations: EvaluatorStatus,
) -> dict[str, Any]:
    """`status --json`, `summary.json` and the live view are this dictionary."""
    samples = {**_NO_SAMPLES, **ingest.samples}
    config = spec.config
    return {
        "vedette": vedette_version(),
        "protocol": PROTOCOL_VERSION,
        "time_s": time.time(),
        "run_id": spec.run_id,
        "env": config.env.id,
        "agent": config.agent.name,
        "epoch": learning.epoch,
        "version": learning.opt_steps,
        "opt_steps": learning.opt_steps,
        "env_steps": samples["produced"],
        "exit_reason": learning.exit_reason,
        "phase": learning.phase,
        "seconds": learning.seconds,
        "waits": describe_wait(learning, ingest, config.learner.warmup_period),
        "stop": config.stop.model_dump(mode="json"),
        "samples": samples,
        "rates": {
            "samples_per_sec": ingest.samples_per_sec,
            "opt_steps_per_sec": learning.opt_steps_per_sec,
            "samples_per_opt_step": samples["inserted"] / max(1, learning.opt_steps),
        },
        "time": {
            "optimizing_s": learning.opt_s,
            "sampling_s": learning.sample_s,
            "waiting_s": learning.wait_s,
            "training_s": learning.training_s,
        },
        "replay": {
            "size": ingest.replay_size,
            "capacity": config.replay.capacity,
            "bytes": ingest.replay_bytes,
        },
        "limiter": _limiter(learning, ingest, samples["inserted"] - config.learner.warmup_period),
        "lag": {name: ingest.lag.get(name, 0.0) for name in ("mean", "p95", "max", "seconds_mean")},
        "eval": _evaluation(evaluations),
        "garbage": ingest.garbage,
        "refused": {name: ingest.refused.get(name, 0) for name in _REFUSED},
        "record": learning.record,
        "unsaved": learning.unsaved,
        "window_limits": {
            "batches": config.actors.window_batches,
            "bytes": config.actors.window_bytes,
        },
        "managers": ingest.managers,
    }


class StatusReader:
    """The status now, from the boards of a run's three processes.

    Not for several threads: each makes its own.
    """

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._ingest = StatusRecordReader(spec.run.ingest_map, GatewayStatus)
        self._evaluations = StatusRecordReader(spec.run.evaluation_map, EvaluatorStatus)

    def read(self) -> dict[str, Any]:
        """What `status --json` says, from the boards alone."""
        return assemble_status(
            self._spec, self._learning.read(), self._ingest.read(), self._evaluations.read()
        )


def describe_wait(learning: TrainerStatus, ingest: GatewayStatus, warmup: int) -> str:
    """Who waits for what, in a sentence; "" when nobody does."""
    present = sum(manager["state"] != "gone" for manager in ingest.managers)
    if learning.phase == "starting":
        what = "trainer builds its agent" if ingest.samples else "gateway opens the replay"
        return f"the learner is starting: the {what}"
    if learning.phase == "waiting":
        why = f"; batches are rejected: {ingest.rejecting}" if ingest.rejecting else ""
        return f"{learning.waits}, {present} manager{'' if present == 1 else 's'} connected{why}"
    if ingest.limiter_reason:
        return ingest.limiter_reason
    return ""


def _limiter(learning: TrainerStatus, ingest: GatewayStatus, inserted: int) -> dict[str, Any]:
    """What was drawn per sample `inserted` since the warm-up, and who waits for whom."""
    if learning.phase == "waiting":
        state, reason = "sample_waits", learning.waits
    elif ingest.limiter_reason:
        state, reason = "insert_waits", ingest.limiter_reason
    else:
        state, reason = "open", ""
    return {
        "samples_per_insert": learning.sampled / max(1, inserted),
        "state": state,
        "reason": reason,
    }


def _evaluation(evaluations: EvaluatorStatus) -> dict[str, Any]:
    best = evaluations.best_version >= 0
    if not evaluations.count:
        last: dict[str, Any] = {
            "return_mean": None,
            "return_std": None,
            "episodes": 0,
            "version": None,
        }
    else:
        last = {
            "return_mean": evaluations.return_mean,
            "return_std": evaluations.return_std,
            "episodes": evaluations.episodes,
            "version": evaluations.version,
        }
    return {
        **last,
        "best_return_mean": evaluations.best_return_mean if best else None,
        "best_version": evaluations.best_version if best else None,
    }


@dataclass(frozen=True, slots=True)
class AsyncTrainStat:
    """Averages over the epoch's training.

    Args:
        samples_per_sec: transitions inserted a second.
        opt_per_sec: optimization steps a second.
        duration_s: since the first optimization step.
    """

    samples_per_sec: float
    opt_per_sec: float
    duration_s: float

    def fmt(self) -> str:
        """Upstream's comma-separated lines."""
        return (
            "samples/sec, opt_steps/sec, duration\n"
            f"{self.samples_per_sec:.1f}, {self.opt_per_sec:.1f}, {self.duration_s:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class ActorStat:
    """One actor's work.

    Args:
        actor: its manager's id and its own.
        env_steps: steps of all its environments together.
        samples_per_sec: those per second of training.
        duration_s: as the training's.
    """

    actor: str
    env_steps: int
    samples_per_sec: float
    duration_s: float


def train_stat(status: dict[str, Any]) -> AsyncTrainStat:
    """The training's averages from a run's status."""
    seconds = float(status["time"]["training_s"])
    return AsyncTrainStat(
        samples_per_sec=status["samples"]["inserted"] / seconds if seconds > 0 else 0.0,
        opt_per_sec=float(status["rates"]["opt_steps_per_sec"]),
        duration_s=seconds,
    )


def actor_stats(status: dict[str, Any]) -> list[ActorStat]:
    """Every actor that reported, gone ones too."""
    seconds = float(status["time"]["training_s"])
    return [
        ActorStat(
            f"{manager['id']}/{actor['id']}",
            actor["env_steps"],
            actor["env_steps"] / seconds if seconds > 0 else 0.0,
            seconds,
        )
        for manager in status["managers"]
        for actor in manager["actors"]
    ]


def actor_stats_fmt(stats: list[ActorStat]) -> str:
    """Upstream's comma-separated lines."""
    lines = ["actor_id, samples, samples/sec, duration"]
    lines += [
        f"{s.actor}, {s.env_steps}, {s.samples_per_sec:.1f}, {s.duration_s:.1f} s" for s in stats
    ]
    return "\n".join(lines)


def final_report_lines(status: dict[str, Any]) -> list[str]:
    """The lines for the log at the end of a run."""
    stats = f"{train_stat(status).fmt()}\n{actor_stats_fmt(actor_stats(status))}"
    return [f"run {status['run_id']} ended: {status['exit_reason']}", *stats.splitlines()]

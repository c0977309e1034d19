"""What upstream prints at the end: AsyncTrainStat, and an ActorStat for each actor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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


def report(status: dict[str, Any]) -> list[str]:
    """The lines for the log at the end of a run."""
    stats = f"{train_stat(status).fmt()}\n{actor_stats_fmt(actor_stats(status))}"
    return [f"run {status['run_id']} ended: {status['exit_reason']}", *stats.splitlines()]

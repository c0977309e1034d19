"""When a run is over: the conditions of `stop`, held against how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from vedette_services.config.parts import StopConfig


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Args:
        seconds: of this epoch, since the learner's start.
        return_mean: of the run's best greedy evaluation; None before the first.
    """

    opt_steps: int
    env_steps: int
    seconds: float
    return_mean: float | None


def exit_reason(stop: StopConfig, progress: Progress) -> str:
    """The contract's `exit_reason`, or "" while the run goes on. 0 switches a condition off."""
    if (
        stop.target_return is not None
        and progress.return_mean is not None
        and progress.return_mean >= stop.target_return
    ):
        return "target_return"
    if stop.max_opts and progress.opt_steps >= stop.max_opts:
        return "max_opts"
    if stop.max_env_steps and progress.env_steps >= stop.max_env_steps:
        return "max_env_steps"
    if stop.max_seconds and progress.seconds >= stop.max_seconds:
        return "max_seconds"
    return ""

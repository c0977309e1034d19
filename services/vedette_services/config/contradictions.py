"""Settings that are right by themselves and contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError


def contradictions(config: RunConfig) -> Iterator[SettingError]:
    """Yield an error for each pair of settings that cannot go together."""
    capacity, warmup = config.replay.capacity, config.learner.warmup_period
    batch, stop = config.agent.batch_size, config.stop
    if capacity < warmup:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples can never hold learner.warmup_period's {warmup:,}",
            f"set at least {warmup} or lower learner.warmup_period",
        )
    elif capacity < batch:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples are fewer than agent.batch_size's {batch:,}",
            f"set at least {batch} or lower agent.batch_size",
        )
    actors = config.actors
    if actors.restart_max_s < actors.restart_min_s:
        yield SettingError(
            "actors.restart_max_s",
            f"{actors.restart_max_s:g} s is below actors.restart_min_s's {actors.restart_min_s:g}",
            f"set at least {actors.restart_min_s:g} or lower actors.restart_min_s",
        )
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )

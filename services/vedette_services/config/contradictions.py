"""Settings that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.config import MemoryConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError


def contradictions(config: RunConfig) -> Iterator[SettingError]:
    """Yield an error for each pair of settings that are right by themselves and contradict."""
    capacity = config.replay.capacity
    warmup = config.learner.warmup_period
    batch = config.agent.batch_size
    stop = config.stop
    if capacity < warmup:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples can never hold learner.warmup_period's {warmup:,}",
            f"set at least {warmup} or lower learner.warmup_period",
        )
    elif capacity < batch and not config.replay.sequence:
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
    has_data = any(source.data for source in config.replay.sources.values())
    if actors.count == 0 and not has_data:
        why = "0 actors play, and replay.sources names no data set to learn from"
        yield SettingError("actors.count", why, "set at least 1, or replay.sources.NAME.data")
    if config.learner.pretrain_opts and not has_data:
        why = f"{config.learner.pretrain_opts:,} steps need samples before the actors', and "
        why += "replay.sources names no data set"
        yield SettingError("learner.pretrain_opts", why, "set replay.sources.NAME.data, or 0")
    imitation = getattr(config.agent, "imitation", None)
    if imitation is not None and imitation.loss != "none" and not config.replay.sources:
        why = f"is {imitation.loss}, and replay.sources names nobody to imitate"
        yield SettingError("agent.imitation.loss", why, "set replay.sources.NAME.data, or none")
    if config.learner.snapshot is not None and not config.replay.sync_interval_s:
        why = "is 0, and learner.snapshot copies what was synced"
        yield SettingError("replay.sync_interval_s", why, "set 5, or learner.snapshot=none")
    yield from _rank_contradictions(config)
    if config.replay.sequence and config.actors.step_processor != "n_step":
        why = "sequences are of single steps, and actors.step_processor "
        why += f"{config.actors.step_processor!r} may make other samples of a step"
        fix = "set actors.step_processor=n_step, or replay.sequence=0"
        yield SettingError("replay.sequence", why, fix)
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )


def _rank_contradictions(config: RunConfig) -> Iterator[SettingError]:
    ranks = config.learner.ranks
    batch = config.agent.batch_size
    if batch % ranks:
        why = f"{ranks} ranks cannot share agent.batch_size's {batch} samples evenly"
        yield SettingError("learner.ranks", why, "set a divisor of it")
    if ranks > 1 and (config.replay.sources or is_import_name(config.replay.name)):
        why = "several ranks share no replay.sources, and no replay of your own"
        yield SettingError("learner.ranks", why, "set 1")
    if ranks > 1 and config.replay.sequence:
        why = "several ranks share no sequences (replay.sequence)"
        yield SettingError("learner.ranks", why, "set 1")


def refused_sequences(config: RunConfig) -> Iterator[SettingError]:
    """Yield the errors of sequences for an agent that learns from single samples, and of single
    samples for one that learns from sequences."""
    if config.replay.sequence and not config.agent.learns_sequences:
        why = f"agent {config.agent.name!r} learns from single samples, and not from sequences"
        has_memory = isinstance(config.agent, MemoryConfig)
        other = "agent.memory=gru" if has_memory else "an agent that learns from them"
        yield SettingError("replay.sequence", why, f"set 0, or {other}")
    usual = config.agent.usual_sequence
    if usual is not None and not config.replay.sequence:
        why = f"is 0, and agent {config.agent.name!r} with memory learns from sequences"
        yield SettingError("replay.sequence", why, f"set {usual.steps}, or agent.memory=none")

"""Settings that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.config import MemoryConfig
from vedette_services.config.fleet_defaults import FleetSize
from vedette_services.config.run_config import RunConfig
from vedette_services.config.settings import NONE
from vedette_services.errors import SettingError


def contradictions(config: RunConfig) -> Iterator[SettingError]:
    """Yield an error for each pair of settings that are right by themselves and contradict."""
    capacity = config.replay.capacity
    warmup = config.learner.warmup_period
    batch = config.agent.batch_size
    stop = config.stop
    if config.replay.is_queue:
        yield from _queue_contradictions(config)
    elif capacity < warmup:
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
    if config.learner.init_from is not None and getattr(config.agent, "policy_batch_norm", False):
        why = "a policy that learns with batch normalization begins with weights of its own"
        yield SettingError(
            "learner.init_from", why, "leave it out, or agent.policy_batch_norm=false"
        )
    if config.learner.snapshot is not None and not config.replay.sync_interval_s:
        why = "is 0, and learner.snapshot copies what was synced"
        yield SettingError("replay.sync_interval_s", why, "set 5, or learner.snapshot=none")
    names = config.learner.recorders
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        why = f"names {', '.join(twice)} more than once, and each would record every value again"
        once = ", ".join(f'"{name}"' for name in dict.fromkeys(names))
        yield SettingError("learner.recorders", why, f"set 'learner.recorders=[{once}]'")
    yield from _rank_contradictions(config)
    if config.replay.sequence and config.actors.step_processor != "n_step":
        why = "sequences are of single steps, and actors.step_processor "
        why += f"{config.actors.step_processor!r} may make other samples of a step"
        fix = "set actors.step_processor=n_step, or replay.sequence=0"
        yield SettingError("replay.sequence", why, fix)
    fleet = FleetSize.of(config)
    steps = config.replay.sequence
    if actors.count and capacity < fleet.environments * steps:
        each = capacity // fleet.environments
        why = f"{capacity:,} samples are {each:,} steps of each of {fleet}, and a sequence has "
        why += f"{steps:,} (replay.sequence)"
        enough = fleet.environments * (steps + config.replay.burn_in)
        whole = " to have burn-in, too" if config.replay.burn_in else ""
        fix = f"set at least {enough}{whole}, or lower replay.sequence or the fleet"
        yield SettingError("replay.capacity", why, fix)
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )


def _queue_contradictions(config: RunConfig) -> Iterator[SettingError]:
    replay = config.replay
    rows = config.actors.n_buffer
    steps = replay.sequence
    batch = config.agent.batch_size
    refused = {
        "replay.sources": (bool(replay.sources), "a queue has the rows of actors alone"),
        "replay.prioritized": (replay.prioritized, "a queue draws in the order of rows"),
        "replay.name": (is_import_name(replay.name), "a queue is drawn from by its own class"),
        "replay.burn_in": (replay.burn_in > 0, "runs of a queue have no burn-in"),
        "learner.ranks": (
            config.learner.ranks > 1,
            f"is {config.learner.ranks}, and a queue (replay.kind) is drawn from in order, by one "
            "process",
        ),
        "learner.snapshot": (
            config.learner.snapshot is not None,
            "rows of a queue (replay.kind) are overwritten once they were learned from, many times "
            "before a snapshot has copied them",
        ),
        "replay.frame_storage": (
            replay.frame_storage == "once",
            "a queue stores observations whole",
        ),
    }
    if replay.strict:
        refused |= {
            "replay.max_lag": (replay.max_lag > 0, "replay.strict is a lag of 0 by itself"),
            "replay.ahead": (replay.ahead > 0, "with replay.strict no samples wait"),
            "learner.model_dtype": (
                config.learner.model_dtype != "float32",
                "with replay.strict the model that acts is the one that learns, to the bit",
            ),
        }
    for key, (is_set, why) in refused.items():
        if is_set:
            yield SettingError(key, why, "leave it out")
    if not steps:
        yield SettingError("replay.sequence", "is 0, and a queue has runs of steps", "set 64")
        return
    if config.agent.learns_sequences and batch % steps:
        why = f"is {batch:,}, and agent {config.agent.name!r} with memory learns from whole runs"
        fix = f"set a multiple of replay.sequence={steps}, such as {-(-batch // steps) * steps:,}"
        yield SettingError("agent.batch_size", why, fix)
    unit = math.lcm(steps, batch)
    if not replay.block or replay.block % unit:
        enough = -(-max(1, replay.block) // unit) * unit
        fix = f"set a multiple of replay.sequence={steps} and of agent.batch_size={batch}, such as "
        yield SettingError("replay.block", f"is {replay.block:,}", f"{fix}{enough:,}")
    elif replay.capacity < (least := replay.block + rows - 1):
        yield SettingError(
            "replay.capacity",
            f"is {replay.capacity:,}: a block (replay.block={replay.block:,}) and a batch "
            f"(actors.n_buffer={rows:,}) must fit beside each other, or both sides would wait for "
            "ever",
            f"set {least} or more",
        )
    whole = steps * config.actors.envs_per_actor
    if rows != whole:
        yield SettingError(
            "actors.n_buffer",
            f"is {rows:,}: a queue's batch is one run of each environment",
            f"set {whole} (replay.sequence={steps} x actors.envs_per_actor="
            f"{config.actors.envs_per_actor})",
        )
    if not config.learner.save_interval:
        yield SettingError(
            "learner.save_interval",
            "is 0: rows of a queue are overwritten only behind a checkpoint, so there must be some",
            "leave it out",
        )


def _rank_contradictions(config: RunConfig) -> Iterator[SettingError]:
    ranks = config.learner.ranks
    device = config.learner.device
    if ranks > 1 and ":" in device:
        why = f"is {device}, and each of learner.ranks={ranks} trains on a GPU of its own"
        fix = "set cuda, and name the GPUs by CUDA_VISIBLE_DEVICES"
        yield SettingError("learner.device", why, fix)
    batch = config.agent.batch_size
    if batch % ranks:
        why = f"{ranks} ranks cannot share agent.batch_size's {batch} samples evenly"
        yield SettingError("learner.ranks", why, "set a divisor of it")
    if ranks > 1 and (config.replay.sources or is_import_name(config.replay.name)):
        why = "several ranks share no replay.sources, and no replay of your own"
        yield SettingError("learner.ranks", why, "set 1")
    if ranks > 1 and config.replay.sequence and not config.replay.is_queue:
        remembers = isinstance(config.agent, MemoryConfig) and config.agent.core_size
        key, off = ("agent.memory", NONE) if remembers else ("replay.sequence", "0")
        why = f"is {ranks}, and sequences ({key}) are drawn by one process alone"
        yield SettingError("learner.ranks", why, f"set 1, or {key}={off}")


def refused_sequences(config: RunConfig) -> Iterator[SettingError]:
    """Yield the errors of sequences for an agent that learns from single samples, and of single
    samples for one that learns from sequences."""
    if config.replay.is_queue or config.agent.usual_queue is not None:
        yield from _refused_queue(config)
        return
    if config.replay.sequence and not config.agent.learns_sequences:
        why = f"agent {config.agent.name!r} learns from single samples, and not from sequences"
        has_memory = isinstance(config.agent, MemoryConfig)
        other = "agent.memory=gru" if has_memory else "an agent that learns from them"
        yield SettingError("replay.sequence", why, f"set 0, or {other}")
    usual = config.agent.usual_sequence
    if usual is not None and not config.replay.sequence:
        why = f"is 0, and agent {config.agent.name!r} with memory learns from sequences"
        yield SettingError("replay.sequence", why, f"set {usual.steps}, or agent.memory=none")


def _refused_queue(config: RunConfig) -> Iterator[SettingError]:
    name = config.agent.name
    if config.agent.usual_queue is None:
        why = f"is queue, and agent {name!r} learns from samples that are drawn again and again"
        yield SettingError("replay.kind", why, "leave it out, or set agent=appo")
    elif not config.replay.is_queue:
        why = f"is {config.replay.kind}, and agent {name!r} learns from a queue"
        yield SettingError("replay.kind", why, "leave it out")


def refused_in_own_loop(config: RunConfig) -> Iterator[SettingError]:
    """Yield the errors of settings that a training loop of the user's own cannot have."""
    if config.replay.is_queue:
        why = "is queue, which a training loop of your own (vedette.Replay) cannot draw from"
        yield SettingError("replay.kind", why, "leave it out")
    if config.learner.snapshot is not None:
        yield SettingError("learner.snapshot", "a loop of your own writes no snapshot", "set none")

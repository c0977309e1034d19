"""Checks before a start: settings, environment and this host."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import exploration_ranks, make_exploration
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Policy, TdErrorPolicy
from vedette_rl.core.protocols import implements
from vedette_rl.envs.altering_wrappers import describe_altering, in_evaluations
from vedette_rl.envs.spaces import Spaces, check_declared, transition_dtype
from vedette_rl.import_by_name import import_by_name, is_import_name
from vedette_rl.networks.threads import load_torch_single_threaded
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import (
    OtherSpace,
    check_budget,
    free_disk_bytes,
    same_disk,
    used_disk_bytes,
)
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import make_custom_replay
from vedette_rl.steps.registry import make_step_processor, step_processor
from vedette_services.config.contradictions import (
    contradictions,
    refused_in_own_loop,
    refused_sequences,
)
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    SettingError,
    config_errors,
    custom_part_errors,
    raise_errors,
)
from vedette_services.host.env_probe import dtype_to_json
from vedette_services.run.directory import RUN_RECORD, RunDirectory
from vedette_services.run.finding import SEED_FOLDER, find_runs
from vedette_services.run.replay_layout import (
    ReplayLayout,
    configured_columns,
    make_run_limiter,
    replay_directory,
)
from vedette_services.run.replay_room import describe_smaller, layout_space
from vedette_services.run.run_files import entries_of_others, find_writing_run
from vedette_services.run.snapshot_directory import snapshot_root
from vedette_services.run.start import Start
from vedette_services.run.sweep_files import has_sweep_files
from vedette_services.status.records import status_records_bytes

_FOLDERS_MAX = 2000  # into which a folder that is no run is searched for runs


def check_made(config: RunConfig, start: Start, probe: EnvironmentProbe) -> None:
    """Check that an environment that is played here can be made and has the declared spaces.

    Raises:
        SettingError: it cannot be made, or evaluations are to be played elsewhere.
        DeclaredSpaceError: it has others.
    """
    env = config.env
    if start.in_process and config.evaluation.where == "actors":
        why = "one process evaluates by itself, between its steps"
        raise SettingError("evaluation.where", why, "set evaluation.where=auto")
    if not env.is_declared or not (config.evaluates_on_learner or start.in_process):
        return
    check_declared(env, probe.facts(env).spaces)


def describe_evaluation_bound(config: RunConfig, probe: EnvironmentProbe) -> str:
    """Return where evaluations cut episodes that have no known limit; "" where they have one."""
    own = config.evaluation.max_episode_steps
    key = "evaluation.max_episode_steps"
    if not config.evaluates_on_learner:
        return ""
    if own is not None:
        return f"evaluations cut episodes at {own:,} steps, by {key}"
    facts = probe.facts(config.env)
    if facts.has_limit:
        return ""
    return (
        f"{config.env.id} has no time limit: episodes of evaluations are cut at "
        f"{facts.episode_bound:,} steps, those of training are not; env.max_episode_steps limits "
        f"both, {key} evaluations alone"
    )


def describe_altered_evaluations(config: RunConfig, probe: EnvironmentProbe) -> list[str]:
    """Return the wrappers by which evaluations do not measure the environment's own returns of what
    was learned; of an environment that is made here."""
    if config.env.is_declared or not config.learner.eval_interval:
        return []
    return describe_altering(in_evaluations(probe.facts(config.env).altering, config.env))


def describe_sequences(config: RunConfig) -> str:
    """Return what a batch of sequences is; "" where single samples are drawn."""
    replay = config.replay
    if not replay.sequence:
        return ""
    if replay.is_queue:
        runs = replay.block // replay.sequence
        batch = config.agent.batch_size
        whole = config.agent.learns_sequences
        batches = f"{batch // replay.sequence:,} whole runs" if whole else f"{batch:,}"
        played = f"; {_describe_strict_runs(config, runs)}" if replay.strict else ""
        return (
            f"a block is {replay.block:,} samples, {runs:,} runs of {replay.sequence:,} steps; "
            f"each is learned from {replay.passes:,} times, in batches of {batches}{played}"
        )
    before = f" behind up to {replay.burn_in:,} of burn-in" if replay.burn_in else ""
    return (
        f"a batch is {config.agent.batch_size:,} sequences of {replay.sequence:,} steps{before}: "
        f"{config.samples_per_opt:,} samples"
    )


def _describe_strict_runs(config: RunConfig, runs: int) -> str:
    """Return how many runs are played on each model, and how many of them in vain."""
    environments = max(1, config.actors.count) * config.actors.envs_per_actor
    each = -(-runs // environments)
    played = f"{environments:,} environments play {each:,} of these on each model, and wait"
    vain = each * environments - runs
    if not vain:
        return played
    return (
        f"{played}: {vain:,} of {each * environments:,} in vain, unless replay.block is a multiple "
        f"of {environments * config.replay.sequence:,}"
    )


def describe_schedule(config: RunConfig, begins_at: int) -> str:
    """Return where learning rates end that are over when the run begins, or are 0 before its end.

    Args:
        begins_at: optimization step of the start.
    """
    schedule = config.agent.schedule
    stop = config.stop
    opts_per_env_step = (config.replay.samples_per_insert or 0.0) / config.samples_per_opt
    ends = stop.max_opts, stop.max_env_steps * opts_per_env_step
    end = min(filter(None, ends), default=0.0)
    if schedule.kind == "constant":
        return ""
    if begins_at >= schedule.total_opts:
        when = f"this start begins at {begins_at:,}"
    elif not schedule.final and end > 1.1 * schedule.total_opts:
        when = f"the run goes on to about {end:,.0f}"
    else:
        return ""
    return (
        f"learning rates are at {schedule.final:g} of their size from optimization step "
        f"{schedule.total_opts:,} on, and {when}; agent.schedule.total_opts and final change that"
    )


def check_settings(config: RunConfig, *, learns: bool = True) -> None:
    """Refuse settings that contradict each other.

    Args:
        learns: the agent learns, and not a training loop of the user's.

    Raises:
        ConfigError: names both and the fix.
    """
    refused = refused_sequences(config) if learns else refused_in_own_loop(config)
    raise_errors([*contradictions(config), *refused])
    with config_errors():
        make_run_limiter(config)


def check_names_and_settings(config: RunConfig, probe: EnvironmentProbe) -> None:
    """Refuse what a start refuses before it looks at its folder, its host and its environment.

    Raises:
        ConfigError: names the keys and the fixes, as the start does.
    """
    check_settings(config)
    with config_errors():
        check_import_names(config)
    if not config.env.is_declared:
        probe.check_names(config.env)


def check_import_names(config: RunConfig) -> None:
    """Refuse import names that cannot be imported here; the environment's are its probe's matter.

    Raises:
        UnknownNameError: names the first.
    """
    for name in filter(is_import_name, config.learner.recorders):
        recorder = import_by_name("learner.recorders", name)
        if check := getattr(recorder, "check_environment", None):
            check(os.environ)
    step_processor(config.actors.step_processor)
    network = getattr(config.agent, "network", "")
    if isinstance(network, str) and is_import_name(network):
        load_torch_single_threaded()  # the user's module imports torch
    named = {
        "agent.exploration.kind": getattr(getattr(config.agent, "exploration", None), "kind", ""),
        "agent.network": network,
        "replay.name": config.replay.name,
    }
    for key, name in named.items():
        if isinstance(name, str) and is_import_name(name):
            import_by_name(key, name)


def check_exploration(config: RunConfig, spaces: Spaces) -> None:
    """Have an exploration of the user's own choose once: an actor would fail at its first step.

    Raises:
        SettingError: it cannot be made, or raises.
        UnknownNameError: it chooses no actions.
    """
    if not isinstance(config.agent, DqnConfig | IqnConfig):
        return
    exploration = config.agent.exploration
    if not is_import_name(exploration.kind):
        return
    actions = DiscreteActions.from_space(config.agent.name, spaces.action)
    values = np.zeros((2, max(actions.counts)), np.float32)
    with custom_part_errors("agent.exploration.kind", exploration.kind, "chooses"):
        make_exploration(exploration, exploration_ranks(0, 2), config.seed).choose(values, 0)


def check_out(out: Path) -> None:
    """Refuse a directory that this user may not make or write, or that is not for one run: a run
    takes a new or empty folder, or one that a run has made.

    Where the system refuses what the permissions allow, `RunDirectory.make` says so.

    Raises:
        SettingError: gives the reason.
    """
    check_writable(out)
    run = RunDirectory(out)
    run.check_parts()
    if run.is_ours:
        run.identity()  # of another program's run.json nothing may follow
    elif out.is_dir() and (others := entries_of_others(out)):
        runs = [run for run in find_runs(out, _FOLDERS_MAX) if run != out]
        raise _refuse_runs(out, runs) if runs else _refuse_others(run, others)


def check_snapshot_place(config: RunConfig, out: Path) -> None:
    """Refuse a snapshot in the run's own directory, or in its replay's: it is lost with them.

    Raises:
        SettingError: names the directory.
    """
    root = snapshot_root(config)
    if root is None:
        return
    for own in (out, replay_directory(config, out)):
        if root.resolve().is_relative_to(own.resolve()):
            why = f"{root} is in {own}, of which it is to be a copy"
            raise SettingError("learner.snapshot", why, "name a folder on another disk")


def _refuse_runs(out: Path, runs: list[Path]) -> SettingError:
    """The refusal to run in a folder of runs."""
    seeds = [run for run in runs if run.parent == out and SEED_FOLDER.fullmatch(run.name)]
    again = f"add --seeds {len(seeds)}" if len(seeds) == len(runs) else "give the sweep's command"
    why = f"it is a folder of {len(runs)} runs, such as {runs[0]}, and no run itself"
    return SettingError(f"--out {out}", why, f"{again}, name one of them, or name another folder")


def _refuse_others(run: RunDirectory, others: list[str]) -> SettingError:
    """The refusal to run in a folder that holds files of somebody else, or a run without its
    identity."""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    why = f"it holds {others[0]!r}{more}, and no {RUN_RECORD} by which a run of ours is known"
    fix = "name a new or an empty folder"
    if run.newest_checkpoint() is not None:
        fix += f"; of a run, {run.identity_fix()}"
    return SettingError(f"--out {run.root}", why, fix)


def check_writable(out: Path) -> None:
    """Refuse a directory that this user may not make or write, and a new one among a run's files.

    Raises:
        SettingError: gives the reason.
    """
    is_known = RunDirectory(out).is_ours or has_sweep_files(out)
    if not is_known and (run := find_writing_run(out)) is not None:
        why = f"the run {run} keeps files of its own there"
        raise SettingError(f"--out {out}", why, "name another folder")
    place = out
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise SettingError(f"--out {out}", f"{place} is a file", "name a folder")
    # A system of no size, such as /proc, takes no folder whatever its permissions are.
    if not os.access(place, os.W_OK | os.X_OK) or not shutil.disk_usage(place).total:
        raise SettingError(f"--out {out}", f"{place} cannot be written", "name another folder")


def check_policy(config: RunConfig, spaces: Spaces) -> None:
    """Check what only a built policy shows: that its network works, and that it has TD errors."""
    source = config.replay.initial_priorities
    network = getattr(config.agent, "network", "")
    own = ("agent.network", network) if isinstance(network, str) else ("", "")
    if not agent_kind(config.agent.name).learns:
        own = ("agent.name", config.agent.name)
    if source != "actor" and not is_import_name(own[1]):
        return
    policy = _build_policy(config, spaces, own)
    if source == "actor" and not implements(policy, TdErrorPolicy):
        raise SettingError(
            "replay.initial_priorities",
            f"the policy of agent {config.agent.name!r} sends no TD errors of its own",
            "set replay.initial_priorities=max",
        )


def check_steps(config: RunConfig, spaces: Spaces, probe: EnvironmentProbe) -> None:
    """Check that the step processor can be made for these transitions and, where the environment
    is here, prepared with it."""
    actors = config.actors
    agent = config.agent
    name = actors.step_processor
    row = transition_dtype(spaces, configured_columns(config, spaces))
    arguments = config.row_steps, agent.discount, actors.envs_per_actor, row
    with custom_part_errors("actors.step_processor", name):
        processor = make_step_processor(name, *arguments, her_goals=actors.her_goals)
    if hasattr(processor, "prepare") and not config.env.is_declared:
        made_of = {
            "processor": name,
            "n_step": config.row_steps,
            "discount": agent.discount,
            "envs": actors.envs_per_actor,
            "row": dtype_to_json(row),
            "her_goals": actors.her_goals,
            "seed": config.seed,
        }
        probe.prepare(config.env, made_of)


def check_custom_replay(config: RunConfig, layout: ReplayLayout) -> None:
    """Check that a replay of the user's own can be made."""
    name = config.replay.name
    if not is_import_name(name):
        return
    rows = MemoryRing(layout.schema.row_dtype, 1)
    with custom_part_errors("replay.name", name):
        make_custom_replay(config.replay, rows, np.random.default_rng(0))


def _build_policy(config: RunConfig, spaces: Spaces, own: tuple[str, str]) -> Policy:
    """Build a policy; `own` is the key and the name of what the user may have written of it."""
    ranks = exploration_ranks(0, 1)
    agent = config.agent
    (key, name) = own
    tried = "is made"
    what = "the policy"
    if key == "agent.network":
        tried = "is made and shown two observations"
        what = "the network"
    with custom_part_errors(key, name, tried, what):
        return agent_kind(agent.name).build_policy(agent, spaces, ranks=ranks, seed=0)


def check_batch(config: RunConfig, layout: ReplayLayout) -> None:
    """Check that a batch is no larger than a message, and than the window."""
    rows = config.actors.n_buffer
    batch_bytes = layout.batch_bytes
    if batch_bytes > PAYLOAD_MAX_BYTES:
        raise SettingError(
            "actors.n_buffer",
            f"a batch of {rows:,} transitions is {batch_bytes:,} bytes, over {PAYLOAD_MAX_BYTES:,}",
            f"set at most {max(1, rows * PAYLOAD_MAX_BYTES // batch_bytes)}",
        )
    if batch_bytes > config.actors.window_bytes:
        raise SettingError(
            "actors.window_bytes",
            f"{config.actors.window_bytes:,} bytes hold no batch of {batch_bytes:,}",
            f"set at least {batch_bytes} or lower actors.n_buffer",
        )


def check_space(
    config: RunConfig, spaces: Spaces, layout: ReplayLayout, out: Path, sources: int
) -> str:
    """Check that memory and disk have room for the run; return what it needs.

    Args:
        sources: bytes of the data sets that are still to be read.
    """
    replay = config.replay
    need = layout_space(config, layout)
    need = replace(need, rows_bytes=need.rows_bytes + sources)
    directory = replay_directory(config, out)
    maps = _maps_space(RunDirectory(out))
    if not same_disk(maps.directory, directory) and maps.more_bytes > free_disk_bytes(
        maps.directory
    ):
        more = format_bytes(maps.more_bytes)
        free = format_bytes(free_disk_bytes(maps.directory))
        why = f"{maps.directory} needs {more} of disk, but {free} is free"
        raise SettingError(f"--out {out}", why, "make room there, or choose another --out")
    in_memory = replay.directory is None
    return check_budget(
        need,
        directory,
        must_fit_memory=in_memory,
        other_space=maps,
        smaller=lambda room: describe_smaller(config, spaces, room - sources),
    )


def _maps_space(run: RunDirectory) -> OtherSpace:
    """Return the space for the maps of the learner, except models, whose size is not known yet."""
    used = used_disk_bytes(run.record_maps)
    return OtherSpace(run.live, max(0, status_records_bytes() - used))

"""Plans a start: checks all that can be known before it, and says what it will do."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.observation import describe_input
from vedette_services.config.import_permission import record_begun
from vedette_services.config.probing import EnvironmentProbe, check_agent, environment_errors
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_table
from vedette_services.config.without_effect import settings_without_effect
from vedette_services.errors import (
    ManySettingsError,
    SettingError,
    UsageError,
    config_errors,
    raise_errors,
)
from vedette_services.host.system import describe_device, missing_device, require_daemons
from vedette_services.run.checks import (
    check_batch,
    check_custom_replay,
    check_exploration,
    check_import_names,
    check_made,
    check_out,
    check_policy,
    check_settings,
    check_snapshot_place,
    check_space,
    check_steps,
    describe_altered_evaluations,
    describe_evaluation_bound,
    describe_schedule,
    describe_sequences,
)
from vedette_services.run.directory import RunDirectory, without_links
from vedette_services.run.image_max import choose_image_max
from vedette_services.run.initial_weights import describe_initial_weights
from vedette_services.run.noise_steps import choose_noise_steps
from vedette_services.run.replay_layout import replay_layout
from vedette_services.run.replay_room import choose_frame_storage, describe_repeats
from vedette_services.run.resume import (
    check_fresh,
    check_kind,
    check_resume,
    check_saved_imports,
    describe_kept,
    describe_resume,
    describe_too_few_steps,
    has_decided,
    state_of_run,
)
from vedette_services.run.shared_locks import describe_local_locks
from vedette_services.run.snapshot_of_new_replay import check_snapshot_of_new_replay
from vedette_services.run.snapshot_room import describe_little_room
from vedette_services.run.sources import check_sources
from vedette_services.run.start import RESUME, Start
from vedette_services.run.start_plan import StartPlan


@config_errors()
def plan_start(
    config: RunConfig,
    out: Path,
    start: Start = RESUME,
    *,
    note: str = "",
    probe: EnvironmentProbe | None = None,
) -> StartPlan:
    """Decide what a start does, and refuse a run that cannot work, with the cheapest checks first.

    Nothing in the directory changes. The environment is made once, in a process that is gone at the
    end. Imports torch only if a policy has to be built that needs it: one that sends initial
    priorities, or has a custom network. What the run imports is recorded as begun by this user.

    Args:
        out: the run's directory, which need not exist yet. The plan has it without symbolic links.
        note: where the configuration comes from.
        probe: that has loaded the configuration, perhaps by making the environment; who has opened
            it closes it before a player makes one. None: one of its own.

    Raises:
        UsageError: one line that names the key and the fix.
    """
    if probe is not None:
        plan = _plan(config, out, start, note, probe)
    else:
        with EnvironmentProbe() as opened:
            plan = _plan(config, out, start, note, opened)
    record_begun(config_table(config))
    return plan


def _plan(
    config: RunConfig, out: Path, start: Start, note: str, probe: EnvironmentProbe
) -> StartPlan:
    require_daemons("training")
    is_link = out.is_symlink()
    named = out
    out = without_links(out)
    try:
        check_settings(config, learns=not start.custom_loop)
    except (SettingError, ManySettingsError) as error:
        raise_errors([*error.errors, *environment_errors(config, probe)])
    check_out(out)
    check_snapshot_place(config, out)
    run = RunDirectory(out)
    run.check_free()
    if not start.fresh and has_decided(run):
        raise UsageError(f"--out {out}: another start changes its settings; try again")
    seen = state_of_run(out)
    check_fresh(out, start)
    check_snapshot_of_new_replay(config, out, start)
    check_kind(out, start)
    check_saved_imports(config, out, start)
    check_import_names(config)
    if why := missing_device(config.learner.device):
        raise SettingError("learner.device", why, "set learner.device=auto")
    spaces = probe.spaces(config.env)
    check_made(config, start, probe)
    config = choose_image_max(config, spaces, out, start)
    config = choose_noise_steps(config, probe)
    config, storage = choose_frame_storage(config, spaces, out, start)
    check_agent(config, spaces, learns=not start.custom_loop)
    check_exploration(config, spaces)
    check_policy(config, spaces)
    layout = replay_layout(config, spaces)
    check_steps(config, spaces, probe)
    check_custom_replay(config, layout)
    check_batch(config, layout)
    point = check_resume(config, out, start, spaces, layout)
    sources = check_sources(config, out, spaces, new=start.empty_replay)
    budget = check_space(config, spaces, layout, out, sources.bytes)
    lines = [
        *([f"{named} is a link: the run is in {out}, and stays there"] if is_link else []),
        *_describe_locks(out),
        *describe_kept(out, start),
        *describe_resume(config, out, start, point),
    ]
    if point.opt_steps is None:
        lines += _describe_beginning(config, out, start, spaces)
    observation = None
    network = ""  # a custom agent's own matter
    if isinstance(config.agent, NetworkConfig) and isinstance(config.agent.network, str):
        observation = spaces.observation
        network = describe_input(config.agent, observation)
    device = "" if start.custom_loop else describe_device(config.learner.device)
    repeats = storage or describe_repeats(config, spaces, layout)
    room = describe_little_room(config, layout, start)
    described = [budget, room, *sources.lines, device, network, repeats, *lines]
    described.append(describe_evaluation_bound(config, probe))
    described.append(describe_sequences(config))
    described += describe_altered_evaluations(config, probe)
    if not start.custom_loop:
        described.append(describe_too_few_steps(config, out, start))
        described.append(describe_schedule(config, point.opt_steps or 0))
    unused = tuple(
        settings_without_effect(
            config, observation, action=spaces.action, in_process=start.in_process
        )
    )
    known = (*filter(None, described), *unused)
    packages = {} if config.env.is_declared else probe.facts(config.env).packages
    return StartPlan(
        config, out, start, spaces, point, sources.unread, known, unused, note, packages, seen
    )


def _describe_locks(out: Path) -> list[str]:
    """Describe a disk on which the lock of a run does not keep another host's learner away."""
    why = describe_local_locks(out)
    consequence = "of a run that goes on there, a start here waits for a while, and takes it over"
    return [f"{out}: other hosts do not see its lock ({why}): {consequence}"] if why else []


def _describe_beginning(config: RunConfig, out: Path, start: Start, spaces: Spaces) -> list[str]:
    """Describe the weights of another run that a new one begins with, if it does."""
    if not config.learner.init_from:
        return []
    if start.custom_loop:
        why, fix = "your own loop has the weights", "set it to none, and load them in the loop"
        raise SettingError("learner.init_from", why, fix)
    return describe_initial_weights(config, spaces, out if start.fresh else None)

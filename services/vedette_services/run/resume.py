"""Checks that a run directory can take a run: a new one, a resumed one, or one in its place.

Nothing here changes the directory: `vedette_services.run.prepare` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vedette_protocol.errors import LedgerFormatError, StampError
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent
from vedette_rl.core.learning import restore_agent
from vedette_rl.envs.spaces import Spaces, describe_spaces
from vedette_rl.errors import (
    CheckpointError,
    ModelMismatchError,
    ReplayFormatError,
    ReplayTornError,
    other_format,
)
from vedette_rl.replay.commits import COMMITS
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.ring import check_replay_directory, check_ring
from vedette_rl.replay.ring_files import ARCHIVE
from vedette_rl.replay.syncing import find_recovery_at_rest
from vedette_rl.storage.checkpoints import Checkpoints, LoadedCheckpoint, find_not_finite
from vedette_rl.storage.record_file import check_length
from vedette_rl.storage.regular_files import read_bytes
from vedette_services.config.changes import ChangedSetting, changed_settings
from vedette_services.config.import_permission import check_run_imports
from vedette_services.config.imported_names import imported_names
from vedette_services.config.loading import command_again, read_config, read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    ConfigError,
    SettingError,
    UsageError,
    config_errors,
    raise_errors,
)
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import read_summary
from vedette_services.run.replay_layout import (
    ReplayLayout,
    replay_directory,
    saved_replay_directory,
)
from vedette_services.run.ring_stamp import read_archive_end
from vedette_services.run.run_files import FOLDERS, foreign_files
from vedette_services.run.start import Start
from vedette_services.run.status_files import read_best

NEW_BEST, NEW_REPLAY = "config.new-best.toml", "config.new-replay.toml"
"""Settings that a start has decided on, until best model and replay have changed with them."""

OTHER_RUN = "choose another --out, or erase the run with --fresh --force"


def check_fresh(out: Path, start: Start) -> None:
    """Refuse to erase a run without ``--force``, and a replay in which others have files.

    Raises:
        UsageError: ``--fresh`` for a directory that holds a run, without ``--force``.
        SettingError: a new replay would not begin beside what stays.
    """
    run = RunDirectory(out)
    saved = run.newest_checkpoint()
    if start.fresh and not start.force and (run.exists or saved is not None):
        steps = "" if saved is None else f" of {saved:,} optimization steps"
        raise UsageError(
            f"--fresh: {out} holds a run{steps}; add --force to erase it, or choose another --out"
        )
    if start.empty_replay:
        for place in filter(None, (run.replay, replay_elsewhere(run))):
            others = foreign_files(place, "replay")
            if others:
                fix = "put it elsewhere"
                raise SettingError(f"--out {out}", f"no run wrote {others[0]}", fix)


def describe_kept(out: Path, start: Start) -> list[str]:
    """Describe what lies in the folders of a run that is erased, and stays as no run wrote it."""
    others = [file for name in FOLDERS for file in foreign_files(out / name)]
    if not start.fresh or not others:
        return []
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return [f"--fresh: what no run wrote stays: {others[0]}{more}"]


def saved_config(out: Path) -> Path | None:
    """Return the configuration that the run in a directory was last started with; None if there is
    no run, or its file is missing."""
    run = RunDirectory(out)
    return run.config_file if run.exists and run.config_file.is_file() else None


def has_decided(run: RunDirectory) -> bool:
    """Return True if a start was killed while it changed the settings of a run."""
    return any((run.root / name).exists() for name in (NEW_BEST, NEW_REPLAY))


def state_of_run(out: Path) -> str:
    """Return what a start goes by: the id and the settings of the run in a directory, as text to be
    compared; "" where no run is. A run that only goes on keeps it."""
    run = RunDirectory(out)
    if not run.exists:
        return ""
    try:
        run_id = run.identity().run_id
    except SettingError:  # it is damaged
        run_id = "?"
    files = (run.config_file, run.root / NEW_BEST, run.root / NEW_REPLAY)
    contents = (hashlib.sha256(read_bytes(file)).hexdigest() for file in files if file.is_file())
    return " ".join((run_id, *contents))


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a start takes a run up.

    Args:
        opt_steps: of the checkpoint that it loads; None: there is none.
        changes: the settings that differ from those of the last start.
    """

    opt_steps: int | None = None
    changes: tuple[ChangedSetting, ...] = ()


def describe_resume(config: RunConfig, out: Path, start: Start, point: ResumePoint) -> list[str]:
    """Describe where a start in this directory resumes, and each setting changed since the last.

    A custom loop has weights of its own: where they resume is not said.
    """
    if start.fresh or not RunDirectory(out).exists:
        return []
    changes = [describe_change(change) for change in point.changes]
    changes += _describe_new_best(out, point.changes)
    if (file := RunDirectory(out).config_file) and not file.exists():
        changes.append(f"{file}: no such file; resuming with the settings of this command alone")
    if not start.new_replay:
        changes = _describe_recovery(replay_directory(config, out)) + changes
    if point.opt_steps is None:
        samples = "with an empty replay" if start.new_replay else "on the samples that are there"
        weights = f"no checkpoint in {out}: learning starts from the beginning, {samples}"
        return changes if start.custom_loop else [weights, *changes]
    checkpoints = Checkpoints(RunDirectory(out).checkpoints, keep=1)
    for steps, why in checkpoints.unreadable_after(point.opt_steps):
        changes.insert(0, f"checkpoint {steps:,} is skipped: {why}")
    weights = f"resuming {out} at optimization step {point.opt_steps:,}"
    best = read_best(RunDirectory(out).best).best_version
    if best is not None and best != point.opt_steps and not start.custom_loop:
        weights += f", the newest weights (the best model, version {best:,}, stays in best/)"
    if start.new_replay or not (replay_directory(config, out) / COMMITS).exists():
        weights += ", with an empty replay"
    return changes if start.custom_loop else [weights, *changes]


def describe_change(change: ChangedSetting) -> str:
    """Describe a setting that differs from that of the last start."""
    return f"changed {change}"


def describe_too_few_steps(config: RunConfig, out: Path, start: Start) -> str:
    """Describe a start that ends before its warm-up does, or with the first batches of its actors,
    so that nothing is learned, or next to nothing; "" for others. A run in one process keeps no
    replay, and so warms up at each start."""
    resumes = RunDirectory(out).exists and not start.fresh
    has_samples = resumes and (replay_directory(config, out) / COMMITS).exists()
    if not config.stop.max_env_steps or (has_samples and not start.new_replay):
        return ""
    if config.replay.sources or config.actors.step_processor != "n_step":
        return ""
    begun = (read_summary(out).env_steps or 0) if resumes else 0
    left = config.stop.max_env_steps - begun
    queue = config.replay.is_queue
    needed = config.replay.block if queue else config.learner.warmup_period
    # Actors play at one pace, so that their batches come together.
    first = 0 if queue else config.actors.count * config.actors.n_buffer
    if not 0 < left < max(needed, first):
        return ""
    leaves = f"stop.max_env_steps = {config.stop.max_env_steps:,} leaves {left:,} environment steps"
    if needed < first:
        return (
            f"next to nothing will be learned: {leaves}, and the first batches of the actors bring "
            f"{first:,} at once (actors.count x actors.n_buffer); raise the one or lower the other"
        )
    key = "replay.block" if queue else "learner.warmup_period"
    return (
        f"nothing will be learned: {leaves}, and the replay, which is empty, needs {needed:,} "
        f"samples first ({key}); raise the one or lower the other"
    )


def begins_new_best(config: RunConfig, out: Path) -> bool:
    """Return True if the best model was chosen by other evaluations than this start plays."""
    return any("best" in change.stored_in for change in list_changes(config, out))


def _describe_new_best(out: Path, changed: Sequence[ChangedSetting]) -> list[str]:
    """Describe why the best evaluation does not count any more, where it does not."""
    keys = [change.key for change in changed if "best" in change.stored_in]
    best = read_best(RunDirectory(out).best)
    if not keys or best.best_return_mean is None:
        return []
    place = RunDirectory(out).best_before
    return [
        f"evaluations are others than before ({', '.join(keys)}): the best until now, "
        f"{best.best_return_mean:.1f} at version {best.best_version:,}, does not count any more, "
        f"and its model is moved to {place}"
    ]


def _describe_recovery(directory: Path) -> list[str]:
    """Describe what a power failure has left of the replay."""
    if not check_replay_directory(directory):
        return []
    recovery = find_recovery_at_rest(directory, read_manifest(directory))
    return [f"the replay: {recovery}"] if recovery else []


def check_saved_imports(config: RunConfig, out: Path, start: Start) -> None:
    """Refuse to compare with the last settings of the run in a directory if the agent that they
    name may not be imported.

    Args:
        config: of this start, which may import what it names.

    Raises:
        ImportPermissionError: names the agent's package.
    """
    before = None if start.fresh else saved_config(out)
    if before is None:
        return
    try:
        agent = {"agent": read_toml(before).get("agent")}
    except SettingError:
        return  # `check_resume` says what is wrong with the file
    typed = frozenset(imported_names(config.model_dump(mode="json")))
    check_run_imports(out, agent, start.allow_import, typed)


def list_changes(config: RunConfig, out: Path) -> list[ChangedSetting]:
    """List the settings that differ from those of the last start."""
    before = saved_config(out)
    return [] if before is None else changed_settings(read_config(before), config)


def check_kind(out: Path, start: Start) -> None:
    """Refuse to resume a run of daemons in one process, or the other way round.

    The replay of the one is in files, that of the other in memory: a resume would miss rows that
    are counted as inserted.

    Raises:
        UsageError: names how the run was started, and the fix.
    """
    run = RunDirectory(out)
    if start.fresh or not run.exists or run.identity().in_process == start.in_process:
        return
    was, fix = (
        ("in daemons", "leave --in-process out")
        if start.in_process
        else ("in one process", "add it")
    )
    raise UsageError(
        f"--in-process: the run in {out} was started {was}; {fix}, choose another --out, or erase "
        "the run with --fresh --force"
    )


def check_resume(
    config: RunConfig, out: Path, start: Start, spaces: Spaces, layout: ReplayLayout
) -> ResumePoint:
    """Refuse to resume a run that is damaged or does not fit this configuration.

    Args:
        out: the run's directory, perhaps without a run.
        spaces: of its environment now.
        layout: of the replay of `config`.

    Raises:
        ConfigError: names the key that differs or the file that is damaged, and the fix.
    """
    run = RunDirectory(out)
    if start.fresh or not run.exists:
        _check_place(config, run)
        return ResumePoint()
    try:
        with config_errors():
            return _check_run(config, run, start, spaces, layout)
    except SettingError as error:
        if run.config_file.exists():
            raise
        why = f"no such file, and this command does not fit the run ({error.key}: {error.why})"
        fix = f"put it back, or {command_again(run.root)}"
        raise SettingError(str(run.config_file), why, fix) from error


def _check_run(
    config: RunConfig, run: RunDirectory, start: Start, spaces: Spaces, layout: ReplayLayout
) -> ResumePoint:
    """Check the run in a directory as `check_resume` says."""
    out = run.root
    saved, made_of = _whole_checkpoint(run)
    point = ResumePoint(saved, tuple(list_changes(config, out)))
    _check_changes(config, out, start, point)
    for part, now in describe_spaces(spaces).items():
        before = made_of.get(part, now)
        if before != now:
            why = f"its {part} are {now} now, and those of the checkpoint in {out} are {before}"
            raise SettingError("env.id", why, OTHER_RUN)
    if start.new_replay:
        _check_place(config, run)
        if saved is not None:
            check_weights(config, run, spaces)  # before the replay is gone
        return point
    try:
        _check_replay(config, replay_directory(config, out), run.identity().run_id, layout)
    except OSError as e:
        fix = "let this user read and write it"
        raise ConfigError(f"{e.filename} cannot be read: {e.strerror}; {fix}") from e
    return point


def _whole_checkpoint(run: RunDirectory) -> tuple[int | None, dict[str, str]]:
    """Return the optimization steps of the latest readable checkpoint, None if there is none, and
    the spaces that it was made of, as far as it says so.

    Raises:
        CheckpointError: there are checkpoints, and none can be read.
    """
    whole = Checkpoints(run.checkpoints, keep=1).newest_readable()
    if whole is None:
        return None, {}
    path, meta = whole
    return int(path.name), meta.get("spaces", {})


@config_errors()
def check_weights(config: RunConfig, run: RunDirectory, spaces: Spaces) -> None:
    """Load the checkpoint into an agent of this configuration; this imports torch.

    Raises:
        ConfigError: it does not fit.
    """
    kind = agent_kind(config.agent.name)
    agent = kind.build_agent(config.agent, spaces, device="cpu", seed=config.seed)
    load_checkpoint(Checkpoints(run.checkpoints, keep=1), agent, config.agent.name)


def load_checkpoint(checkpoints: Checkpoints, agent: Agent, name: str) -> LoadedCheckpoint | None:
    """Give agent `name` the state of the latest readable checkpoint; None where there is none.

    Raises:
        CustomPartError: the agent does not count on from there.
        CheckpointError: none can be read, or it is of another network.
    """
    found = checkpoints.load_latest()
    if found is not None:
        if name := find_not_finite(found.state.get("agent")):
            why = f"its {name} is not finite: learning had diverged; remove it, and those like it"
            raise CheckpointError(found.path, "load", why)
        try:
            restore_agent(name, agent, found.state["agent"], int(found.path.name))
        except (ModelMismatchError, KeyError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            why = f"it is of another network ({what}): {OTHER_RUN}"
            raise CheckpointError(found.path, "load", why) from error
    return found


def _check_changes(config: RunConfig, out: Path, start: Start, point: ResumePoint) -> None:
    """Check that what is stored in checkpoints and samples was made with the same settings.

    A replay in memory is lost with its process, and the checkpoint has learned from its samples.
    """
    saved = point.opt_steps is not None
    stored = {"weights"} if saved else set[str]()
    if not start.new_replay and (stored or (replay_directory(config, out) / COMMITS).exists()):
        stored.add("samples")
    begins = any(change.key.startswith("learner.init_") for change in point.changes)
    if saved and config.learner.init_from is not None and begins:
        why = f"{out} has a checkpoint, and resumes with its own weights"
        fix = "choose another --out, or start over with --fresh --force"
        raise SettingError("learner.init_from (--init-from)", why, fix)
    differing = [change for change in point.changes if change.stored_in & stored]
    foreign = [change for change in differing if change.key in ("env.id", "agent.name")]
    raise_errors([change.refusal(out, stored) for change in foreign or differing])


def _check_replay(config: RunConfig, directory: Path, run_id: str, layout: ReplayLayout) -> None:
    """Check the replay as the gateway does when it opens it."""
    stamp = check_ring(
        directory,
        layout.stored,
        config.replay.capacity,
        run_id=run_id,
        guard=layout.guard,
        keep=layout.keep,
        shared=layout.shared,
    )
    try:
        check_length(directory / ARCHIVE, read_archive_end(run_id, stamp))
    except LedgerFormatError as e:
        raise ReplayFormatError(f"{directory / COMMITS}: {other_format(e.found, e.ours)}") from e
    except StampError as e:
        raise ReplayTornError(directory / COMMITS, "is no part of this replay") from e


def _check_place(config: RunConfig, run: RunDirectory) -> None:
    """Check that a new run's replay directory is empty, or will be erased."""
    directory = replay_directory(config, run.root)
    own = run.exists and directory in (run.replay, replay_elsewhere(run))
    if own:
        return
    with config_errors("replay.directory"):
        found = check_replay_directory(directory)
    if found:
        why = f"{directory} holds the replay of another run"
        raise SettingError("replay.directory", why, "name an empty directory")


def replay_elsewhere(run: RunDirectory) -> Path | None:
    """Return the directory of a run's replay that is not in the run's own; None if it has none
    that can be read."""
    try:
        directory = saved_replay_directory(read_toml(run.config_file), run.root)
        mine = read_manifest(directory).run_id == run.identity().run_id
    except (ConfigError, UsageError, ReplayFormatError):
        return None
    return directory if mine and directory != run.replay else None

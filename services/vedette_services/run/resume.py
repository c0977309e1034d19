"""Checks that a run directory can take a run: a new one, a resumed one, or one in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

from vedette_protocol.errors import StampError
from vedette_rl.errors import (
    CheckpointError,
    ReplayDiffersError,
    ReplayFormatError,
    ReplayTornError,
)
from vedette_rl.replay.commits import COMMITS
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.ring import check_replay_directory, check_ring
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.loading import read_config
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import ConfigError, SettingError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import ReplayLayout, replay_directory
from vedette_services.run.ring_stamp import read_stamp


def check_fresh(out: Path, *, fresh: bool, force: bool) -> None:
    """Refuse to erase a run without ``--force``.

    Raises:
        UsageError: ``--fresh`` for a directory that holds a run, without ``--force``.
    """
    if force and not fresh:
        raise UsageError("--force: it goes with --fresh, to erase the run in a directory")
    run = RunDirectory(out)
    saved = run.newest_checkpoint()
    if not fresh or force or not (run.exists or saved is not None):
        return
    steps = "" if saved is None else f" of {saved:,} optimization steps"
    raise UsageError(
        f"--fresh: {out} holds a run{steps}; add --force to erase it, or choose another --out"
    )


def describe_resume(config: RunConfig, out: Path, saved: int | None, *, fresh: bool) -> str:
    """Describe where a start in this directory resumes; "" if a run begins.

    Args:
        saved: what `check_resume` found.
    """
    if fresh or not RunDirectory(out).exists:
        return ""
    if saved is not None:
        line = f"goes on from optimization step {saved:,} of the run in {out}"
        there = (replay_directory(config, out) / COMMITS).exists()
        return line if there else f"{line}, with an empty replay"
    return f"no checkpoint in {out}: learns from the beginning, on the samples that are there"


def check_kind(out: Path, *, in_process: bool, fresh: bool) -> None:
    """Refuse to resume a run of daemons in one process, or the other way round.

    The replay of the one is in files, that of the other in memory: a resume would miss rows that
    are counted as inserted.

    Raises:
        UsageError: names how the run was started, and the fix.
    """
    run = RunDirectory(out)
    if fresh or not run.exists or run.identity().in_process == in_process:
        return
    was, fix = (
        ("in daemons", "leave --in-process out") if in_process else ("in one process", "add it")
    )
    raise UsageError(
        f"--in-process: the run in {out} was started {was}; {fix}, choose another --out, or erase "
        "the run with --fresh --force"
    )


def check_resume(config: RunConfig, out: Path, layout: ReplayLayout, *, fresh: bool) -> int | None:
    """Refuse to resume a run that is damaged or does not fit this configuration.

    Args:
        out: the run's directory, perhaps without a run.
        layout: of the replay of `config`.
        fresh: a run in the directory is erased before.

    Returns:
        Optimization steps of the checkpoint to resume from; None if there is none.

    Raises:
        ConfigError: names the key that differs or the file that is damaged, and the fix.
    """
    run = RunDirectory(out)
    if fresh or not run.exists:
        _check_place(config, run)
        return None
    saved = _whole_checkpoint(run)
    if saved is not None and run.config_file.is_file():
        _check_same(config, read_config(run.config_file), out)
    try:
        _check_replay(config, replay_directory(config, out), run.identity().run_id, layout)
    except ReplayDiffersError as e:
        key, fix = _key_of(e.what, layout)
        raise SettingError(key, str(e), fix) from e
    except ReplayFormatError as e:
        raise ConfigError(str(e)) from e
    except OSError as e:
        fix = "let this user read and write it"
        raise ConfigError(f"{e.filename} cannot be read: {e.strerror}; {fix}") from e
    return saved


def _whole_checkpoint(run: RunDirectory) -> int | None:
    """Return the optimization steps of the latest readable checkpoint; None if there is none.

    Raises:
        ConfigError: there are checkpoints, and none can be read.
    """
    try:
        whole = Checkpoints(run.checkpoints, keep=1).newest_readable()
    except CheckpointError as e:
        raise ConfigError(f"{e} with --fresh --force") from e
    return int(whole.name) if whole else None


def _check_replay(config: RunConfig, directory: Path, run_id: str, layout: ReplayLayout) -> None:
    """Check the replay as the gateway does when it opens it."""
    stamp = check_ring(
        directory,
        layout.stored,
        config.replay.capacity,
        run_id=run_id,
        guard=layout.guard,
        shared=layout.shared,
    )
    try:
        read_stamp(run_id, stamp, now=0.0)
    except StampError as e:
        raise ReplayTornError(directory / COMMITS, "is no part of this replay") from e


def _key_of(what: str, layout: ReplayLayout) -> tuple[str, str]:
    """Return the key behind a difference between replay and configuration, and a further fix."""
    if what == "capacity":
        return "replay.capacity", ""
    if what == "run":
        return "replay.directory", ""
    if what == "guard":
        return "actors.n_buffer", "or lower actors.n_buffer"
    if what != "storage":
        return "env", ""
    key = "replay.frame_storage"
    return key, f"or go on with it by {key}={'plain' if layout.shared else 'auto'}"


def _check_place(config: RunConfig, run: RunDirectory) -> None:
    """Check that a new run's replay directory is empty, or will be erased."""
    directory = replay_directory(config, run.root)
    own = run.exists and directory in (run.replay, _own_replay(run))
    if own:
        return
    try:
        found = check_replay_directory(directory)
    except ReplayFormatError as e:
        raise SettingError("replay.directory", str(e)) from e
    if found and directory == run.replay:
        raise SettingError(
            f"--out {run.root}",
            "holds a replay, and no run.json that says whose",
            f"put run.json back, name another folder, or delete {directory}",
        )
    if found:
        raise SettingError(
            "replay.directory",
            f"{directory} holds the replay of another run",
            "name an empty directory, or delete this one",
        )


def _check_same(config: RunConfig, before: RunConfig, out: Path) -> None:
    """Check that environment, agent and network are those of the checkpoint."""
    pairs = [("env.id", config.env.id, before.env.id)]
    pairs += [("agent.name", config.agent.name, before.agent.name)]
    if config.agent.name == before.agent.name:
        pairs += [
            (f"agent.{name}", getattr(config.agent, name), getattr(before.agent, name))
            for name in config.agent.shaping
        ]
    for key, now, then in pairs:
        if now != then:
            raise SettingError(
                key,
                f"the run in {out} has {_format_value(then)}, not {_format_value(now)}",
                f"set {key}={_format_value(then)}, choose another --out, "
                "or erase it with --fresh --force",
            )


def _format_value(value: object) -> str:
    """Format a value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)).replace(" ", "") if isinstance(value, tuple) else str(value)


def erase_run(run: RunDirectory) -> None:
    """Erase the run in a directory, and its own replay in another directory."""
    places = [run.checkpoints, run.best, run.replay, run.tensorboard, run.live]
    elsewhere = _own_replay(run)
    if elsewhere is not None:
        places.append(elsewhere)
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    files = [run.root / "run.json", run.summary_file, run.manager_ids_file, run.events_file]
    files += [run.report_file, run.root / "records.csv", run.root / "records.jsonl"]
    for file in files:
        file.unlink(missing_ok=True)


def _own_replay(run: RunDirectory) -> Path | None:
    try:
        directory = replay_directory(read_config(run.config_file), run.root)
        mine = read_manifest(directory).run_id == run.identity().run_id
    except (ConfigError, UsageError, ReplayFormatError):
        return None
    return directory if mine else None

"""The provenance of a run: what each start was made from, in ``RUN/provenance.json``.

Nothing secret is in it: of the environment's variables only the command line of a parent, of keys
only the path that was typed.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vedette_protocol.foreign_text import printable
from vedette_rl.number_format import format_time
from vedette_rl.storage.atomic_files import write_json
from vedette_rl.storage.regular_files import read_json
from vedette_rl.storage.system import installed_memory
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.config.parts import LearnerConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import UnsavedEndError, describe_with_notes
from vedette_services.host.system import count_cores, cpu_model, read_text, vedette_version
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.run.outcome import read_summary, write_summary
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import FAILED_REASON

log = logging.getLogger("vedette.learner")

COMMAND = "VEDETTE_COMMAND"
"""The variable by which `vedette run` gives its own command line to the daemons that it starts."""

STARTS_MAX = 500
"""Of more starts, the first and the newest are kept."""

_GIT_WAIT_S = 5.0
_PACKAGES = ("torch", "numpy", "gymnasium")
_LOCAL = ("directory", "host", "hosts", "failure")
"""Fields of a start that name places and machines, and are not published."""
_PLACES = ("replay.directory", "learner.snapshot")
"""Settings that name places, however they are written."""
_NVIDIA = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a run.

    Args:
        began_s, ended_s: in seconds since 1970; None: it goes on, or was killed.
        exit_reason: as in ``summary.json``; ``failed`` if the learner, or each of its actors on
            this machine, gave up.
        failure: why it failed; "" if it has not, or that is not known.
        command: the command line, as a shell takes it.
        directory: where it was given: the user's project.
        commit: git's in that directory; "" if it is in no repository.
        dirty: files that git tracks there differed from the commit.
        versions: of Python, Vedette, what it learns with and, where the learner has made it, the
            environment's packages; ``cuda``: of torch's build.
        seeds: of the run and of its evaluations.
        host, platform, cpu, cores, memory_bytes, gpus: of the learner.
        hosts: of actor managers, as they said themselves.
        init_from: the run and the model whose weights it began with; "" for none.
    """

    began_s: float
    ended_s: float | None = None
    exit_reason: str = ""
    failure: str = ""
    command: str = ""
    directory: str = ""
    commit: str = ""
    dirty: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    host: str = ""
    platform: str = ""
    cpu: str = ""
    cores: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    init_from: str = ""

    @property
    def code(self) -> str:
        """The commit in short, with a ``+`` if files differed from it; "" for none."""
        return self.commit[:9] + "+" * self.dirty if self.commit else ""

    def lines(self) -> list[str]:
        """Describe it, a line each."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        seeds = ", ".join(f"{name} {seed}" for name, seed in self.seeds.items())
        machine = f"{self.cores} cores, {self.memory_bytes / 2**30:.1f} GiB of memory"
        return [
            f"command: {self.command}",
            f"directory: {self.directory}",
            f"commit: {self.commit or 'none'}{' and changes' * self.dirty}",
            f"versions: {versions}",
            f"seeds: {seeds}",
            f"host: {self.host}, {self.platform}",
            f"machine: {self.cpu}, {machine}, {', '.join(self.gpus) or 'no GPU'}",
            f"began: {format_time(self.began_s)}",
            *([f"initial weights: {self.init_from}"] if self.init_from else []),
        ]


def read_provenance(run: RunDirectory) -> list[Start]:
    """Read the starts of a run, oldest first; none if the file is missing or damaged."""
    try:
        return [_start(entry) for entry in read_json(run.provenance_file)]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _start(entry: dict[str, Any]) -> Start:  # of this version or another
    known = {name: entry[name] for name in Start.__dataclass_fields__ if name in entry}
    known |= {name: tuple(known[name]) for name in ("gpus", "hosts") if name in known}
    return Start(**known)


@contextmanager
def record_provenance(
    config: RunConfig, run: RunDirectory, packages: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Record a start, and when and why it ended. A disk that takes no file ends no run.

    Args:
        packages: the versions of the environment's, by their names.
    """
    start = describe_start(config, packages)
    before = read_provenance(run)
    earlier = read_summary(run.root)
    starts = [*before[:1], *before[1:][2 - STARTS_MAX :]]
    _write(run, [*starts, start])
    failure = ""
    try:
        yield
    except UnsavedEndError:  # its summary, as far as it is written, says how it has ended
        raise
    except Exception as error:
        failure = describe_with_notes(error)
        raise
    finally:
        if run.find_loss() is None:
            _record_end(run, starts, start, earlier, failure)


def _record_end(
    run: RunDirectory, starts: list[Start], start: Start, earlier: Status, failure: str
) -> None:
    """Record when and why a start ended; `starts` are those before it, `earlier` is their summary.

    Times say nothing of whose a summary is: a clock may have been put back.
    """
    summary = read_summary(run.root)
    mine = summary != earlier
    hosts = sorted({manager.host for manager in summary.managers}) if mine else []
    reason = (summary.exit_reason if mine and not failure else "") or FAILED_REASON
    ended = replace(
        start, ended_s=time.time(), exit_reason=reason, failure=failure, hosts=tuple(hosts)
    )
    _write(run, [*starts, ended])
    if mine and reason == FAILED_REASON:
        _write_failed_summary(run, summary)


def record_failure(run: RunDirectory, why: str, since: float) -> None:
    """Record that the last start has failed, although its learner was asked to stop and did.

    Args:
        why: it has failed.
        since: when it began at the earliest, in seconds since 1970: an older start is another one.
    """
    starts = read_provenance(run)
    if not starts or starts[-1].began_s < since:
        return
    _write(run, [*starts[:-1], replace(starts[-1], exit_reason=FAILED_REASON, failure=why)])
    summary = read_summary(run.root)
    if (summary.time_s or 0.0) >= since:
        _write_failed_summary(run, summary)
    at = summary.epoch or 0, summary.opt_steps or 0, summary.env_steps or 0
    EventFile(run.events_file).add(RunEvent(time.time(), "failed", "actors", why, *at))


def _write_failed_summary(run: RunDirectory, summary: Status) -> None:
    failed = replace(summary, exit_reason=FAILED_REASON)
    if why := write_summary(run.summary_file, failed, ended=True):
        log.warning("summary.json not written: %s", why)


def last_failure(run: RunDirectory) -> str | None:
    """Return why the last start of a run has failed, "" where that is not known; None if it has
    not failed."""
    failed = [start for start in read_provenance(run)[-1:] if start.exit_reason == FAILED_REASON]
    return printable(str(failed[0].failure), None) if failed else None


def describe_start(config: RunConfig, packages: Mapping[str, str] = MappingProxyType({})) -> Start:
    """Describe a start of this process, now and here. The arguments: see `record_provenance`."""
    commit, dirty = git_state(Path.cwd())
    versions = package_versions()
    of_environment = {name: packages[name] for name in packages if name not in versions}
    return Start(
        time.time(),
        command=os.environ.get(COMMAND) or command_line(),
        directory=str(Path.cwd()),
        commit=commit,
        dirty=dirty,
        versions={**versions, **of_environment},
        seeds={"run": config.seed, "evaluation": config.evaluation.seed},
        host=socket.gethostname(),
        platform=platform.platform(),
        cpu=cpu_model(),
        cores=count_cores(),
        memory_bytes=installed_memory(),
        gpus=tuple(_gpu_models()),
        init_from=_initial_weights(config.learner),
    )


def _initial_weights(config: LearnerConfig) -> str:
    """Name the model that a new run begins with, and the run's id; "" for none."""
    if config.init_from is None:
        return ""
    run = RunDirectory(Path(config.init_from))
    run_id = run.identity().run_id if run.exists else "of no id"
    newest = f" ({run.newest_checkpoint()})" if config.init_checkpoint == "latest" else ""
    return f"{run.root.absolute()}, run {run_id}, {config.init_checkpoint}{newest}"


def command_line() -> str:
    """Return this process's command line as a shell takes it."""
    program = "vedette" if Path(sys.argv[0]).parent.name == "cli" else Path(sys.argv[0]).name
    return shlex.join([program, *sys.argv[1:]])


def _write(run: RunDirectory, starts: list[Start]) -> None:
    try:
        write_json(run.provenance_file, [asdict(start) for start in starts])
    except OSError as error:
        why = describe_write_error(error, run.root)
        log.warning("%s not written: %s", run.provenance_file.name, why)


def git_state(directory: Path) -> tuple[str, bool]:
    """Return the commit of a directory's repository, and True if tracked files differ from it."""
    commit = _ask_git(directory, "rev-parse", "HEAD")
    changed = commit and _ask_git(directory, "status", "--porcelain", "--untracked-files=no")
    return commit, bool(changed)


def _ask_git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        found = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_WAIT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def package_versions() -> dict[str, str]:
    """Return the versions of Vedette, Python, what it learns with, and torch's CUDA."""
    found = {"vedette": vedette_version(), "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "cuda": _cuda_version()}


def _cuda_version() -> str:
    """Return the version of CUDA that torch was built with, without importing torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "none"
    text = read_text(Path(spec.origin).with_name("version.py"))
    found = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else "none"


def _gpu_models() -> Iterator[str]:
    """Yield the models of the NVIDIA GPUs that the driver shows."""
    for path in sorted(_NVIDIA.glob("*/information")):
        found = re.search(r"^Model:\s*(.*)$", read_text(path), re.MULTILINE)
        yield found[1] if found else "a GPU"


# What of it may be published


def public_start(start: Start) -> dict[str, Any]:
    """Return what of a start may be published."""
    known = {name: value for name, value in asdict(start).items() if name not in _LOCAL}
    return known | {"command": public_command(start.command)}


def public_command(command: str) -> str:
    """Return a command line's program, our command and the settings; options and paths are left
    out."""
    try:
        program, *rest = shlex.split(command)
    except ValueError:  # it is none, or damaged
        return ""
    name = Path(program).name
    ours = [rest[0]] if name == "vedette" and rest and rest[0].isalpha() else []
    return shlex.join([name, *ours, *filter(_is_public_setting, rest)])


def _is_public_setting(word: str) -> bool:
    key, equals, value = word.partition("=")
    is_setting = bool(equals) and key.partition(".")[0] in RunConfig.model_fields
    return is_setting and key not in _PLACES and not re.search(r"(^|[\"'=\s\[,])[/~]", value)


def public_config(config: RunConfig) -> RunConfig:
    """The configuration without what names places of this machine; of files, the names are left."""
    sources = {
        name: one.model_copy(update={"data": _without_folders(one.data)})
        for name, one in config.replay.sources.items()
    }
    replay = config.replay.model_copy(update={"directory": None, "sources": sources})
    places = {"init_from": _without_folders(config.learner.init_from), "snapshot": None}
    learner = config.learner.model_copy(update=places)
    wrappers = tuple(
        one.model_copy(update={"kwargs": _without_folders(one.kwargs)})
        for one in config.env.wrappers
    )
    kwargs = _without_folders(config.env.kwargs)
    env = config.env.model_copy(update={"kwargs": kwargs, "wrappers": wrappers})
    return config.model_copy(update={"replay": replay, "learner": learner, "env": env})


def _without_folders(value: Any) -> Any:  # whatever TOML has
    """Shorten each absolute path in a value to its last part."""
    match value:
        case str() if re.match(r"[/~\\]|[A-Za-z]:[/\\]", value):
            return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
        case Mapping():
            return {key: _without_folders(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_without_folders, value))
        case _:
            return value

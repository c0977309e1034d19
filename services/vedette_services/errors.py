"""Errors of the daemons. Each writes its own sentence and knows its exit status.

::

    ServicesError                  1
    ├── UsageError                 2   the command line or the configuration is wrong
    │   ├── ArgumentError              an argument of a function; a ValueError, as ConfigError is
    │   ├── ConfigError                what was configured cannot be done
    │   │   ├── SettingError           a key of the configuration, with the fix
    │   │   │   └── AddressError       a host and port
    │   │   ├── ManySettingsError      several of them, a line each
    │   │   └── NewerRunError          a run has settings that are not known here
    │   ├── KeysError                  key files that are missing, broken, or open to others
    │   ├── RunInUseError              another learner runs in a run directory
    │   ├── OutboxInUseError           another manager uses an outbox; OutboxFormatError: a later
    │   │                              release has written it; OutboxSystemError: not on Windows;
    │   │                              OutboxLinkError: its folder is a link that leads nowhere;
    │   │                              OutboxReadOnlyError: its disk takes no writes
    │   ├── NotARunError               a folder that holds no run
    │   ├── ImportPermissionError      a run's own configuration imports what nobody has allowed
    │   └── NotInRunError              a run that lacks what was asked of it
    ├── RefusedError               3   the other side refuses (version, spec, key, id)
    │   └── SpecMismatchError, RunImportRefusedError, RunNotUnderstoodError,
    │       SpacesNotKnownError         this host, of a run
    ├── PortInUseError             1   a port of a learner is taken, or cannot be bound here
    ├── RunLostError               1   a learner does not have its run any more
    │   ├── RunMovedError              its directory was renamed, removed or replaced
    │   └── RunTakenOverError      3   another learner has taken it over
    ├── SnapshotTakenError         3   a snapshot is another learner's; SnapshotAwayError  1: it is
    │                                  out of reach; SnapshotFormatError  1: a later release writes
    │                                  it; NoSnapshotError  2: there is none to start from
    ├── ReplayGoneError            1   a replay was removed or replaced while it was in use
    ├── StoppedWaitingError        0   a start was stopped while it waited for a learner to end
    ├── NoAnswerError              1   nobody answers at an address; NoModelError: with a model
    ├── EvaluationReportError      1   a manager reports an evaluation that was not asked for so
    ├── RunOverError               1   a run has ended, so that no learner listens
    ├── HandoverError              1   an actor's shared memory holds nonsense
    ├── EnvironmentProcessError    1   an environment in a process of its own failed or died
    ├── ChildFailedError           1   a process of a daemon died and would die again
    ├── StartRefusedError          1   the system starts no further process now
    ├── HungError                  1   a process of a learner that answers stands still
    │   └── ChildHungError             again and again, so that the learner gives up
    ├── ReplayWaitError            1   a batch may not be drawn yet
    ├── UnsavedEndError            1   a run has ended, and its end is not on the disk
    ├── DeviceMemoryError          1   a GPU has no memory for an optimization step
    └── DaemonFailedError          1, 2 or 3: a daemon that we started ended badly
"""

from __future__ import annotations

import errno
import os
import signal
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_protocol.errors import ProtocolError
from vedette_protocol.foreign_text import printable
from vedette_rl.errors import RlError
from vedette_rl.storage.write_errors import describe_write_error

if TYPE_CHECKING:
    from vedette_services.status.status import Status

DONE, FAILED, USAGE, REFUSED = 0, 1, 2, 3
"""Exit statuses: done or stopped on request, any other failure, usage or configuration, refused."""

TRACEBACK = "VEDETTE_TRACEBACK"
"""The variable that asks for Python's traceback beside an error's line."""

IN_THE_LOG = "the cause is in its log"
"""Said of a process that crashed or was killed, and told nobody why."""

NO_ACTOR = "no actor can play here"
"""Begins what a manager says that would only fail again."""

RUN_OVER = "the run is over"
"""Begins what a manager says that ended because nothing is left to play."""

_FILE_FIXES: dict[int | None, str] = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or have the quota raised",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f, systemd's LimitFSIZE)",
    errno.EISDIR: "put that folder away",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
    errno.EMFILE: "raise the limit of open files (ulimit -n, systemd's LimitNOFILE)",
    errno.ENFILE: "raise the host's limit of open files (fs.file-max)",
}

_ADDRESS_TAKEN = (
    "each environment needs an address of its own, such as a free port (env.kwargs); one that can "
    "exist only once here takes actors.count=1 actors.envs_per_actor=1 learner.eval_interval=0"
)

LIMIT_SIGNALS = {
    number: limit
    for name, limit in (
        ("SIGXCPU", "the limit of processor time, ulimit -t"),
        ("SIGXFSZ", "the limit of a file's size, ulimit -f"),
    )
    if (number := getattr(signal, name, None)) is not None  # Windows has neither
}
"""Signals by which the system ends a process that has met a limit, and what to raise."""

_BIND_FIXES: dict[int | None, str] = {
    errno.EADDRNOTAVAIL: "--bind takes an address of this host, or 0.0.0.0 for all of them",
    errno.EACCES: "choose a port from 1024 on: --bind HOST:PORT",
}


class ServicesError(Exception):
    """Everything that `vedette_services` raises on its own account."""

    exit_status = FAILED


class UsageError(ServicesError):
    """The command line or the configuration is wrong: nothing was started."""

    exit_status = USAGE


class ArgumentError(UsageError, ValueError):
    """An argument of a function has a value that it cannot take."""


class DeviceMemoryError(ServicesError):
    """A GPU has no memory for an optimization step.

    Args:
        device: torch's name of it.
        why: the device's own words.
        copied: a copy of the replay is in its memory.
        block: the agent learns from a block of a queue.
    """

    def __init__(self, device: str, why: str, *, copied: bool, block: bool = False) -> None:
        learned_from = "replay.block and agent.batch_size" if block else "agent.batch_size"
        fix = "set learner.copy_replay=false" if copied else f"lower {learned_from}"
        super().__init__(
            f"learner.device: {device} has no memory for an optimization step ({why}): {fix}, or "
            "leave the device to this process alone"
        )
        self.device = device


class DeviceGoneError(ServicesError):
    """The GPU on which a learner trained is not there when its trainer starts again.

    Args:
        device: torch's name of it.
        why: torch's own words; "" where it has none.
    """

    def __init__(self, device: str, why: str) -> None:
        super().__init__(
            f"learner.device: this learner has trained on {device}, and torch finds no GPU now"
            f"{f' ({why})' if why else ''}: look at it with nvidia-smi; a new start of the learner "
            "takes what is there then, learner.device=cpu the CPU"
        )
        self.device = device


class ConfigError(UsageError, ValueError):
    """The configuration cannot be carried out here."""


class SettingError(ConfigError):
    """A key of the configuration is wrong.

    Args:
        key: its path, as `--set` takes it.
        why: what is wrong with it.
        fix: what to do about it; "" where `why` says it already.
        source: the file or variable that it stands in; "" for the command line.
    """

    def __init__(self, key: str, why: str, fix: str = "", *, source: str = "") -> None:
        place = f"{source}: " if source else ""
        super().__init__(f"{place}{key}: {why}" + (f"; {fix}" if fix else ""))
        self.key = key
        self.why = why
        self.fix = fix
        self.source = source

    @property
    def errors(self) -> tuple[SettingError, ...]:
        """This error alone, as `ManySettingsError` lists its own."""
        return (self,)

    def within(self, source: str) -> SettingError:
        """The same error, with the file or variable that it comes from."""
        return SettingError(self.key, self.why, self.fix, source=source)


class ManySettingsError(ConfigError):
    """Several keys are wrong; each has a line of its own."""

    def __init__(self, errors: Sequence[SettingError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = tuple(errors)


def config_error(error: RlError, key: str = "", fix: str = "") -> ConfigError:
    """An error of what was configured, where a start meets one of `vedette_rl`.

    Args:
        key, fix: where the error itself has no key; "": its sentence says enough.
    """
    if error.key:
        return SettingError(error.key, error.problem, error.fix)
    if key:
        return SettingError(key, error.problem, error.fix or fix)
    return ConfigError(str(error))


@contextmanager
def config_errors(key: str = "", fix: str = "") -> Iterator[None]:
    """Raise the errors of `vedette_rl` as those of what was configured, as `config_error` does.

    Raises:
        ConfigError: there was one; a SettingError where its key is known.
    """
    try:
        yield
    except RlError as error:
        raise config_error(error, key, fix) from error


@contextmanager
def custom_part_errors(
    key: str, name: str, tried: str = "is made", what: str = "it"
) -> Iterator[None]:
    """Raise what a custom part raises as an error of the key that names it.

    The errors of `vedette_rl` say enough, and a part of ours is not blamed.

    Args:
        key, name: the key, and the part that it names.
        tried: what it fails at.
        what: the part, as the fix says it.

    Raises:
        SettingError: it has failed.
    """
    try:
        yield
    except RlError:
        raise
    except Exception as error:
        from vedette_rl.import_by_name import is_import_name  # it loads pydantic

        if not is_import_name(name):
            raise
        why = f"{name} fails when it {tried}: {foreign_error_message(error)}"
        raise SettingError(key, why, f"fix {what}; {TRACEBACK}=1 shows where") from error


def raise_errors(errors: Sequence[SettingError]) -> None:
    """Raise all of them together; nothing where there is none.

    Raises:
        SettingError: there is one.
        ManySettingsError: there are more.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ManySettingsError(errors)


class AddressError(SettingError):
    """Text that is no address, or an address that cannot be found out."""

    _FIX = "write HOST or HOST:PORT, such as 127.0.0.1:5555"

    def __init__(self, text: str, why: str, fix: str = _FIX) -> None:
        super().__init__(f"address {text!r}", why, fix)
        self.text = text


class NewerRunError(ConfigError):
    """A run's configuration has settings that this version of Vedette does not know.

    Args:
        saved: the run's configuration.
        unknown: its keys that are not known here.
        theirs: the version that started the run last; "" where that is not recorded.
        here: this version; "" where it is not known.
        is_newer: `theirs` is later than `here`.
    """

    def __init__(
        self, saved: Path, unknown: Sequence[str], theirs: str, here: str, *, is_newer: bool
    ) -> None:
        keys = ", ".join(unknown)
        ours = f"vedette {here}".rstrip()
        if is_newer:
            why = f"made by a newer version of vedette ({theirs}; {here} here does not know {keys})"
            fix = f"install vedette {theirs}"
        else:
            known = "it is not recorded which version started this run last"
            if theirs:
                known = f"vedette {theirs} started this run last"
            why = f"{ours} here does not know {keys}, and {known}"
            fix = "take out what you wrote yourself, or install the version that wrote it"
        super().__init__(f"{saved}: {why}; {fix}")
        self.saved = saved
        self.unknown = tuple(unknown)


class KeysError(UsageError):
    """Key files that are missing, broken, already there, or open to others.

    Args:
        place: the file or folder.
        why: what is wrong with it.
        fix: what to do about it; "" where `why` says it already.
    """

    def __init__(self, place: object, why: str, fix: str = "") -> None:
        super().__init__(f"{place}: {why}" + (f"; {fix}" if fix else ""))
        self.place = place


class OutboxInUseError(UsageError):
    """Another process uses the folder of an outbox."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"the outbox {directory} is in use by another manager: give each a folder of its own"
        )


class OutboxFormatError(UsageError):
    """A file of an outbox is of a format that is not known here."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is of another format than this release writes: start the release that wrote "
            "it, which sends its samples, or move the file away"
        )


class OutboxLinkError(UsageError):
    """The folder of an outbox is a link that leads nowhere.

    Args:
        directory: the link.
        target: where it leads.
    """

    def __init__(self, directory: Path, target: Path) -> None:
        super().__init__(
            f"the outbox {directory} is a link to {target}, and there is nothing: mount its disk, "
            "or make that folder"
        )
        self.directory = directory


class OutboxReadOnlyError(UsageError):
    """The folder of an outbox is on a disk that takes no writes.

    Args:
        directory: it.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"the outbox {directory} is on a disk that is mounted read-only: mount it writable: "
            "what is in it is sent then"
        )
        self.directory = directory


class OutboxSystemError(UsageError):
    """This system has no calls that an outbox needs."""

    def __init__(self) -> None:
        super().__init__("an outbox needs Linux or macOS")


class NotARunError(UsageError):
    """A folder holds no run, or there is none.

    Args:
        directory: the folder; a file is said to be one.
        lacks: what a run has and it has not.
        fix: what to do about it; "" if nothing is known.
        wanted: what might have been there.
    """

    def __init__(
        self, directory: Path, lacks: str, fix: str = "", *, wanted: str = "folder"
    ) -> None:
        why = f"there is no such {wanted}"
        if directory.is_dir():
            why = f"not a run's directory: it has no {lacks}"
        elif directory.exists():
            why = "it is a file, and a run is a folder"
            if not fix and (directory.parent / "run.json").is_file():
                fix = f"name {directory.parent}"
        super().__init__(f"{directory}: {why}" + (f"; {fix}" if fix else ""))
        self.directory = directory
        self.lacks = lacks


class NotInRunError(UsageError):
    """A run lacks what was asked of it.

    Args:
        directory: the run's.
        lacks: what is not there.
    """

    def __init__(self, directory: Path, lacks: str) -> None:
        super().__init__(f"{directory}: it has no {lacks}")
        self.directory = directory
        self.lacks = lacks


class ImportPermissionError(UsageError):
    """A run's own configuration imports what nobody has allowed here.

    Args:
        run: its directory.
        name: the first ``module:Name`` that needs permission.
        packages: those to allow.
        moved: where its modules are now, and were when this user began a run with it; "" where
            there is no record that this user did.
    """

    def __init__(self, run: Path, name: str, packages: Sequence[str], moved: str = "") -> None:
        why = moved or "there is no record here that you began such a run"
        allow = " ".join(f"--allow-import {package}" for package in packages)
        super().__init__(
            f"{run}: it imports {name!r}, and {why}; if it is yours or you trust it, add {allow}"
        )
        self.run = run
        self.name = name
        self.packages = tuple(packages)


class RefusedError(ServicesError):
    """The other side refused this one, and trying again would not help."""

    exit_status = REFUSED


class PortInUseError(ServicesError):
    """A port to bind is taken, or cannot be bound here.

    Args:
        address: host and port.
        why: the system's words.
        number: the system's `errno`.
        what: which of a learner's ports it is.
    """

    def __init__(
        self,
        address: object,
        why: str,
        number: int | None = None,
        what: str = "or one of the two ports above it",
    ) -> None:
        fix = _BIND_FIXES.get(
            number, "end the program that has it or choose another --bind HOST:PORT"
        )
        super().__init__(f"cannot bind {address} ({what}): {why}; {fix}")
        self.address = address


class RunInUseError(UsageError):
    """Another learner runs in a run directory.

    Args:
        directory: the run's.
        holder: which process; "" where that is not known.
        by: what it is.
    """

    def __init__(self, directory: Path, holder: str = "", *, by: str = "another learner") -> None:
        who = f" ({holder})" if holder else ""
        super().__init__(f"{directory} is in use by {by}{who}; end it or choose another --out")
        self.directory = directory
        self.holder = holder


class RunChangedError(UsageError):
    """Another start has begun or changed the run that a start was planned for.

    Args:
        directory: the run's.
    """

    def __init__(self, directory: Path) -> None:
        why = "another start has begun or changed this run since this one looked at it"
        super().__init__(f"{directory}: {why}; give the command again")
        self.directory = directory


class RunLostError(ServicesError):
    """A learner does not have its run any more: nothing more of it may be written.

    Args:
        directory: the run's.
        why: what has become of it.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"{directory}: {why}")
        self.directory = directory
        self.why = why


class RunMovedError(RunLostError):
    """A run's directory was renamed, removed or replaced while its learner runs.

    Args:
        directory: the run's.
        why: what has become of it.
        now: where it is; None: nowhere, or that is not known.
    """

    def __init__(self, directory: Path, why: str, now: Path | None = None) -> None:
        super().__init__(directory, f"{why} while its learner runs")
        self.now = now


class RunTakenOverError(RunLostError):
    """Another learner has taken a run over. A start of this one would take it back.

    Args:
        directory: the run's.
        owner: the other learner.
    """

    exit_status = REFUSED

    def __init__(self, directory: Path, owner: str) -> None:
        super().__init__(
            directory, f"{owner} has taken the run over; this learner stops, and writes no more"
        )


class SnapshotTakenError(ServicesError):
    """A learner's replay is not the one that a snapshot is of: another learner goes on with it.

    Args:
        directory: the snapshot's.
        newest: its newest generation.
    """

    exit_status = REFUSED

    def __init__(self, directory: Path, newest: str) -> None:
        super().__init__(
            f"learner.snapshot: {directory} is of another replay than this one ({newest}): another "
            "learner was started from it, or the disk of this one was put back from an older copy. "
            "To go on from there: vedette learner --from-snapshot DIR --out NEW. To go on with "
            "this replay: name another, empty directory"
        )
        self.directory = directory
        self.newest = newest


class SnapshotAwayError(ServicesError):
    """A learner cannot reach the directory of its snapshots, and may not start without it.

    Args:
        directory: it.
        why: what is wrong with it.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(
            f"learner.snapshot: {directory} cannot be written: {why}: mount it, make room or the "
            "folder around it, or name another one; learner.snapshot=none goes on without"
        )
        self.directory = directory


class SnapshotFormatError(ServicesError):
    """A later release has written a generation of a snapshot. So whose it is cannot be told here.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is of a later release: use that one")
        self.path = path


class NoSnapshotError(UsageError):
    """There is no snapshot from which a learner could start.

    Args:
        directory: where it was looked for.
        why: what there is.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"--from-snapshot {directory}: {why}")
        self.directory = directory


class ReplayGoneError(ServicesError):
    """A replay was removed or replaced while its learner runs.

    Args:
        directory: the replay's.
        what: what was done to it.
        begins: the replay with which the next start goes on.
    """

    def __init__(self, directory: Path, what: str, begins: str) -> None:
        super().__init__(
            f"{directory}: the replay was {what} while its learner runs; start the run again: it "
            f"goes on with {begins}"
        )
        self.directory = directory


class StoppedWaitingError(ServicesError):
    """A start was asked to stop while it waited for the previous learner."""

    exit_status = DONE


class NoAnswerError(ServicesError):
    """No learner answers at an address."""

    def __init__(self, address: object, waited_s: float, fix: str = "") -> None:
        message = f"no learner answers at {address} (waited {waited_s:g} s)"
        super().__init__(message + (f"; {fix}" if fix else ""))
        self.address = address
        self.waited_s = waited_s


class EvaluationReportError(ServicesError):
    """A manager's report of an evaluation contradicts what was asked for, or itself."""


class RunOverError(ServicesError):
    """A run has ended, so that no learner listens.

    Args:
        where: its directory, or its learner's address.
        reason: why it ended, as `EXIT_REASONS` has it.
    """

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(f"{where}: the run is over ({reason})")
        self.where = where
        self.reason = reason


class NoModelError(ServicesError):
    """No model to act on has come from the learner.

    Args:
        learner: its address.
        run: that it has announced; "": none, or it does not answer.
    """

    def __init__(self, learner: str, waited_s: float, run: str) -> None:
        why, fix = f"it is there, with run {run}", "wait longer (wait_s)"
        if not run:
            why, fix = "it does not answer", f"start it, for other hosts with --bind, or {fix}"
        super().__init__(
            f"no model from the learner at {learner} within {waited_s:g} s: {why}; {fix}"
        )
        self.learner = learner
        self.waited_s = waited_s
        self.run = run


class EnvironmentProcessError(ServicesError):
    """An environment in a process of its own raised an error, or its process died."""

    killed = False
    """Its process died by a signal, such as the system's where memory is short."""


class ChildFailedError(ServicesError):
    """A process of a daemon died, and would die again.

    Args:
        name: of the process.
        status: as `describe_exit` takes it.
        words: what it met with; "" where it could not say.
    """

    def __init__(self, name: str, status: int, words: str = "") -> None:
        message = f": {words}" if words else f"; {IN_THE_LOG}"
        super().__init__(f"the {name} ended with {describe_exit(status)}{message}")
        self.name = name
        self.status = status
        self.report = words


class StartRefusedError(ServicesError):
    """The system starts no further process now.

    Args:
        name: the process that is not started.
        limit: the limit that was met.
        fix: what to do about it.
    """

    def __init__(self, name: str, limit: str, fix: str) -> None:
        super().__init__(f"{name} cannot be started: {limit}; {fix}")
        self.name = name
        self.limit = limit


class HungError(ServicesError):
    """A process of a learner stands still; the sentence is the status's."""


class ChildHungError(HungError):
    """A process of a daemon stands still again and again.

    Args:
        name: of the process.
        restarts: that brought nothing.
        standstill: a sentence on the last one.
    """

    def __init__(self, name: str, restarts: int, standstill: str) -> None:
        super().__init__(
            f"{standstill}; {restarts} restarts of the {name} brought nothing: what holds it is "
            "outside this program (a driver, a disk, an agent's code), or is too slow for it"
        )
        self.name = name
        self.restarts = restarts


class ReplayWaitError(ServicesError, TimeoutError):
    """A batch may not be drawn yet."""

    def __init__(self, reason: str, waited_s: float) -> None:
        super().__init__(f"no batch after {waited_s:g} s: {reason}")
        self.reason = reason
        self.waited_s = waited_s


class SamplesRejectedError(ServicesError):
    """The learner has no use of the samples that its actors send.

    Args:
        why: how many were rejected, and why.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; fix the environment, or wrap it by env.wrappers")


class UnsavedEndError(ServicesError):
    """A run has ended, and its last checkpoint or its summary could not be written.

    Args:
        why: what is not on the disk, and where a resume begins.
        status: the last of the run.
    """

    begins = "the end of the run is not saved: "

    def __init__(self, why: str, status: Status) -> None:
        super().__init__(f"{self.begins}{why}")
        self.status = status


class DaemonFailedError(ServicesError):
    """A daemon that was started for a run ended badly."""

    def __init__(self, name: str, status: int, log: Path, last_words: str) -> None:
        words = f": {last_words}" if last_words else ""
        super().__init__(f"the {name} ended with {describe_exit(status)}{words} (its log: {log})")
        self.name = name
        self.log = log
        self.exit_status = status if status in (USAGE, REFUSED) else FAILED


def describe_exit(status: int) -> str:
    """A process's exit status or signal in words, from `Popen.returncode`."""
    if status >= 0:
        return f"exit status {status}"
    limit = LIMIT_SIGNALS.get(-status)
    return f"signal {-status}" + (f" ({limit})" if limit else "")


def is_self_explanatory(error: Exception | SystemExit) -> bool:
    """Return whether an error's own sentence says enough: ours, and a disk that refuses a file."""
    if isinstance(error, OSError):
        return bool(error.strerror)
    return isinstance(error, ServicesError | RlError | ProtocolError | SystemExit)


def error_message(error: Exception | SystemExit) -> str:
    """An error in one line: of a file with its path and the fix, a foreign one with its class and,
    where a user's code has raised it, its place there."""
    if isinstance(error, SystemExit):  # none of our code that an error comes out of ends a process
        return f"its environment's code ended the process: {foreign_error_message(error)}"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        fix = _FILE_FIXES.get(error.errno, "")
        why = describe_write_error(error, Path(os.fsdecode(error.filename or ".")))
        said = printable(f"{where}{why}" + (f"; {fix}" if fix else ""), None)
        at = user_code_location(error)  # as of a simulator's socket
        if not at:
            return said
        said = f"{type(error).__name__}: {said} ({at})"
    elif is_self_explanatory(error):
        return printable(str(error), None)
    else:
        said = foreign_error_message(error)
    fix = environment_fix(error)
    return f"{said}; {fix}" if fix else said


_NO_DISPLAY = (
    "there is no display here: start the command by `xvfb-run -a`, or have it draw without one "
    "(MUJOCO_GL=egl, PYGLET_HEADLESS=1, SDL_VIDEODRIVER=dummy)"
)
_OF_NO_DISPLAY = (
    "nosuchdisplay",
    "no available video device",
    "no display name and no $display",
    "display environment variable is missing",
    "could not open display",
    "cannot open display",
)


def _lacks_display(error: BaseException) -> bool:
    """True for what pyglet, SDL, GLFW and Tk say on a host without a display."""
    text = f"{type(error).__name__}: {error}".lower()
    return any(word in text for word in _OF_NO_DISPLAY)


def environment_fix(error: BaseException) -> str:
    """The fix for what a user's environment raises, by the error behind it: an address that is
    taken, a display that is not there. "" for any other."""
    behind: BaseException | None = error
    while behind is not None:
        if _lacks_display(behind):
            return _NO_DISPLAY
        if isinstance(behind, OSError) and behind.errno == errno.EADDRINUSE:
            return _ADDRESS_TAKEN
        behind = behind.__cause__ or behind.__context__
    return ""


def foreign_error_message(error: BaseException) -> str:
    """A foreign error: its class, what it says, and where in a user's code it comes from."""
    message = printable(str(error), None) or "it does not say why"
    where = user_code_location(error)
    return f"{type(error).__name__}: {message}" + (f" ({where})" if where else "")


def describe_with_notes(error: Exception | SystemExit) -> str:
    """An exception and its notes in one line."""
    notes = printable(" ".join(getattr(error, "__notes__", ())), None)
    return error_message(error) + (f"; {notes}" if notes else "")


_OUR_PACKAGES = map(find_spec, ("vedette", "vedette_services", "vedette_rl", "vedette_protocol"))
_NOT_USER_CODE = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(str(Path(spec.origin).parent) for spec in _OUR_PACKAGES if spec and spec.origin),
)


def user_code_location(error: BaseException) -> str:
    """The innermost line of code that is neither ours nor installed, as ``file.py:7, in step``; ""
    where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_code(frame.filename):
            return f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"
    return ""


def is_user_code(file: str) -> bool:
    """Return True for a Python file that is neither ours nor installed."""
    return file.endswith(".py") and not file.startswith(_NOT_USER_CODE)


class HandoverError(ServicesError):
    """An actor's shared memory holds what no actor of ours writes."""


class SpecMismatchError(RefusedError):
    """This host would build something else than the learner's run describes: never acted on."""

    def __init__(
        self,
        what: str,
        difference: str,
        fix: str = "install the learner's versions of vedette and of the environment here",
    ) -> None:
        super().__init__(f"this host's {what} differs from the run's: {difference}; {fix}")
        self.what = what
        self.difference = difference


class SpacesNotKnownError(RefusedError):
    """The spaces of a run are neither declared nor those of an environment of this host."""

    def __init__(self, env: str, why: str) -> None:
        super().__init__(
            f"the spaces of the run's environment {env!r} are not known here: {why}; "
            "give observation_space= and action_space="
        )


class RunImportRefusedError(RefusedError):
    """The run names code to import that the operator of this host has not allowed."""

    def __init__(self, name: str, package: str) -> None:
        super().__init__(
            f"the learner's run imports {name!r}, which this host does not allow; "
            f"if you trust it, start with --allow-import {package}"
        )
        self.package = package


class RunNotUnderstoodError(RefusedError):
    """The run's settings are not those that this version of Vedette knows."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the learner's run cannot be played here: {why}; "
            "fix the learner's configuration, or install its version of vedette here"
        )

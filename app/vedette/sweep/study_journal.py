"""The journal of a study, which several processes may share: its lock, its repair, its workers."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.reports.configurations import flatten
from vedette.sweep.study import Study
from vedette_rl.storage.system import lock_file
from vedette_services.errors import UsageError
from vedette_services.run.sweep_files import JOURNAL, STUDY_LOCK

if TYPE_CHECKING:
    import optuna

POINTS = 20
"""Points of a run's budget at which trials are compared."""

_NAME = "vedette"


def open_study(study: Study, out: Path) -> optuna.Study:
    """Open the study of a directory, or create it.

    Raises:
        UsageError: it is another study, whose trials cannot be compared with this one's.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _repair_journal(out / JOURNAL)
    points = POINTS * study.config.seeds
    samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(constant_liar=True),
        "random": optuna.samplers.RandomSampler,
    }
    pruners: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
        "median": lambda: optuna.pruners.MedianPruner(n_warmup_steps=POINTS // 4),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=points),
        "none": optuna.pruners.NopPruner,
    }
    with locked(out / STUDY_LOCK):
        opened = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(out / JOURNAL))),
            sampler=samplers[study.config.sampler](),
            pruner=pruners[study.config.pruner](),
            study_name=_NAME,
            direction="maximize",
            load_if_exists=True,
        )
        known = opened.user_attrs.get("study")
        if known is None:
            opened.set_user_attr("study", study.described())
    if known not in (None, study.described()):
        before, now = (dict(flatten(json.loads(text))) for text in (known, study.described()))
        key = min(key for key in before.keys() | now if before.get(key) != now.get(key))
        raise UsageError(
            f"--out {out}: holds a study with {key}={before.get(key, 'none')}, not "
            f"{now.get(key, 'none')}; only trials may change: name another folder"
        )
    return opened


def _repair_journal(journal: Path) -> None:
    """Remove a last line that a full disk or a power failure has cut."""
    from optuna.storages.journal import JournalFileSymlinkLock

    if not journal.exists():
        return
    lock = JournalFileSymlinkLock(str(journal))
    lock.acquire()
    try:
        data = journal.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(journal, data.rfind(b"\n") + 1)
    finally:
        lock.release()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which its holders keep for a moment only."""
    with path.open("a") as file:
        if not lock_file(file.fileno(), wait=True):
            fix = "name a folder on another disk"
            raise UsageError(f"--out {path.parent}: a study needs locks, and there are none; {fix}")
        yield


class Workers:
    """The processes that work on a study, each with a locked file; of other hosts, its age counts.

    Args:
        directory: the directory of the files.
    """

    stale_s = 120.0

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._host = socket.gethostname()
        self.name = f"{self._host}:{os.getpid()}:{secrets.token_hex(3)}"
        self._own = directory / self.name
        self._file = self._own.open("w")
        lock_file(self._file.fileno())

    def beat(self) -> None:
        """Show other hosts that this process lives."""
        with suppress(OSError):  # a full disk: it is tried again at once
            os.utime(self._own)

    def is_alive(self, name: str) -> bool:
        """Return True if a process works on the study."""
        path = self._directory / name
        if name == self.name or not name:
            return bool(name)
        try:
            if name.partition(":")[0] != self._host:
                # both times are of the file system's clock
                return path.stat().st_mtime > self._own.stat().st_mtime - self.stale_s
            with path.open("r+b") as file:  # NFS locks no file that is open for reading only
                if lock_file(file.fileno()):
                    path.unlink()  # of a process that was killed
                else:
                    return True
        except OSError as error:  # another process has the lock, or the file system does not tell
            return not isinstance(error, FileNotFoundError)
        return False

    def close(self) -> None:
        """Leave the study."""
        self._own.unlink(missing_ok=True)
        self._file.close()

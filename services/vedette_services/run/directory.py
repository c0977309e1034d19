"""The run directory: its files, its lock, and the run's identity."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_protocol.account import SampleAccounting
from vedette_rl.storage.atomic_files import (
    create_file,
    json_text,
    replace_or_overwrite,
    sync_directory,
)
from vedette_rl.storage.regular_files import open_regular, read_bytes, read_json
from vedette_rl.storage.system import lock_file
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.errors import (
    NotARunError,
    RunInUseError,
    RunLostError,
    SettingError,
    StoppedWaitingError,
)
from vedette_services.host.system import has_open
from vedette_services.net.addresses import Address
from vedette_services.run.claim import (
    STILL_S,
    WAIT_S,
    YIELD_S,
    YIELD_STILL_S,
    ClaimRecord,
    ClaimWatch,
    Owner,
    SeenOwner,
)
from vedette_services.run.hold import ClaimKeeper, RunHold
from vedette_services.run.limiter_record import LimiterRecord
from vedette_services.run.run_files import has_written
from vedette_services.status.records import PROCESSES

if TYPE_CHECKING:  # `vedette status` needs no configuration
    from vedette_rl.envs.spaces import Spaces
    from vedette_rl.replay.limiter import LimiterOrigin
    from vedette_services.config.run_config import RunConfig

REPORT_FILE = "report.html"
RUN_RECORD = "run.json"

log = logging.getLogger("vedette.learner")

Stop = Callable[[], bool]
"""True once a wait is to end."""

_LIVE_FILES = ("*.map", "*.heartbeat", "ranks.*", "learner.json")
_LOCK_WAIT_S = 10.0  # a learner that was asked to stop may still write its last checkpoint
_CHECK_WAIT_S = 1.0  # the lock of a learner killed a moment ago is released within a second
_LOCK_POLL_S = 0.1


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """A run's id, and the number of its starts.

    Args:
        run_id: 16 hexadecimal digits, made once per run directory.
        epoch: starts of the trainer on this run; the first is 1.
        in_process: it runs in one process, with a replay in memory.
        counted: samples of the replays that were erased since it began.
        owner: the learner that has claimed it last; None: one of an earlier version, or nobody.
        limiter: of its last start; None: one of an earlier version, or nobody.
    """

    run_id: str
    epoch: int
    in_process: bool = False
    counted: SampleAccounting = field(default_factory=SampleAccounting)
    owner: Owner | None = None
    limiter: LimiterRecord | None = None


class RunDirectory:
    """The files and folders of a run.

    ::

        config.toml  checkpoints/  best/  best-before/  replay/  journal/  tensorboard/  log/
        summary.json
        run.json     the run's id and epoch; made first, so that the folder is known as a run's
        learner.json where its learner listens, while one does
        lock         held by the learner that runs here; contains its process id
        claim        moves while that learner lives: for hosts to which its lock says nothing
        events.jsonl starts, managers that came and went, restarts
        provenance.json  what each start was made from
        report.html  written by `vedette report`
        live/        the maps that the learner's processes share
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config_file = root / "config.toml"
        self.checkpoints = root / "checkpoints"
        self.best = root / "best"
        self.best_before = root / "best-before"
        self.replay = root / "replay"
        self.journal = root / "journal"
        self.tensorboard = root / "tensorboard"
        self.log = root / "log"
        self.summary_file = root / "summary.json"
        self.live = root / "live"
        self.model_map = self.live / "model.map"
        self._short_model_map = self.live / "float16.map"
        self.learning_map = self.live / "learning.map"
        self.ingest_map = self.live / "ingest.map"
        self.progress_map = self.live / "progress.map"
        self.evaluation_map = self.live / "evaluation.map"
        self.ended_evaluations_map = self.live / "ended-evaluations.map"
        self.reported_map = self.live / "reported.map"
        self.evaluated_map = self.live / "evaluated.map"
        self.snapshot_map = self.live / "snapshot.map"
        self.safe_map = self.live / "safe.map"
        self.spec_file = self.live / "learner.json"
        self.location_file = root / "learner.json"
        self.events_file = root / "events.jsonl"
        self.provenance_file = root / "provenance.json"
        self.report_file = root / REPORT_FILE
        self._identity_file = root / RUN_RECORD
        self._lock_file = root / "lock"
        self._lock: int | None = None
        self._claim_record = ClaimRecord(root / "claim")
        self._hold: RunHold | None = None
        self._keeper: ClaimKeeper | None = None
        self.taken_from: Owner | None = None
        """The learner that this process has taken the run over from, while that still lived."""

    def sent_map(self, config: RunConfig) -> Path:
        """The map of models as they travel: another one than `model_map` where that is float16."""
        short = config.learner.model_dtype == "float16"
        return self._short_model_map if short else self.model_map

    def heartbeat_map(self, process: str) -> Path:
        """The map of a process's heartbeat."""
        return self.live / f"{process}.heartbeat"

    def remove_models(self) -> None:
        """Remove both maps of models."""
        for path in self.model_maps:
            path.unlink(missing_ok=True)

    def empty_live(self, *keep: Path) -> None:
        """Remove what the learner's processes shared, once they have ended.

        Args:
            keep: maps that the next start reads.
        """
        for pattern in _LIVE_FILES:
            for path in self.live.glob(pattern):
                if path not in keep:
                    path.unlink(missing_ok=True)

    def make(self) -> None:
        """Make the directory and its folders, if they do not exist; the disk has their names then.

        The run's identity comes first: by it a start that is killed from here on has left a folder
        that is known as a run's.

        Raises:
            SettingError: it is not a directory or cannot be written.
        """
        places = (self.root, self.checkpoints, self.log, self.live)
        new = [path for path in (*places, *self.root.parents) if not path.exists()]
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.is_ours:
                create_file(self._identity_file, json_text(asdict(_new_identity())))
            for place in places:
                place.mkdir(exist_ok=True)
            for folder in {path.parent for path in new}:
                sync_directory(folder)
        except OSError as error:
            there = self.root
            while not there.exists() and there != there.parent:
                there = there.parent
            if isinstance(error, (FileNotFoundError, PermissionError)):  # /proc says the first
                why = f"{there} cannot be written"
            else:
                why = describe_write_error(error, there)
            raise SettingError(f"--out {self.root}", why, "name another folder") from error
        # Or a folder of another user would be found at the first checkpoint, or at the last.
        for place in (*places, self.best):
            if place.is_dir() and not os.access(place, os.W_OK | os.X_OK):
                why = f"{place} cannot be written by this user"
                raise SettingError(f"--out {self.root}", why, "let this user write it")

    def check_parts(self) -> None:
        """Check that its folders are folders, and its files are files.

        Raises:
            SettingError: names the first that is not.
        """
        folders = (self.checkpoints, self.best, self.replay, self.tensorboard, self.log, self.live)
        files = (self._lock_file, self._identity_file, self.config_file, self.summary_file)
        for part in (*folders, *files):
            wanted = "folder" if part in folders else "file"
            if os.path.lexists(part) and not (part.is_dir() if part in folders else part.is_file()):
                fix = "put it away, or name another folder"
                raise SettingError(f"--out {self.root}", f"{part} is no {wanted}", fix)

    @property
    def model_maps(self) -> tuple[Path, Path]:
        """Both maps of models: of a run that goes on, the gateway serves the last one at once."""
        return self.model_map, self._short_model_map

    @property
    def record_maps(self) -> tuple[Path, ...]:
        """The maps of the learner's records, but that of a snapshot's process, which few runs
        have."""
        return (
            self.learning_map,
            self.ingest_map,
            self.progress_map,
            self.evaluation_map,
            self.ended_evaluations_map,
            self.reported_map,
            *map(self.heartbeat_map, PROCESSES),
        )

    @property
    def is_ours(self) -> bool:
        """True if a start has made the directory, or taken an empty one: its files are a run's."""
        return self._identity_file.exists()

    @property
    def exists(self) -> bool:
        """True if a run was started here before, and not only made or erased."""
        if not self.is_ours:
            return False
        if self.config_file.exists() or has_written(self.replay) or has_written(self.checkpoints):
            return True
        try:
            return self.identity().epoch > 0
        except SettingError:  # it is damaged: whoever needs it is told
            return True

    def newest_checkpoint(self) -> int | None:
        """Return the optimization steps of the latest checkpoint; None if there is none."""
        from vedette_rl.storage.checkpoints import Checkpoints  # brings numpy

        latest = Checkpoints(self.checkpoints, keep=1).latest()
        return int(latest.name) if latest else None

    def identity(self) -> RunIdentity:
        """Read the run's identity, as of its last start.

        Raises:
            NotARunError: no run was started here.
            SettingError: it cannot be read.
        """
        try:
            found = read_json(self._identity_file)
            in_process = bool(found.get("in_process"))
            epoch = int(found["epoch"])
            if not 0 <= epoch < 2**31:
                raise ValueError(f"epoch {epoch} is none")
            counted = {name: int(count) for name, count in found.get("counted", {}).items()}
            of = str(found["run_id"]), epoch, in_process
            owner = Owner.from_json(found.get("owner"))
            limiter = LimiterRecord.from_json(found.get("limiter"))
            return RunIdentity(*of, SampleAccounting(**counted), owner, limiter)
        except FileNotFoundError as error:
            raise NotARunError(self.root, self._identity_file.name) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingError(
                str(self._identity_file), f"cannot be read: {error}", self.identity_fix()
            ) from error

    def identity_fix(self) -> str:
        """The content that ``run.json`` must have, as far as the newest checkpoint says it."""
        from vedette_rl.storage.checkpoints import Checkpoints  # brings numpy

        latest = Checkpoints(self.checkpoints, keep=1).latest()
        try:
            meta = read_json(latest / "meta.json") if latest else {}
            # Later starts left no checkpoint; managers follow the higher epoch.
            content = {"run_id": str(meta["run_id"]), "epoch": int(meta["epoch"]) + 1000}
        except (OSError, ValueError, KeyError, TypeError):
            return "put a whole one back, or name another --out; what is in this one stays"
        return f"put a whole one back, or write {json.dumps(content)} into it: the run goes on"

    def ensure_id(self, *, in_process: bool = False) -> str:
        """Return the run's id, made at its first start; this counts no epoch."""
        identity = self.identity() if self.is_ours else _new_identity()
        if not self.is_ours or (identity.epoch == 0 and identity.in_process != in_process):
            self._write_identity(replace(identity, in_process=in_process))
        return identity.run_id

    def begin_new_run(self) -> None:
        """Replace the identity of a run that is erased by that of another."""
        self._write_identity(replace(_new_identity(), owner=self._read_owner()))

    def renew_id(self) -> None:
        """Give the run another id: earlier batches are no longer of it."""
        self._write_identity(replace(self.identity(), run_id=secrets.token_hex(8)))

    def keep_counts(self, counted: SampleAccounting) -> None:
        """Note the counts of a replay that is about to be erased."""
        self._write_identity(replace(self.identity(), counted=counted))

    def keep_limiter(self, limiter: LimiterRecord) -> None:
        """Note the limiter of a start, where it is not that of the last one."""
        identity = self.identity()
        if identity.limiter != limiter:
            self._write_identity(replace(identity, limiter=limiter))

    @property
    def limiter_origin(self) -> LimiterOrigin | None:
        """Where the balance of the run's limiter begins; None: with the first sample drawn."""
        record = self.identity().limiter
        return None if record is None else record.origin

    def begin_epoch(self) -> RunIdentity:
        """Count one more start of the trainer.

        Raises:
            RunLostError: this process has lost the run.
        """
        self.check_held()
        last = self.identity()
        identity = replace(last, epoch=last.epoch + 1)
        self._write_identity(identity)
        return identity

    def _write_identity(self, identity: RunIdentity) -> None:
        self.check_held()
        replace_or_overwrite(self._identity_file, json_text(asdict(identity)))

    @property
    def can_open_lock(self) -> bool:
        """False where there is a lock that this user cannot open, such as another user's."""
        try:
            open_regular(self._lock_file).close()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def check_free(self, wait_s: float = _CHECK_WAIT_S) -> bool:
        """Check that no learner runs here, without taking the lock or changing anything.

        Returns:
            False where this says nothing: its file system keeps no locks, or another user's lock
            cannot be asked.

        Raises:
            RunInUseError: one still runs after `wait_s`.
        """
        try:
            file = open_regular(self._lock_file)
        except FileNotFoundError:  # it was never locked
            return True
        except OSError:  # a start will raise the error
            return False
        with file:
            # Shared, so that two checks at once both succeed.
            return self._wait_for_lock(file.fileno(), wait_s, shared=True)

    @contextlib.contextmanager
    def hold_free(self) -> Iterator[None]:
        """Keep learners from starting here meanwhile; nothing changes.

        Another user's lock cannot be held; the record of that learner tells whether it runs.

        Raises:
            RunInUseError: one runs.
        """
        try:
            file = open_regular(self._lock_file)
        except FileNotFoundError:  # a copy without it
            yield
            return
        except OSError as error:
            seen = self.find_seen_owner(time.time(), locks=False)
            if seen is not None and seen.lives:
                raise RunInUseError(self.root, str(seen.owner)) from error
            yield
            return
        with file:
            self._wait_for_lock(file.fileno(), _CHECK_WAIT_S, shared=True)
            yield

    def lock(self, stop: Stop = _never) -> None:
        """Take the lock for this process until it ends, and claim the run; waits for a predecessor
        that ends.

        Args:
            stop: true once the wait is to end.

        Raises:
            RunInUseError: another learner still runs here when the wait is over.
            StoppedWaitingError: a stop was requested.
        """
        # No other user may open it: whoever can holds the lock as long as they like.
        file = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):  # of another user, or on a system without modes
            os.fchmod(file, 0o600)
        try:
            is_locked = self._wait_for_lock(file, _LOCK_WAIT_S)
            if not is_locked:
                text = (
                    "%s: its file system keeps no locks; its claim alone keeps two learners apart"
                )
                log.warning(text, self.root)
            self._claim(stop, is_locked=is_locked)
        except BaseException:
            os.close(file)
            raise
        self._lock = file
        with contextlib.suppress(OSError):
            self.location_file.unlink(missing_ok=True)  # of one that was killed
        with contextlib.suppress(OSError):  # a full disk: the lock holds without it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)

    # The claim: see `vedette_services.run.claim`

    def _claim(self, stop: Stop, *, is_locked: bool) -> None:
        """Claim the run for this process, once the previous owner has ended, or has had its time.

        Args:
            is_locked: this process has the lock.

        Raises:
            RunInUseError: that owner does not stop.
            StoppedWaitingError: a stop was requested.
        """
        before = self._read_owner()
        if before is not None and is_locked and before.would_hold_lock(self.root):
            before = None
        lives = before is not None and self._wait_for_owner(before, stop)
        owner = Owner.of_this_process(self.root)
        self._write_identity(replace(self.identity(), owner=owner))
        if before is not None and lives:
            log.warning("%s: taking the run over from %s, which still runs", self.root, before)
            self._wait_for_yield(before, stop)
            self.taken_from = before
        try:
            self._claim_record.make(owner)
        except OSError as error:  # a full disk
            why = describe_write_error(error, self.root)
            log.warning("%s not written: %s", self._claim_record.path, why)
        self.hold(owner.token)
        assert self._hold is not None  # it was just made
        self._hold.check()  # two may have claimed it at once
        self._keeper = ClaimKeeper(self._hold, self._claim_record, owner)

    def _read_owner(self) -> Owner | None:
        return self.identity().owner

    def _wait_for_owner(self, before: Owner, stop: Stop) -> bool:
        """Wait until an owner's run may be taken over; True if its record moves: it lives."""
        record = self._claim_record
        if before.has_ended or record.is_released(before):
            return False
        log.warning(
            "%s: %s may still run here, and locks may not reach that far; waiting until its record "
            "stands still for %g s, for %g s at most",
            self.root,
            before,
            STILL_S,
            WAIT_S,
        )
        watch = ClaimWatch(record.read(), time.monotonic(), still_s=STILL_S, wait_s=WAIT_S)
        while not watch.look(record.read(), time.monotonic()):
            self._pause(before, stop)
            if before.has_ended or record.is_released(before):
                return False
        return not watch.stands_still(time.monotonic())

    def _wait_for_yield(self, before: Owner, stop: Stop) -> None:
        """Wait until an owner that was replaced has stopped.

        Raises:
            RunInUseError: it goes on: it does not see that it was replaced.
            StoppedWaitingError: a stop was requested.
        """
        record = self._claim_record
        watch = ClaimWatch(record.read(), time.monotonic(), still_s=YIELD_STILL_S, wait_s=YIELD_S)
        try:
            while not watch.look(record.read(), time.monotonic()):
                self._pause(before, stop)
            if not watch.stands_still(time.monotonic()):
                raise RunInUseError(self.root, str(before))
        except BaseException:
            self._write_identity(replace(self.identity(), owner=before))
            raise

    def owner_elsewhere(self) -> Owner | None:
        """Return the owner of the run where that is another machine's and has not released it."""
        try:
            owner = self._read_owner()
        except (NotARunError, SettingError):
            return None
        if owner is None or owner.is_here:
            return None
        return None if self._claim_record.is_released(owner) else owner

    def find_seen_owner(self, now: float, *, locks: bool = True) -> SeenOwner | None:
        """Return the owner that has not released the run, where its lock, which seems to be free,
        says nothing of it: another machine's, or where locks are not kept. It may have been killed.

        Args:
            now: the time of day.
            locks: the file system keeps locks.
        """
        try:
            owner = self._read_owner()
        except (NotARunError, SettingError):
            return None
        if owner is None or owner.has_ended or self._claim_record.is_released(owner):
            return None
        try:
            is_known = locks and owner.would_hold_lock(self.root)
        except OSError:
            return None
        age_s = self._claim_record.age_s(now)
        return None if is_known or age_s is None else SeenOwner(owner, age_s)

    def unseen_owner(self, timeout_s: float) -> Owner | None:
        """Return the run's owner if it lives though its lock seems to be free; else None.

        Args:
            timeout_s: how long its record may take to move.
        """
        if not self.is_ours or (owner := self._read_owner()) is None or owner.has_ended:
            return None
        try:
            self.check_free(wait_s=0.0)
        except RunInUseError:
            return None
        record = self._claim_record
        now = time.monotonic()
        watch = ClaimWatch(record.read(), now, still_s=timeout_s, wait_s=timeout_s)
        while not watch.moves and not watch.look(record.read(), time.monotonic()):
            time.sleep(_LOCK_POLL_S)
        return owner if watch.moves else None

    def _pause(self, before: Owner, stop: Stop) -> None:
        if stop():
            raise StoppedWaitingError(f"{self.root}: stopped while waiting for {before} to end")
        time.sleep(_LOCK_POLL_S)

    def hold(self, token: str) -> None:
        """Check from now on, before each write, that the run is still that of this claim."""
        self._hold = RunHold(self.root, token, self._read_owner)

    def check_held(self, *, often: bool = False) -> None:
        """Check that this process still has the run; nothing where it never had.

        Args:
            often: called all the time; checks now and then.

        Raises:
            RunMovedError: the directory is not where it was.
            RunTakenOverError: another learner has claimed the run.
        """
        if self._hold is not None:
            (self._hold.check_often if often else self._hold.check)()

    @property
    def claim_token(self) -> str:
        """The token of this process's claim; "" where it has none."""
        return self._hold.token if self._hold is not None else ""

    def find_loss(self) -> RunLostError | None:
        """Look whether this process still has the run; return why not."""
        try:
            self.check_held()
        except RunLostError as error:
            return error
        return None

    @property
    def loss(self) -> RunLostError | None:
        """Why this process has lost the run, as of the last look; None while it has not."""
        return self._keeper.loss if self._keeper is not None else None

    def _wait_for_lock(self, file: int, wait_s: float, *, shared: bool = False) -> bool:
        """Wait for the lock of a file; False where its file system keeps none.

        Raises:
            RunInUseError: another process has it when the wait is over.
        """
        deadline = time.monotonic() + wait_s
        while True:
            try:
                return lock_file(file, shared=shared)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise self._in_use(file, shared=shared) from error
                time.sleep(_LOCK_POLL_S)

    def _in_use(self, file: int, *, shared: bool) -> RunInUseError:
        """The error that names who holds the lock of a file.

        Learners take it for themselves. Where it can be shared, none has it, and the process id in
        the file is of one that has ended.
        """
        if not shared:
            with contextlib.suppress(BlockingIOError):
                lock_file(file, shared=True)
                return RunInUseError(self.root, by="vedette rerun or vedette verify")
        return RunInUseError(self.root, self._holder())

    def holder(self) -> tuple[int, str] | None:
        """Return the process id and the host of the learner that runs here; None if none does.

        Raises:
            RunInUseError: one runs here, and has not said which process it is.
        """
        try:
            self.check_free(wait_s=0.0)
        except RunInUseError:
            if found := self._read_lock():
                return found
            raise
        return None

    def is_of_this_host(self, pid: int, host: str) -> bool:
        """Return True if the process that the lock's file names is one of this host, which may have
        got another name since."""
        if host == socket.gethostname():
            return True
        try:
            owner = self._read_owner()
        except (NotARunError, SettingError):
            return False
        return owner is not None and owner.pid == pid and owner.is_process_here

    def is_locked_by(self, pid: int) -> bool:
        """Return True if a process has the lock's file open, or where that cannot be told.

        Raises:
            PermissionError: the process is another user's.
            ProcessLookupError: there is no such process.
        """
        return has_open(pid, self._lock_file.stat())

    def _read_lock(self) -> tuple[int, str] | None:
        """Read the process id and host in the lock's file; None if they are not there."""
        try:
            message = read_bytes(self._lock_file).decode("utf-8", "replace").split()
        except OSError:
            return None
        if len(message) != 2 or not message[0].isdecimal():
            return None
        return int(message[0]), message[1]

    def _holder(self) -> str:
        """Describe the process that holds the lock, and its host if that is another."""
        found = self._read_lock()
        if found is None:
            return ""
        pid, host = found
        return f"process {pid}" + ("" if self.is_of_this_host(pid, host) else f" on {host}")

    def unlock(self) -> None:
        """Release claim and lock before this process ends."""
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """The run that the supervisor's processes serve, passed to them as a JSON file.

    Args:
        spaces: of its environment, as agents see them: none of these processes makes it to learn
            them.
        address: where the gateway binds.
        keys: folder of its keys; None: no encryption.
        claim: the token of the supervisor's claim on the run; "" without one.
    """

    run: RunDirectory
    run_id: str
    config: RunConfig
    spaces: Spaces
    address: Address
    keys: Path | None = None
    claim: str = ""

    def write(self) -> None:
        from vedette_rl.envs.stored_spaces import spaces_to_json  # brings gymnasium

        spec = {
            "run_id": self.run_id,
            "address": str(self.address),
            "keys": str(self.keys) if self.keys else None,
            "config": self.config.model_dump(mode="json"),
            "spaces": spaces_to_json(self.spaces),
            "claim": self.claim,
        }
        replace_or_overwrite(self.run.spec_file, json_text(spec))

    @classmethod
    def read(cls, root: Path) -> LearnerSpec:
        from vedette_rl.envs.stored_spaces import spaces_from_json
        from vedette_services.config.run_config import RunConfig  # brings pydantic

        run = RunDirectory(root)
        spec = json.loads(run.spec_file.read_text())
        return cls(
            run,
            spec["run_id"],
            RunConfig.model_validate(spec["config"]),
            spaces_from_json(spec["spaces"]),
            Address.parse(spec["address"]),
            Path(spec["keys"]) if spec.get("keys") else None,
            spec.get("claim", ""),
        )

    def hold_run(self) -> None:
        """Have this process check, before each write, that the run is still its supervisor's."""
        if self.claim:
            self.run.hold(self.claim)


def _new_identity() -> RunIdentity:
    return RunIdentity(secrets.token_hex(8), 0)


@contextlib.contextmanager
def out_or_new(out: Path | None, config: RunConfig) -> Iterator[Path]:
    """Give the directory that is named for runs; else make ``runs/AGENT-ENVIRONMENT-DATE-TIME``,
    for this start alone. What was made is removed if the block raises."""
    if out is not None:
        yield out
        return
    stamp = time.strftime("%Y%m%d-%H%M%S")
    agent, env = (re.sub(r"[^A-Za-z0-9_.-]+", "_", n) for n in (config.agent.name, config.env.id))
    runs = Path("runs")
    first = runs / f"{agent}-{env}-{stamp}"
    numbered = (first.with_name(f"{first.name}-{again}") for again in itertools.count(2))
    made = [] if runs.exists() else [runs]
    try:
        runs.mkdir(exist_ok=True)
        new = next(path for path in itertools.chain([first], numbered) if _made(path))
        made.append(new)
    except OSError:  # the start says it
        new = first
    try:
        yield new
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # another start uses it
                path.rmdir()
        raise


def _made(path: Path) -> bool:
    """Make a folder; False if it is there already."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def without_links(out: Path) -> Path:
    """Return where a path leads over symbolic links; the path as it is where there are none.

    A run stays where it began, also if a link to it is pointed at another directory meanwhile.
    """
    real = os.path.realpath(out)
    return out if real == os.path.abspath(out) else Path(real)  # noqa: PTH100 - normalizes ".."


def host_for_manager_id(host: str) -> str:
    """Replace the characters of a host's name that a manager's id may not have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", host)

"""A process's hold on its run: its directory is still the one at its path, and its claim stands.

::

    hold = RunHold(root, token, read_owner)
    hold.check()                    # before each write; raises once the run is lost

The directory is compared with a descriptor of it: the one that was opened stays the same whatever
is renamed, and tells where it is now.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vedette_services.errors import (
    NotARunError,
    RunLostError,
    RunMovedError,
    RunTakenOverError,
    SettingError,
)
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.system import PROCESSES
from vedette_services.run.claim import BEAT_S, ClaimRecord, Owner, time_since_boot

CHECK_S = 1.0
"""A process that writes all the time checks its hold so often."""


class RunHold:
    """What a process checks before it writes into its run.

    Args:
        root: the run's directory.
        token: of the claim of its learner.
        read_owner: reads who has claimed the run.
        clock: seconds; goes on while the machine is suspended.
    """

    def __init__(
        self,
        root: Path,
        token: str,
        read_owner: Callable[[], Owner | None],
        *,
        clock: Callable[[], float] = time_since_boot,
    ) -> None:
        self.token = token
        self._root = root
        self._read_owner = read_owner
        self._clock = clock
        self._checked_at = clock()
        self._directory = os.open(root, os.O_RDONLY)

    def close(self) -> None:
        """Close the directory."""
        os.close(self._directory)

    def check_often(self) -> None:
        """Check as `check` does, at most every `CHECK_S` seconds."""
        if self._clock() - self._checked_at >= CHECK_S:
            self.check()

    def check(self) -> None:
        """Check that the run is still that of this process's learner.

        A disk that does not answer well is no proof of anything: it is found out by other means.

        Raises:
            RunMovedError: the directory is not where it was.
            RunTakenOverError: another learner has claimed the run.
        """
        self._check_place()
        try:
            owner = self._read_owner()
        except NotARunError as error:
            raise RunMovedError(self._root, f"its {error.lacks} was removed") from error
        except SettingError:
            return
        finally:
            self._checked_at = self._clock()
        if owner is None or owner.token != self.token:
            who = "a learner of an earlier version" if owner is None else str(owner)
            raise RunTakenOverError(self._root, who)

    def _check_place(self) -> None:
        try:
            if os.path.samestat(self._root.stat(), os.fstat(self._directory)):
                return
            why = "it was replaced by another directory"
        except FileNotFoundError:
            why = "it was removed"
        except OSError:
            return
        now = self._place_now()
        raise RunMovedError(self._root, f"it was renamed to {now}" if now else why, now)

    def _place_now(self) -> Path | None:
        """Return where the directory is now; None if nowhere, or where the system does not tell."""
        try:
            place = (PROCESSES / "self" / "fd" / str(self._directory)).readlink()
            is_there = os.path.samestat(place.stat(), os.fstat(self._directory))
        except OSError:  # a directory that was removed has a name that is none
            return None
        return place if is_there else None


class ClaimKeeper:
    """A thread that moves the record of a claim, and finds out when the run is lost.

    Args:
        hold: of the process that has claimed the run.
        record: its record.
        owner: this process.
    """

    def __init__(self, hold: RunHold, record: ClaimRecord, owner: Owner) -> None:
        self._hold = hold
        self._record = record
        self._owner = owner
        self._ended = threading.Event()
        self.loss: RunLostError | None = None
        """Why the run is lost, as of the last look; None while it is not."""
        self._thread = threading.Thread(target=self._run, name="claim", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread; the claim is released unless it was lost."""
        self._ended.set()
        self._thread.join(BEAT_S)
        if self.loss is None:
            with suppress(OSError):
                self._record.release(self._owner)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._hold.check()
            except RunTakenOverError as error:
                self.loss = error
                return
            except RunMovedError as error:  # it may come back
                self.loss = error
                continue
            self.loss = None
            with suppress(OSError):  # a full disk: others see it stand still
                self._record.move(self._owner)


def log_loss(loss: RunLostError | None, log: logging.Logger, failures: RateLimitedLog) -> None:
    """Log once that a run's directory was moved. Training goes on: it may come back.

    Args:
        loss: why the run is lost; None while it is not.
        log: of the process that asks.
        failures: remembers what was logged.

    Raises:
        RunTakenOverError: another learner has claimed the run.
    """
    if isinstance(loss, RunTakenOverError):
        raise loss
    if loss is None:
        failures.reset("directory")
    elif failures.first("directory"):
        log.error("%s: no checkpoint is written, and the end will be no success", loss)

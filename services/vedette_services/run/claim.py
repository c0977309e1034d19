"""A learner's claim on a run: on file systems that share no locks it keeps two learners apart.

``run.json`` names the owner: the learner that started last. While it lives it moves the record in
``RUN/claim``. A start that finds another owner takes over

* at once where the owner has released the run, has ended as a process of this machine, or would
  keep this process from the lock that it has;
* where it cannot know, once the record has stood still for `STILL_S`;
* of an owner whose record moves all the time, after `WAIT_S`.

The owner that was replaced reads that in ``run.json`` before its next write, and stops. The one
that took over waits until the other's record stands still. No clock is compared with another
host's.

::

    watch = ClaimWatch(record.read(), now, still_s=STILL_S, wait_s=WAIT_S)
    while not watch.look(record.read(), now):       # until it may take over
        ...
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_rl.storage.process_identity import has_ended, pid_namespace, process_began
from vedette_rl.storage.system import boot_id

BEAT_S = 2.0
"""From one move of the owner's record to the next, and between two looks at the owner."""

STILL_S = 30.0
"""A record that does not move for so long has no living owner. File systems of networks show what
another host wrote late: sshfs after up to 20 s."""

WAIT_S = 90.0
"""A start waits so long for an owner whose record moves."""

YIELD_S = 60.0
"""An owner that was replaced has to stand still within this time."""

YIELD_STILL_S = 10.0
"""One that stands still for so long has seen that it was replaced, and has stopped."""

SEEN_S = 60.0
"""To those who only show a run, an owner whose record is no older lives. The record's time is that
of another clock, so this decides nothing else."""

_RELEASED = "released"
_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Owner:
    """The learner that has claimed a run.

    Args:
        token: of its claim; made once for each.
        host: its name there.
        pid: its process.
        boot: the start of its machine; "" where the system does not tell.
        device: of its directory, as that start of the machine numbers them.
        namespace: the process identifiers that `pid` is one of; "" where the system does not tell.
        began: when the process began, by that machine's count; 0 where it does not tell.
    """

    token: str
    host: str
    pid: int
    boot: str = ""
    device: int = 0
    namespace: str = ""
    began: int = 0

    @classmethod
    def of_this_process(cls, directory: Path) -> Owner:
        """Return a new claim of this process on the run in a directory."""
        pid = os.getpid()
        return cls(
            secrets.token_hex(8),
            socket.gethostname(),
            pid,
            this_boot(),
            directory.stat().st_dev,
            pid_namespace(),
            process_began(pid),
        )

    @classmethod
    def from_json(cls, value: Any) -> Owner | None:
        """Read what ``run.json`` says; None where nobody has claimed the run.

        Raises:
            ValueError, KeyError, TypeError: it is damaged.
        """
        if value is None:
            return None
        found = cls(**{name: value[name] for name in cls.__dataclass_fields__})
        if not all(type(number) is int for number in (found.pid, found.began, found.device)):
            raise ValueError("owner is none")
        return found

    def __str__(self) -> str:
        here = self.host == socket.gethostname() or self.is_process_here
        return f"process {self.pid}" + ("" if here else f" on {self.host}")

    @property
    def is_here(self) -> bool:
        """True if it was started on this machine since that started."""
        return bool(self.boot) and self.boot == this_boot()

    @property
    def is_process_here(self) -> bool:
        """True if `pid` is, or was, its process as this one numbers them, whatever name the host
        has meanwhile."""
        return self.is_here and bool(self.namespace) and self.namespace == pid_namespace()

    @property
    def has_ended(self) -> bool:
        """True if it is a process of this machine that does not run any more."""
        if not self.is_process_here:
            return False
        return self.pid == os.getpid() or has_ended(self.pid, self.began)

    def would_hold_lock(self, directory: Path) -> bool:
        """Return True if a process of this machine could not lock the directory while it lived: one
        kernel knows all locks of one file system, whatever container has them."""
        return self.is_here and self.device == directory.stat().st_dev


def this_boot() -> str:
    """Return what this start of the machine is known by; "" where the system does not tell."""
    boot = boot_id()
    return boot.hex() if any(boot) else ""


@dataclass(frozen=True, slots=True)
class SeenOwner:
    """An owner of which this host knows by its record alone, and when that moved.

    Args:
        age_s: seconds since then, by two hosts' clocks.
    """

    owner: Owner
    age_s: float

    @property
    def lives(self) -> bool:
        """True if its record moved a short time ago."""
        return abs(self.age_s) < SEEN_S

    def __str__(self) -> str:
        return (
            f"running on {self.owner.host} (as its record of {max(0.0, self.age_s):.0f} s ago says)"
        )


class ClaimRecord:
    """``RUN/claim``: one line, which its owner overwrites in place, so that other hosts see it move
    without a name that they may have cached."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._moves = 0

    def read(self) -> str:
        """Return its line; "" where there is none."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return file.read(_WIDTH).decode("ascii", "replace").strip()
        except OSError:
            return ""

    def age_s(self, now: float) -> float | None:
        """Return for how many seconds it has not moved; None where there is none.

        Args:
            now: this host's time of day; that of the record is the other's.
        """
        try:
            return now - self.path.stat().st_mtime
        except OSError:
            return None

    def make(self, owner: Owner) -> None:
        """Write the first record of an owner; the file need not exist.

        Raises:
            OSError: it cannot be written.
        """
        self._write(owner, "0", os.O_CREAT)

    def move(self, owner: Owner) -> None:
        """Show that the owner lives. It makes no file where there is none.

        Raises:
            OSError: it cannot be written.
        """
        self._moves += 1
        self._write(owner, str(self._moves), 0)

    def release(self, owner: Owner) -> None:
        """Show that the owner has ended in good order.

        Raises:
            OSError: it cannot be written.
        """
        self._write(owner, _RELEASED, 0)

    def is_released(self, owner: Owner) -> bool:
        """Return True if that owner has ended in good order."""
        return self.read() == f"{owner.token} {_RELEASED}"

    def _write(self, owner: Owner, text: str, flags: int) -> None:
        line = f"{owner.token} {text}".ljust(_WIDTH - 1) + "\n"
        file = os.open(self.path, os.O_WRONLY | flags, 0o644)
        try:
            os.pwrite(file, line.encode("ascii"), 0)
        finally:
            os.close(file)  # a network's file system sends it then


class ClaimWatch:
    """Decides when a start may take a run over from an owner that it knows nothing else of.

    Args:
        record: the owner's, as it is now.
        now: this process's own clock, in seconds.
        still_s: a record that does not move for so long has no living owner.
        wait_s: the longest wait for one that moves.
    """

    def __init__(self, record: str, now: float, *, still_s: float, wait_s: float) -> None:
        self._record = record
        self._moved_at = self._began_at = now
        self._still_s = still_s
        self._wait_s = wait_s
        self.moves = False
        """True once the record has moved: its owner lives."""

    def look(self, record: str, now: float) -> bool:
        """Take a look at the record; True once the run may be taken over."""
        if record != self._record:
            self._record = record
            self._moved_at = now
            self.moves = True
        return self.stands_still(now) or now - self._began_at >= self._wait_s

    def stands_still(self, now: float) -> bool:
        """Return True if the record has not moved for long enough."""
        return now - self._moved_at >= self._still_s


def time_since_boot() -> float:
    """Return a clock that goes on while the machine is suspended, in seconds."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()

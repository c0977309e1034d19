"""Where the learner of a run listens, as its run directory says on a disk that others see, too."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.atomic_files import NO_ROOM, write_json
from vedette_rl.storage.regular_files import read_json
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.errors import AddressError, RunOverError
from vedette_services.net.addresses import Address
from vedette_services.run.claim import this_boot
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import read_summary
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import EXIT_REASONS

log = logging.getLogger("vedette.learner")


@dataclass(frozen=True, slots=True)
class LearnerLocation:
    """The content of ``RUN/learner.json``.

    Args:
        address: where other hosts reach it.
        bind: where it listens.
        host: its host's own name.
        pid: its process there.
        time_s: when it began to, in seconds since 1970.
        network: its machine's start and its network there: by them that host knows itself, whatever
            name it has meanwhile; "" where the system does not tell, or of an earlier release.
        ended_s: `time_s` of the run's status then: a status of the run's end with that time is of a
            start before. None: of an earlier release.
    """

    address: str
    bind: str
    host: str
    pid: int
    time_s: float
    network: str = ""
    ended_s: float | None = None

    @classmethod
    def read(cls, run: RunDirectory) -> LearnerLocation | None:
        """Read the file; None if there is none that can be read."""
        try:
            found = read_json(run.location_file)
            # A newer learner may say more, one of an earlier release says less.
            return cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def has_ended(self, summary: Status) -> bool:
        """Return True if a status of the run's end is of this learner's, not of a start before."""
        ended_s = summary.time_s or 0.0
        return ended_s > self.time_s if self.ended_s is None else ended_s != self.ended_s

    def address_from_here(self) -> Address:
        """The address for this host.

        Raises:
            AddressError: the learner is on another host and listens to none but that.
        """
        bind = Address.parse(self.bind)
        is_here = bool(self.network) and self.network == _this_network()
        if is_here or self.host == socket.gethostname():
            return _on_this_host(bind)
        if bind.loopback:
            why = f"its learner listens to {self.host} alone"
            raise AddressError(self.bind, why, "start it with --bind 0.0.0.0:5555 and --keys DIR")
        return Address.parse(self.address)


@contextmanager
def publish_location(run: RunDirectory, bind: Address, advertise: str | None) -> Iterator[None]:
    """Say in the run directory where its learner listens, for as long as it does.

    On a full disk it goes on without that.

    Args:
        advertise: the name by which other hosts reach this one; None: its full name.

    Raises:
        AddressError: `advertise` is no name.
    """
    host = socket.gethostname()
    wildcard = ipaddress.ip_address(bind.host).is_unspecified
    reached = Address(socket.getfqdn(), bind.port) if wildcard else bind
    if advertise is not None:
        reached = Address.parse(f"{advertise}:{bind.port}")
    location = LearnerLocation(
        str(reached),
        str(bind),
        host,
        os.getpid(),
        time.time(),
        _this_network(),
        read_summary(run.root).time_s or 0.0,
    )
    try:
        write_json(run.location_file, asdict(location))
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        why = describe_write_error(error, run.root)
        log.warning("%s not written: %s", run.location_file.name, why)
    try:
        yield
    finally:
        if run.find_loss() is None:  # else it is another learner's by now, or nowhere
            run.location_file.unlink(missing_ok=True)


def find_learner(text: str) -> Address:
    """Read a learner's address, or find it: ``@FILE`` holds one, ``@RUN`` is its run directory.

    Raises:
        AddressError: it is none, or no learner listens now.
        RunOverError: the run in the directory is over.
    """
    if not text.startswith("@"):
        return Address.find(text)
    root = user_path(text[1:])
    if not root.is_dir():
        return Address.find(f"@{root}")
    run = RunDirectory(root)
    location = LearnerLocation.read(run)
    summary = read_summary(root)
    if summary.exit_reason in EXIT_REASONS and (location is None or location.has_ended(summary)):
        raise RunOverError(root, summary.exit_reason)
    if location is None:
        raise AddressError(text, "no learner runs there", "start one with that --out")
    return location.address_from_here()


def _this_network() -> str:
    """Return what tells this machine, since it started, and its network from all others; "" where
    the system does not tell. A container on it may have a network of its own."""
    boot = this_boot()
    try:
        return f"{boot} {Path('/proc/self/ns/net').readlink()}" if boot else ""
    except OSError:
        return ""


def _on_this_host(bind: Address) -> Address:
    """Replace the address that stands for all of a host's."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return replace(bind, host=loopback.get(bind.host, bind.host))

"""A learner's address: one host and three ports in a row."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from vedette_services.errors import AddressError, PortInUseError, UsageError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 5555
LAST_PORT = 65533  # control is one above, models two
_FILE_MAX_BYTES = 1024
_PORT_WAIT_S = 5.0
_PORTS = ("samples", "control: --bind's port + 1", "models: --bind's port + 2")

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


@dataclass(frozen=True, slots=True)
class Address:
    """A learner's address: `port` takes samples, the two above it carry control and models.

    Args:
        host: a name or an IP address; IPv6 without brackets.
        port: 1 to 65533.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST``, ``HOST:PORT`` or ``[IPV6]:PORT``.

        Raises:
            AddressError: the text is not one of these.
        """
        host, port = _split(text)
        if host == "*":
            host = "0.0.0.0"
        if not (_is_ip(host) or (_NAME.fullmatch(host) and not host.replace(".", "").isdigit())):
            raise AddressError(text, f"{host!r} is no host name or IP address")
        if not (port.isascii() and port.isdigit()):
            raise AddressError(text, f"port {port!r} is no number")
        number = int(port[:9])
        if not 1 <= number <= LAST_PORT:
            raise AddressError(text, f"port {port} is not within 1 to {LAST_PORT}")
        return cls(host, number)

    @classmethod
    def find(cls, text: str) -> Address:
        """Read an address, or ``@FILE``: a file that holds one now, and another when it moved.

        Raises:
            AddressError: it is none, or the file cannot be read.
        """
        if not text.startswith("@"):
            return cls.parse(text)
        try:
            with Path(text[1:]).open("rb") as file:
                line = file.read(_FILE_MAX_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise AddressError(text, f"cannot be read: {error.strerror or error}") from error
        return cls.parse(line)

    @property
    def samples(self) -> str:
        """The endpoint of samples, as libzmq writes it."""
        return self._endpoint(0)

    @property
    def control(self) -> str:
        """The endpoint of control: runs, acks, stops, status."""
        return self._endpoint(1)

    @property
    def models(self) -> str:
        """The endpoint of models."""
        return self._endpoint(2)

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach it; a name must have been resolved before."""
        return _is_ip(self.host) and ipaddress.ip_address(self.host).is_loopback

    @property
    def ipv4(self) -> bool:
        """Return whether the host is an IPv4 address, and neither IPv6 nor a name."""
        return _is_ip(self.host) and ":" not in self.host

    def resolved(self) -> list[Address]:
        """The same address with the host as a number: one for each that its name has, best first.

        libzmq binds no names, and connects to the first address of a name only. It may take as long
        as the name server lets us wait.

        Raises:
            AddressError: the name is not known here.
        """
        if _is_ip(self.host):
            return [self]
        try:
            infos = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as e:
            fix = "check its spelling, or give an IP address"
            raise AddressError(str(self), f"host {self.host!r} does not resolve", fix) from e
        return [Address(host, self.port) for host in dict.fromkeys(str(e[4][0]) for e in infos)]

    def to_bind(self, *, insecure: bool, keys: bool = False, of_first: bool = False) -> Address:
        """This address for a learner to listen at.

        Args:
            insecure: any peer that reaches it is admitted.
            keys: only those with a listed key may.
            of_first: a learner goes on elsewhere, with the first one's keys if that had any.

        Raises:
            UsageError: the network could reach it, and the user did not say that it may.
        """
        address = min(self.resolved(), key=lambda candidate: not candidate.ipv4)
        if not (address.loopback or keys or insecure):
            make = "make keys with `vedette keys new DIR`"
            if of_first:
                make = "copy the first learner's folder of keys here"
            raise UsageError(
                f"--bind {self}: anyone who reaches this address could send samples; {make} and "
                "give --keys DIR, or say --insecure if you trust the whole network"
            )
        return address

    def _endpoint(self, above: int) -> str:
        return f"tcp://{_bracketed(self.host)}:{self.port + above}"

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def _split(text: str) -> tuple[str, str]:
    """Host and port of ``HOST``, ``HOST:PORT``, ``[IPV6]`` or ``[IPV6]:PORT``."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not _is_ip(host) or (rest and not rest.startswith(":")):
            raise AddressError(text, "the brackets hold no IPv6 address")
        return host, rest[1:] if rest else str(DEFAULT_PORT)
    if "://" in text:
        raise AddressError(text, "a scheme is not part of it")
    host, colon, port = text.partition(":")
    if ":" in port:
        raise AddressError(text, "an IPv6 address stands in brackets")
    return host, port if colon else str(DEFAULT_PORT)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# A peer that connects to such a port while no process listens there may be given the very same
# one and reach itself; and another program's connection may hold it when the learner comes back.

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_ports(file: Path = _RANGE_FILE) -> range:
    """The ports that this kernel gives out; empty where it does not say."""
    try:
        first, last = map(int, file.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def port_warning(address: Address, given_out: range | None = None) -> str:
    """A sentence against listening at this address; "" if there is nothing against it.

    Args:
        given_out: the ports that the kernel gives out, if not this kernel's.
    """
    given_out = ephemeral_ports() if given_out is None else given_out
    among = [port for port in range(address.port, address.port + 3) if port in given_out]
    if not among:
        return ""
    return (
        f"--bind {address}: this kernel gives ports {given_out[0]} to {given_out[-1]} to whoever "
        f"connects, so that {among[0]} may be taken when the learner comes back, and managers may "
        f"reach themselves meanwhile; choose a port below {given_out[0] - 2}"
    )


def check_ports(address: Address) -> None:
    """Check that the three ports can be bound.

    Raises:
        PortInUseError: one of them is still taken after a few seconds.
    """
    deadline = time.monotonic() + _PORT_WAIT_S
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for above, what in enumerate(_PORTS):
        port = address.port + above
        while True:
            try:
                with socket.socket(family) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((address.host, port))
                    break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                    why = error.strerror or str(error)
                    taken = replace(address, port=port)
                    raise PortInUseError(taken, why, error.errno, what) from error
                time.sleep(0.1)

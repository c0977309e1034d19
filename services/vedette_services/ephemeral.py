"""The ports that the kernel gives to whoever connects: a learner does better without them.

Whoever connects to such a port while nobody listens there may be given the very same one and reach
itself; and another program's connection may hold it when the learner comes back.
"""

from __future__ import annotations

from pathlib import Path

from vedette_services.addresses import Address

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_ports(file: Path = _RANGE_FILE) -> range:
    """The ports that this kernel gives out; empty where it does not say."""
    try:
        first, last = map(int, file.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def port_warning(address: Address, given_out: range | None = None) -> str:
    """Why a learner should not listen there, in a sentence; "" if it may.

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

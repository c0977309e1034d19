"""Hosts on one machine: a network namespace for each, and a switch between them.

It needs root, Linux and iproute2, and nothing of Python but the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from smoke import SmokeError

MASK_BITS = 24
_OF_NAMESPACES = Path("/etc/netns")


def sh(*words: str, check: bool = True) -> str:
    """Run a command that ends at once; what it wrote.

    Raises:
        SmokeError: it failed, and `check` is set.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise SmokeError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Network:
    """A switch in a namespace of its own, and a namespace a host: nothing else changes. As a
    context, all of it goes at the end.

    ::

        with Network({"learner": "10.77.0.1", "robot": "10.77.0.10"}, "10.77.0.254") as network:
            subprocess.Popen(network.within("robot", "vedette", "actors", ...))
            network.cut("robot", off=True)

    Args:
        hosts: their addresses, in one network of 24 bits.
        switch: the switch's address.
    """

    def __init__(self, hosts: Mapping[str, str], switch: str) -> None:
        self.hosts = dict(hosts)
        self._switch = switch
        self._tag = f"vd{os.getpid()}"
        self._made: list[str] = []
        self._names: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def name(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self._tag}-{host}"

    def within(self, host: str, *words: str) -> list[str]:
        """The command line that runs something on a host."""
        return ["ip", "netns", "exec", self.name(host), *words]

    def inside(self, host: str, *words: str) -> str:
        """Run a command that ends at once on a host; what it wrote."""
        return sh(*self.within(host, *words))

    def cut(self, host: str, *, off: bool) -> None:
        """Pull a host's cable, or plug it in again."""
        self.inside(host, "ip", "link", "set", "eth0", "down" if off else "up")

    def destroy(self, host: str) -> None:
        """A host is gone, with its address."""
        sh("ip", "netns", "del", self.name(host))
        self._made.remove(host)

    def take_address(self, host: str, address: str) -> None:
        """Give a host one more address: that of another one, which is gone."""
        self.inside(host, "ip", "addr", "add", f"{address}/{MASK_BITS}", "dev", "eth0")

    def name_host(self, on: str, name: str, address: str) -> None:
        """Have a name mean an address on a host. Daemons that run there see a change, too."""
        names = self._names.setdefault(on, {"localhost": "127.0.0.1"})
        names[name] = address
        folder = _OF_NAMESPACES / self.name(on)
        folder.mkdir(parents=True, exist_ok=True)
        # Written in place: `ip netns exec` mounts this very file as /etc/hosts
        with (folder / "hosts").open("w") as file:
            file.writelines(f"{where} {known}\n" for known, where in names.items())

    def _build(self) -> None:
        self._namespace("switch")
        self.inside("switch", "ip", "link", "add", "br0", "type", "bridge")
        self.inside("switch", "ip", "addr", "add", f"{self._switch}/{MASK_BITS}", "dev", "br0")
        self.inside("switch", "ip", "link", "set", "br0", "up")
        for host, address in self.hosts.items():
            self._plug(host, address)

    def _namespace(self, host: str) -> None:
        sh("ip", "netns", "add", self.name(host))
        self._made.append(host)
        self.inside(host, "ip", "link", "set", "lo", "up")

    def _plug(self, host: str, address: str) -> None:
        self._namespace(host)
        port = f"p{len(self._made)}"
        self.inside("switch", "ip", "link", "add", port, "type", "veth",
                    "peer", "name", "eth0", "netns", self.name(host))  # fmt: skip
        self.inside("switch", "ip", "link", "set", port, "master", "br0", "up")
        self.inside(host, "ip", "addr", "add", f"{address}/{MASK_BITS}", "dev", "eth0")
        self.inside(host, "ip", "link", "set", "eth0", "up")

    def _remove(self) -> None:
        for host in self._made:
            sh("ip", "netns", "del", self.name(host), check=False)
        for host in self._names:
            shutil.rmtree(_OF_NAMESPACES / self.name(host))
        if self._names and not any(_OF_NAMESPACES.iterdir()):
            _OF_NAMESPACES.rmdir()

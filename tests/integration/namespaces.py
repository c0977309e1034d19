"""A host of its own for a manager: a network namespace, and a cable to this one."""

from __future__ import annotations

import fcntl
import os
import random
import secrets
import select
import shutil
import struct
import subprocess
import threading
from typing import Literal, Self

Way = Literal["up", "down", "both"]
"""Samples go up to the learner; acks, models and control come down from it."""

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_NOBODY = "02:00:00:00:00:01"


def why_not() -> str:
    """Why there can be no namespaces here; "" where there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and the ip command"
    try:
        with Cable():
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.decode().strip()}"


class Cable:
    """A namespace whose only link leads here. As a context, it goes with all that is in it.

    A silent cut is a wrong neighbour: frames are sent to nobody and nothing says so, as on a
    network that drops them.
    """

    def __init__(self) -> None:
        name = secrets.token_hex(3)
        net = f"10.99.{secrets.randbelow(250) + 1}"
        self.namespace = f"vedette-{name}"
        self.here, self.there = f"{net}.1", f"{net}.2"
        self._near = f"vd{name}a"
        self._far = f"vd{name}b"

    @property
    def inside(self) -> tuple[str, ...]:
        """The command line that runs another one there."""
        return ("ip", "netns", "exec", self.namespace)

    def __enter__(self) -> Self:
        _ip("netns", "add", self.namespace)
        try:
            self._lay()
            _ip("link", "set", self._far, "netns", self.namespace)
            _ip("addr", "add", f"{self.here}/24", "dev", self._near)
            _ip("link", "set", self._near, "up")
            self._in("addr", "add", f"{self.there}/24", "dev", self._far)
            self._in("link", "set", "lo", "up")
            self._in("link", "set", self._far, "up")
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "link", "del", self._near], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)

    def cut(self, way: Way) -> None:
        """Nothing arrives that way, and nobody is told."""
        if way in ("down", "both"):
            _ip(*_wrong_neighbour(self.there, self._near))
        if way in ("up", "both"):
            self._in(*_wrong_neighbour(self.here, self._far))

    def fix(self) -> None:
        """Undo `cut`."""
        _ip("neigh", "flush", "all", "dev", self._near, "nud", "permanent")
        self._in("neigh", "flush", "all", "dev", self._far, "nud", "permanent")

    def pull(self, out: bool) -> None:
        """Take the cable out, which both ends notice, or put it in again."""
        _ip("link", "set", self._near, "down" if out else "up")

    def renumber(self) -> None:
        """Give the far host another address."""
        old = self.there
        self.there = self.there.rpartition(".")[0] + ".3"
        self._in("addr", "del", f"{old}/24", "dev", self._far)
        self._in("addr", "add", f"{self.there}/24", "dev", self._far)

    def _lay(self) -> None:
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)

    def _in(self, *arguments: str) -> None:
        _ip("-n", self.namespace, *arguments)


class LossyCable(Cable):
    """A cable that loses packets, both ways: two tunnels with this process between them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.loss = 0.0
        """The share of packets that are lost; may be changed at any time."""
        self.lost = self.carried = 0
        self._ends: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="cable", daemon=True)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        super().__exit__()
        for end in self._ends:
            os.close(end)

    def _lay(self) -> None:
        self._ends = [_tunnel(self._near), _tunnel(self._far)]
        self._thread.start()

    def _carry(self) -> None:
        near, far = self._ends
        other = {near: far, far: near}
        while not self._stop.is_set():
            for end in select.select(self._ends, [], [], 0.2)[0]:
                try:
                    packet = os.read(end, 65_536)
                    if self._rng.random() < self.loss:
                        self.lost += 1
                        continue
                    os.write(other[end], packet)
                    self.carried += 1
                except OSError:
                    continue  # an end that is not up yet, or no more, loses what it is given


def _tunnel(name: str) -> int:
    """A tunnel device of this name; what is routed into it is read from the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


def _wrong_neighbour(address: str, device: str) -> tuple[str, ...]:
    return ("neigh", "replace", address, "lladdr", _NOBODY, "dev", device, "nud", "permanent")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)

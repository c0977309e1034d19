"""A host of its own for a manager: a network namespace, and a cable to this one."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from types import TracebackType
from typing import Literal, Self

Way = Literal["up", "down", "both"]
"""Samples go up to the learner; acks, models and control come down from it."""

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
        self._near, self._far = f"vd{name}a", f"vd{name}b"

    @property
    def inside(self) -> tuple[str, ...]:
        """The command line that runs another one there."""
        return ("ip", "netns", "exec", self.namespace)

    def __enter__(self) -> Self:
        _ip("netns", "add", self.namespace)
        try:
            _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
            _ip("link", "set", self._far, "netns", self.namespace)
            _ip("addr", "add", f"{self.here}/24", "dev", self._near)
            _ip("link", "set", self._near, "up")
            self._in("addr", "add", f"{self.there}/24", "dev", self._far)
            self._in("link", "set", "lo", "up")
            self._in("link", "set", self._far, "up")
        except subprocess.CalledProcessError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        subprocess.run(["ip", "link", "del", self._near], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)

    def cut(self, way: Way) -> None:
        """Nothing arrives that way, and nobody is told."""
        if way in ("down", "both"):
            _ip(*_wrong_neighbour(self.there, self._near))
        if way in ("up", "both"):
            self._in(*_wrong_neighbour(self.here, self._far))

    def mend(self) -> None:
        """Undo `cut`."""
        _ip("neigh", "flush", "all", "dev", self._near, "nud", "permanent")
        self._in("neigh", "flush", "all", "dev", self._far, "nud", "permanent")

    def pull(self, out: bool) -> None:
        """Take the cable out, which both ends notice, or put it in again."""
        _ip("link", "set", self._near, "down" if out else "up")

    def renumber(self) -> None:
        """Give the far host another address."""
        old, self.there = self.there, self.there.rpartition(".")[0] + ".3"
        self._in("addr", "del", f"{old}/24", "dev", self._far)
        self._in("addr", "add", f"{self.there}/24", "dev", self._far)

    def _in(self, *arguments: str) -> None:
        _ip("-n", self.namespace, *arguments)


def _wrong_neighbour(address: str, device: str) -> tuple[str, ...]:
    return ("neigh", "replace", address, "lladdr", _NOBODY, "dev", device, "nud", "permanent")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)

"""Real daemons for the tests: started with a mark, found by it, and all gone at the end.

Every process that a daemon starts inherits the mark in its environment, whatever group or session
it moves to: what a test must not leave behind is found in ``/proc``, not guessed from process ids.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vedette.local.daemons import free_port
from vedette_services.errors import describe_exit
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.status.client import ask_status

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MARK = "VEDETTE_TEST_MARK"
START_S = 240.0
"""Of a wait, which ends with its event: on a machine that many share, a start takes a minute."""

T = TypeVar("T")

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1

_ROLES = {
    "vedette_services.learner.gateway.process": "gateway",
    "vedette_services.learner.trainer.process": "trainer",
    "vedette_services.learner.evaluator": "evaluator",
    "vedette_services.learner.snapshot.process": "snapshot",
    "vedette_services.actors.actor": "actor",
    "vedette_services.actors.evaluation_process": "evaluation",
}


class Daemons:
    """Starts `vedette` commands. As a context, it leaves no process of any of them behind.

    Args:
        place: for the logs.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.mark = secrets.token_hex(8)
        self.started: list[Daemon] = []

    def __enter__(self) -> Daemons:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(
        self, name: str, *arguments: object, run_in: Sequence[str] = (), source: Path = ROOT
    ) -> Daemon:
        """Start ``vedette ARGUMENTS``; its output goes to ``NAME.log``, appended.

        Args:
            run_in: a command line to run it under, such as ``ip netns exec NAME``.
            source: the checkout whose packages run.
        """
        daemon = Daemon(name, self, [*run_in, *vedette(*arguments)], source)
        self.started.append(daemon)
        return daemon

    def end(self) -> list[int]:
        """Kill whatever is left; returns those that were."""
        left = self.alive()
        deadline = time.monotonic() + 10.0
        while self.alive() and time.monotonic() < deadline:
            for pid in self.alive():
                _kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for daemon in self.started:
            daemon.process.wait(5.0)
        return left

    def alive(self, role: str = "") -> list[int]:
        """Processes with our mark, of one role or all; those that are ending count until gone."""
        return [pid for pid in marked(self.mark) if not role or role_of(pid) == role]

    def post_mortem(self) -> str:
        """For a failed test: how each daemon stands, where it stands, and the end of its log."""
        stands = [
            f"{daemon.name}: "
            f"{'runs' if daemon.running else describe_exit(daemon.process.returncode)}"
            for daemon in self.started
        ]
        for pid in self.alive():
            stands.append(f"{pid} {role_of(pid)}: {_stat(pid)[0]}, {_read(pid, 'wchan').decode()}")
            _kill(pid, signal.SIGABRT)  # its stack goes to its log
        time.sleep(1.0)
        logs = [*self.place.glob("*.log"), *self.place.glob("*/log/*.log")]
        said = [f"--- {x.name}\n{x.read_text('utf-8', 'replace')[-4000:]}" for x in sorted(logs)]
        return "\n".join([*stands, *said])


class Daemon:
    """One `vedette` command in a session of its own."""

    def __init__(self, name: str, house: Daemons, argv: Sequence[str], source: Path = ROOT) -> None:
        self.name = name
        self.house = house
        self.log_file = house.place / f"{name}.log"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                list(argv),
                env=environment(house.mark, source),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_the_tests,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def children(self, role: str = "") -> list[int]:
        """Its descendants of a role, or all, without itself."""
        return [pid for pid in descendants(self.pid) if not role or role_of(pid) == role]

    def child(self, role: str) -> int:
        """Its only descendant of a role, waited for."""
        return wait_for(lambda: (self.children(role) or [0])[0], f"a {role} of {self.name}")

    def kill9(self) -> None:
        """`kill -9` of the daemon alone."""
        self.process.kill()
        self.process.wait(10.0)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """To its whole process group, as a terminal does with Ctrl-C."""
        assert self.running, "the group of one that has ended may be anybody's by now"
        os.killpg(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Its exit status.

        Raises:
            AssertionError: it has not ended in time.
        """
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {timeout_s:g} s") from None

    def stop(self, timeout_s: float = START_S) -> int:
        """SIGTERM, and its exit status."""
        self.send(signal.SIGTERM)
        return self.wait(timeout_s)


def _die_with_the_tests() -> None:
    """Should the tests be killed, the kernel ends what they started."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def vedette(*arguments: object) -> list[str]:
    """The command line of a `vedette` command with this interpreter."""
    return [sys.executable, "-m", "vedette.cli", *map(str, arguments)]


def environment(mark: str, source: Path = ROOT) -> dict[str, str]:
    """Of every daemon: our packages and the tests' own can be imported, one thread each."""
    path = [str(HERE), *(str(source / room) for room in ("protocol", "rl", "services", "app"))]
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("VEDETTE_")},
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "VEDETTE_LINGER": "0",  # no manager comes late, but where a test says so
        MARK: mark,
    }


def free_address() -> Address:
    """Three free ports in a row on loopback, below those that the kernel gives out."""
    return Address("127.0.0.1", free_port())


# Waiting


def wait_for(what: Callable[[], T], name: str, timeout_s: float = START_S) -> T:
    """What `what` returns once that is true.

    Raises:
        AssertionError: it was not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {name} within {timeout_s:g} s")
        time.sleep(0.05)
    return found


def status(
    address: Address, timeout_s: float = 2.0, keys: ClientKeys | None = None
) -> dict[str, Any]:
    """The learner's status; empty where none answers."""
    found = ask_status(address, timeout_s, keys)
    return {} if found is None else found.as_dict()


def inserted(address: Address, keys: ClientKeys | None = None) -> int:
    """Samples in the replay's accounting; -1 where no learner answers."""
    return int(status(address, keys=keys).get("samples", {}).get("inserted", -1))


def flows(
    address: Address, more: int = 500, timeout_s: float = START_S, keys: ClientKeys | None = None
) -> int:
    """Wait until `more` samples have come than there are now; how many there are then."""
    began = wait_for(lambda: inserted(address, keys) + 1, "status", timeout_s) - 1
    return wait_for(
        lambda: now if (now := inserted(address, keys)) >= began + more else 0,
        f"{more} more samples than {began}",
        timeout_s,
    )


def kill_child(daemon: Daemon, role: str) -> None:
    """`kill -9` of its only descendant of a role, which must be started again."""
    victim = daemon.child(role)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: any(pid != victim for pid in daemon.children(role)), f"new {role}")


def balances(samples: dict[str, int]) -> bool:
    """Whether every row that was produced is somewhere."""
    places = ("inserted", "dropped", "rejected", "in_flight", "lost")
    return samples["produced"] == sum(samples[place] for place in places)


# Processes


def marked(mark: str) -> list[int]:
    """Living processes that inherited the mark."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if wanted in _read(pid, "environ").split(b"\0") and _lives(pid)]


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    parents = {child: _stat(child)[1] for child in _pids() if _lives(child)}
    found = []
    layer = [pid]
    while layer:
        layer = [child for child, parent in parents.items() if parent in layer]
        found += layer
    return found


def role_of(pid: int) -> str:
    """What a process is: gateway, trainer, evaluator, actor, or a command's name."""
    words = _read(pid, "cmdline").decode("utf-8", "replace").split("\0")
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in _ROLES:
            return _ROLES[word]
        if word == "vedette.cli":
            return after
    return ""


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def _stat(pid: int) -> tuple[str, int]:
    """State and parent; X and 0 once it is gone."""
    after_name = _read(pid, "stat").rpartition(b")")[2].split()
    return (after_name[0].decode(), int(after_name[1])) if len(after_name) > 1 else ("X", 0)


def _lives(pid: int) -> bool:
    return _stat(pid)[0] not in "ZX"


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended meanwhile

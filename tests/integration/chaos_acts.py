"""What chaos does to a run: the stage with its daemons, and the acts by name."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Self

from chaos_disk import LearnersDisk
from daemons import Daemon, Daemons, free_address
from proxy import Proxy

from vedette_services.errors import describe_exit
from vedette_services.net.addresses import Address

MANAGERS = 2
_TLS_HELLO = bytes.fromhex("160301006a010000660303") + bytes(range(95))


class Stage:
    """A learner and managers behind a proxy; who ends without being told is started again.

    Args:
        settings: of the learner, as ``KEY=VALUE``.
        disk: for the learner's run; None: it lies beside the logs.
    """

    def __init__(
        self, house: Daemons, settings: Sequence[str], disk: LearnersDisk | None = None
    ) -> None:
        self.house = house
        self.disk = disk
        self._settings = settings
        self.run = disk.run if disk else house.place / "run"
        self.learner_address: Address = free_address()
        self.proxy = Proxy(free_address(), self.learner_address)
        self.wrong: list[str] = []
        self.half_open: list[socket.socket] = []
        self._killed: set[int] = set()
        self.learner = self._start_learner()
        self.managers = [self._start_manager(i) for i in range(MANAGERS)]
        self.n_buffer = 100

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.half_open:
            connection.close()
        self.proxy.__exit__()

    @property
    def gateways(self) -> tuple[Address, Address]:
        """Where garbage can be thrown: the learner itself, and the proxy before it."""
        return self.learner_address, self.proxy.listen

    def kill(self, pid: int) -> bool:
        """`kill -9`; False if it had ended."""
        self._killed.add(pid)
        return _signal(pid, signal.SIGKILL)

    def revive(self) -> list[str]:
        """Start again whoever has ended; what was done."""
        done = []
        if not self.learner.running:
            done.append(self._say_end(self.learner, may_give_up=True))
            self.learner = self._start_learner()
        for place, manager in enumerate(self.managers):
            if not manager.running:
                done.append(self._say_end(manager, may_give_up=False))
                self.managers[place] = self._start_manager(place)
        return done

    def _say_end(self, daemon: Daemon, *, may_give_up: bool) -> str:
        code = daemon.process.returncode
        told = f"the {daemon.name} ended with {describe_exit(code)}: started again"
        # A learner whose processes die too often, or that starts on a disk that fails, gives up
        # with a line, which is right: then its own supervisor is asked.
        last_line = (daemon.log.splitlines() or [""])[-1]
        gave_up = may_give_up and code == 1 and last_line.startswith("vedette: ")
        if daemon.pid not in self._killed and not gave_up:
            self.wrong.append(told)
        return told

    def _start_learner(self) -> Daemon:
        return self.house.start(
            "learner",
            "learner",
            "--env",
            "CartPole-v1",
            "--agent",
            "dqn",
            "--bind",
            self.learner_address,
            "--out",
            self.run,
            *self._settings,
            run_in=self.disk.run_in() if self.disk else (),
        )

    def _start_manager(self, place: int) -> Daemon:
        name = f"manager-{place}"
        return self.house.start(
            name, "actors", "--learner", self.proxy.listen, "--id", name, "--count", 1
        )


Act = Callable[[Stage, random.Random], str]
"""Does something bad; says what, or "" where there was nobody to do it to."""


def kill_the_learner(stage: Stage, rng: random.Random) -> str:
    stage.kill(stage.learner.pid)
    stage.learner.process.wait(10.0)
    return "killed the learner"


def kill_a_part_of_the_learner(stage: Stage, rng: random.Random) -> str:
    part = rng.choice(["gateway", "trainer", "evaluator"])
    victims = stage.learner.children(part)
    return f"killed the {part}" if victims and stage.kill(victims[0]) else ""


def kill_a_manager(stage: Stage, rng: random.Random) -> str:
    manager = rng.choice(stage.managers)
    stage.kill(manager.pid)
    manager.process.wait(10.0)
    return f"killed {manager.name}"


def kill_an_actor(stage: Stage, rng: random.Random) -> str:
    manager = rng.choice(stage.managers)
    victims = manager.children("actor")
    return f"killed an actor of {manager.name}" if victims and stage.kill(victims[0]) else ""


def freeze_somebody(stage: Stage, rng: random.Random) -> str:
    everybody = [
        ("the learner", [stage.learner.pid, *stage.learner.children()]),
        ("the gateway", stage.learner.children("gateway")),
        ("the trainer", stage.learner.children("trainer")),
        (stage.managers[0].name, [stage.managers[0].pid]),
        (stage.managers[1].name, [stage.managers[1].pid, *stage.managers[1].children()]),
    ]
    name, pids = rng.choice(everybody)
    seconds = rng.uniform(1.0, 8.0)
    stopped = [pid for pid in pids if _signal(pid, signal.SIGSTOP)]
    time.sleep(seconds)
    for pid in stopped:
        _signal(pid, signal.SIGCONT)
    return f"froze {name} for {seconds:.1f} s"


def reset_connections(stage: Stage, rng: random.Random) -> str:
    times = rng.randint(1, 5)
    for _ in range(times):
        stage.proxy.reset()
        time.sleep(rng.uniform(0.0, 1.0))
    return f"reset all connections {times} times"


def hold_the_network(stage: Stage, rng: random.Random) -> str:
    seconds = rng.uniform(1.0, 8.0)
    stage.proxy.hold(True)
    time.sleep(seconds)
    stage.proxy.hold(False)
    return f"let nothing through for {seconds:.1f} s"


def throw_garbage(stage: Stage, rng: random.Random) -> str:
    kinds = {
        "random bytes": rng.randbytes(rng.randint(1, 100_000)),
        "an HTTP request": b"GET / HTTP/1.1\r\nHost: vedette\r\n\r\n",
        "a TLS hello": _TLS_HELLO,
        "zeros": bytes(10_000),
        "ones": b"\xff" * 10_000,
        "nothing, and stayed": b"",
    }
    name = rng.choice(sorted(kinds))
    count = rng.randint(1, 20)
    for _ in range(count):
        address = rng.choice(stage.gateways)
        port = address.port + rng.randrange(3)
        try:
            connection = socket.create_connection((address.host, port), timeout=1.0)
            connection.sendall(kinds[name])
        except OSError:
            continue  # nobody listens just now, or it was refused at once: both are fine
        stage.half_open.append(connection)
    while len(stage.half_open) > 40:
        stage.half_open.pop(0).close()
    return f"threw {name} {count} times"


def lose_the_disks_power(stage: Stage, rng: random.Random) -> str:
    if stage.disk is None or not stage.learner.running:
        return ""
    stage.disk.lose_power([stage.learner.pid, *stage.learner.children()], stage.kill)
    stage.learner.process.wait(10.0)
    return "let the power of the learner's disk fail"


def fail_syncs(stage: Stage, rng: random.Random) -> str:
    if stage.disk is None or not stage.disk.can_fail_syncs:
        return ""
    seconds = rng.uniform(2.0, 8.0)
    stage.disk.fail_syncs(seconds)
    return f"let all syncs of the learner fail for {seconds:.1f} s"


def fail_syncs_then_the_power(stage: Stage, rng: random.Random) -> str:
    did = (fail_syncs(stage, rng), lose_the_disks_power(stage, rng))
    return ", then ".join(text for text in did if text)


def fill_the_disk(stage: Stage, rng: random.Random) -> str:
    if stage.disk is None:
        return ""
    seconds = rng.uniform(2.0, 8.0)
    stage.disk.fill(seconds)
    return f"left no room on the learner's disk for {seconds:.1f} s"


ACTS: dict[str, Act] = {
    "kill the learner": kill_the_learner,
    "kill a part of the learner": kill_a_part_of_the_learner,
    "kill a manager": kill_a_manager,
    "kill an actor": kill_an_actor,
    "freeze somebody": freeze_somebody,
    "reset connections": reset_connections,
    "hold the network": hold_the_network,
    "throw garbage": throw_garbage,
    "lose the disk's power": lose_the_disks_power,
    "fail syncs": fail_syncs,
    "fail syncs, then the power": fail_syncs_then_the_power,
    "fill the disk": fill_the_disk,
}


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True

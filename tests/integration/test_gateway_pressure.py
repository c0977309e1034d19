"""A real gateway under pressure: floods, herds, stalled readers, slow lines, no descriptors."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zmq
from daemons import wait_for
from gateway_process import N_BUFFER, GatewayProcess, HonestManager
from herd import Herd
from proxy import Proxy

from vedette.local.daemons import free_port
from vedette_protocol.codec import encode
from vedette_services.actors.model_listener import ModelListener
from vedette_services.host.system import private_bytes
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys, make_keys
from vedette_services.status.client import ask_status

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
Make = Callable[..., GatewayProcess]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as gateways:

        def make(*settings: str, keys: Path | None = None, model_mib: int = 0) -> GatewayProcess:
            model = {"w": np.ones(model_mib * MIB // 4, np.float32)} if model_mib else None
            gateway = gateways.enter_context(GatewayProcess(tmp_path, keys, model, settings))
            gateway.status(60.0)
            return gateway

        yield make


class Flood:
    """A manager that sends for ever, whatever its credit."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._manager = HonestManager(gateway, "flood")
        self._manager.send_some(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10.0)
        self._manager.close()

    def _send(self) -> None:
        payload = self._manager.batch()
        seq = self._manager.sent
        while not self._stop.is_set():
            seq += 1
            frames = encode(payload._replace(seq=seq, base=seq))  # as if all before were settled
            if self._manager.samples.poll(50, zmq.POLLOUT):
                self._manager.samples.send_multipart(frames, zmq.NOBLOCK)


def test_one_that_ignores_its_credit_takes_nobody_elses_turn(gateway: Make) -> None:
    learner = gateway()
    honest = HonestManager(learner)
    honest.send_some(1)
    memory = private_bytes(learner.process.pid)
    with Flood(learner):
        for _ in range(5):
            honest.send_some(20)
        grown = private_bytes(learner.process.pid) - memory
        print(f"{grown / MIB:.0f} MiB more")
        assert grown < 200 * MIB
    honest.close()


def test_nothing_is_taken_of_one_that_ignores_its_credit(gateway: Make) -> None:
    # Nothing is ever drawn, so that the limiter lets nothing in beyond a warm-up of 100 and 400.
    learner = gateway("replay.samples_per_insert=1", "replay.error_buffer=400")
    honest = HonestManager(learner)
    honest.send_some(3)

    def refused() -> int:
        return int(learner.status()["refused"]["credit"])

    with Flood(learner):
        wait_for(refused, "refusal for want of credit")
        before = refused()
        wait_for(lambda: refused() > before, "further refusal")
        inserted = learner.status()["samples"]["inserted"]
    assert inserted <= 100 + 400 + 2 * N_BUFFER  # and one more that is granted to each
    wait_for(lambda: "credit: manager flood sends more than it may" in learner.log, "line of it")
    honest.close()


def test_a_herd_of_managers_is_back_within_seconds(gateway: Make, tmp_path: Path) -> None:
    learner = gateway()
    with Herd(learner.address, 64, tmp_path) as herd:
        herd.turn_until(lambda: present(learner) == 64, 60.0)
        dropped = listen_drops()
        learner.process.kill()
        learner.process.wait()
        herd.turn_for(4.0)  # silence is noticed: every socket is made anew, again and again
        learner.start()
        herd.turn_until(lambda: present(learner) >= 0, 60.0)
        began = time.monotonic()
        herd.turn_until(lambda: present(learner) == 64, 60.0)
        took = time.monotonic() - began
        print(f"64 managers are back {took:.1f} s after the learner answers")
        assert took < 20.0
        assert listen_drops() == dropped
        assert "connections:" not in learner.log  # no handshake counts as failed


def present(learner: GatewayProcess) -> int:
    """Managers that were heard lately; -1 while nobody answers."""
    found = ask_status(learner.address, 0.5)
    return -1 if found is None else sum(m["last_seen_s"] < 3.0 for m in found["managers"])


def listen_drops() -> int:
    """Connections that the kernel turned away because a queue for accepting was full."""
    lines = [x.split() for x in Path("/proc/net/netstat").read_text().splitlines()]
    return int(dict(zip(lines[0], lines[1], strict=True))["ListenDrops"])


@pytest.mark.slow
def test_readers_that_stall_cost_a_few_models_together(gateway: Make) -> None:
    model_mib = 16
    versions = 40
    learner = gateway(model_mib=model_mib)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with ExitStack() as held:
        held.callback(context.destroy, linger=0)
        stalled = [context.socket(zmq.SUB) for _ in range(8)]
        for subscriber in stalled:
            subscriber.setsockopt(zmq.RCVHWM, 1)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"all")
            subscriber.connect(learner.address.models)
        readers = [ModelListener(context, learner.address, f"r{i}") for i in range(4)]
        for reader in readers:
            held.callback(reader.close)
        newest = [-1] * len(readers)
        wait_for(lambda: read(readers, newest) >= 0, "first model")
        memory = private_bytes(learner.process.pid)
        most = memory
        for version in range(1, versions + 1):
            learner.publish(version)
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                read(readers, newest)
                most = max(most, private_bytes(learner.process.pid))
                time.sleep(0.02)
        wait_for(lambda: read(readers, newest) == versions, "last model")
        print(f"{(most - memory) / MIB:.0f} MiB more for {versions} models of {model_mib} MiB")
        assert most - memory < 16 * model_mib * MIB


def read(readers: list[ModelListener], newest: list[int]) -> int:
    """Take what has come; the version that all have at least."""
    for place, reader in enumerate(readers):
        if (model := reader.pop_model()) is not None:
            newest[place] = model.version
    return min(newest)


@pytest.mark.slow
def test_a_line_that_is_too_slow_for_every_model_carries_some_of_them_whole(gateway: Make) -> None:
    model_mib = 12
    line = 6 * MIB
    learner = gateway(model_mib=model_mib)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with ExitStack() as held:
        held.callback(context.destroy, linger=0)
        proxy = held.enter_context(Proxy(Address("127.0.0.1", free_port()), learner.address))
        proxy.bytes_per_s = line
        honest = HonestManager(learner, to=proxy.listen)
        held.callback(honest.close)
        honest.send_some(1)
        began = time.monotonic()
        reader = ModelListener(context, proxy.listen, "far")
        held.callback(reader.close)
        came: list[tuple[float, int]] = []
        acked = began
        gap = 0.0
        version = 0
        while time.monotonic() < began + 40.0:
            now = time.monotonic()
            if now - began > 4.0 + 0.4 * version:
                version += 1
                learner.publish(version)
            if (model := reader.pop_model()) is not None:
                came.append((now - began, model.version))
            heard = len(honest.acks)
            honest.hear_until(lambda heard=heard: len(honest.acks) > heard, 0.05)
            if len(honest.acks) > heard:
                gap = max(gap, time.monotonic() - acked)
                acked = time.monotonic()
        print(f"of {version} models came {came}; {gap:.2f} s between acks at most")
        assert came[0][0] < 1.2 * model_mib * MIB / line + 2.0
        assert gap < 3.0  # else the manager would make its sockets anew
        late = [v for at, v in came if at > 15.0]
        assert len(late) >= 5  # one in 2 s is what the line could carry
        assert version - late[-1] < 45  # four are queued, and one is on its way: 10 s


@pytest.mark.parametrize("secured", [False, True], ids=["open", "keys"])
def test_without_a_descriptor_left_those_who_are_in_go_on(
    gateway: Make, tmp_path: Path, secured: bool
) -> None:
    keys = tmp_path / "keys" if secured else None
    if keys is not None:
        make_keys(keys, ["a"])
    learner = gateway(keys=keys)
    shown = ClientKeys.read(keys / "hosts" / "a") if keys is not None else None
    honest = HonestManager(learner, "honest", shown)
    honest.send_some(2)
    pid = learner.process.pid
    few = len(os.listdir(f"/proc/{pid}/fd")) + 8  # noqa: PTH208 - a count is wanted
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, hard))
    with ExitStack() as held:
        for i in range(60):
            place = ("127.0.0.1", learner.address.port + i % 3)
            held.enter_context(socket.create_connection(place, timeout=5.0))
        until = time.monotonic() + 2.5  # the folder of keys is looked at meanwhile
        while time.monotonic() < until:
            honest.send_some(3)
        assert learner.alive(), learner.log
    late = HonestManager(learner, "late", shown)
    late.send_some(2, timeout_s=30.0)  # those who held it were thrown out
    honest.send_some(2)
    assert "closing out" not in learner.log
    assert learner.status()["samples"]["inserted"] == (honest.sent + late.sent) * N_BUFFER
    late.close()
    honest.close()

"""Bytes that are no message, on all three ports of a real gateway: honest traffic goes on."""

from __future__ import annotations

import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq
from daemons import wait_for
from gateway_process import GatewayProcess, HonestManager

from vedette_services.net import sockets
from vedette_services.net.keys import make_keys

GROWTH_MIB = 120.0
HANDSHAKE_S = 3.0

HTTP = b"GET / HTTP/1.1\r\nHost: learner\r\nUser-Agent: scanner\r\nAccept: */*\r\n\r\n"
TLS_HELLO = bytes.fromhex(
    "16030100c8010000c40303" + "5a" * 32 + "20" + "11" * 32 + "003e130213031301c02cc030009fcca9"
    "cca8ccaac02bc02f009ec024c028006bc023c0270067c00ac0140039c009c0130033009d009c003d003c0035002f"
    "00ff0100003d000b000403000102000a00160014001d0017001e00190018010001010102010301040016000000"
    "170000000d0004000204030807"
)
ZMTP_1 = b"\x01\x00" + b"\x0a\x00" + b"x" * 9
ZMTP_2 = b"\xff" + bytes(8) + b"\x7f\x01\x08" + b"\x00\x00" + b"\x01\x01x\x00\x01y" * 50
ZMTP_3_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
HUGE_FRAME = ZMTP_3_GREETING + b"\x06" + (1 << 62).to_bytes(8) + b"x" * 4096
WORDS = {
    "random": random.Random(1).randbytes(50_000),
    "random beginning like ZMTP": b"\xff" + random.Random(2).randbytes(50_000),
    "zeros": bytes(50_000),
    "ones": b"\xff" * 50_000,
    "http": HTTP,
    "http, 200 times": HTTP * 200,
    "tls": TLS_HELLO,
    "zmtp 1": ZMTP_1 * 50,
    "zmtp 2": ZMTP_2,
    "plain": ZMTP_3_GREETING.replace(b"NULL\0", b"PLAIN") + b"\x04\x0a\x05HELLO\x01a\x01b",
    "a frame of 2^62 bytes": HUGE_FRAME,
    "a command of 2^62 bytes": HUGE_FRAME.replace(b"\x06\x40", b"\x06\x7f"),
    "half a greeting": ZMTP_3_GREETING[:20],
}


@pytest.fixture(scope="module", params=["open", "keys"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    root = tmp_path_factory.mktemp(request.param)
    keys: Path | None = None
    if request.param == "keys":
        keys = root / "keys"
        make_keys(keys, [])
    with GatewayProcess(root, keys) as gateway:
        gateway.status()
        yield gateway
        assert gateway.alive(), gateway.log


@pytest.fixture(scope="module")
def honest(gateway: GatewayProcess) -> Iterator[HonestManager]:
    honest = HonestManager(gateway)
    honest.send_some(3)
    yield honest
    honest.close()


def connect(gateway: GatewayProcess, above: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", gateway.address.port + above), timeout=5)
    connection.settimeout(0.2)
    return connection


def say(connection: socket.socket, words: bytes) -> None:
    try:
        connection.sendall(words)
    except OSError:
        return  # the other side has closed: what we came for


def refused(gateway: GatewayProcess) -> int:
    status = gateway.status()
    return int(status["garbage"] + status["refused"]["handshakes"])


@pytest.mark.parametrize("words", WORDS)
def test_bytes_of_outsiders_are_refused_and_honest_traffic_goes_on(
    gateway: GatewayProcess, honest: HonestManager, words: str
) -> None:
    before = refused(gateway)
    memory = gateway.resident_mib()
    with ExitStack() as held:
        for above in (0, 1, 2):
            for _ in range(5):
                connection = held.enter_context(connect(gateway, above))
                say(connection, WORDS[words])
        honest.send_some(5)

        def is_counted() -> bool:
            # those that come while the gateway stands still are forgiven
            say(held.enter_context(connect(gateway, 0)), WORDS[words])
            return refused(gateway) > before

        wait_for(is_counted, "count of it")
    honest.send_some(5)
    assert gateway.status()["samples"]["rejected"] == 0
    assert gateway.resident_mib() < memory + GROWTH_MIB


@pytest.mark.parametrize(
    "connections", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_idle_connections_on_all_ports_do_not_keep_honest_ones_out(
    gateway: GatewayProcess, connections: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < connections + 1000:
        pytest.skip(f"this needs {connections + 1000} open files, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, connections + 1000), hard))
    memory = gateway.resident_mib()
    with ExitStack() as held:
        idle = [held.enter_context(connect(gateway, i % 3)) for i in range(connections)]
        late = HonestManager(gateway, "late")
        held.callback(late.close)
        late.send_some(5, timeout_s=60)
        assert gateway.resident_mib() < memory + GROWTH_MIB * max(1, connections // 1000)
        deadline = time.monotonic() + HANDSHAKE_S + 30
        for connection in idle:  # every one of them is thrown out
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            while said_something(connection):
                pass
        late.send_some(5)


def said_something(connection: socket.socket) -> bool:
    """Whether the other side still talks; False once it has hung up."""
    try:
        return bool(connection.recv(4096))
    except ConnectionError:
        return False


def test_frames_beyond_the_limit_end_their_connection_and_nobody_elses(
    gateway: GatewayProcess, honest: HonestManager
) -> None:
    if gateway.keys is not None:
        pytest.skip("a key's holder may only do this to the same end; outsiders are not received")
    memory = gateway.resident_mib()
    before = gateway.status()["refused"]["frames"]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for kind, endpoint, size in (
            (zmq.PUSH, gateway.address.samples, 65 << 20),
            (zmq.XSUB, gateway.address.control, 1 << 20),
            (zmq.XSUB, gateway.address.models, 1 << 20),
        ):
            hostile = context.socket(kind)
            hostile.setsockopt(zmq.LINGER, 0)
            hostile.connect(endpoint)
            monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            hostile.send(b"\x02" * size)
            assert monitor.poll(10_000), f"{endpoint} took {size} bytes"
            hostile.disable_monitor()
            monitor.close(linger=0)
            hostile.close()
        honest.send_some(5)
    finally:
        context.destroy(linger=0)
    assert gateway.resident_mib() < memory + 2 * GROWTH_MIB
    wait_for(lambda: gateway.status()["refused"]["frames"] > before, "count of it")
    wait_for(lambda: "of 127.0.0.1 was cut: a frame is larger than 67,108,864" in gateway.log, "it")


def test_connections_that_their_peers_close_are_not_taken_for_frames_beyond_the_limit(
    gateway: GatewayProcess, honest: HonestManager
) -> None:
    before = gateway.status()["refused"]["frames"]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for _ in range(20):
        brief = sockets.samples_push(context, gateway.address, gateway.keys)
        brief.send(b"nonsense")
        brief.close(linger=1000)
    context.term()
    honest.send_some(5)
    assert gateway.status()["refused"]["frames"] == before


def test_subscriptions_without_end_are_bounded_and_answered_one_by_one(
    gateway: GatewayProcess, honest: HonestManager
) -> None:
    memory = gateway.resident_mib()
    hostile = HonestManager(gateway, "flood")
    try:
        for i in range(5_000):
            hostile.control.setsockopt(zmq.SUBSCRIBE, f"s/{i:08}/".encode())
            hostile.control.setsockopt(zmq.SUBSCRIBE, b"\xff" * 100 + str(i).encode())
        honest.send_some(5, timeout_s=60)
    finally:
        hostile.close()
    assert gateway.status(60)["garbage"] >= 1
    assert gateway.resident_mib() < memory + GROWTH_MIB

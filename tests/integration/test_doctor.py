"""The doctor, against a real gateway and against what is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from gateway_process import GatewayProcess

from vedette.cli.app import main
from vedette.doctor import Examination, Finding
from vedette.local.daemons import free_port
from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.messages import Status
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys, make_keys


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    root = tmp_path_factory.mktemp("gateway")
    make_keys(root / "keys", ["a"])
    gateway = GatewayProcess(root, root / "keys")
    gateway.status()
    yield gateway
    gateway.end()


def looked(address: Address, keys: ClientKeys | None = None, **more: object) -> list[Finding]:
    return list(Examination(address, keys, **more).findings())  # type: ignore[arg-type]  # a test's


def worst(findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.state == "fail")


def test_a_host_that_can_take_part_is_told_so(
    gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = gateway.run.root.parent / "keys" / "hosts" / "a"
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--learner", str(gateway.address), "--keys", str(keys)])
    said = capsys.readouterr().out
    assert left.value.code == 0, said
    assert "fail" not in said
    for check in (
        "name",
        "samples port",
        "control port",
        "models port",
        "key",
        "version",
        "clock",
        "round trip",
        "run",
        "model",
        "environment",
        "spec",
    ):
        assert f"  {check} " in said, check


def test_each_reason_why_not_is_told_with_its_fix_and_status(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    unknown = worst(looked(Address("no-such-host.invalid", 5555)))
    assert (unknown.check, unknown.status) == ("name", 1)

    closed = worst(looked(Address("127.0.0.1", free_port())))
    assert "nothing listens" in closed.message
    assert closed.status == 1

    without = worst(looked(gateway.address))
    assert (without.check, without.status) == ("key", 3)
    assert "--keys DIR" in without.message

    make_keys(tmp_path / "other", [])
    wrong = worst(looked(gateway.address, ClientKeys.read(tmp_path / "other")))
    assert wrong.status == 3
    assert "another key than learner.toml says" in wrong.message

    missing = worst(looked(gateway.address, gateway.keys, env="NoSuch-v0"))
    assert (missing.check, missing.status) == ("environment", 1)

    other = worst(looked(gateway.address, gateway.keys, env="Acrobot-v1"))
    assert (other.check, other.status) == ("spec", 3)
    assert "'obs'" in other.message


@contextmanager
def answering(words: bytes) -> Iterator[Address]:
    """Three ports that answer every connection with these words."""
    address = Address("127.0.0.1", free_port())
    listeners = [socket.create_server((address.host, address.port + i)) for i in range(3)]
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        listener.settimeout(0.1)
        held = []
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.sendall(words)
            held.append(connection)
        for connection in held:
            connection.close()

    threads = [threading.Thread(target=serve, args=(one,)) for one in listeners]
    for thread in threads:
        thread.start()
    yield address
    stop.set()
    for thread in threads:
        thread.join(5)
    for listener in listeners:
        listener.close()


@pytest.mark.slow
def test_ports_of_something_else_are_recognized() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100) as address:
        assert "something answers that is no learner" in worst(looked(address)).message
    with answering(b"") as address:
        assert "says nothing" in worst(looked(address)).message


def test_a_learner_of_another_protocol_is_refused_at_once() -> None:
    address = Address("127.0.0.1", free_port())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    bound = [sockets.samples_pull(context, address), sockets.models_xpub(context, address)]
    control = sockets.control_xpub(context, address)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            if control.poll(50):
                event = topics.parse_subscription(control.recv())
                if event.subscribed:
                    frames = [bytes(frame) for frame in encode(Status(b"{}"))]
                    frames[0] = frames[0].replace(b"\xa1v\x02", b"\xa1v\x03")
                    control.send_multipart([event.topic, *frames])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        found = worst(looked(address))
    finally:
        stop.set()
        thread.join(5)
        for one in (*bound, control):
            one.close(linger=0)
        context.term()
    assert found.status == 3
    assert "protocol version 3" in found.message

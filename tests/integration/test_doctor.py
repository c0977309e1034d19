"""The doctor, against a real gateway and against what is none."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zmq
from daemons import free_address
from gateway_process import GatewayProcess
from proxy import Proxy

from vedette.cli.app import main
from vedette.doctor import Examination, Finding, examine_environment
from vedette.local.daemons import free_port
from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.messages import Run, Status
from vedette_protocol.schema import Schema
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import column_bounds, transition_dtype
from vedette_rl.testing import Synthetic
from vedette_services.config.parts import ActorsConfig
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys, make_keys


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    root = tmp_path_factory.mktemp("gateway")
    make_keys(root / "keys", ["a"])
    with GatewayProcess(root, root / "keys") as gateway:
        gateway.status()
        yield gateway


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
        "large messages",
        "run",
        "one learner",
        "model",
        "environment",
        "spec",
        "speed",
    ):
        assert f"  {check} " in said, check


def test_an_environment_is_measured_without_a_learner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VEDETTE_LEARNER", raising=False)
    monkeypatch.setattr("vedette_services.host.system.count_cores", lambda: 4)
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--env", "vedette_rl.testing:Synthetic"])
    assert left.value.code == 0
    built, speed = capsys.readouterr().out.splitlines()
    assert built.startswith("ok    environment ")
    assert re.search(r": [\d,]+ random steps with [\d,]+ ends? of episodes were looked at$", built)
    rates = re.search(
        r"^ok    speed .* at most ([\d,]+) steps/s of an actor, ([\d,]+) of the 4 that", speed
    )
    assert rates is not None, speed
    one, all_of_them = (int(rate.replace(",", "")) for rate in rates.groups())
    assert one > 0
    assert all_of_them == pytest.approx(4 * one, abs=4)
    with pytest.raises(SystemExit) as left:
        main(["doctor"])
    assert left.value.code == 2
    assert "--env ID" in capsys.readouterr().err


def test_environments_that_wait_are_counted_side_by_side() -> None:
    slow = {"id": "vedette_rl.testing:Synthetic", "kwargs": {"sleep_s": 0.02}}
    run = run_of(slow, {"count": 2, "envs_per_actor": 4})
    findings = list(examine_environment(run, None, ("vedette_rl",), 3))
    assert [finding.check for finding in findings] == ["environment", "spec", "speed"]
    assert "ms, waiting: at most " in findings[-1].message
    assert "of an actor of 4 side by side, " in findings[-1].message


def test_the_one_environment_of_a_run_is_built_and_not_measured() -> None:
    run = run_of({"id": "vedette_rl.testing:Synthetic"}, {"count": 1, "envs_per_actor": 1})
    findings = list(examine_environment(run, None, ("vedette_rl",), 3))
    assert [finding.check for finding in findings] == ["environment", "spec"]
    assert findings[0].message.endswith("can be built and stepped here (one step was looked at)")


class FourValues(Synthetic):
    """Its step() is that of gym's old API."""

    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class OtherShape(Synthetic):
    """Its observations are not of its space."""

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), *super().step(action)[1:]


class FailsLater(Synthetic):
    """It raises in the 30th step."""

    played = 0

    def step(self, action: Any) -> Any:
        self.played += 1
        if self.played == 30:
            raise RuntimeError("simulator lost")
        return super().step(action)


class NoEnvironment:
    """It is no `gymnasium.Env`."""


@pytest.mark.filterwarnings("ignore")  # Gymnasium's checks warn, too
@pytest.mark.parametrize(
    ("env", "fix"),
    [
        (f"{__name__}:FourValues", ""),
        (f"{__name__}:FailsLater", "fix the environment"),
        (f"{__name__}:OtherShape", ""),
        (f"{__name__}:NoEnvironment", ""),
        (f"{__name__}:Missing", ""),
        ("no_such_module:Env", "install it on this host"),
    ],
)
def test_only_an_environment_that_is_not_there_is_to_be_installed(env: str, fix: str) -> None:
    (finding,) = examine_environment(None, env, (), 1)
    assert (finding.check, finding.status, finding.fix) == ("environment", 1, fix)


def run_of(env: dict[str, Any], actors: dict[str, int]) -> Run:
    """The run that a learner of this environment announces."""
    spaces = probe_environment(EnvConfig.model_validate(env))
    return Run(
        run_id="run",
        epoch=1,
        learner=1,
        schema=Schema.from_dtype(transition_dtype(spaces), column_bounds(spaces)),
        model=Schema.from_arrays({"w": np.zeros(2, np.float32)}),
        env=env,
        agent={"name": "dqn"},
        actors=ActorsConfig.model_validate(actors).model_dump(mode="json"),
        seed=1,
        batch_rows=1000,
        batch_env_steps=10_000,
    )


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


class BlackHole:
    """A road to a learner's control port that swallows packets over 1,000 bytes and says nothing.

    Who takes no more than that in a packet, as its greeting says, gets everything.

    Args:
        way: the direction in which they are swallowed.
    """

    LARGEST = 1000

    def __init__(self, learner: Address, way: Literal["up", "down"]) -> None:
        self._way = way
        self._learner = learner
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        while True:
            self.address = Address("127.0.0.1", free_port())
            with suppress(OSError):
                self._listeners = [
                    socket.create_server(("127.0.0.1", self.address.port + k)) for k in range(3)
                ]
                break
        for k, listener in enumerate(self._listeners):
            self._start(self._serve, k, listener)

    def _start(self, task: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=task, args=arguments)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        for each in (*self._listeners, *self._ends):
            with suppress(OSError):  # it is closed
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for each in (*self._listeners, *self._ends):
            each.close()

    def _serve(self, above: int, listener: socket.socket) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((self._learner.host, self._learner.port + above))
                self._ends += [near, far]
                takes = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
                small = takes <= self.LARGEST
                for way, source, sink in (("up", near, far), ("down", far, near)):
                    narrow = way == self._way and above == 1 and not small
                    self._start(self._carry, source, sink, narrow)

    def _carry(self, source: socket.socket, sink: socket.socket, narrow: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if narrow and len(data) > self.LARGEST:
                    return  # sent again and again, and nothing behind it comes through
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("way", "check", "said"),
    [
        ("down", "status", "the answer arrives in packets of 536 bytes, and not in full-size ones"),
        ("up", "large messages", "bytes at once do not reach it within 2 s, and short messages do"),
    ],
)
def test_a_network_that_swallows_large_packets_is_named(
    gateway: GatewayProcess,
    monkeypatch: pytest.MonkeyPatch,
    way: Literal["up", "down"],
    check: str,
    said: str,
) -> None:
    keys = ClientKeys.read(gateway.run.root.parent / "keys" / "hosts" / "a")
    monkeypatch.setattr("vedette.doctor._ANSWER_S", 2.0)
    road = BlackHole(gateway.address, way)
    try:
        found = worst(looked(road.address, keys))
    finally:
        road.close()
    assert (found.check, found.status) == (check, 1)
    assert said in found.message
    assert "something on the way drops large packets" in found.message
    assert "mtu 1280" in found.fix


@pytest.fixture(scope="module")
def two_gateways(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    roots = (tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other"))
    with GatewayProcess(roots[0]) as one, GatewayProcess(roots[1]) as other:
        one.status()
        other.status()
        yield one, other


def test_a_tunnel_whose_ports_lead_to_two_learners_is_named(
    two_gateways: tuple[GatewayProcess, GatewayProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two_gateways
    monkeypatch.setattr("vedette.doctor._ANSWER_S", 2.0)
    with Proxy(free_address(), one.address, samples_to=other.address) as tunnel:
        crossed = worst(looked(tunnel.listen))
    assert (crossed.check, crossed.status) == ("one learner", 1)
    assert f"sent to {tunnel.listen.port} does not reach the learner of" in crossed.message
    assert "lead to one learner" in crossed.fix

    with Proxy(free_address(), one.address, models_to=other.address) as tunnel:
        crossed = worst(looked(tunnel.listen))
    assert (crossed.check, crossed.status) == ("model", 1)
    assert f"sends models of run {other.run_id}" in crossed.message


def test_a_learner_counts_nobody_for_the_doctors_question(
    two_gateways: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, _ = two_gateways
    assert next(f for f in looked(one.address) if f.check == "one learner").state == "ok"
    status = one.status()
    assert status["managers"] == []
    assert status["garbage"] == 0

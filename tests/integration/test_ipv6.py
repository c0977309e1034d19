"""Learner, managers, status and doctor over IPv6, and over names with several addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemons, free_address, wait_for
from gateway_process import GatewayProcess, HonestManager

from vedette.doctor import Examination
from vedette_services.net.addresses import Address, check_ports
from vedette_services.net.keys import make_keys
from vedette_services.status.client import ask_status


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this kernel has no IPv6")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with keys that listens on ::1."""
    root = tmp_path_factory.mktemp("gateway")
    make_keys(root / "keys", ["a"])
    with GatewayProcess(
        root, root / "keys", address=Address("::1", free_address().port)
    ) as gateway:
        gateway.status()
        yield gateway


def test_managers_connect_over_ipv6(gateway: GatewayProcess, tmp_path: Path) -> None:
    keys = gateway.run.root.parent / "keys" / "hosts" / "a"
    with Daemons(tmp_path) as daemons:
        manager = daemons.start(
            "actors", "actors", "--learner", gateway.address, "--count", 1, "--keys", keys
        )
        wait_for(lambda: f"run {gateway.run_id}, epoch 1" in manager.log, "word of the run")
        wait_for(lambda: gateway.status()["managers"], "manager")


def test_samples_travel_over_ipv6(gateway: GatewayProcess) -> None:
    honest = HonestManager(gateway)
    honest.send_some(5)
    honest.close()


def test_a_doctor_looks_over_ipv6(gateway: GatewayProcess) -> None:
    findings = list(Examination(gateway.address, gateway.keys).findings())
    assert not [finding for finding in findings if finding.state == "fail"], findings
    assert str(findings[0]) == "ok    name         ::1 is ::1"


@pytest.mark.slow
def test_a_learner_on_all_ipv6_addresses_takes_ipv4_too(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, address=Address("::", free_address().port)) as gateway:
        for host in ("::1", "127.0.0.1"):
            assert ask_status(Address(host, gateway.address.port), 20.0) is not None


def test_ports_of_ipv6_are_checked_before_the_start() -> None:
    check_ports(Address("::1", free_address().port))


def test_status_and_doctor_pass_over_a_dead_address(
    gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = socket.getaddrinfo

    def both(host: Any, *more: Any, **options: Any) -> list[Any]:
        if host != "two.test":
            return ask(host, *more, **options)
        return [*ask("127.0.0.2", *more, **options), *ask("::1", *more, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    two = Address("two.test", gateway.address.port)
    assert ask_status(two, 20.0, gateway.keys) is not None
    first, warning, *more = Examination(two, gateway.keys).findings()
    assert first.message == "two.test is 127.0.0.2, ::1"
    assert (warning.state, warning.message) == ("warn", f"nothing answers at 127.0.0.2:{two.port}")
    assert not [finding for finding in more if finding.state == "fail"], more

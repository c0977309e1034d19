"""Managers that a learner has no place for, and two with one id: real processes and sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemons import START_S, Daemon, Daemons, free_address, inserted, status, wait_for
from gateway_process import GatewayProcess, HonestManager

from vedette_services.net.keys import ClientKeys, make_keys

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["evil", "lab"])
    return tmp_path / "keys"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_managers_that_are_refused_end_and_say_why(daemons: Daemons, tmp_path: Path) -> None:
    """A second one with an id that is in use, and one that finds the table full."""
    address = free_address()
    daemons.start(
        "learner",
        "learner",
        "--env",
        "CartPole-v1",
        "--agent",
        "dqn",
        "--bind",
        address,
        "--out",
        tmp_path / "run",
        "learner.max_managers=1",
        "stop.target_return=none",
        "agent.hidden_sizes=[16]",
        "learner.eval_interval=0",
        "replay.capacity=20000",
    )

    def manager(name: str, id_: str) -> Daemon:
        return daemons.start(name, "actors", "--learner", address, "--id", id_, "--count", 1)

    first = manager("first", "m0")
    wait_for(lambda: inserted(address) > 0, "samples")
    second = manager("second", "m0")
    said = "two managers use the id m0: "
    # The status has it for a minute, the refused manager may take longer to end.
    wait_for(lambda: status(address).get("rivals", "").startswith(said), "rivals in the status")
    assert second.wait(START_S) == 3
    assert f"refused by the learner: {said}" in second.log
    late = manager("late", "m1")
    assert late.wait(START_S) == 1  # a place may be free later
    assert "refused by the learner: the ledger is full: there is no place for manager 'm1'" in (
        late.log
    )
    found = wait_for(lambda: status(address), "status")
    assert found["refused"]["places"] >= 1
    assert found["refused"]["rivals"] == 1
    assert first.running
    before = found["samples"]["inserted"]
    wait_for(lambda: inserted(address) > before, "more samples")


def test_a_key_with_ids_without_end_keeps_nobody_out(tmp_path: Path, folder: Path) -> None:
    gateway = GatewayProcess(tmp_path, folder, settings=("learner.max_managers=40",))
    evil = HonestManager(gateway, "evil", ClientKeys.read(folder / "hosts" / "evil"))
    lab = HonestManager(gateway, "lab", ClientKeys.read(folder / "hosts" / "lab"))
    try:
        gateway.status()
        for number in range(1100):
            evil.push(evil.report(manager=f"e{number}", incarnation=number))
        wait_for(lambda: gateway.status()["refused"]["places"] >= 1000, "refusals")
        lab.send_some(5)
        lab.push(lab.report())
        wait_for(lambda: "lab" in {m["id"] for m in gateway.status()["managers"]}, "manager")
        assert len(gateway.status()["managers"]) == 40 - 2 * 6 + 1  # three keys have six each
    finally:
        evil.close()
        lab.close()
        gateway.end()

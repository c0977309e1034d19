"""Who is let in: a real gateway with keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gateway_process import GatewayProcess, HonestManager

from vedette_protocol.messages import Refusal
from vedette_services.errors import RefusedError
from vedette_services.keys import ClientKeys, add_key, make_keys, remove_key
from vedette_services.status import StatusAsker

CLOSED_OUT_WITHIN_S = 3.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["a", "b"])
    return tmp_path / "keys"


@pytest.fixture
def gateway(tmp_path: Path, folder: Path) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(tmp_path, folder)
    yield gateway
    gateway.end()


@pytest.fixture
def manager(gateway: GatewayProcess, folder: Path) -> Iterator[Callable[..., HonestManager]]:
    made: list[HonestManager] = []

    def make(name: str, manager: str) -> HonestManager:
        keys = ClientKeys.read(folder / "hosts" / name)
        made.append(HonestManager(gateway, manager, keys))
        return made[-1]

    yield make
    for one in made:
        one.close()


def why_refused(gateway: GatewayProcess, keys: ClientKeys | None) -> str:
    with StatusAsker(gateway.address, keys) as asker, pytest.raises(RefusedError) as refused:
        asker.ask(20)
    assert refused.value.exit_status == 3
    return str(refused.value)


def test_only_listed_keys_are_let_in_and_each_refusal_says_why(
    gateway: GatewayProcess, folder: Path, tmp_path: Path
) -> None:
    first = gateway.status()["refused"]
    assert (first["keys"], first["ids"]) == (0, 0)
    with StatusAsker(gateway.address, ClientKeys.read(folder / "hosts" / "a")) as asker:
        assert asker.ask(20) is not None

    make_keys(tmp_path / "other", ["a"])
    other = ClientKeys.read(tmp_path / "other" / "hosts" / "a")
    stranger = ClientKeys(other.pair, ClientKeys.read(folder).learner)
    assert "refused this host's key 'a'" in why_refused(gateway, stranger)
    assert "has another key than learner.toml says" in why_refused(gateway, other)
    assert "start with --keys DIR" in why_refused(gateway, None)

    refused = gateway.status()["refused"]
    assert refused["keys"] == 1
    assert refused["handshakes"] >= 3


def test_a_learner_without_keys_is_refused_by_those_who_have_some(
    tmp_path: Path, folder: Path
) -> None:
    gateway = GatewayProcess(tmp_path)
    try:
        gateway.status()
        assert "runs without keys" in why_refused(gateway, ClientKeys.read(folder))
    finally:
        gateway.end()


def test_a_managers_id_belongs_to_the_key_that_used_it_first(
    gateway: GatewayProcess, manager: Callable[..., HonestManager]
) -> None:
    owner, thief = manager("a", "m"), manager("b", "m")
    owner.send_some(5)
    spoofed = thief.batch(incarnation=owner.incarnation, seq=5)
    for message in (thief.batch(), spoofed, spoofed._replace(rows=0)):
        thief.push(message)
    for _ in range(40):  # as a manager does, twice a second
        thief.push(thief.report())
        if thief.hear_until(lambda: bool(thief.refusals), 0.5):
            break
    assert {(r.code, r.incarnation) for r in thief.refusals} == {("id", thief.incarnation)}
    owner.send_some(5)
    status = gateway.status()
    assert status["refused"]["ids"] >= 4
    assert status["samples"]["inserted"] == 200
    assert status["samples"]["rejected"] == 0
    assert all(refusal.incarnation != owner.incarnation for refusal in owner.refusals)

    gateway.process.kill()  # whose it is outlives the gateway
    gateway.process.wait()
    gateway.start()
    thief.push(thief.report())
    owner.send_some(1)
    assert gateway.status()["refused"]["ids"] >= 1


def test_a_key_taken_off_the_list_is_closed_out_while_others_go_on(
    gateway: GatewayProcess, folder: Path, manager: Callable[..., HonestManager]
) -> None:
    stays, goes = manager("a", "stays"), manager("b", "goes")
    stays.send_some(3)
    goes.send_some(3)
    remove_key(folder, "b")
    began = time.monotonic()
    while "closing out b" not in gateway.log:
        assert time.monotonic() < began + CLOSED_OUT_WITHIN_S
        time.sleep(0.05)
    heard = len(goes.acks)
    stays.send_some(3)
    goes.hear_until(lambda: False, 1.0)
    assert len(goes.acks) <= heard + 20  # what was under way
    before = len(goes.acks)
    goes.hear_until(lambda: False, 0.7)
    assert len(goes.acks) == before  # nothing reaches it any more
    assert gateway.status()["refused"]["keys"] >= 1
    assert gateway.status()["samples"]["inserted"] == 180


def test_a_key_that_is_added_is_let_in_without_a_restart(
    gateway: GatewayProcess, folder: Path, manager: Callable[..., HonestManager]
) -> None:
    gateway.status()
    add_key(folder, "c")
    deadline = time.monotonic() + CLOSED_OUT_WITHIN_S
    while "key c is let in" not in gateway.log:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    manager("c", "late").send_some(2)


def test_the_refusal_of_an_id_is_what_the_manager_ends_with() -> None:
    from vedette_services.actors.instructions import Exit
    from vedette_services.actors.manager_state import Identity, ManagerState

    state = ManagerState(
        Identity("m", "host", "here"),
        count=1,
        allow_import=frozenset(),
        incarnation=lambda: 7,
        jitter=lambda: 0.5,
        now=0.0,
    )
    mine = Refusal("m", 7, "id", "the manager id 'm' belongs to another key")
    assert state.on_control(mine, 1.0) == [Exit(3, f"refused by the learner: {mine.reason}")]
    assert state.on_control(Refusal("m", 8, "id", "x"), 1.0) == []

"""Who is let in: a real gateway with keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import wait_for
from gateway_process import GatewayProcess, HonestManager

from vedette_services.errors import RefusedError
from vedette_services.net.keys import ClientKeys, add_key, make_keys, remove_key
from vedette_services.status.client import StatusClient

LOOKED_WITHIN_S = 60.0
"""A bound on a hang: the learner looks at its folder every two seconds, a client that lost it comes
back after two, and the machine may be busy."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["a", "b"])
    return tmp_path / "keys"


@pytest.fixture
def gateway(tmp_path: Path, folder: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path, folder) as gateway:
        yield gateway


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
    with StatusClient(gateway.address, keys) as asker, pytest.raises(RefusedError) as refused:
        asker.ask(20)
    assert refused.value.exit_status == 3
    return str(refused.value)


def test_only_listed_keys_are_let_in_and_each_refusal_says_why(
    gateway: GatewayProcess, folder: Path, tmp_path: Path
) -> None:
    first = gateway.status()["refused"]
    assert (first["keys"], first["ids"]) == (0, 0)
    with StatusClient(gateway.address, ClientKeys.read(folder / "hosts" / "a")) as asker:
        assert asker.ask(20) is not None

    make_keys(tmp_path / "other", ["a"])
    other = ClientKeys.read(tmp_path / "other" / "hosts" / "a")
    outsider = ClientKeys(other.pair, ClientKeys.read(folder).learner)
    assert "refused this host's key 'a'" in why_refused(gateway, outsider)
    assert "has another key than learner.toml says" in why_refused(gateway, other)
    assert "start with --keys DIR" in why_refused(gateway, None)

    assert gateway.status()["refused"]["keys"] == 1

    def are_counted() -> bool:
        why_refused(gateway, None)  # those of a gateway that has just started are forgiven
        return bool(gateway.status()["refused"]["handshakes"] >= 3)

    wait_for(are_counted, "count of failed handshakes", LOOKED_WITHIN_S)


def test_a_learner_without_keys_is_refused_by_those_who_have_some(
    tmp_path: Path, folder: Path
) -> None:
    with GatewayProcess(tmp_path) as gateway:
        gateway.status()
        assert "runs without keys" in why_refused(gateway, ClientKeys.read(folder))


def test_a_managers_id_belongs_to_the_key_that_used_it_first(
    gateway: GatewayProcess, manager: Callable[..., HonestManager]
) -> None:
    owner, thief = manager("a", "m"), manager("b", "m")
    owner.send_some(5)
    # A batch that is none counts against its sender only where that has reported.
    wait_for(lambda: gateway.status()["managers"], "the owner's report", LOOKED_WITHIN_S)
    spoofed = thief.batch(incarnation=owner.incarnation, seq=5)
    for message in (thief.batch(), spoofed, spoofed._replace(rows=0)):
        thief.push(message)
    for _ in range(40):  # as a manager does, twice a second
        thief.push(thief.report())
        if thief.hear_until(lambda: bool(thief.refusals), 0.5):
            break
    assert {(r.code, r.incarnation) for r in thief.refusals} == {("id", thief.incarnation)}
    owner.send_some(5)
    # The thief's come on another connection, and may be looked at after the owner's.
    wait_for(lambda: gateway.status()["refused"]["ids"] >= 4, "word of all four", LOOKED_WITHIN_S)
    status = gateway.status()
    assert status["samples"]["inserted"] == 200
    assert status["samples"]["rejected"] == 0
    assert all(refusal.incarnation != owner.incarnation for refusal in owner.refusals)

    gateway.process.kill()  # whose it is outlives the gateway
    gateway.process.wait()
    gateway.start()

    def is_refused_again() -> bool:
        thief.push(thief.report())  # again and again: one may go to the gateway that was killed
        return bool(gateway.status()["refused"]["ids"])

    owner.send_some(1)
    wait_for(is_refused_again, "word of it", LOOKED_WITHIN_S)


def test_a_key_taken_off_the_list_is_closed_out_while_others_go_on(
    gateway: GatewayProcess, folder: Path, manager: Callable[..., HonestManager]
) -> None:
    stays, goes = manager("a", "stays"), manager("b", "goes")
    stays.send_some(3)
    goes.send_some(3)
    remove_key(folder, "b")
    wait_for(lambda: "closing out b" in gateway.log, "word of it", LOOKED_WITHIN_S)
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
    wait_for(lambda: "key c is let in" in gateway.log, "word of it", LOOKED_WITHIN_S)
    manager("c", "late").send_some(2)


def test_a_gateway_that_starts_while_the_folder_is_missing_tells_nobody_to_give_up(
    gateway: GatewayProcess, folder: Path, manager: Callable[..., HonestManager]
) -> None:
    """Its client is not let in, is not refused for good either, and connects by itself once the
    folder is back; `StatusClient` raises where a manager ends with 3."""
    gateway.status()
    admitted = folder / "admitted"
    admitted.rename(folder / "away")
    gateway.end()
    gateway.start()
    wait_for(lambda: "others wait" in gateway.log, "a warning")
    waits = manager("a", "waits")
    with StatusClient(gateway.address, ClientKeys.read(folder / "hosts" / "b")) as asker:
        assert asker.ask(3.0) is None
        (folder / "away").rename(admitted)
        assert asker.ask(20) is not None
    waits.send_some(2)

"""Managers without a place, and two live managers with one id: real frames and no socket."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starts import spec_of  # of tests/support
from test_gateway_state import RUN_ID, acks, batch_frames, gateway, report_frames

from vedette.local.daemons import free_port
from vedette_protocol.codec import decode_control, encode
from vedette_protocol.limits import RETIRED_MAX
from vedette_protocol.messages import ActorReport, Refusal, Report
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.rows import MemoryRing
from vedette_services.config import RunConfig
from vedette_services.host.processes import WakeupEvent
from vedette_services.learner.gateway.fleet import BOTH_ALIVE_S
from vedette_services.learner.gateway.process import Gateway
from vedette_services.learner.gateway.state import GatewayState
from vedette_services.net.addresses import Address
from vedette_services.net.keys import make_keys
from vedette_services.run.directory import RunDirectory
from vedette_services.status.records import (
    GONE_AFTER_S,
    GatewayStatus,
    StatusRecordReader,
    TrainerStatus,
)
from vedette_services.status.wait_reason import describe_wait

RING = MemoryRing(np.dtype([("obs", np.float32)]), 8)


def join(
    state: GatewayState, manager: str, now: float, key: str = "", incarnation: int = 5
) -> None:
    """A manager reports, is granted batches, and sends one."""
    state.on_samples(report_frames(manager=manager, incarnation=incarnation), now, key)
    state.acks_due(now, 0)
    state.on_samples(batch_frames(0, manager=manager, incarnation=incarnation), now, key)
    state.blocks(now)


def refusals(state: GatewayState, now: float = 1.0) -> list[Refusal]:
    found = [decode_control([bytes(f) for f in m[1:]]) for m in state.acks_due(now, 0)]
    return [message for message in found if isinstance(message, Refusal)]


@pytest.mark.parametrize("frames", [report_frames, batch_frames])
def test_a_manager_that_finds_no_place_is_told_why(frames: object) -> None:
    state = gateway(admitted=(), max_managers=2)
    for manager in ("a", "b"):
        state.on_samples(report_frames(manager=manager), 1.0)
    late = (
        report_frames(manager="late")
        if frames is report_frames
        else batch_frames(0, manager="late")
    )
    state.on_samples(late, 1.0)
    [refusal] = refusals(state)
    assert (refusal.manager, refusal.incarnation, refusal.code) == ("late", 5, "place")
    assert "raise learner.max_managers" in refusal.reason
    assert (state.admission.places, state.garbage) == (1, 0)
    assert "no place for manager 'late'" in state.rejections.due_lines(2.0)[0]


def test_a_manager_whose_place_was_needed_while_it_was_silent_is_told_so() -> None:
    state = gateway(admitted=(), max_managers=1)
    join(state, "a", 1.0)
    state.tick(2.0 + GONE_AFTER_S)
    state.ledger.mark_gone("a")
    state.on_samples(report_frames(manager="b", incarnation=6), 20.0)
    state.on_samples(report_frames(manager="a"), 21.0)
    [refusal] = refusals(state, 21.0)
    assert (refusal.manager, refusal.incarnation) == ("a", 5)
    assert "was silent while other managers needed its place" in refusal.reason


def test_a_batch_is_not_stored_twice_however_many_managers_came_while_its_own_was_silent() -> None:
    """Its ack was lost. A thousand starts later nobody knows its incarnation any more."""
    state = gateway(admitted=(), max_managers=2)
    join(state, "robot", 1.0)
    now = 2.0
    for number in range(RETIRED_MAX + 3):
        now += 2 * GONE_AFTER_S
        state.tick(now)
        join(state, f"spot-{number}", now, incarnation=100 + number)
    assert "robot" not in state.ledger.manager_ids()
    inserted = state.accounting().inserted
    state.acks_due(now, 0)
    state.on_samples(report_frames(manager="robot", sequenced=1, limit=64), now)
    state.on_samples(batch_frames(0, manager="robot"), now)
    assert state.blocks(now) == []
    assert state.accounting().inserted == inserted
    refused = refusals(state, now + 1.0)
    assert {(each.manager, each.code) for each in refused} == {("robot", "place")}


def test_300_managers_of_one_key_are_all_served_and_another_key_finds_a_place() -> None:
    state = gateway(admitted=(), max_managers=301)
    state.admit_keys(["actors", "lab", "learner"])
    for number in range(300):
        state.on_samples(report_frames(manager=f"pod-{number}", incarnation=number), 1.0, "actors")
    held = state.ledger.places.held("actors")
    assert held == 301 - 2 * state.ledger.places.reserved  # the rest is refused with the reason
    state.on_samples(report_frames(manager="desk"), 1.0, "lab")
    assert state.ledger.has_account("desk", 5)

    state = gateway(admitted=())
    state.admit_keys(["actors", "lab", "learner"])
    for number in range(300):
        join(state, f"pod-{number}", 1.0 + number / 10, "actors", number)
    assert len(acks(state, 32.0)) == 300
    assert state.ledger.accounting().inserted == 1200


def test_an_honest_manager_goes_on_after_an_admitted_key_used_1100_ids() -> None:
    """It was silent for twelve seconds, its account was closed, and it hung for ever."""
    state = gateway(admitted=(), max_managers=1024)
    state.admit_keys(["evil", "lab", "learner"])
    join(state, "m0", 1.0, "lab")
    state.tick(13.0)
    for number in range(1100):
        frames = report_frames(manager=f"e{number}", incarnation=100 + number)
        state.on_samples(frames, 13.0 + number / 1000, "evil")
    for seq in (0, 1):
        state.on_samples(batch_frames(seq, manager="m0"), 15.0, "lab")
    state.blocks(15.0)
    accounting = state.ledger.accounting("m0")
    assert (accounting.inserted, accounting.duplicates) == (8, 4)
    assert "m0" not in {refusal.manager for refusal in refusals(state, 15.0)}
    assert "m0" in acks(state, 16.0)


def test_an_owner_that_the_ledger_lost_with_the_power_is_not_refused_in_an_impostors_place() -> (
    None
):
    before = gateway(admitted=())
    join(before, "m", 1.0, "good")
    state = gateway(stamp=before.stamp(), now=2.0)
    impostor = report_frames(manager="m", incarnation=6)  # the owner's, since the last sync
    state.on_samples(impostor, 2.5, "evil")
    assert refusals(state, 2.5) == []
    state.on_samples(impostor, 2.1 + GONE_AFTER_S, "evil")  # the owner has not come back
    assert [refusal.manager for refusal in refusals(state, 2.1 + GONE_AFTER_S)] == ["m"]
    assert state.admission.ids == 2


def both_report(state: GatewayState, seconds: float) -> float:
    """Two processes with one id report twice a second; returns when they have ended."""
    now = 1.0
    while now < 1.0 + seconds:
        state.on_samples(report_frames(incarnation=1, host="HOST1"), now)
        state.on_samples(report_frames(incarnation=2, host="HOST2"), now + 0.2)
        now += 0.5
    return now


def test_two_live_managers_with_one_id_are_named_and_the_later_one_is_refused() -> None:
    state = gateway()
    now = both_report(state, BOTH_ALIVE_S + 2.0)
    found = refusals(state, now)
    why = "two managers use the id m: HOST1 and HOST2"
    assert {(r.manager, r.incarnation, r.code) for r in found} == {("m", 2, "id")}
    assert all(refusal.reason.startswith(why) for refusal in found)
    assert state.admission.rivals == 1
    status = state.status(RING, 0, now)
    assert status.rivals.startswith(why)
    assert [m.host for m in status.managers] == ["HOST1"]
    assert any(why in line for line in state.rejections.due_lines(now))
    assert (
        sum("is here" in line.text for line in state.log_lines.waiting) <= 3
    )  # 246 of them before

    state.on_samples(batch_frames(0, incarnation=2), now)
    state.on_samples(batch_frames(0, incarnation=1), now)
    state.blocks(now)
    assert state.ledger.accounting().inserted == 4  # the earlier one's
    assert refusals(state, now + 1.0)[0].incarnation == 2  # told again, should it have missed it
    assert state.status(RING, 0, now + 120.0).rivals == ""


def test_a_manager_that_was_killed_and_started_again_is_one_though_reports_come_late() -> None:
    state = gateway()
    for tenth in range(20):
        state.on_samples(report_frames(incarnation=1), tenth / 10)
    for tenth in range(20, 80):
        state.on_samples(report_frames(incarnation=2), tenth / 10)
        if tenth < 40:  # what the killed one had handed to the kernel
            state.on_samples(report_frames(incarnation=1), tenth / 10)
    assert refusals(state) == []
    assert state.status(RING, 0, 8.0).rivals == ""


def test_a_manager_that_comes_back_after_another_has_taken_its_id_is_the_later_one() -> None:
    state = gateway()
    state.on_samples(report_frames(incarnation=1, host="ASLEEP"), 1.0)
    for second in range(2, 60):
        state.on_samples(report_frames(incarnation=2, host="REPLACEMENT"), float(second))
        if second > 40:
            state.on_samples(report_frames(incarnation=1, host="ASLEEP"), second + 0.5)
    assert {refusal.incarnation for refusal in refusals(state, 60.0)} == {1}


def test_texts_of_peers_forge_no_line_in_the_log_and_reach_no_terminal() -> None:
    state = gateway()
    error = "boom\nvedette.learner: FORGED\x1b[2J"
    report = Report(
        "m",
        5,
        "ho\x1b]0;x\x07st\r\nFORGED",
        "gone",
        RUN_ID,
        *[0] * 6,
        actors=(ActorReport(0, False, 0, 0, 0, 0, error=error),),
    )
    state.on_samples([bytes(frame) for frame in encode(report)], 1.0)
    manager = state.fleet.status(1.0)[0]
    for text in (state.log_lines.waiting[0].text, manager.host, manager.actors[0].error):
        assert text.isprintable()


@pytest.fixture
def real_gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with its sockets and ring, and keys for `lab`."""
    run = RunDirectory(tmp_path / "run")
    keys = tmp_path / "keys"
    run.make()
    make_keys(keys, ["lab"])
    table = {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}, "replay": {"capacity": 1000}}
    address = Address("127.0.0.1", free_port())
    spec = spec_of(run, RUN_ID, RunConfig.model_validate(table), address, keys)
    gateway = Gateway(spec, WakeupEvent())
    yield gateway
    gateway._sockets.close()
    gateway._ring.close()


def test_reserved_places_are_known_before_the_first_message(real_gateway: Gateway) -> None:
    """A gateway that came back took its first messages before its first tick."""
    places = real_gateway._state.ledger.places
    assert places.is_admitted("lab")
    assert places.reserved > 0


def test_a_disk_that_syncs_too_slowly_is_in_the_status(
    real_gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = StatusRecordReader(tmp_path / "run" / "live" / "ingest.map", GatewayStatus)
    real_gateway._tick(100.0)
    assert record.read().replay.disk_lag_s == 0.0
    monkeypatch.setattr(RingWriter, "room", property(lambda self: 0))
    real_gateway._tick(200.0)
    real_gateway._tick(205.0)
    assert record.read().replay.disk_lag_s == 5.0


def test_a_run_or_a_replay_that_is_not_where_it_was_is_in_the_status(
    real_gateway: Gateway, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    real_gateway._spec.run.ensure_id()
    owner = RunDirectory(root)
    owner.lock()
    real_gateway._spec.run.hold(owner.claim_token)
    record = StatusRecordReader(root / "live" / "ingest.map", GatewayStatus)

    def told(now: float) -> str:
        real_gateway._tick(now)
        return describe_wait(TrainerStatus(phase="training"), record.read())

    assert told(100.0) == ""
    shutil.rmtree(root / "replay")
    assert told(103.0).startswith(f"{root / 'replay'}: the replay was removed while its learner")
    root.rename(tmp_path / "elsewhere")
    assert told(106.0).startswith(f"{root}: it was renamed to {tmp_path / 'elsewhere'} while")
    (tmp_path / "elsewhere").rename(root)
    owner.unlock()
